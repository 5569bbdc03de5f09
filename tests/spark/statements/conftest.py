"""The statements of incremental views, alone: behind them stands `RecordingEngine` (jvm-shim/src/test), which keeps no rows but writes down what is asked of it."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
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


@pytest.fixture(scope="package")
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
