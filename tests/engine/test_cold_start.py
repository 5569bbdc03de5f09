"""Kernels compile once per machine, also where the package's own directory is read-only. No Spark."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent.parent / "pyspark_ivm"
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
WARM_UP = "from pyspark_ivm.index.cache import warmup; print(warmup())"
TOUCH = "import pathlib, pyspark_ivm; pathlib.Path(pyspark_ivm.__file__).with_name('x').touch()"


def obey_modes() -> None:
    """Modes do not stop root: give up the capability that overrides them, for the process about to start."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


@pytest.mark.slow
def test_read_only_site_packages(tmp_path: Path) -> None:
    site, home = tmp_path / "site", tmp_path / "home"
    shutil.copytree(PACKAGE, site / "pyspark_ivm", ignore=shutil.ignore_patterns("__pycache__", "jars"))
    home.mkdir()
    for path in [site, *site.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    environment = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment |= {"HOME": str(home), "PYTHONPATH": str(site)}

    def run(code: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, timeout=300, preexec_fn=obey_modes
        )

    if run(TOUCH).returncode == 0:
        pytest.skip("this machine cannot make a directory read-only")
    first = run(WARM_UP)
    assert first.returncode == 0, first.stderr[-3000:]
    cache = Path(first.stdout.strip())
    assert home in cache.parents
    compiled = {file: file.stat().st_mtime_ns for file in cache.rglob("*.nb*")}
    assert compiled
    assert run(WARM_UP).stdout == first.stdout
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("*.nb*")} == compiled, "compiled a second time"
    for path in [site, *site.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
