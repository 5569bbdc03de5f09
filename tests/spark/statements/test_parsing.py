"""What is ours and what is Spark's: every statement reaches the right parser, and errors point where Spark's would."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from tests.spark.statements.conftest import condition, described

# ---- every other statement is Spark's -------------------------------------------------------------------------------

ORDINARY = [
    "SELECT * FROM t",
    "SELECT 1 AS incremental, 'CREATE INCREMENTAL VIEW' AS view",
    "EXPLAIN SELECT * FROM incremental",
    "EXPLAIN EXTENDED SELECT a incremental FROM t",
    "CREATE VIEW incremental_v AS SELECT 1",
    "CREATE OR REPLACE TEMPORARY VIEW incremental AS SELECT 1",
    "CREATE TABLE incremental2 (view INT) USING parquet",
    "REFRESH TABLE incremental",
    "REFRESH incremental/view",
    "DROP VIEW IF EXISTS incremental",
    "DROP TABLE incremental",
    "ALTER TABLE incremental SET TBLPROPERTIES ('a' = 'b')",
    "ALTER VIEW incremental AS SELECT 1",
    "SHOW VIEWS IN incremental LIKE 'x*'",
    "SHOW TABLES LIKE '*incremental*'",
    "SHOW CREATE TABLE incremental",
    "DESCRIBE incremental",
    "DESCRIBE incremental view",
    "DESC incremental view;",
    "DESCRIBE EXTENDED incremental view",
    "DESCRIBE incremental view.field",
    "DESCRIBE HISTORY incremental",
    "-- CREATE INCREMENTAL VIEW\nSELECT 1",
    "/* CREATE /* INCREMENTAL */ VIEW */ SELECT /*+ BROADCAST(t) */ * FROM t",
    "SET x = incremental view",
    "DESC FUNCTION incremental",
    "CREATE `INCREMENTAL` VIEW v AS SELECT 1",
    "EXPLAIN DROP INCREMENTAL VIEW v",
]


@pytest.mark.parametrize("sql", ORDINARY)
def test_other_statements_are_sparks(spark: SparkSession, sql: str) -> None:
    bare = spark._jvm.org.apache.spark.sql.execution.SparkSqlParser()
    if "DeltaSparkSessionExtension" in (spark.conf.get("spark.sql.extensions") or ""):
        bare = spark._jvm.io.delta.sql.parser.DeltaSqlParser(bare)  # what stands below us in this session

    def outcome(parser) -> str:
        try:
            return parser.parsePlan(sql).toString()
        except Exception as e:
            return str(getattr(e, "desc", None) or getattr(e, "java_exception", e)).split("JVM stacktrace")[0]

    import re

    ids = re.compile(r"#\d+L?|plan_id=\d+|@[0-9a-f]+")
    assert ids.sub("#", outcome(spark._jsparkSession.sessionState().sqlParser())) == ids.sub("#", outcome(bare))


PARAMETERS = """
import sys
from pathlib import Path
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
import pyspark_ivm
from pyspark_ivm.session import quiet_log4j2

builder = SparkSession.builder.master("local[2]").config(map={
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2",
    "spark.sql.catalogImplementation": "in-memory", "spark.sql.warehouse.dir": sys.argv[1],
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet_log4j2().as_uri()}",
})
spark = pyspark_ivm.configure(builder).getOrCreate()
assert spark.sql("SELECT :p AS incremental", args={"p": 3}).collect()[0][0] == 3
assert spark.sql("SELECT ? + ?", args=[1, 2]).collect()[0][0] == 3
try:
    spark.sql("SELECT :p", args={"q": 1})
    raise SystemExit("an unbound parameter passed")
except AnalysisException as e:
    assert e.getCondition() == "UNBOUND_SQL_PARAMETER" and str(e).startswith("[UNBOUND_SQL_PARAMETER]"), e
spark.sql("CREATE TABLE t (a INT, b STRING) USING parquet")
spark.sql("INSERT INTO t VALUES (1, 'x'), (5, 'y''z')")
spark.sql("CREATE INCREMENTAL VIEW v AS SELECT b, count(*) AS n FROM t WHERE a > :low GROUP BY b", args={"low": 3})
spark.sql("INSERT INTO t VALUES (2, 'x'), (9, 'y''z')")
assert [tuple(r) for r in spark.sql("SELECT * FROM v").collect()] == [("y'z", 2)]
assert "a > 3" in spark.sql("SHOW CREATE INCREMENTAL VIEW v").collect()[0][0]
print("all parameters arrived")
"""


def test_parameters_arrive(run_python, tmp_path) -> None:
    """In a session of its own: with Delta's extension below us, `spark.sql(q, args)` fails whoever else is there."""
    done = run_python(PARAMETERS, str(tmp_path / "warehouse"), IVM_DELTA_JARS="")
    assert done.stdout.endswith("all parameters arrived\n"), done.stdout + done.stderr


