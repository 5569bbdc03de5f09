"""One wheel, its jar made on Spark 4.2, serves 4.1 and 4.3 too: create, insert, refresh, read, explain, and the shell.

`make test-versions` makes the environments and names their interpreters in IVM_OTHER_PYTHONS, separated by spaces.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

SMOKE = Path(__file__).with_name("smoke.py")
PYTHONS = os.environ.get("IVM_OTHER_PYTHONS", "").split()
EXTENSION = "org.apache.spark.sql.ivm.IncrementalViewExtensions"

pytestmark = pytest.mark.versions


def run(python: str, directory: Path, *command: str) -> str:
    """A command of the environment, which must see its own wheel and not this tree."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "IVM_DELTA_JARS")}
    environment |= {
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "PATH": os.pathsep.join([str(Path(python).parent), os.environ["PATH"]]),
    }
    done = subprocess.run(list(command), env=environment, cwd=directory, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_environments_are_named() -> None:
    assert PYTHONS, "IVM_OTHER_PYTHONS is empty: run `make test-versions`"


@pytest.mark.parametrize("python", PYTHONS)
def test_smoke(python: str, tmp_path: Path) -> None:
    assert "SMOKE OK" in run(python, tmp_path, python, str(SMOKE), str(tmp_path))


@pytest.mark.parametrize("python", PYTHONS)
def test_the_source_compiles(python: str, tmp_path: Path) -> None:
    """The one source, not only the one jar."""
    run(python, tmp_path, python, str(ROOT / "jvm-shim" / "compile.py"), str(tmp_path / "shim.jar"))
    assert (tmp_path / "shim.jar").stat().st_size > 0


@pytest.mark.parametrize("python", PYTHONS)
def test_shell(python: str, tmp_path: Path) -> None:
    jar = run(python, tmp_path, "pyspark-ivm", "jar").strip()
    statements = (
        "CREATE TABLE t (k INT, v INT) USING parquet; INSERT INTO t VALUES (1, 20), (1, 22);"
        "CREATE INCREMENTAL VIEW w AS SELECT k, sum(v) AS s FROM t GROUP BY k; INSERT INTO t VALUES (1, 100);"
        "SELECT concat('answer ', s) FROM w;"
    )
    settings = {
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.ui.enabled": "false",
    }
    flags = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    said = run(python, tmp_path, "spark-sql", "--master", "local[2]", "--jars", jar, *flags, "-e", statements)
    assert "answer 142" in said, said
