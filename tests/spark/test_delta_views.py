"""Views over Delta tables: whatever a statement does to the files, the refresh takes just the rows that moved."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import Shop, bag

pytestmark = pytest.mark.delta

QUERY = "SELECT k, p, count(*) AS n, sum(x) AS s FROM t GROUP BY k, p"

FORMS = {
    "feed": "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'false'",
    "feed and vectors": "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true'",
    "files": "'delta.enableChangeDataFeed' = 'false', 'delta.enableDeletionVectors' = 'false'",
    "vectors": "'delta.enableChangeDataFeed' = 'false', 'delta.enableDeletionVectors' = 'true'",
    "mapped": "'delta.enableDeletionVectors' = 'false', 'delta.columnMapping.mode' = 'name'",
    "mapped vectors": "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'",
}


def forms(names: Iterable[str]) -> list[Any]:
    """Two of them in the fast suite: a change feed, and files with deletion vectors."""
    return [name if name in ("feed", "vectors") else pytest.param(name, marks=pytest.mark.slow) for name in names]


APPLIED, NOTHING = ("incremental", "CHANGES_APPLIED"), ("none", "NO_CHANGES")

STEPS = [
    ("INSERT INTO {t} VALUES (1, 1000, 'e'), (1, 1000, 'e'), (NULL, NULL, NULL)", APPLIED),
    ("UPDATE {t} SET x = x + 100 WHERE x = 7", APPLIED),
    ("DELETE FROM {t} WHERE k = 3", APPLIED),
    (
        "MERGE INTO {t} t USING (VALUES (1), (2), (500) AS s(x)) s ON t.x = s.x WHEN MATCHED AND s.x = 1 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET k = 4 WHEN NOT MATCHED THEN INSERT (k, x, p) VALUES (9, s.x, 'o o')",
        APPLIED,
    ),
    ("OPTIMIZE {t}", NOTHING),
    ("OPTIMIZE {t} ZORDER BY (x)", NOTHING),
    ("DELETE FROM {t} WHERE p = 'o o'", APPLIED),
    ("ALTER TABLE {t} ADD COLUMNS (more STRING)", NOTHING),
    ("INSERT INTO {t} VALUES (1, 1000, 'e', 'm')", APPLIED),
    ("INSERT INTO {t} REPLACE WHERE p = 'e' SELECT k, x, p, 'r' FROM {t} WHERE p = 'e' AND x < 20", APPLIED),
    ("RESTORE TABLE {t} TO VERSION AS OF 1", APPLIED),
]


def filled(shop: Shop, form: str, table: str = "t") -> None:
    shop.sql(
        f"CREATE TABLE {table} (k INT, x INT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES ({FORMS[form]})",
        f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ int(id % 5), int(id), if(id % 2 = 0, 'e', 'o o') FROM range(40)",
    )


def moved(shop: Shop, table: str, statement: str) -> int:
    """Runs the statement; how many rows it inserted and deleted, an update being both."""
    columns = f"SELECT k, x, p FROM {table}"
    before = bag(shop.sql(columns))
    shop.sql(statement.format(t=table))
    after = bag(shop.sql(columns))
    return ((before - after) + (after - before)).total()


def follow(shop: Shop, table: str, query: str, steps: list[tuple[str, tuple[str, str]]]) -> None:
    for statement, outcome in steps:
        rows = moved(shop, table, statement)
        work = shop.counted(shop.refresh)
        assert (work.result.kind, work.result.reason) == outcome, statement
        assert work.result.rows_in == rows, statement
        if outcome == NOTHING:
            assert (work.jobs, work.rows_read) == (0, 0), statement
        shop.same(query)


@pytest.mark.parametrize("form", forms(FORMS))
def test_every_statement(shop: Shop, form: str) -> None:
    filled(shop, form)
    shop.sql(f"CREATE INCREMENTAL VIEW v REFRESH POLICY INCREMENTAL STRICT AS {QUERY}")
    kind = "delta-cdf" if form.startswith("feed") else "delta-files"
    assert shop.described()[f"source.spark_catalog.{shop.schema}.t"].startswith(kind)
    follow(shop, "t", QUERY, STEPS)


@pytest.mark.parametrize("form", forms(["feed", "files", "vectors"]))
def test_several_statements_are_one_change(shop: Shop, form: str) -> None:
    """Files come, are moved by OPTIMIZE and come back: what counts is what is there in the end."""
    filled(shop, form)
    shop.sql(f"CREATE INCREMENTAL VIEW v AS {QUERY}")
    steps = [s.format(t="t") for s, _ in STEPS[1:7]]
    rows = moved(shop, "t", steps[0])
    shop.sql(*steps[1:], "RESTORE TABLE t TO VERSION AS OF 2")
    row = shop.refresh()
    assert (row.kind, row.rows_in) == ("incremental", rows)
    shop.same(QUERY)


@pytest.mark.parametrize("form", forms(["feed", "vectors", "mapped vectors"]))
def test_create_or_replace(shop: Shop, form: str) -> None:
    filled(shop, form)
    shop.sql(f"CREATE INCREMENTAL VIEW v AS {QUERY}")
    replace = (
        f"CREATE OR REPLACE TABLE t USING delta TBLPROPERTIES ({FORMS[form]}) AS SELECT k, x, p FROM t WHERE x < 30"
    )
    shop.sql(replace)
    kind, reason = shop.refreshed()[1:]
    assert kind == "incremental" and reason in ("CHANGES_APPLIED", "RESYNC_TABLE_RECREATED", "RESYNC_HISTORY_LOST")
    shop.same(QUERY)
    follow(shop, "t", QUERY, [("DELETE FROM {t} WHERE x = 4", APPLIED)])
    shop.sql("CREATE OR REPLACE TABLE t (k INT, p STRING) USING delta")
    shop.refused("REFRESH INCREMENTAL VIEW v", "IVM_SOURCE_SCHEMA_CHANGED", "x")


@pytest.mark.parametrize("form", forms(["files", "vectors"]))
def test_path_and_shallow_clone(shop: Shop, tmp_path: Path, form: str) -> None:
    """The clone's files and vectors lie in the other table's directory, under absolute names."""
    filled(shop, form)
    shop.sql("DELETE FROM t WHERE x = 11")
    path = f"delta.`{tmp_path}/clone of %20t`"
    shop.sql(f"CREATE TABLE {path} SHALLOW CLONE t")
    query = QUERY.replace(" t ", f" {path} ")
    shop.sql(f"CREATE INCREMENTAL VIEW v AS {query}")
    assert shop.described()[f"source.{path}"].startswith("delta-files")
    follow(shop, path, query, [s for s in STEPS if "RESTORE" not in s[0]])


@pytest.mark.parametrize("form", forms(["files", "vectors"]))
def test_schema_evolution(shop: Shop, form: str) -> None:
    filled(shop, form)
    shop.sql(f"CREATE INCREMENTAL VIEW v AS {QUERY}")
    wider = shop.sql("SELECT 1 AS k, 77 AS x, 'e' AS p, 'more' AS extra")
    wider.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable("t")
    assert shop.refreshed()[1:] == APPLIED
    shop.same(QUERY)
    follow(shop, "t", QUERY, [("DELETE FROM {t} WHERE extra = 'more'", APPLIED)])
