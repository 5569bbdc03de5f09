"""Long work shows itself, can be cancelled, and leaves nothing half done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.images import at_fault_points

QUERY = "SELECT k, sum(x) AS s FROM t GROUP BY k"
#: the workers take a rest before they write
SLOW = '[ "$1" != file.begin ] || sleep 30; exit 0'


def states(shop) -> dict[str, str]:
    return {r.viewName: r.state for r in shop.sql("SHOW INCREMENTAL VIEWS").collect()}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.time() + 60
    while not condition():
        assert time.time() < end
        time.sleep(0.05)


@contextmanager
def cancelled(shop, statement: str) -> Iterator[None]:
    """The statement runs in a job group of its own during the block, and is cancelled at its end."""
    spark = shop.spark
    failed: list[BaseException] = []

    def run() -> None:
        spark.sparkContext.setJobGroup("long work", statement, interruptOnCancel=True)
        try:
            spark.sql(statement).collect()
        except BaseException as e:
            failed.append(e)

    from pyspark import InheritableThread

    with at_fault_points(SLOW):
        thread = InheritableThread(target=run)
        thread.start()
        yield
        end = time.time() + 25  # sooner than the sleepers wake up
        while thread.is_alive() and time.time() < end:
            spark.sparkContext.cancelJobGroup("long work")  # only jobs that run already are cancelled
            thread.join(0.2)
    assert failed and "cancelled" in str(failed[0]), failed


@pytest.fixture
def table(shop):
    shop.sql("CREATE TABLE t (k INT, x INT) USING parquet", "INSERT INTO t VALUES (1, 1), (2, 2)")
    return shop


def test_cancelling_a_create_leaves_nothing(table, tmp_path: Path) -> None:
    table.spark.conf.set("spark.sql.ivm.stateLocation", str(tmp_path))
    try:
        with cancelled(table, f"CREATE INCREMENTAL VIEW v AS {QUERY}"):
            wait_for(lambda: states(table) == {"v": "building"})
            assert table.rows("SHOW INCREMENTAL VIEWS LIKE 'w*'") == []
        assert states(table) == {}
        assert {p.name for p in tmp_path.rglob("*") if p.is_file()} <= {"DROPPED"}
        assert "v" not in [r.tableName for r in table.sql("SHOW TABLES").collect()]
        table.sql(f"CREATE INCREMENTAL VIEW v AS {QUERY}")
        table.same(QUERY)
    finally:
        table.spark.conf.unset("spark.sql.ivm.stateLocation")


@pytest.mark.parametrize("full", ["", " FULL"])
def test_cancelling_a_refresh_leaves_the_view_as_it_was(table, full: str) -> None:
    table.sql(f"CREATE INCREMENTAL VIEW v REFRESH ON DEMAND AS {QUERY}", "INSERT INTO t VALUES (1, 10)")
    with cancelled(table, "REFRESH INCREMENTAL VIEW v" + full):
        wait_for(lambda: states(table) == {"v": "refreshing"})
    assert states(table)["v"].startswith("failed: ")
    assert table.rows("SELECT * FROM v") == [(1, 1), (2, 2)]
    assert table.refreshed() == (1, "incremental", "CHANGES_APPLIED")
    assert states(table) == {"v": "ready"}
    table.same(QUERY)


def test_a_failed_refresh_shows(table) -> None:
    table.sql(f"CREATE INCREMENTAL VIEW v REFRESH ON DEMAND AS {QUERY}", "DROP TABLE t")
    table.refused("REFRESH INCREMENTAL VIEW v", "IVM_SOURCE_MISSING")
    assert states(table) == {"v": "failed: IVM_SOURCE_MISSING"}
    assert table.rows("SELECT * FROM v") == [(1, 1), (2, 2)]


def test_a_full_disk_fails_the_refresh_and_nothing_else(table) -> None:
    table.sql(f"CREATE INCREMENTAL VIEW v REFRESH ON DEMAND AS {QUERY}")
    for step in ("file.half", "manifest.written", "commit.written"):
        table.sql("INSERT INTO t VALUES (1, 10), (3, 3)")
        before = table.version()
        with at_fault_points(f'[ "$1" != {step} ]'), pytest.raises(Exception, match="No space left on device"):
            table.refresh()
        assert table.version() == before
        report = table.refresh()
        assert (report.kind, report.rows_in) == ("incremental", 2)
        table.same(QUERY)
