"""A session for tests that drive the shim's classes through py4j, with Delta when its jars are at hand."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def shim_jar() -> str:
    """The built jar (IVM_JAR, or the package's own), else one compiled for this run."""
    given = os.environ.get("IVM_JAR")
    if given:
        return given
    built = sorted((ROOT / "pyspark_ivm" / "jars").glob("*.jar"))
    if built:
        return str(built[0])
    spec = importlib.util.spec_from_file_location("shim_compile", ROOT / "jvm-shim" / "compile.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.compile_shim(Path(tempfile.mkdtemp(prefix="ivm-shim-")) / "shim.jar"))


def delta_jars() -> list[str]:
    return [jar for jar in os.environ.get("IVM_DELTA_JARS", "").split(",") if jar]


def session() -> SparkSession:
    """The running session if there is one, else a small one of our own."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    warehouse = tempfile.mkdtemp(prefix="ivm-warehouse-")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("ivm-jvm-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.sql.warehouse.dir", warehouse)
        .config("spark.jars", ",".join([shim_jar(), *delta_jars()]))
    )
    if delta_jars():
        builder = (
            builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
            .config("spark.databricks.delta.snapshotPartitions", "1")
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def has_delta(spark: SparkSession) -> bool:
    return "delta" in spark.conf.get("spark.sql.catalog.spark_catalog", "")