# ---- what our statements parse to -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INCREMENTAL VIEW v AS SELECT a FROM t",
        "create incremental view v as select a from t ;;",
        "/* a /* nested */ b */ CREATE -- x\n INCREMENTAL\n\tVIEW v AS SELECT a FROM t;",
        "CREATE INCREMENTAL VIEW `v` AS (SELECT a FROM t)",
        "CREATE INCREMENTAL VIEW spark_catalog.statements.v AS WITH x AS (SELECT a FROM t) SELECT * FROM x",
        "CREATE INCREMENTAL VIEW IF NOT EXISTS statements.`v` AS TABLE t",
        "CREATE OR REPLACE INCREMENTAL VIEW v (x COMMENT 'as', y) COMMENT 'REFRESH ON DEMAND' AS SELECT a, b FROM t",
        "CREATE INCREMENTAL VIEW IDENTIFIER('v') AS SELECT a FROM t",
        "CREATE INCREMENTAL VIEW v REFRESH ON READ COMMENT 'c' REFRESH POLICY FULL TBLPROPERTIES ('as' = 'x') AS SELECT a FROM t",
    ],
)
def test_create_spellings(spark: SparkSession, sql: str) -> None:
    assert spark.sql(sql).collect() == []
    assert described(spark, "v")["name"] == "spark_catalog.statements.v"


@pytest.mark.parametrize("name", ["refresh", "`as`", "view", "incremental_", "v2020", "`2020`", "full", "_x"])
def test_names(spark: SparkSession, name: str) -> None:
    spark.sql(f"CREATE INCREMENTAL VIEW {name} AS SELECT a FROM t")
    plain = name.strip("`")
    assert [r.viewName for r in spark.sql("SHOW INCREMENTAL VIEWS").collect()] == [plain]
    assert spark.sql(f"REFRESH INCREMENTAL VIEW {name}").collect()[0].kind == "incremental"
    assert spark.sql(f"REFRESH INCREMENTAL VIEW {name} FULL").collect()[0].kind == "full"
    again = spark.sql(f"SHOW CREATE INCREMENTAL VIEW {name}").collect()[0][0]
    spark.sql(f"DROP INCREMENTAL VIEW {name}")
    spark.sql(again)
    spark.sql(f"DROP INCREMENTAL VIEW {name}")


def test_clauses_in_any_order_and_round_trip(spark: SparkSession) -> None:
    spark.sql(r"""CREATE INCREMENTAL VIEW v (`x y` COMMENT 'it\'s \\ one', n)
        REFRESH POLICY INCREMENTAL STRICT TBLPROPERTIES ('k.1' = 'v\'1', two = 2) REFRESH ON DEMAND COMMENT 'a "b" \\ c'
        AS SELECT a, -- kept
          count(*) FROM t WHERE b <> '\'' GROUP BY a -- not kept""")
    text = spark.sql("SHOW CREATE INCREMENTAL VIEW v").collect()[0].createtab_stmt
    before = described(spark, "v")
    assert before["policy"] == "INCREMENTAL STRICT" and before["refresh"] == "ON DEMAND"
    assert before["comment"] == 'a "b" \\ c' and before["property.k.1"] == "v'1" and before["property.two"] == "2"
    assert before["column.x y"] == "int -- it's \\ one" and before["column.n"] == "bigint"
    assert before["query"].endswith("GROUP BY a") and "-- kept" in before["query"]
    spark.sql("DROP INCREMENTAL VIEW v")
    spark.sql(text)
    after = described(spark, "v")
    volatile = {"view_id", "location", "created"}
    assert {k: v for k, v in before.items() if k not in volatile} == {
        k: v for k, v in after.items() if k not in volatile
    }
    assert spark.sql("SHOW CREATE INCREMENTAL VIEW v").collect()[0].createtab_stmt == text


def test_long_query_is_split_and_joined(spark: SparkSession) -> None:
    numbers = ", ".join(str(n) for n in range(3000))
    spark.sql(f"CREATE INCREMENTAL VIEW v AS SELECT a FROM t WHERE a IN ({numbers})")
    assert described(spark, "v")["query"] == f"SELECT a FROM t WHERE a IN ({numbers})"
    lengths = [len(r.value) for r in spark.sql("SHOW TBLPROPERTIES v").collect()]
    assert max(lengths) <= 4000


def test_parameters_become_literals(spark: SparkSession) -> None:
    spark.sql(
        "CREATE INCREMENTAL VIEW v COMMENT :c AS SELECT a FROM t WHERE a > :p AND b = :s",
        args={"p": 3, "s": "it's", "c": "hi"},
    )
    text = spark.sql("SHOW CREATE INCREMENTAL VIEW v").collect()[0][0]
    assert "a > 3" in text and r"it\'s" in text and "COMMENT 'hi'" in text and ":" not in text.split("AS SELECT")[1]
    spark.sql("ALTER INCREMENTAL VIEW v AS SELECT a FROM t WHERE a > ?", args=[9])
    assert described(spark, "v")["query"] == "SELECT a FROM t WHERE a > 9"
    assert spark.sql("REFRESH INCREMENTAL VIEW IDENTIFIER(:v)", args={"v": "v"}).collect()[0].version == 1
    spark.sql("EXECUTE IMMEDIATE 'CREATE OR REPLACE INCREMENTAL VIEW v AS SELECT a FROM t WHERE a > :p' USING 4 AS p")
    assert described(spark, "v")["query"] == "SELECT a FROM t WHERE a > 4"


