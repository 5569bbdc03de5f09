"""Executors that are processes of their own: where the state of a partition is kept, and how the package gets there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.ways import (
    APPLICATION,
    as_arguments,
    assert_right,
    bare_environment,
    environment,
    free_port,
    launch,
    packages_of,
    said,
    settings,
    spark_home,
    tool,
    wait_for,
)

pytestmark = pytest.mark.slow

#: Prints what it saw as one line of JSON. The query has several partitions, each of them a few groups.
STORY = """
import json, os, signal, sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pyspark_ivm

QUERY = "SELECT k, sum(x) AS s, count(*) AS n FROM base GROUP BY k"
master, conf = sys.argv[1], json.loads(sys.argv[2])
spark = pyspark_ivm.configure(SparkSession.builder.master(master).config(map=conf)).getOrCreate()
spark.sql("CREATE TABLE base (k INT, x BIGINT) USING parquet")
spark.sql("INSERT INTO base SELECT id % 50, id FROM range(1000)")
told = {}


def refreshed():
    spark.sql("INSERT INTO base SELECT id % 50, id FROM range(100)")
    row = spark.sql("REFRESH INCREMENTAL VIEW v").first()
    same = sorted(spark.table("v").collect()) == sorted(spark.sql(QUERY).collect())
    return row.version, row.kind, same
"""

TOLD = """
print(json.dumps(told))
spark.stop()
"""


def tell(directory: Path, story: str, master: str, conf: dict[str, str], **environment: str) -> dict[str, Any]:
    (directory / "story.py").write_text(STORY + story + TOLD)
    conf = {**settings(directory), "spark.sql.ivm.statePartitions": "4", **conf}
    command = [sys.executable, "story.py", master, json.dumps(conf)]
    done = launch(command, directory, SPARK_HOME=spark_home(directory), **environment)
    assert done.returncode == 0, said(done)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


# ---- executors come and go ----


def homes(events: Path) -> list[dict[int, str]]:
    """By stage that worked on a state, in order: the executor of each of its tasks."""
    stages: dict[int, dict[int, str]] = {}
    for line in events.read_text("utf-8").splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerStageSubmitted":
            if any(rdd["Name"] == "AtHomeRDD" for rdd in event["Stage Info"]["RDD Info"]):
                stages[event["Stage Info"]["Stage ID"]] = {}
        elif event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in stages:
            task = event["Task Info"]
            if not task["Failed"]:
                stages[event["Stage ID"]][task["Index"]] = task["Executor ID"]
    return list(stages.values())


@pytest.fixture(scope="module")
def local_cluster(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two executors of one core each, of which one is killed; `homes` as the event log has them."""
    directory = tmp_path_factory.mktemp("local-cluster")
    (directory / "events").mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(directory / "events"),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both are there from the start
        "spark.locality.wait": "1min",  # a task that finds its executor busy waits: this machine may be slow
    }
    story = """
spark.sql("CREATE INCREMENTAL VIEW v AS " + QUERY)
told["partitions"] = [r.value for r in spark.sql("DESCRIBE INCREMENTAL VIEW v").collect() if r.key == "partitions"]
told["refreshed"] = [refreshed() for _ in range(3)]

application = spark.sparkContext.applicationId
for process in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        words = process.read_bytes().decode().split(chr(0))
    except OSError:
        continue
    if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and application in words:
        told["killed"] = words[words.index("--executor-id") + 1]
        os.kill(int(process.parent.name), signal.SIGKILL)
        break
told["refreshed after"] = [refreshed() for _ in range(2)]
"""
    told = tell(directory, story, "local-cluster[2,1,1024]", conf)
    (events,) = (file for file in (directory / "events").rglob("*") if file.is_file())
    return {**told, "homes": homes(events)}


def test_a_cluster_refreshes_and_reads(local_cluster: dict[str, Any]) -> None:
    assert local_cluster["partitions"] == ["4"]
    assert local_cluster["refreshed"] == [[version, "incremental", True] for version in (1, 2, 3)]


def test_an_executor_is_killed(local_cluster: dict[str, Any]) -> None:
    assert local_cluster["refreshed after"] == [[version, "incremental", True] for version in (4, 5)]


