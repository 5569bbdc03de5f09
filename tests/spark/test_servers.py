"""Servers with clients of another process: Spark Connect, and Thrift over JDBC. Jar, extension and package are the server's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.spark.ways import (
    APPLICATION,
    READ,
    REFRESH,
    STATEMENTS,
    as_arguments,
    assert_right,
    environment,
    free_port,
    launch,
    said,
    tool,
    wait_for,
)

pytestmark = pytest.mark.slow


@contextmanager
def server(directory: Path, name: str, port: int, *arguments: str, **conf: str) -> Iterator[None]:
    """One of Spark's servers, by its main class, until the block ends."""
    command = [tool("spark-submit"), *as_arguments(directory, **conf), "--class", name, "spark-internal", *arguments]
    with (directory / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=directory, env=environment(), stdout=log, stderr=log, text=True)
    try:
        wait_for(port, process)
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_connect_client(tmp_path: Path) -> None:
    """A client without the package: it sends SQL."""
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    port = free_port()
    (tmp_path / "app.py").write_text(
        APPLICATION.replace("builder.", f"builder.remote('sc://127.0.0.1:{port}').")
        + "import sys\nassert not [name for name in sys.modules if name.startswith('pyspark_ivm')]\n"
        + "print('pandas', *spark.table('sums').orderBy('k').toPandas()['s'])\n"
        + "from pyspark_ivm import api\nprint(api.describe(spark, 'sums')['strategy'])\n"
    )
    connect = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with server(tmp_path, connect, port, **{"spark.connect.grpc.binding.port": str(port)}):
        done = launch([sys.executable, "app.py"], tmp_path)
    assert_right(done)
    assert "pandas 15 20\nyannakakis\n" in done.stdout, said(done)


def test_thrift_server_over_jdbc(tmp_path: Path) -> None:
    """What one connection creates, the next one reads."""
    port = free_port()
    beeline = [str(Path(pyspark.__file__).parent / "bin" / "beeline"), "-u", f"jdbc:hive2://127.0.0.1:{port}"]

    def ask(*statements: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.sql").write_text("".join(f"{statement};\n" for statement in statements))
        return launch([*beeline, "--silent=true", "-f", "script.sql"], tmp_path)

    thrift = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
    listening = [
        "--hiveconf",
        f"hive.server2.thrift.port={port}",
        "--hiveconf",
        "hive.server2.thrift.bind.host=127.0.0.1",
    ]
    with server(tmp_path, thrift, port, *listening):
        first = ask(*STATEMENTS, REFRESH, READ)
        second = ask("INSERT INTO base VALUES (2, 2)", REFRESH, READ)
    assert_right(first)
    assert "incremental" in second.stdout and "1->15" in second.stdout and "2->22" in second.stdout, said(second)
