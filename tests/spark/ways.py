"""Processes of their own for the tests that run Spark as a user would: commands, settings, and one short story to tell."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pyspark

import pyspark_ivm
from pyspark_ivm.session import quiet_log4j2

#: The same story in every way to run; the last SELECT must print 1 → 15, 2 → 20.
STATEMENTS = [
    "CREATE TABLE base (k INT, x BIGINT) USING parquet",
    "INSERT INTO base VALUES (1, 10), (2, 20)",
    "CREATE INCREMENTAL VIEW sums REFRESH ON DEMAND AS SELECT k, SUM(x) AS s FROM base GROUP BY k",
    "INSERT INTO base VALUES (1, 5)",
]
REFRESH = "REFRESH INCREMENTAL VIEW sums"
READ = "SELECT concat(k, '->', s) AS answer FROM sums ORDER BY k"

APPLICATION = f"""
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
for statement in {STATEMENTS!r}:
    spark.sql(statement)
print("kind", spark.sql({REFRESH!r}).first()["kind"])
print("answer", *[row[0] for row in spark.sql({READ!r}).collect()])
"""


def settings(scratch: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet_log4j2().as_uri()}",
    }


def tool(name: str) -> str:
    """One of pyspark's own scripts, which pip puts beside the interpreter."""
    return str(Path(sys.executable).parent / name)


def as_arguments(scratch: Path, master: str = "local[2]", **more: str) -> list[str]:
    """The command line of the README, and what keeps a test small."""
    conf = {"spark.sql.extensions": pyspark_ivm.EXTENSION, **settings(scratch), **more}
    pairs = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    return ["--master", master, "--jars", pyspark_ivm.jar_path(), *pairs]


def environment(python: str = sys.executable, **more: str) -> dict[str, str]:
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, **more}


def launch(
    command: list[str], scratch: Path, python: str = sys.executable, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=scratch, env=environment(python, **more), capture_output=True, text=True, timeout=300
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def assert_right(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, said(done)
    assert "1->15" in done.stdout and "2->20" in done.stdout, said(done)
    assert "incremental" in done.stdout, said(done)


def bare_environment(directory: Path, *options: str) -> Path:
    """An environment that has all this one has, by links, except ourselves; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", *options, str(directory)], check=True, timeout=120)
    ours, theirs = Path(sysconfig.get_paths()["purelib"]), packages_of(directory)
    # A .pth file of this one would bring the source tree.
    for entry in ours.iterdir():
        if not (entry.suffix == ".pth" or "pyspark_ivm" in entry.name or (theirs / entry.name).exists()):
            (theirs / entry.name).symlink_to(entry)
    return directory / "bin" / "python"


def packages_of(directory: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)}))


def spark_home(directory: Path) -> str:
    """pyspark's own files serve as SPARK_HOME; by links, because a cluster on this machine works in a folder below it."""
    home = directory / "spark-home"
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return str(home)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def wait_for(port: int, server: subprocess.Popen[str], seconds: int = 120) -> None:
    """Until somebody listens there. The server's own end is a failure."""
    end = time.monotonic() + seconds
    while True:
        assert server.poll() is None, f"the server ended with {server.returncode}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < end, f"nobody listens on port {port} after {seconds} s"
            time.sleep(0.2)
