"""The view among tables: what is refused, what only looks, and the leaf a query gets."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.statements.conftest import condition

# ---- the view among tables ------------------------------------------------------------------------------------------

REFUSED = [
    ("INSERT INTO v VALUES (1)", "INSERT"),
    ("INSERT OVERWRITE v SELECT 1", "INSERT OVERWRITE"),
    ("WITH x AS (SELECT 1 AS a) INSERT INTO v SELECT a FROM x", "INSERT"),
    ("INSERT INTO IDENTIFIER('v') VALUES (1)", "INSERT"),
    ("UPDATE v SET a = 1", "UPDATE"),
    ("DELETE FROM v WHERE a = 1", "DELETE"),
    ("MERGE INTO v AS x USING t ON x.a = t.a WHEN MATCHED THEN DELETE", "MERGE"),
    ("TRUNCATE TABLE v", "TRUNCATE TABLE"),
    ("DROP TABLE v", "DROP TABLE"),
    ("DROP TABLE IF EXISTS statements.v PURGE", "DROP TABLE"),
    ("DROP TABLE IDENTIFIER('v' || '')", "DROP TABLE"),
    ("DROP VIEW v", "DROP VIEW"),
    ("ALTER TABLE v ADD COLUMNS (z INT)", "ALTER TABLE"),
    ("ALTER TABLE v RENAME TO u", "ALTER TABLE"),
    ("ALTER TABLE v SET TBLPROPERTIES ('a' = 'b')", "ALTER TABLE"),
    ("ALTER TABLE v SET LOCATION '/tmp/x'", "ALTER TABLE"),
    ("ALTER VIEW v AS SELECT 1", "ALTER VIEW"),
    ("ALTER VIEW v SET TBLPROPERTIES ('a' = 'b')", "ALTER VIEW"),
    ("COMMENT ON TABLE v IS 'x'", "COMMENT ON TABLE"),
    ("CACHE TABLE v", "CACHE TABLE"),
    ("CACHE LAZY TABLE v", "CACHE TABLE"),
    ("ANALYZE TABLE v COMPUTE STATISTICS", "ANALYZE TABLE"),
    ("ANALYZE TABLE v COMPUTE STATISTICS FOR ALL COLUMNS", "ANALYZE TABLE"),
    ("MSCK REPAIR TABLE v", "MSCK REPAIR TABLE"),
    ("LOAD DATA INPATH '/tmp/x' INTO TABLE v", "LOAD DATA"),
    ("CREATE INDEX i ON v (a)", "CREATE INDEX"),
    ("REPLACE TABLE v (a INT) USING parquet", "REPLACE TABLE"),
    ("CREATE TABLE u LIKE v", "CREATE TABLE LIKE"),
]


@pytest.mark.parametrize(("sql", "statement"), REFUSED)
def test_refused(spark: SparkSession, sql: str, statement: str) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    with pytest.raises(AnalysisException) as e:
        spark.sql(sql)
    assert condition(e) == "IVM_STATEMENT_NOT_ALLOWED", str(e.value)
    assert e.value.getMessageParameters()["statement"].startswith(statement)
    assert "spark_catalog.statements.v" in e.value.getMessageParameters()["instead"]
    assert len(spark.sql("SHOW INCREMENTAL VIEWS").collect()) == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda df: df.write.insertInto("v"),
        lambda df: df.write.mode("overwrite").insertInto("v"),
        lambda df: df.write.mode("append").saveAsTable("v"),
        lambda df: df.write.mode("overwrite").saveAsTable("v"),
        lambda df: df.writeTo("v").append(),
        lambda df: df.writeTo("v").createOrReplace(),
    ],
)
def test_writers_are_refused(spark: SparkSession, write) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    with pytest.raises(AnalysisException) as e:
        write(spark.range(1).selectExpr("CAST(id AS INT) AS a"))
    assert condition(e) == "IVM_STATEMENT_NOT_ALLOWED", str(e.value)
    assert len(spark.sql("SHOW INCREMENTAL VIEWS").collect()) == 1


def test_looking_is_allowed(spark: SparkSession) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v COMMENT 'c' AS SELECT a FROM t")
    assert ("v", False) in [(r.tableName, r.isTemporary) for r in spark.sql("SHOW TABLES").collect()]
    for sql in (
        "DESCRIBE v", "DESCRIBE EXTENDED v", "DESCRIBE v a", "SHOW TBLPROPERTIES v", "SHOW COLUMNS IN v", "SHOW CREATE TABLE v",
        "SHOW TABLE EXTENDED LIKE 'v'",
    ):  # fmt: skip
        assert spark.sql(sql).collect(), sql
    spark.sql("REFRESH TABLE v")
    spark.sql("UNCACHE TABLE IF EXISTS v")
    spark.sql("CREATE VIEW over_v AS SELECT x.a FROM v AS x JOIN v AS y ON x.a = y.a")
    assert spark.table("over_v").columns == ["a"]
    spark.sql("DROP VIEW over_v")
    spark.range(1).selectExpr("1 AS a").write.mode("ignore").saveAsTable("v")
    assert [t.name for t in spark.catalog.listTables() if t.name == "v"] == ["v"]
    spark.range(1).createOrReplaceTempView("v")
    spark.sql("DROP VIEW v")  # the temporary one
    assert spark.table("v").columns == ["a"]


def analyzed(df: DataFrame):
    return df._jdf.queryExecution().analyzed()


def test_the_leaf(spark: SparkSession) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    one, two = spark.table("v"), spark.table("v")
    assert "IncrementalView spark_catalog.statements.v [a#" in analyzed(one).toString()
    assert not analyzed(one).sameResult(analyzed(two)), "no cached DataFrame may answer another query"
    assert analyzed(one).sameResult(analyzed(one).clone()), "but its own queries it may"
    joined = spark.sql("SELECT x.a, y.a AS b FROM v x JOIN v y ON x.a = y.a WHERE x.a IN (SELECT a FROM v)")
    assert analyzed(joined).toString().count("IncrementalView spark_catalog") == 3
    assert analyzed(one.join(one, "a")).toString().count("IncrementalView spark_catalog") == 2
    for sql in ("CREATE TABLE u USING parquet AS SELECT * FROM v", "INSERT INTO t SELECT a, 'x' FROM v"):
        state = spark._jsparkSession.sessionState()
        assert "IncrementalView spark_catalog" in state.analyzer().execute(state.sqlParser().parsePlan(sql)).toString()


def test_another_session_sees_the_replacement(spark: SparkSession) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    other = spark.newSession()
    other.sql("USE statements")
    assert other.table("v").columns == ["a"]
    spark.sql("CREATE OR REPLACE INCREMENTAL VIEW v AS SELECT b, a FROM t")
    assert other.table("v").columns == ["b", "a"]


def test_the_provider_is_no_data_source(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as e:
        spark.read.format("ivm").load()
    assert condition(e) == "IVM_NOT_A_DATA_SOURCE"


def test_drop_schema_cascade(spark: SparkSession) -> None:
    spark.sql("CREATE DATABASE gone")
    spark.sql("CREATE INCREMENTAL VIEW gone.v AS SELECT a FROM statements.t")
    spark.sql("DROP DATABASE gone CASCADE")
    with pytest.raises(AnalysisException):
        spark.sql("DESCRIBE INCREMENTAL VIEW gone.v")
