"""What the statements do, in which order, and what they answer."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.statements.conftest import calls, condition, described

# ---- what they do, in which order -----------------------------------------------------------------------------------


def test_create_builds_the_state_then_the_entry(spark: SparkSession, engine) -> None:
    engine.setFailing("create")
    with pytest.raises(Exception, match="failed as asked"):
        spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    assert [c.split()[0] for c in calls(engine)] == ["create", "drop"]
    assert engine.locations() == "" and spark.sql("SHOW INCREMENTAL VIEWS").collect() == []


def test_existing_names(spark: SparkSession, engine) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    spark.sql("CREATE INCREMENTAL VIEW IF NOT EXISTS v AS SELECT nonsense FROM nowhere")
    assert len(calls(engine, "create")) == 1
    for name in ("v", "t"):
        with pytest.raises(AnalysisException) as e:
            spark.sql(f"CREATE INCREMENTAL VIEW {name} AS SELECT a FROM t")
        assert condition(e) == "TABLE_OR_VIEW_ALREADY_EXISTS"
    with pytest.raises(AnalysisException) as e:
        spark.sql("CREATE OR REPLACE INCREMENTAL VIEW t AS SELECT 1 AS x")
    assert condition(e) == "IVM_NOT_INCREMENTAL_VIEW"
    for sql in (
        "CREATE TABLE v (a INT) USING parquet",
        "CREATE VIEW v AS SELECT 1 AS x",
        "CREATE TABLE v USING parquet AS SELECT 1 AS x",
    ):
        with pytest.raises(AnalysisException) as e:
            spark.sql(sql)
        assert condition(e) == "TABLE_OR_VIEW_ALREADY_EXISTS"


@pytest.mark.parametrize(
    "sql",
    ["CREATE OR REPLACE INCREMENTAL VIEW v AS SELECT b, a FROM t", "ALTER INCREMENTAL VIEW v AS SELECT b, a FROM t"],
)
def test_replacing_builds_beside_then_switches_then_drops(spark: SparkSession, engine, sql: str) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    old = described(spark, "v")
    engine.setFailing("create")
    with pytest.raises(Exception, match="failed as asked"):
        spark.sql(sql)
    assert described(spark, "v") == old
    engine.forget()
    spark.sql(sql)
    assert [c.split()[0] for c in calls(engine)] == ["create", "drop", "settle"]
    assert calls(engine)[1].endswith(old["location"])
    new = described(spark, "v")
    assert new["query"] == "SELECT b, a FROM t" and new["location"] != old["location"]
    assert (new["view_id"] == old["view_id"]) == sql.startswith("ALTER")
    assert spark.table("v").columns == ["b", "a"]
    assert [r.col_name for r in spark.sql("SHOW COLUMNS IN v").collect()] == ["b", "a"]
    assert [r.col_name for r in spark.sql("DESCRIBE v").collect()] == ["b", "a"]


def test_drop_rename_suspend(spark: SparkSession, engine) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    location = described(spark, "v")["location"]
    spark.sql("ALTER INCREMENTAL VIEW v RENAME TO w")
    assert described(spark, "w")["location"] == location
    with pytest.raises(AnalysisException) as e:
        spark.sql("ALTER INCREMENTAL VIEW w RENAME TO t")
    assert condition(e) == "TABLE_OR_VIEW_ALREADY_EXISTS"
    with pytest.raises(AnalysisException) as e:
        spark.sql("ALTER INCREMENTAL VIEW w RENAME TO default.w")
    assert condition(e) == "IVM_RENAME_ACROSS_SCHEMAS"
    spark.sql("ALTER INCREMENTAL VIEW w SUSPEND")
    assert spark.sql("SHOW INCREMENTAL VIEWS").collect()[0].state == "suspended"
    with pytest.raises(AnalysisException) as e:
        spark.sql("REFRESH INCREMENTAL VIEW w")
    assert condition(e) == "IVM_VIEW_SUSPENDED" and e.value.getSqlState() == "55000"
    spark.sql("ALTER INCREMENTAL VIEW w RESUME")
    assert spark.sql("REFRESH INCREMENTAL VIEW w").collect()[0].version == 1
    spark.sql("DROP INCREMENTAL VIEW w")
    assert calls(engine)[-1] == f"drop spark_catalog.statements.w {location}" and engine.locations() == ""
    spark.sql("DROP INCREMENTAL VIEW IF EXISTS w")
    for sql in ("DROP INCREMENTAL VIEW w", "REFRESH INCREMENTAL VIEW nope.w", "DESCRIBE INCREMENTAL VIEW w"):
        with pytest.raises(AnalysisException) as e:
            spark.sql(sql)
        assert condition(e) == "TABLE_OR_VIEW_NOT_FOUND"
    with pytest.raises(AnalysisException) as e:
        spark.sql("DROP INCREMENTAL VIEW IF EXISTS t")
    assert condition(e) == "IVM_NOT_INCREMENTAL_VIEW"


def test_alter_properties_and_refresh(spark: SparkSession, engine) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v TBLPROPERTIES ('x' = '1', 'y' = '2') AS SELECT a FROM t")
    spark.sql("ALTER INCREMENTAL VIEW v SET TBLPROPERTIES ('x' = '3', 'comment' = 'said')")
    spark.sql("ALTER INCREMENTAL VIEW v UNSET TBLPROPERTIES IF EXISTS ('y', 'z')")
    after = described(spark, "v")
    assert after["property.x"] == "3" and "property.y" not in after and after["comment"] == "said"
    with pytest.raises(AnalysisException) as e:
        spark.sql("ALTER INCREMENTAL VIEW v SET TBLPROPERTIES ('ivm.view.id' = '0')")
    assert condition(e) == "IVM_PROPERTY_RESERVED"
    spark.sql("ALTER INCREMENTAL VIEW v REFRESH ON DEMAND")
    spark.sql("ALTER INCREMENTAL VIEW v REFRESH POLICY INCREMENTAL")
    assert calls(engine, "explainCreate") == ["explainCreate spark_catalog.statements.v INCREMENTAL simple"]
    engine.setFailing("explainCreate")
    with pytest.raises(Exception, match="failed as asked"):
        spark.sql("ALTER INCREMENTAL VIEW v REFRESH POLICY FULL")
    after = described(spark, "v")
    assert after["refresh"] == "ON DEMAND" and after["policy"] == "INCREMENTAL"


def test_columns(spark: SparkSession) -> None:
    for sql in ("v (x, y) AS SELECT a FROM t", "v (x) AS SELECT a, b FROM t"):
        with pytest.raises(AnalysisException) as e:
            spark.sql(f"CREATE INCREMENTAL VIEW {sql}")
        assert condition(e).startswith("CREATE_VIEW_COLUMN_ARITY_MISMATCH")
    for sql in ("v (x, X) AS SELECT a, b FROM t", "v AS SELECT a, a FROM t"):
        with pytest.raises(AnalysisException) as e:
            spark.sql(f"CREATE INCREMENTAL VIEW {sql}")
        assert condition(e) == "COLUMN_ALREADY_EXISTS"
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a, count(1), a + 1 FROM t GROUP BY a")
    assert spark.table("v").columns == ["a", "count(1)", "(a + 1)"]
    assert {r.col_name: r.comment for r in spark.sql("DESCRIBE v").collect()}["a"] == "the key"


def test_recursion_is_refused(spark: SparkSession) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    spark.sql("CREATE INCREMENTAL VIEW w AS SELECT a FROM v")
    for sql in (
        "ALTER INCREMENTAL VIEW v AS SELECT a FROM v",
        "CREATE OR REPLACE INCREMENTAL VIEW v AS SELECT a FROM t WHERE a IN (SELECT a FROM w)",
    ):
        with pytest.raises(AnalysisException) as e:
            spark.sql(sql)
        assert condition(e) == "IVM_RECURSIVE_VIEW"


def test_bad_names_are_refused_before_the_state_is_built(spark: SparkSession, engine) -> None:
    with pytest.raises(AnalysisException) as e:
        spark.sql("CREATE INCREMENTAL VIEW `a b` AS SELECT a FROM t")
    assert condition(e) == "INVALID_SCHEMA_OR_RELATION_NAME" and calls(engine) == []


def test_only_the_session_catalog(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as e:
        spark.sql("CREATE INCREMENTAL VIEW statements.b.v AS SELECT a FROM t")
    assert condition(e) == "IVM_CATALOG_NOT_SUPPORTED"
    with pytest.raises(AnalysisException) as e:
        spark.sql("CREATE INCREMENTAL VIEW nope.v AS SELECT a FROM t")
    assert condition(e) == "SCHEMA_NOT_FOUND"


def test_settings_are_frozen(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.sql.legacy.sizeOfNull", "true")
    try:
        spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
        spark.conf.unset("spark.sql.legacy.sizeOfNull")
    after = described(spark, "v")
    assert after["setting.spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert after["setting.spark.sql.legacy.sizeOfNull"] == "true"
    assert after["setting.spark.sql.ansi.enabled"] == "true" and after["setting.spark.sql.caseSensitive"] == "false"
    assert after["catalog_path"] == "spark_catalog.statements"


# ---- answers --------------------------------------------------------------------------------------------------------


def types(df: DataFrame) -> str:
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in df.schema)


def test_answers(spark: SparkSession) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    refreshed = spark.sql("REFRESH INCREMENTAL VIEW v")
    assert types(refreshed) == (
        "view string, version bigint, kind string, reason string, rows_in bigint, rows_changed bigint, duration_ms bigint"
    )
    assert [tuple(r) for r in refreshed.collect()] == [
        ("spark_catalog.statements.v", 1, "incremental", "CHANGES_APPLIED", 7, 2, 5)
    ]

    history = spark.sql("DESC HISTORY INCREMENTAL VIEW v")
    assert types(history) == (
        "version bigint, timestamp timestamp, kind string, reason string, rows_in bigint, rows_changed bigint, "
        "duration_ms bigint, sources string, estimates string"
    )
    assert [(r.version, r.kind, r.rows_changed) for r in history.collect()] == [
        (1, "incremental", 2),
        (0, "full", None),
    ]

    plain = spark.sql("DESC INCREMENTAL VIEW v")
    assert types(plain) == "key string, value string"
    assert [r.key for r in plain.collect()] == [
        "strategy", "policy", "refresh", "version", "last_refresh_kind", "last_refresh_reason", "last_refresh_ms",
        "state_bytes", "partitions", "source.spark_catalog.default.t",
    ]  # fmt: skip
    assert described(spark, "v")["pattern.t"] == "insert-only"

    shown = spark.sql("SHOW INCREMENTAL VIEWS IN spark_catalog.statements LIKE 'v*'")
    assert types(shown) == (
        "namespace string, viewName string, strategy string, policy string, refresh string, state string, version bigint, "
        "lastRefresh timestamp"
    )
    assert tuple(shown.collect()[0])[:7] == ("statements", "v", "linear", "AUTO", "ON READ", "ready", 1)
    assert spark.sql("SHOW INCREMENTAL VIEWS LIKE 'x*'").collect() == []
    assert spark.sql("SHOW INCREMENTAL VIEWS FROM default").collect() == []
    with pytest.raises(AnalysisException) as e:
        spark.sql("SHOW INCREMENTAL VIEWS IN nope")
    assert condition(e) == "SCHEMA_NOT_FOUND"


def test_explain_changes_nothing(spark: SparkSession, engine) -> None:
    plan = spark.sql("EXPLAIN EXTENDED CREATE INCREMENTAL VIEW v REFRESH POLICY FULL AS SELECT a FROM t")
    assert types(plan) == "plan string" and plan.collect()[0].plan == "Strategy: linear (extended)"
    assert calls(engine) == ["explainCreate spark_catalog.statements.v FULL extended"]
    assert spark.sql("SHOW INCREMENTAL VIEWS").collect() == []
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    assert spark.sql("EXPLAIN REFRESH INCREMENTAL VIEW v").collect()[0].plan == "Refresh: incremental (simple)"
    assert calls(engine, "refresh") == []


def test_a_broken_view_does_not_hide_the_others(spark: SparkSession, engine) -> None:
    spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t")
    spark.sql("CREATE INCREMENTAL VIEW w AS SELECT a FROM t")
    engine.setFailing("status")
    states = {r.viewName: r.state for r in spark.sql("SHOW INCREMENTAL VIEWS").collect()}
    assert states == {"v": "failed: status failed as asked", "w": "ready"}
