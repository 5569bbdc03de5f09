"""Structured Streaming: a micro-batch goes into a base table, and the view is refreshed with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.conftest import SALES, Shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "o INT, c INT, amount DECIMAL(9,2)"


def test_each_micro_batch_refreshes_the_view(sales: Shop, tmp_path: Path) -> None:
    """Three files, one a batch: an order for each of three customers, the last of them unknown until then."""
    spark, told = sales.spark, []
    arrivals = str(tmp_path / "arrivals")
    for o, c in ((20, 1), (21, 2), (22, 5)):
        spark.createDataFrame([(o, c, 3)], "o INT, c INT, a INT").selectExpr(
            "o", "c", "CAST(a AS DECIMAL(9,2)) AS amount"
        ).coalesce(1).write.mode("append").parquet(arrivals)

    def absorb(batch: DataFrame, number: int) -> None:
        # The stream has a session of its own; another one's plain query of the table would need REFRESH TABLE first.
        stream = Shop(batch.sparkSession, sales.schema)
        batch.write.insertInto(f"{sales.schema}.orders")
        if number == 2:
            stream.sql("INSERT INTO customers VALUES (5, 'west')")
        told.append((number, stream.refresh().kind, stream.rows("SELECT * FROM v") == stream.rows(SALES)))

    query = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(arrivals)
        .writeStream.foreachBatch(absorb)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert told == [(number, "incremental", True) for number in range(3)]
    assert sales.version() == 3
    assert ("west", 3, 1) in sales.rows("SELECT region, int(total), n FROM v")
    sales.sql("REFRESH TABLE orders", "REFRESH TABLE customers")
    sales.same(SALES)
