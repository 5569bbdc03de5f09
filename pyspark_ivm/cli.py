"""The command ``pyspark-ivm``: ``jar`` prints the jar's path, ``warmup`` compiles the kernels, ``doctor`` checks all."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from pyspark_ivm import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pyspark-ivm", description="Incremental views for Spark SQL.")
    parser.add_argument("--version", action="version", version=f"pyspark-ivm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="jar | warmup | doctor")
    commands.add_parser("jar", help="print the path of the jar, for --jars")
    commands.add_parser("warmup", help="compile the engine's kernels into this machine's cache")
    commands.add_parser("doctor", help="check Java, versions, jar, extension, workers, cache, state; say how to mend")
    command = parser.parse_args(arguments).command
    return {"jar": jar, "warmup": warmup, "doctor": doctor}[command]()


def jar() -> int:
    from pyspark_ivm.errors import IvmError
    from pyspark_ivm.session import jar_path

    try:
        print(jar_path())
    except IvmError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def warmup() -> int:
    from pyspark_ivm.index.cache import warmup as compile_kernels

    started = time.perf_counter()
    compile_kernels()
    print(f"kernels ready in {time.perf_counter() - started:.1f} s")
    return 0


def doctor() -> int:
    from pyspark_ivm.doctor import examine

    return 0 if examine(print) else 1


if __name__ == "__main__":
    sys.exit(main())
