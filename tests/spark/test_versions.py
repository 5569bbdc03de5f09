"""One jar, made for Spark 4.2, serves 4.1 and 4.3: create, insert, refresh, read, explain on each of them.

IVM_SMOKE_PYTHONS names the interpreters of environments that hold another pyspark (and numba, pyarrow, pandas, sqlglot), comma-separated.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SMOKE = Path(__file__).with_name("smoke.py")
PYTHONS = [p for p in os.environ.get("IVM_SMOKE_PYTHONS", "").split(",") if p]


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS or [pytest.param("", marks=pytest.mark.skip(reason="IVM_SMOKE_PYTHONS is not set"))])
def test_smoke(python: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    done = subprocess.run([python, str(SMOKE), str(tmp_path)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "SMOKE OK" in done.stdout, done.stdout + done.stderr
