"""Several drivers on one view. Every read equals the query on the Delta versions that the commit it was made at records."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.concurrency.driver import QUERY
from tests.conftest import ROOT

DRIVERS, OPERATIONS = 3, 50


def said(output: str, word: str) -> list:
    return [json.loads(line[len(word) + 1 :]) for line in output.splitlines() if line.startswith(word + " ")]


@pytest.mark.slow
@pytest.mark.delta
def test_three_drivers(spark, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/a` (k INT, g STRING, x INT) USING delta")
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/b` (k INT, y INT) USING delta")
    spark.sql(f"INSERT INTO delta.`{tmp_path}/a` SELECT int(id % 12), concat('g', id % 3), int(id) FROM range(40)")
    spark.sql(f"INSERT INTO delta.`{tmp_path}/b` SELECT int(id), int(id % 5) FROM range(12)")

    script = str(Path(__file__).parent / "driver.py")
    drivers: list[subprocess.Popen[str]] = []
    for seed in range(DRIVERS):
        driver = subprocess.Popen(
            [sys.executable, script, str(tmp_path), str(seed), str(OPERATIONS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
        drivers.append(driver)
        if seed == 0:  # the first one builds the state, the others attach to it
            assert driver.stdout is not None
            while (line := driver.stdout.readline()) and line != "READY\n":
                pass
    outputs = [driver.communicate(timeout=600)[0] for driver in drivers]
    for driver, output in zip(drivers, outputs, strict=True):
        assert driver.returncode == 0, output
    [location] = {where for output in outputs for where in said(output, "LOCATION")}

    reports = [report for output in outputs for report in said(output, "REFRESH")]
    assert {kind for _, kind, _ in reports} <= {"incremental", "none"}, reports
    versions = {c["version"]: c for c in map(_commit, Path(location, "commits").iterdir())}
    assert [c["report"]["kind"] for v, c in sorted(versions.items()) if v > 0].count("full") == 0
    truths: dict[int, list] = {}
    reads = [read for output in outputs for read in said(output, "READ")]
    assert len(reads) > OPERATIONS
    for [version], answer in reads:
        if version not in truths:
            truths[version] = _truth(spark, tmp_path, versions[version])
        assert answer == truths[version], f"read at version {version}"


def _commit(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def _truth(spark, root: Path, commit: dict) -> list:
    """The query on the tables as the commit pins them."""
    for source in commit["sources"]:
        number = int(re.match(r"version (\d+)", source["token"])[1])  # type: ignore[index]
        name = source["table"].split(".")[-1]
        spark.read.format("delta").option("versionAsOf", number).load(f"{root}/{name}").createOrReplaceTempView(name)
    try:
        return sorted([r.g, r.s, r.n] for r in spark.sql(QUERY).collect())
    finally:
        for name in "ab":
            spark.catalog.dropTempView(name)
