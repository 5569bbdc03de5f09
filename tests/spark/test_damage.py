"""A state that is not what it was: found out, said, and built anew from the tables."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.spark.conftest import SALES, Shop


def generation(shop: Shop) -> Path:
    return Path(shop.described(extended="EXTENDED")["location"])


def forget_cached_states(shop: Shop) -> None:
    """Workers that held the state in memory would not look at the file: they are killed, and Spark starts new ones."""
    driver = shop.spark._jvm.java.lang.ProcessHandle.current()
    for process in driver.descendants().toArray():
        parent = process.parent()
        if parent.isPresent() and "pyspark.daemon pyspark.worker" in parent.get().info().commandLine().orElse(""):
            process.destroyForcibly()
            end = time.time() + 30
            while process.isAlive() and time.time() < end:  # Spark would still hand it out
                time.sleep(0.01)


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-200] ^= 0x40
    file.write_bytes(bytes(data))


DAMAGES = {
    "removed": lambda file: file.unlink(),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-64]),
    "altered": flip_a_byte,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_reading_a_damaged_state_rebuilds_it(sales: Shop, damage: str) -> None:
    [checkpoint] = generation(sales).glob("b00/checkpoints/p000/*.ivm")
    DAMAGES[damage](checkpoint)
    forget_cached_states(sales)
    sales.same(SALES)
    last = sales.history()[-1]
    assert (last.kind, last.reason) == ("full", "STATE_DAMAGED")


def test_refreshing_a_damaged_state_rebuilds_it(sales: Shop) -> None:
    [checkpoint] = generation(sales).glob("b00/checkpoints/p000/*.ivm")
    flip_a_byte(checkpoint)
    forget_cached_states(sales)
    sales.sql("INSERT INTO orders VALUES (14, 2, 100)")
    assert sales.refreshed() == (1, "full", "STATE_DAMAGED")
    sales.same(SALES)
    sales.sql("INSERT INTO orders VALUES (15, 2, 100)")
    assert sales.refreshed() == (2, "incremental", "CHANGES_APPLIED")
    sales.same(SALES)


def test_a_damaged_state_that_reads_may_not_rebuild_is_an_error(sales: Shop) -> None:
    sales.sql("ALTER INCREMENTAL VIEW v REFRESH ON DEMAND")
    [checkpoint] = generation(sales).glob("b00/checkpoints/p000/*.ivm")
    flip_a_byte(checkpoint)
    forget_cached_states(sales)
    sales.refused("SELECT * FROM v", "IVM_STATE_DAMAGED", str(checkpoint), "REFRESH INCREMENTAL VIEW")
    row = sales.refresh(full=True)
    assert (row.kind, row.reason) == ("full", "REQUESTED")
    sales.same(SALES)


@pytest.mark.parametrize("policy", ["AUTO", "INCREMENTAL STRICT"])
def test_a_damaged_commit(sales: Shop, policy: str) -> None:
    sales.sql(f"ALTER INCREMENTAL VIEW v REFRESH POLICY {policy}")
    old = generation(sales)
    commit = old / "commits" / f"{0:020d}"
    commit.write_text(commit.read_text()[:-100])
    sales = as_another_driver(sales, old)
    sales.refused("SELECT * FROM v", "IVM_STATE_DAMAGED", commit.name)
    if policy == "INCREMENTAL STRICT":
        sales.refused("REFRESH INCREMENTAL VIEW v", "IVM_STATE_DAMAGED")
    row = sales.refresh(full=policy == "INCREMENTAL STRICT")
    assert (row.version, row.kind, row.reason) == (0, "full", "STATE_DAMAGED")
    assert generation(sales) != old
    sales.same(SALES)
    assert sales.history()[-1].reason == "STATE_DAMAGED"


def as_another_driver(shop: Shop, location: Path) -> Shop:
    """With nothing in memory of what lies at the location."""
    shop.spark._jvm.org.apache.spark.sql.ivm.execution.CommitLogs.forget(str(location))
    other = Shop(shop.spark.newSession(), shop.schema)
    other.sql(f"USE {shop.schema}")
    return other


def test_a_vanished_state(sales: Shop) -> None:
    import shutil

    old = generation(sales)
    shutil.rmtree(old)
    sales = as_another_driver(sales, old)
    sales.refused("SELECT * FROM v", "IVM_STATE_MISSING", "REFRESH INCREMENTAL VIEW")
    assert sales.refreshed() == (0, "full", "STATE_DAMAGED")
    sales.same(SALES)
