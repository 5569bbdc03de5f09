"""The shared session, for tests that drive the shim's classes through py4j."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tests.conftest import start_session


def session() -> SparkSession:
    """The running session if there is one, else the one that all suites share."""
    return SparkSession.getActiveSession() or start_session(Path(tempfile.mkdtemp(prefix="ivm-tests-")))


def has_delta(spark: SparkSession) -> bool:
    return "delta" in spark.conf.get("spark.sql.catalog.spark_catalog", "")
