"""The statements of incremental views: what they parse to, answer, refuse, and in which order they act.

Behind them stands `RecordingEngine` (jvm-shim/src/test), which keeps no rows but writes down what is asked of it.
"""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = "org.apache.spark.sql.ivm.IncrementalViewExtensions"


def _compiler():
    spec = importlib.util.spec_from_file_location("shim_compile", ROOT / "jvm-shim" / "compile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _shim_jar(directory: Path) -> Path:
    import pyspark_ivm

    built = getattr(pyspark_ivm, "jar_path", None)
    return Path(built()) if built else _compiler().compile_shim(directory / "shim.jar")


def _engine_classes(directory: Path, shim: Path) -> Path:
    """RecordingEngine, compiled apart: it is no part of the shim."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    classes = directory / "engine-classes"
    classes.mkdir()
    sources = sorted(str(p) for p in (ROOT / "jvm-shim" / "src" / "test" / "scala").rglob("*.scala"))
    command = [
        _compiler().find_java(),
        "-Xss8m",
        "-cp",
        f"{jars}/*:{shim}",
        "scala.tools.nsc.Main",
        "-usejavacp",
        "-d",
        str(classes),
    ]
    subprocess.run([*command, *sources], check=True)
    return classes


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    directory = tmp_path_factory.mktemp("statements")
    running = SparkSession.getActiveSession()
    shim = _shim_jar(directory)
    spark = running or (
        SparkSession.builder.master("local[2]")
        .appName("statements")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.jars", str(shim))
        .config("spark.sql.extensions", EXTENSION)
        .getOrCreate()
    )
    jvm = spark._jvm
    new_array = spark.sparkContext._gateway.new_array
    urls = new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(_engine_classes(directory, shim))).toURI().toURL()
    engines = jvm.org.apache.spark.sql.ivm.ViewEngines
    loader = jvm.java.net.URLClassLoader(urls, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    engine = loader.loadClass("org.apache.spark.sql.ivm.RecordingEngine").getConstructor(
        new_array(jvm.java.lang.Class, 0)
    )
    engine = engine.newInstance(new_array(jvm.java.lang.Object, 0))
    engines.use(engine)
    spark.sql("CREATE DATABASE IF NOT EXISTS statements")
    spark.sql("USE statements")
    spark.sql("CREATE TABLE IF NOT EXISTS t (a INT COMMENT 'the key', b STRING) USING parquet")
    spark.sql("CREATE TABLE IF NOT EXISTS incremental (view STRUCT<field: INT>, a INT) USING parquet")
    yield SimpleNamespace(spark=spark, engine=engine)
    spark.sql("USE default")
    spark.sql("DROP DATABASE statements CASCADE")
    engines.use(None)
    if running is None:
        spark.stop()


@pytest.fixture
def spark(session: SimpleNamespace) -> Iterator[SparkSession]:
    session.engine.forget()
    yield session.spark
    session.spark.sql("USE statements")
    for row in session.spark.sql("SHOW INCREMENTAL VIEWS").collect():
        session.spark.sql(f"DROP INCREMENTAL VIEW `{row.viewName}`")


@pytest.fixture
def engine(session: SimpleNamespace):
    return session.engine


def calls(engine, *methods: str) -> list[str]:
    return [c for c in engine.calls() if not methods or c.split()[0] in methods]


def condition(error: pytest.ExceptionInfo) -> str:
    return error.value.getCondition()


def described(spark: SparkSession, view: str, extended: str = "EXTENDED") -> dict[str, str]:
    return {r.key: r.value for r in spark.sql(f"DESCRIBE {extended} INCREMENTAL VIEW {view}").collect()}


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
    assert [c.split()[0] for c in calls(engine)] == ["create", "drop"]
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
