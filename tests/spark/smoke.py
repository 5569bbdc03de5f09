"""The shortest whole way, for any supported Spark: `python smoke.py DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import pyspark_ivm


def main(root: Path) -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
    }
    spark = pyspark_ivm.configure(SparkSession.builder.master("local[2]").config(map=settings)).getOrCreate()
    spark.sql("CREATE TABLE c (c INT, region STRING) USING parquet")
    spark.sql("CREATE TABLE o (c INT, amount DECIMAL(9,2)) USING parquet")
    spark.sql("INSERT INTO c VALUES (1, 'north'), (2, 'south')")
    spark.sql("INSERT INTO o VALUES (1, 5), (2, 7)")
    query = "SELECT region, sum(amount) AS s, avg(amount) AS a FROM o JOIN c ON o.c = c.c GROUP BY region"
    spark.sql("CREATE INCREMENTAL VIEW v AS " + query)
    spark.sql("INSERT INTO o VALUES (1, 1.5)")
    row = spark.sql("REFRESH INCREMENTAL VIEW v").collect()[0]
    assert (row.version, row.kind, row.rows_in) == (1, "incremental", 1), row
    frame = spark.sql("SELECT * FROM v ORDER BY region")
    for _ in range(2):
        assert frame.collect() == spark.sql(query + " ORDER BY region").collect()
        spark.sql("INSERT INTO o VALUES (2, 2)")
    assert spark.sql("SELECT s FROM v WHERE region = :r", args={"r": "north"}).collect()[0].s == 13 / 2
    plan = spark.sql("EXPLAIN SELECT region FROM v WHERE region = 'north'").collect()[0][0]
    assert "IncrementalViewScan" in plan and "strategy: yannakakis" in plan, plan
    assert "Strategy: yannakakis" in spark.sql("EXPLAIN CREATE INCREMENTAL VIEW w AS " + query).collect()[0][0]
    try:
        spark.sql("CREATE INCREMENTAL VIEW w (a, b) AS SELECT region FROM c")
        raise AssertionError("two names for one column")
    except AnalysisException as error:
        assert error.getCondition() == "CREATE_VIEW_COLUMN_ARITY_MISMATCH.NOT_ENOUGH_DATA_COLUMNS", error
    spark.sql("DROP INCREMENTAL VIEW v")
    print("SMOKE OK", spark.version)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
