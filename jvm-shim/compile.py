"""Compile the shim with the Scala compiler inside pyspark's own jars: `python jvm-shim/compile.py OUT.jar`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src" / "main" / "scala"
RESOURCES = HERE / "src" / "main" / "resources"
PACKAGE = HERE.parent / "pyspark_ivm"
#: The one file of error conditions and reason codes, shared by JVM and Python.
CONDITIONS = PACKAGE / "conditions.json"

OLDEST_JAVA = 17
#: Fixed, so that the same sources give the same jar to the byte.
ZIP_TIME = (1980, 1, 1, 0, 0, 0)

#: Kept in step with build.sbt.
OPTIONS = [
    "-release",
    str(OLDEST_JAVA),
    "-encoding",
    "UTF-8",
    "-deprecation",
    "-feature",
    "-unchecked",
    "-Xlint:_,-byname-implicit",
]
#: The version the shim is written for. Only here are warnings errors: what another version deprecates is not ours to mend.
PRIMARY_SPARK = "4.2."


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not Path(java).exists():
        raise SystemExit(f"no Java found: install Java {OLDEST_JAVA} or newer, or set JAVA_HOME")
    said = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version and int(version.group(1)) < OLDEST_JAVA:
        raise SystemExit(f"{java} is Java {version.group(1)}: install Java {OLDEST_JAVA} or newer, or set JAVA_HOME")
    return java


def manifest(spark_version: str) -> str:
    found = re.search(r'__version__ = "(.+)"', (PACKAGE / "_version.py").read_text())
    assert found, "pyspark_ivm/_version.py holds no version"
    return (
        "Manifest-Version: 1.0\n"
        "Implementation-Title: pyspark-ivm\n"
        f"Implementation-Version: {found.group(1)}\n"
        f"Spark-Version: {spark_version}\n\n"
    )


def compile_shim(out: Path, *, werror: bool = True) -> Path:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    strict = ["-Werror"] if werror and pyspark.__version__.startswith(PRIMARY_SPARK) else []
    files = sorted(str(p) for p in SOURCES.rglob("*.scala"))
    with tempfile.TemporaryDirectory() as tmp:
        classes = Path(tmp) / "classes"
        classes.mkdir()
        compiler = [find_java(), "-Xss8m", "-cp", f"{jars}/*", "scala.tools.nsc.Main", "-usejavacp"]
        done = subprocess.run([*compiler, *OPTIONS, *strict, "-d", str(classes), *files], check=False)
        if done.returncode != 0:
            raise SystemExit("the shim does not compile: see above")
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_suffix(".part")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as jar:

            def add(name: str, content: bytes) -> None:
                entry = zipfile.ZipInfo(name, ZIP_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                jar.writestr(entry, content)

            add("META-INF/MANIFEST.MF", manifest(pyspark.__version__).encode())
            for root in (classes, RESOURCES):
                for path in sorted(p for p in root.rglob("*") if p.is_file()):
                    add(path.relative_to(root).as_posix(), path.read_bytes())
            add("org/apache/spark/sql/ivm/conditions.json", CONDITIONS.read_bytes())
        part.replace(out)
    return out


if __name__ == "__main__":
    print(compile_shim(Path(sys.argv[1]), werror="--no-werror" not in sys.argv[2:]))