def test_a_partition_stays_with_its_executor(local_cluster: dict[str, Any]) -> None:
    """CREATE, then refreshes and reads: two tasks of each stage on each executor; the tasks of one that is killed move."""
    killed = local_cluster["killed"]
    stages = local_cluster["homes"]
    refreshes = [stage for stage in stages if len(stage) == 4]
    reads = [stage for stage in stages if len(stage) == 2]
    assert (len(refreshes), len(reads)) == (6, 5)
    before, after = refreshes[:4], refreshes[4:]
    assert all(stage == before[0] for stage in before)
    assert sorted(before[0].values()) == ["0", "0", "1", "1"]
    stay = {task: home for task, home in before[0].items() if home != killed}
    assert all(stay.items() <= stage.items() for stage in after)
    assert all(killed not in stage.values() for stage in after)
    assert all(stage == reads[0] for stage in reads[:3]) and set(reads[0].values()) == {"0", "1"}


# ---- how the package gets to executors ----


def test_executors_without_the_package(wheel: Path, tmp_path: Path) -> None:
    """The error names the remedy and leaves nothing behind; the remedy works in the same application."""
    python = str(bare_environment(tmp_path / "bare", "--without-pip"))
    story = f"""
try:
    spark.sql("CREATE INCREMENTAL VIEW v AS " + QUERY)
except PySparkException as error:
    told["condition"], told["text"] = error.getCondition(), str(error)
told["views"] = spark.sql("SHOW INCREMENTAL VIEWS").count()
told["left"] = [str(f) for f in Path(conf["spark.sql.warehouse.dir"]).rglob("commits/*")]
spark.sparkContext.addPyFile({str(wheel)!r})
spark.sql("CREATE INCREMENTAL VIEW v AS " + QUERY)
told["refreshed"] = refreshed()
"""
    conf = {
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": "",  # executors of this cluster are children of the driver, which has our tree there
    }
    told = tell(tmp_path, story, "local-cluster[1,1,1024]", conf)
    assert told["condition"] == "IVM_PACKAGE_MISSING"
    assert f"The Python of the executors ({python}) cannot load pyspark_ivm" in told["text"]
    assert all(remedy in told["text"] for remedy in ("--py-files", "addPyFile", "spark.archives", "PYSPARK_PYTHON"))
    assert "Traceback" not in told["text"]
    assert (told["views"], told["left"]) == (0, [])
    assert told["refreshed"] == [1, "incremental", True]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master and two workers on this machine; the master's address."""
    directory = tmp_path_factory.mktemp("standalone")
    home = spark_home(directory)
    inside = environment(SPARK_HOME=home, SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH="")
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [["master.Master", *place, "--port", str(port)]]
    for n in range(2):
        own = ["--work-dir", str(directory / f"work{n}"), "--cores", "1", "--memory", "1g"]
        commands.append(["worker.Worker", *place, *own, address])
    processes = []
    for name, *arguments in commands:
        with (directory / f"{len(processes)}.log").open("w") as log:
            command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
            processes.append(subprocess.Popen(command, env=inside, stdout=log, stderr=log))
    try:
        wait_for(port, processes[0])
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(timeout=30)


def submit(standalone: str, directory: Path, *arguments: str, python: str, **conf: str) -> None:
    """The README's command line, from a driver whose own Python has the package."""
    (directory / "app.py").write_text(APPLICATION)
    options = as_arguments(
        directory, standalone, **{"spark.executor.memory": "512m", "spark.executorEnv.PYTHONPATH": "", **conf}
    )
    done = launch(
        [tool("spark-submit"), *options, *arguments, "app.py"],
        directory,
        SPARK_LOCAL_IP="127.0.0.1",
        PYSPARK_PYTHON=python,
        PYSPARK_DRIVER_PYTHON=sys.executable,
    )
    assert_right(done)


def test_spark_submit_with_the_wheel(standalone: str, wheel: Path, tmp_path: Path) -> None:
    python = str(bare_environment(tmp_path / "bare", "--without-pip"))
    submit(standalone, tmp_path, "--py-files", str(wheel), python=python)


def test_spark_submit_with_an_environment(standalone: str, wheel: Path, tmp_path: Path) -> None:
    """Its interpreter exists on executors only; the driver plans with its own."""
    bare_environment(tmp_path / "packed", "--without-pip")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(packages_of(tmp_path / "packed"))
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", tmp_path / "packed")
    submit(standalone, tmp_path, "--archives", f"{archive}#environment", python="./environment/bin/python")
