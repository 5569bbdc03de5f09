"""Compile the shim with the Scala compiler inside pyspark's own jars: `python jvm-shim/compile.py OUT.jar`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src" / "main" / "scala"
RESOURCES = HERE / "src" / "main" / "resources"
#: The one file of error conditions and reason codes, shared by JVM and Python.
CONDITIONS = HERE.parent / "pyspark_ivm" / "conditions.json"


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if not found:
        raise SystemExit("no Java found: install Java 17 or newer, or set JAVA_HOME")
    return found


def compile_shim(out: Path) -> Path:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    files = sorted(str(p) for p in SOURCES.rglob("*.scala"))
    with tempfile.TemporaryDirectory() as tmp:
        classes = Path(tmp) / "classes"
        classes.mkdir()
        subprocess.run(
            [
                find_java(),
                "-Xss8m",
                "-cp",
                f"{jars}/*",
                "scala.tools.nsc.Main",
                "-usejavacp",
                "-release",
                "17",
                "-deprecation",
                "-feature",
                "-Xlint:_,-byname-implicit",
                "-Wconf:any:warning",
                "-d",
                str(classes),
                *files,
            ],
            check=True,
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_suffix(".part")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as jar:
            jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nImplementation-Title: pyspark-ivm\n\n")
            for root in (classes, RESOURCES):
                for path in sorted(p for p in root.rglob("*") if p.is_file()):
                    jar.write(path, path.relative_to(root).as_posix())
            if CONDITIONS.exists():
                jar.write(CONDITIONS, "org/apache/spark/sql/ivm/conditions.json")
        part.replace(out)
    return out


if __name__ == "__main__":
    print(compile_shim(Path(sys.argv[1])))
