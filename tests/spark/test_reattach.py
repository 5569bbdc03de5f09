"""The state outlives its application: the same definition over the same location goes on where the last one stopped, even one killed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

PREAMBLE = """
import json, os, signal, sys, threading, time
from pathlib import Path
from pyspark.sql import SparkSession
import pyspark_ivm
from pyspark_ivm.session import quiet_log4j2

root = Path(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config(map={
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2",
    "spark.sql.catalogImplementation": "in-memory", "spark.sql.warehouse.dir": str(root / "warehouse"),
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet_log4j2().as_uri()}",
})
spark = pyspark_ivm.configure(builder).getOrCreate()
spark.sql(f"CREATE TABLE t (k INT, x INT) USING parquet LOCATION '{root}/t'")
QUERY = "SELECT k, sum(x) AS s, count(*) AS n FROM t GROUP BY k"

def create(query=QUERY):
    spark.sql(f"CREATE INCREMENTAL VIEW v AS {query}")

def answer():
    return sorted(map(list, spark.table("v").collect()))

def truth(query=QUERY):
    spark.sql("REFRESH TABLE t")
    return sorted(map(list, spark.sql(query).collect()))

def history():
    return [[r.version, r.kind, r.reason] for r in sorted(spark.sql("DESCRIBE HISTORY INCREMENTAL VIEW v").collect(), key=lambda r: r.version)]

def generations():
    return sorted(p.name for p in (root / "warehouse" / "_ivm").glob("*/g*") if not (p / "DROPPED").exists())

def say(**what):
    print("SAID " + json.dumps(what), flush=True)
"""


def said(result: subprocess.CompletedProcess[str]) -> dict:
    lines = [line for line in result.stdout.splitlines() if line.startswith("SAID ")]
    assert lines, result.stdout + result.stderr
    return json.loads(lines[-1][5:])


@pytest.mark.slow
def test_a_new_application_goes_on(run_python, tmp_path: Path) -> None:
    first = said(run_python(PREAMBLE + """
spark.sql("INSERT INTO t SELECT int(id % 3), int(id) FROM range(30)")
create()
spark.sql("INSERT INTO t VALUES (1, 100)")
say(answer=answer(), truth=truth(), history=history(), generations=generations())
""", str(tmp_path)))  # fmt: skip
    assert first["answer"] == first["truth"]
    assert [h[:2] for h in first["history"]] == [[0, "full"], [1, "incremental"]]

    second = said(run_python(PREAMBLE + """
spark.sql("INSERT INTO t VALUES (2, 200)")
create()
say(answer=answer(), truth=truth(), history=history(), generations=generations())
""", str(tmp_path)))  # fmt: skip
    assert second["answer"] == second["truth"]
    assert [h[:2] for h in second["history"]] == [[0, "full"], [1, "incremental"], [2, "incremental"]]
    assert second["generations"] == first["generations"]

    third = said(run_python(PREAMBLE + """
other = "SELECT k, max(x) AS s FROM t GROUP BY k" if False else "SELECT k, count(*) AS n FROM t GROUP BY k"
create(other)
before = generations()
state = next(iter((root / "warehouse" / "_ivm").glob("*/" + before[0])))
answered = answer()
spark.sql("DROP INCREMENTAL VIEW v")
say(answer=answered, truth=truth(other), generations=before, left=generations())
""", str(tmp_path)))  # fmt: skip
    assert third["answer"] == third["truth"]
    assert len(third["generations"]) == 1 and third["generations"] != first["generations"]
    assert third["left"] == []


KILLED = PREAMBLE + """
spark.sql("INSERT INTO t SELECT int(id % 7), int(id) FROM range(50)")
create()
answer()
def kill():
    time.sleep(float(sys.argv[2]))
    jvm = spark.sparkContext._gateway.proc.pid
    os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=kill, daemon=True).start()
say(started=True)
while True:
    spark.sql("INSERT INTO t VALUES (1, 1), (8, 8)")
    spark.sql("REFRESH INCREMENTAL VIEW v").collect()
"""


@pytest.mark.slow
def test_a_killed_driver_leaves_the_view_right(run_python, tmp_path: Path) -> None:
    for number, delay in enumerate((0.3, 1.1)):
        root = tmp_path / str(number)
        root.mkdir()
        dead = run_python(KILLED, str(root), str(delay))
        assert dead.returncode != 0 and "SAID" in dead.stdout, dead.stdout + dead.stderr
        after = said(run_python(PREAMBLE + """
create()
say(answer=answer(), truth=truth(), history=history())
spark.sql("INSERT INTO t VALUES (1, 5)")
say(answer=answer(), truth=truth(), history=history())
""", str(root)))  # fmt: skip
        assert after["answer"] == after["truth"]
        assert after["history"][0][1] == "full" and {h[1] for h in after["history"][1:]} == {"incremental"}


def test_a_dropped_view_is_dropped_for_other_drivers(spark, shop) -> None:
    """The entry of another driver's catalog still names the state: simulated by a log on the same directory."""
    shop.sql("CREATE TABLE t (k INT) USING parquet", "CREATE INCREMENTAL VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k")
    location = shop.described(extended="EXTENDED").get("location") or state_of(shop)
    shop.sql("DROP INCREMENTAL VIEW v")
    log = spark._jvm.org.apache.spark.sql.ivm.state.CommitLog.apply(location)
    with pytest.raises(Exception, match="IVM_VIEW_DROPPED"):
        log.latest()


def state_of(shop) -> str:
    entry = {r.key: r.value for r in shop.sql("SHOW TBLPROPERTIES v").collect()}
    return entry["ivm.view.location"]
