"""sbt and `make jar` build the same thing."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

import pyspark_ivm

ROOT = Path(__file__).resolve().parent.parent


def contents(jar: Path) -> set[str]:
    with zipfile.ZipFile(jar) as file:
        return {name for name in file.namelist() if not name.endswith("/") and name != "META-INF/MANIFEST.MF"}


@pytest.mark.slow
def test_sbt_builds_the_same_jar() -> None:
    before = {jar: jar.stat().st_mtime_ns for jar in (ROOT / "target").glob("*.jar")}
    done = subprocess.run(["make", "sbt-jar"], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    built = [jar for jar in (ROOT / "target").glob("*.jar") if not jar.name.endswith(("-sources.jar", "-javadoc.jar"))]
    assert built, f"sbt left no jar (before: {before})"
    ours, theirs = contents(Path(pyspark_ivm.jar_path())), contents(max(built, key=lambda jar: jar.stat().st_mtime_ns))
    assert any(name.endswith(".class") for name in ours)
    assert ours == theirs
