"""What a view refuses, and the statement that each refusal names instead."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tests.spark.conftest import SALES, Shop

REFUSED = {
    "INSERT INTO v VALUES ('x', 1, 1)": "tables of its query",
    "INSERT OVERWRITE v VALUES ('x', 1, 1)": "tables of its query",
    "UPDATE v SET n = 1": "tables of its query",
    "DELETE FROM v WHERE n = 1": "tables of its query",
    "MERGE INTO v USING orders o ON v.n = o.o WHEN MATCHED THEN DELETE": "tables of its query",
    "TRUNCATE TABLE v": "tables of its query",
    "DROP TABLE v": "DROP INCREMENTAL VIEW",
    "DROP VIEW v": "DROP INCREMENTAL VIEW",
    "ALTER TABLE v ADD COLUMNS (x INT)": "ALTER INCREMENTAL VIEW",
    "ALTER TABLE v RENAME TO w": "ALTER INCREMENTAL VIEW",
    "ALTER TABLE v SET TBLPROPERTIES ('a' = 'b')": "ALTER INCREMENTAL VIEW",
    "COMMENT ON TABLE v IS 'x'": "ALTER INCREMENTAL VIEW",
    "CACHE TABLE v": "REFRESH INCREMENTAL VIEW",
    "CACHE LAZY TABLE v": "REFRESH INCREMENTAL VIEW",
    "ANALYZE TABLE v COMPUTE STATISTICS": "DESCRIBE EXTENDED INCREMENTAL VIEW",
    "MSCK REPAIR TABLE v": "REFRESH INCREMENTAL VIEW",
}


def test_statements_on_the_view(sales: Shop) -> None:
    for statement, instead in REFUSED.items():
        sales.refused(statement, "IVM_STATEMENT_NOT_ALLOWED", instead)
    sales.same(SALES)


def test_cache_table_of_the_catalog_api_keeps_nothing(sales: Shop) -> None:
    """`spark.catalog.cacheTable` is no statement that could be refused; it caches a reading nobody else ever shares."""
    sales.spark.catalog.cacheTable("v")
    sales.same(SALES)
    sales.sql("INSERT INTO orders VALUES (77, 1, 1)")
    sales.same(SALES)
    assert "InMemory" not in sales.plan("SELECT * FROM v")


def test_dataframe_writers(sales: Shop) -> None:
    frame = sales.spark.sql("SELECT 'x' AS region, CAST(1 AS DECIMAL(19,2)) AS total, 1L AS n")
    for write in (
        lambda: frame.write.insertInto("v"),
        lambda: frame.write.mode("append").saveAsTable("v"),
        lambda: frame.write.mode("overwrite").saveAsTable("v"),
        lambda: frame.writeTo("v").append(),
    ):
        with pytest.raises(PySparkException) as error:
            write()
        assert error.value.getCondition() == "IVM_STATEMENT_NOT_ALLOWED", str(error.value)
    sales.same(SALES)


def test_definitions_that_shared_state_cannot_hold(sales: Shop) -> None:
    sales.sql("CREATE OR REPLACE TEMP VIEW passing AS SELECT 1 AS a")
    sales.spark.udf.register("passing_f", lambda x: x, "int")
    for query, condition, said in (
        ("SELECT * FROM passing", "IVM_TEMP_VIEW", "passing"),
        ("SELECT region FROM customers WHERE c IN (SELECT a FROM passing)", "IVM_TEMP_VIEW", "passing"),
        ("SELECT passing_f(c) FROM customers", "IVM_TEMP_FUNCTION", "passing_f"),
        ("SELECT * FROM customers WHERE region = current_user()", "IVM_SESSION_DEPENDENT", "current_user()"),
        ("SELECT * FROM v", "IVM_VIEW_OVER_VIEW", "v"),
        ("SELECT * FROM (SELECT n FROM v) x", "IVM_VIEW_OVER_VIEW", "v"),
    ):
        sales.refused(f"CREATE INCREMENTAL VIEW bad AS {query}", condition, said)
        assert not sales.spark.catalog.tableExists("bad")
    sales.sql("CREATE VIEW over AS SELECT n FROM v")
    sales.refused("CREATE INCREMENTAL VIEW bad AS SELECT * FROM over", "IVM_VIEW_OVER_VIEW")
    sales.sql("DROP VIEW passing")


def test_paths_with_patterns(shop: Shop, tmp_path) -> None:
    for part in ("a1", "a2"):
        shop.spark.range(3).write.parquet(str(tmp_path / part))
    for pattern in ("a*", "a?", "{a1,a2}", "a[12]"):
        shop.refused(f"CREATE INCREMENTAL VIEW v AS SELECT * FROM parquet.`{tmp_path}/{pattern}`", "IVM_PATH_PATTERN", pattern)
    shop.sql(f"CREATE INCREMENTAL VIEW v AS SELECT id FROM parquet.`{tmp_path}/a1`")
    shop.same(f"SELECT id FROM parquet.`{tmp_path}/a1`")
