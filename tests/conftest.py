"""One Spark session for all suites, and what decides whether the Delta tests can run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

# The driver's sys.path does not reach the workers, not even in local mode: what the environment says does.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["PYTHONPATH"] = os.pathsep.join(
    dict.fromkeys([str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
)


def delta_jars() -> list[str]:
    return [jar for jar in os.environ.get("IVM_DELTA_JARS", "").split(",") if jar and Path(jar).exists()]


def require_delta() -> None:
    """Skips without the Delta jars; in CI their absence is a failure, or nobody would notice."""
    if delta_jars():
        return
    reason = "no Delta jars: `make delta-jars` fetches them, IVM_DELTA_JARS names them"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("delta"):
        require_delta()


def base_settings(scratch: Path) -> dict[str, str]:
    """Small, silent, nothing left behind."""
    from pyspark_ivm.session import quiet_log4j2

    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet_log4j2().as_uri()}",
    }


def delta_settings() -> dict[str, str]:
    """Delta's extension stands first; with it, `spark.sql(q, args)` fails whoever else is there."""
    jars = delta_jars()
    if not jars:
        return {}
    return {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }


def start_session(scratch: Path) -> SparkSession:
    """The session all suites share, or the one that runs already: the extension, and Delta if its jars are there."""
    from pyspark.sql import SparkSession

    import pyspark_ivm
    from pyspark_ivm.screen import jvm_output_to

    os.environ["PYSPARK_IVM_FAULTS"] = str(scratch / "fault")  # nothing is there unless a test of crashes puts it there
    builder = SparkSession.builder.master("local[2]").appName("pyspark-ivm tests")
    builder = builder.config(map={**base_settings(scratch), **delta_settings()})
    with jvm_output_to(scratch / "jvm.log"):
        return pyspark_ivm.configure(builder).getOrCreate()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def run_python(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Runs a script in a process (and JVM) of its own: sessions with other settings, drivers to kill."""
    import subprocess

    def run(script: str, *arguments: str, timeout: int = 240, **environment: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "script.py"
        file.write_text(script, "utf-8")
        return subprocess.run(
            [sys.executable, str(file), *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run