def test_unbound_parameter_is_an_error(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException):
        spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t WHERE a > :p")
    with pytest.raises(AnalysisException) as e:
        spark.sql("CREATE INCREMENTAL VIEW v AS SELECT a FROM t WHERE a > :p", args={"q": 1})
    assert condition(e) == "UNBOUND_SQL_PARAMETER"
    assert spark.sql("SHOW INCREMENTAL VIEWS").collect() == []


def test_variables_are_substituted(spark: SparkSession) -> None:
    spark.conf.set("my.bound", "42")
    spark.conf.set("my.word", "INCREMENTAL")
    spark.sql("CREATE ${my.word} VIEW v AS SELECT a FROM t WHERE a < ${my.bound}")
    assert described(spark, "v")["query"] == "SELECT a FROM t WHERE a < 42"


# ---- syntax errors point where Spark's would ------------------------------------------------------------------------

SYNTAX_ERRORS = [
    ("CREATE INCREMENTAL VIEW v AS SELECT a b c FROM t", "c FROM", None),
    ("CREATE INCREMENTAL VIEW v\nREFRESH ON DEMAND\nAS SELECT a\nFROM t WHERE )", ")", None),
    ("CREATE INCREMENTAL VIEW v REFRESH ON MONDAY AS SELECT 1", "MONDAY", None),
    ("CREATE INCREMENTAL VIEW v REFRESH POLICY SOMETIMES AS SELECT 1", "SOMETIMES", None),
    ("CREATE INCREMENTAL VIEW v REFRESH NOW AS SELECT 1", "NOW", None),
    ("CREATE INCREMENTAL VIEW v WITH SCHEMA EVOLUTION AS SELECT 1", "WITH", None),
    (
        "CREATE INCREMENTAL VIEW v REFRESH ON READ REFRESH ON DEMAND AS SELECT 1",
        "REFRESH ON DEMAND",
        "DUPLICATE_CLAUSES",
    ),
    ("CREATE INCREMENTAL VIEW v COMMENT 'a' COMMENT 'b' AS SELECT 1", None, "DUPLICATE_CLAUSES"),
    (
        "CREATE OR REPLACE INCREMENTAL VIEW IF NOT EXISTS v AS SELECT 1",
        None,
        "CREATE_VIEW_WITH_IF_NOT_EXISTS_AND_REPLACE",
    ),
    ("CREATE INCREMENTAL VIEW v AS INSERT INTO t SELECT 1", "INSERT", None),
    ("REFRESH INCREMENTAL VIEW v QUICKLY", "QUICKLY", None),
    ("REFRESH INCREMENTAL VIEW a b FULL", "b", None),
    ("ALTER INCREMENTAL VIEW v EXPLODE", "EXPLODE", None),
    ("ALTER INCREMENTAL VIEW v SET LOCATION 'x'", "LOCATION", None),
    ("ALTER INCREMENTAL VIEW v SUSPEND NOW", "NOW", None),
    ("DROP INCREMENTAL VIEW v CASCADE", "CASCADE", None),
    ("DESCRIBE INCREMENTAL VIEW v w", "w", None),
    ("SHOW INCREMENTAL VIEWS LIKE", "", None),
    ("EXPLAIN FORMATTED CREATE INCREMENTAL VIEW v AS SELEC 1", "SELEC", None),
]


@pytest.mark.parametrize(("sql", "near", "expected"), SYNTAX_ERRORS)
def test_syntax_errors_have_sparks_positions(
    spark: SparkSession, sql: str, near: str | None, expected: str | None
) -> None:
    with pytest.raises(ParseException) as e:
        spark.sql(sql)
    assert condition(e) == (expected or "PARSE_SYNTAX_ERROR")
    message = str(e.value)
    for line in sql.split("\n"):
        assert line in message, "the statement is shown as it was written"
    if near is not None:
        offset = len(sql) if near == "" else sql.rindex(near)
        before = sql[:offset].split("\n")
        assert f"(line {len(before)}, pos {len(before[-1])})" in message
        assert "\n" + "-" * len(before[-1]) + "^^^" in message


def test_positions_count_from_the_statement_as_written(spark: SparkSession) -> None:
    with pytest.raises(ParseException) as e:
        spark.sql(
            "CREATE INCREMENTAL VIEW v AS SELECT a FROM t WHERE a = :long_parameter_name AND )",
            args={"long_parameter_name": 1},
        )
    assert (
        f"'AND'. SQLSTATE: 42601 (line 1, pos {len('CREATE INCREMENTAL VIEW v AS SELECT a FROM t WHERE a = :long_parameter_name ')})"
        in str(e.value)
    )
