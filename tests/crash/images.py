"""A crash at any point, without one: at each fault point of the product a copy of the state directory is kept. What a process killed there
would leave behind is exactly that copy, so all points of a statement are checked in one session, one after the other."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "SELECT a.g, a.k % 5 AS r, sum(a.x * b.y) AS s, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.g, a.k % 5"
DAY = 24 * 3600


@contextlib.contextmanager
def at_fault_points(script: str) -> Iterator[None]:
    """While it lasts, the product runs this at each of its fault points; ``$1`` is the point."""
    hook = Path(os.environ["PYSPARK_IVM_FAULTS"])
    hook.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    hook.chmod(0o755)
    try:
        yield
    finally:
        hook.unlink()


@dataclass(frozen=True)
class Image:
    """The state directory as it was at a fault point."""

    point: str
    path: Path

    def kinds(self) -> list[str]:
        """Of the commits that the crash left, if anybody can still read them."""
        if list(self.path.glob("*/g*/DROPPED")):
            return []
        commits = self.path.glob("*/g*/commits/" + "[0-9]" * 20)
        return [json.loads(commit.read_text("utf-8"))["report"]["kind"] for commit in commits]


class World:
    """Two tables, a view over them in four state partitions, and a state directory that can be put back."""

    def __init__(self, spark: SparkSession, scratch: Path, source: str = "parquet") -> None:
        self.spark, self.scratch = spark, scratch
        self.state = scratch / "state"
        spark.conf.set("spark.sql.ivm.stateLocation", str(self.state))
        spark.conf.set("spark.sql.ivm.statePartitions", "4")
        spark.conf.set("spark.sql.ivm.checkpoint.minBytes", "1")
        spark.sql(f"CREATE TABLE a (k INT, g STRING, x INT) USING {source}")
        spark.sql(f"CREATE TABLE b (k INT, y INT) USING {source}")
        self.insert(60)

    def close(self) -> None:
        self.spark.conf.unset("spark.sql.ivm.stateLocation")
        self.spark.conf.unset("spark.sql.ivm.statePartitions")
        self.spark.conf.unset("spark.sql.ivm.checkpoint.minBytes")

    def insert(self, rows: int = 12) -> None:
        """Rows that reach all partitions."""
        self.spark.sql(f"INSERT INTO a SELECT int(id), concat('g', id % 3), int(id + 1) FROM range({rows})")
        self.spark.sql(f"INSERT INTO b SELECT int(id), int(id % 7) FROM range({rows})")

    def create(self, view: str = "v") -> None:
        self.spark.sql(f"CREATE INCREMENTAL VIEW {view} AS {QUERY}")

    def drop(self, view: str = "v") -> None:
        self.spark.sql(f"DROP INCREMENTAL VIEW IF EXISTS {view}")

    def refresh(self, view: str = "v", full: bool = False) -> Any:
        return self.spark.sql(f"REFRESH INCREMENTAL VIEW {view}{' FULL' if full else ''}").collect()[0]

    def clean_up(self, view: str = "v", later: int = 0) -> int:
        """Keeps one version, as if ``later`` seconds had passed."""
        [row] = self.spark.sql(f"DESCRIBE EXTENDED INCREMENTAL VIEW {view}").where("key = 'location'").collect()
        ivm = self.spark._jvm.org.apache.spark.sql.ivm  # type: ignore[union-attr]
        log = ivm.execution.CommitLogs.of(row.value)
        return int(log.cleanUp(int((time.time() + later) * 1000), ivm.state.Retention(1, 0)))

    # -- images ------------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def recording(self) -> Iterator[list[Image]]:
        """The images of all fault points passed, in their order."""
        shelf = self.scratch / f"images-{time.time_ns()}"
        shelf.mkdir()
        images: list[Image] = []
        self.state.mkdir(exist_ok=True)
        with at_fault_points(f'cp -r "{self.state}" "{shelf}/$(date +%s%N)-$$-$1" 2>/dev/null; exit 0'):
            yield images
        images += [Image(path.name.split("-", 2)[2], path) for path in sorted(shelf.iterdir())]

    def restore(self, image: Image, view: str) -> None:
        """What the crash left, found two days later, as the state of ``view``."""
        target = self.directory(view)
        shutil.rmtree(target, ignore_errors=True)
        if (left := image.path / self.directory("v").name).exists():
            shutil.copytree(left, target)
            then = time.time() - 2 * DAY
            for path in [*target.rglob("*"), target]:
                os.utime(path, (then, then))
        logs = self.spark._jvm.org.apache.spark.sql.ivm.execution.CommitLogs  # type: ignore[union-attr]
        for generation in target.glob("g*"):
            logs.forget(str(generation))

    def directory(self, view: str) -> Path:
        return self.state / f"spark_catalog.{self.spark.catalog.currentDatabase()}.{view}"

    # -- what must hold ----------------------------------------------------------------------------------------------
    def check(self, images: list[Image]) -> None:
        """After each: the view equals the query; what comes next is incremental and reads the new rows only; after a clean-up nothing
        is left that no commit names. Each image becomes a view of its own, so that all are compared in one query."""
        points = {f"v_{number}": image for number, image in enumerate(images)}
        for view, image in points.items():
            self.restore(image, view)
            self.create(view)
        self.same(points)
        self.insert(5)
        for view, image in points.items():
            report = self.refresh(view)
            told = (report.kind, report.reason, report.rows_in)
            assert told == ("incremental", "CHANGES_APPLIED", 10), (image, report)
            kinds = [r.kind for r in self.spark.sql(f"DESCRIBE HISTORY INCREMENTAL VIEW {view}").collect()]
            assert kinds.count("full") == max(1, image.kinds().count("full")), (image, kinds)
        self.same(points)
        for view, image in points.items():
            self.clean_up(view, later=2 * DAY)
            assert self.leaked(view) == [], image
            self.drop(view)

    def same(self, points: dict[str, Image]) -> None:
        truth = Counter(tuple(row) for row in self.spark.sql(QUERY).collect())
        reads = " UNION ALL ".join(f"SELECT '{view}' AS view, * FROM {view}" for view in points)
        answers: dict[str, Counter[Any]] = {view: Counter() for view in points}
        for view, *row in self.spark.sql(reads).collect():
            answers[view][tuple(row)] += 1
        wrong = [points[view] for view, answer in answers.items() if answer != truth]
        assert wrong == []

    def leaked(self, view: str) -> list[str]:
        """Files of the view's directory that no commit names."""
        named: set[str] = set()
        for commit in self.directory(view).glob("g*/commits/*"):
            generation = commit.parent.parent
            record = json.loads(commit.read_text("utf-8"))
            named |= {str(commit), str(generation / f"plan-{record['planHash']}.json")}
            named |= {str(generation / s["manifest"]) for s in record["sources"] if s["manifest"]}
            for part in [*record["partitions"], *record.get("lineage", [])]:
                files = [part.get("file"), part.get("checkpoint"), *part.get("changes", [])]
                named |= {str(generation / part["block"] / f["path"]) for f in files if f}
        there = {str(path) for path in self.directory(view).rglob("*") if path.is_file()}
        return sorted(path for path in there - named if not path.endswith("/DROPPED"))
