"""The commit log: put-if-absent, hash chain, lineage, damage, retention. Commits cross py4j as their JSON."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

HOUR_MS = 3600 * 1000
NOW_MS = 1_800_000_000_000
ERRORS = (Py4JJavaError, PySparkException)


@pytest.fixture(scope="module")
def state(spark):
    return spark._jvm.org.apache.spark.sql.ivm.state


class View:
    """A view's directory and a commit log over it; writes the files its commits name."""

    def __init__(self, state: Any, directory: Path) -> None:
        self.state, self.directory = state, directory
        self.log = state.CommitLog.apply(str(directory))

    def reopen(self) -> View:
        return View(self.state, self.directory)

    def file(self, block: str, kind: str, partition: int, version: int, attempt: str) -> dict:
        path = f"{kind}/p{partition:03d}/{version}-{attempt}.ivm"
        target = self.directory / block / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"x")
        return {"version": version, "path": path, "length": 1, "checksum": "c", "rows": 3}

    def record(self, version: int, parent: str, attempt: str = "a", **changed: Any) -> str:
        full = changed.pop("full", version == 0)
        partitions = changed.pop("partitions", None)
        if partitions is None:
            kind = "checkpoint" if full else "file"
            made = self.file("b00", "checkpoints" if full else "changes", 0, version, attempt)
            partitions = [{"block": "b00", "partition": 0, "file": None, "checkpoint": None, kind: made}]
        source = {
            "id": "s0", "table": "spark_catalog.default.t", "tableId": "i", "location": "/t", "schemaHash": "h",
            "token": f"v{version}", "manifest": changed.pop("manifest", None), "kind": "files", "raised": 0,
        }  # fmt: skip
        report = {
            "kind": "full" if full else "incremental", "reason": "CREATED" if full else "CHANGES_APPLIED", "rowsIn": 5,
            "rowsChanged": None, "durationMs": 7, "timestampMs": NOW_MS + version * 1000, "estimates": "",
        }  # fmt: skip
        commit = {
            "formatVersion": 1, "version": version, "parent": parent, "attempt": attempt, "viewId": "view",
            "definitionHash": "d", "meaningHash": "m", "planHash": "p", "settingsHash": "s", "partitionCount": 1, "hashFunction": "murmur3",
            "strategy": "yannakakis", "sources": [source], "partitions": partitions, "report": report,
            "liveErrors": 0, "stateBytes": 11, "result": None, **changed,
        }  # fmt: skip
        return json.dumps(commit)

    def commit(self, text: str) -> Any:
        return self.log.tryCommit(self.state.Commit.fromJson(text))

    def grow(self, count: int, **changed: Any) -> None:
        """`count` more commits, one after the other."""
        for _ in range(count):
            latest = self.log.latest()
            version, parent = (latest.get().version() + 1, latest.get().hash()) if latest.isDefined() else (0, "")
            assert self.commit(self.record(version, parent, **changed)).won()

    def commits(self) -> list[str]:
        return sorted(os.listdir(self.directory / "commits"))

    def lineage(self, partition: int = 0, block: str = "b00") -> dict:
        return json.loads(self.log.lineage(block, partition).toJson())


@pytest.fixture
def view(state, tmp_path):
    return View(state, tmp_path / "spark_catalog.default.it's a view" / "g0")


def test_commits_survive_as_written(view):
    assert view.log.latest().isEmpty()
    text = view.record(0, "")
    won = view.commit(text)
    assert won.won()
    raw = (view.directory / "commits" / f"{0:020d}").read_bytes()
    assert json.loads(raw) == json.loads(text)
    assert won.commit().hash() == hashlib.sha256(raw).hexdigest()
    assert json.loads(view.reopen().log.latest().get().toJson()) == json.loads(text)
    assert view.commits() == [f"{0:020d}"], "no temporary file is left"


def test_loser_sees_winner(view):
    view.grow(1)
    first = view.log.latest().get()
    other = view.reopen()
    assert other.log.latest().get().hash() == first.hash()
    assert other.commit(other.record(1, first.hash(), "theirs")).won()
    mine = view.commit(view.record(1, first.hash(), "mine"))
    assert not mine.won()
    assert mine.winner().attempt() == "theirs"
    assert view.log.latest().get().version() == 1


def test_many_writers_race(state, view):
    """Each of 6 writers with a log of its own commits 15 times; every version has one winner, the chain is whole."""
    view.grow(1)
    writers, rounds = 6, 15
    wins: list[list[int]] = [[] for _ in range(writers)]
    failures: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            own = view.reopen()
            latest = own.log.latest().get()
            while len(wins[writer]) < rounds:
                version = latest.version() + 1
                outcome = own.commit(own.record(version, latest.hash(), f"w{writer}-{version}"))
                if outcome.won():
                    wins[writer].append(version)
                    latest = outcome.commit()
                else:
                    assert outcome.winner().attempt() != f"w{writer}-{version}"
                    latest = outcome.winner()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(v for won in wins for v in won) == list(range(1, writers * rounds + 1))
    history = list(view_iter(view.reopen().log.history()))
    assert [c.version() for c in history] == list(range(writers * rounds + 1))
    assert all(b.parent() == a.hash() for a, b in itertools.pairwise(history))


def view_iter(sequence: Any):
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def test_since_and_history(view):
    view.grow(5)
    assert [c.version() for c in view_iter(view.log.since(2))] == [3, 4]
    assert [c.version() for c in view_iter(view.reopen().log.history())] == [0, 1, 2, 3, 4]
    with pytest.raises(ERRORS, match="IVM_VERSION_NOT_FOUND"):
        view.log.read(9)


def test_broken_chain_is_noticed(view):
    view.grow(3)
    path = view.directory / "commits" / f"{1:020d}"
    path.write_text(path.read_text().replace('"rowsIn" : 5', '"rowsIn" : 6'))
    with pytest.raises(ERRORS, match=r"IVM_STATE_DAMAGED.*parent"):
        view.reopen().log.history()
    with pytest.raises(ERRORS, match=r"IVM_STATE_DAMAGED.*parent"):
        view.reopen().log.lineage("b00", 0)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"formatVersion": 1}', '{"formatVersion": 1, "version": 1, "parent": 3}']
)
def test_damaged_commit(view, content):
    view.grow(1)
    (view.directory / "commits" / f"{1:020d}").write_text(content)
    with pytest.raises(ERRORS, match=r"IVM_STATE_DAMAGED.*FULL"):
        view.reopen().log.latest()
    with pytest.raises(ERRORS, match="IVM_STATE_DAMAGED"):
        view.log.latest()


def test_newer_format(view):
    view.grow(1)
    text = view.record(1, view.log.latest().get().hash(), formatVersion=2, unknown=True)
    (view.directory / "commits" / f"{1:020d}").write_text(text)
    with pytest.raises(ERRORS, match=r"IVM_STATE_FORMAT_TOO_NEW.*Upgrade"):
        view.log.latest()


def test_commit_on_a_lost_parent_is_refused(view):
    view.grow(2)
    with pytest.raises(ERRORS, match="IVM_STATE_DAMAGED"):
        view.commit(view.record(5, "nobody"))
    with pytest.raises(ERRORS, match="IVM_STATE_DAMAGED"):
        view.commit(view.record(2, "not the hash"))


def test_lineage_is_checkpoint_and_what_follows(view):
    view.grow(4)
    assert view.lineage()["checkpoint"]["version"] == 0
    assert [c["version"] for c in view.lineage()["changes"]] == [1, 2, 3]
    latest = view.log.latest().get()
    part = {
        "block": "b00", "partition": 0, "file": view.file("b00", "changes", 0, 4, "a"),
        "checkpoint": view.file("b00", "checkpoints", 0, 4, "a"),
    }  # fmt: skip
    other = {"block": "b01", "partition": 2, "file": view.file("b01", "changes", 2, 4, "a"), "checkpoint": None}
    assert view.commit(view.record(4, latest.hash(), partitions=[part, other])).won()
    view.grow(1)
    for log in (view, view.reopen()):
        assert log.lineage()["checkpoint"]["version"] == 4
        assert [c["version"] for c in log.lineage()["changes"]] == [5]
        assert log.lineage(2, "b01") == {"checkpoint": None, "changes": [other["file"]]}
        assert log.lineage(7) == {"checkpoint": None, "changes": []}
        assert [c.version() for c in view_iter(log.log.lineageAt(3).get("b00", 0).changes())] == [1, 2, 3]
    view.grow(1, full=True)
    assert view.lineage()["checkpoint"]["version"] == 6
    assert view.lineage(2, "b01") == {"checkpoint": None, "changes": []}, "a rebuild starts every partition anew"


def test_cold_start_reads_few_commits(view):
    """After a commit that carries the whole lineage, older commits are not needed to find it."""
    view.grow(104)
    for version in range(100):
        (view.directory / "commits" / f"{version:020d}").unlink()
    lineage = view.reopen().lineage()
    assert lineage["checkpoint"]["version"] == 0
    assert [c["version"] for c in lineage["changes"]] == list(range(1, 104))


def test_retention_keeps_the_lineage(state, view):
    view.grow(60)
    view.grow(1, full=True)  # 60
    view.grow(9)  # 61 … 69
    lost = view.file("b00", "changes", 0, 65, "lost")["path"]
    pending = view.file("b00", "changes", 0, 70, "pending")["path"]
    before = view.lineage()
    now = NOW_MS + 48 * HOUR_MS
    # Ten versions by number are 60 … 69; the rebuild at 60 stands for itself.
    assert view.log.cleanUp(now, state.Retention(10, HOUR_MS)) > 0
    assert view.commits() == [f"{v:020d}" for v in range(60, 70)]
    assert not (view.directory / "b00" / lost).exists(), "an attempt of a committed version that lost"
    assert (view.directory / "b00" / pending).exists(), "a refresh at work"
    for log in (view, view.reopen()):
        assert log.lineage() == before
        for record in [before["checkpoint"], *before["changes"]]:
            assert (view.directory / "b00" / record["path"]).exists()
    assert not (view.directory / "b00" / "checkpoints" / "p000" / "0-a.ivm").exists()
    view.grow(1)
    assert view.log.cleanUp(now, state.Retention(10, HOUR_MS)) == 1, "only the attempt that cannot win any more"


def test_retention_without_a_new_checkpoint_keeps_what_the_state_is_made_of(state, view):
    view.grow(70)
    view.log.cleanUp(NOW_MS + 48 * HOUR_MS, state.Retention(5, HOUR_MS))
    assert view.commits() == [f"{v:020d}" for v in range(50, 70)]
    lineage = view.reopen().lineage()
    assert len(lineage["changes"]) == 69
    for record in [lineage["checkpoint"], *lineage["changes"]]:
        assert (view.directory / "b00" / record["path"]).exists()


def test_young_commits_stay(state, view):
    view.grow(60)
    assert view.log.cleanUp(NOW_MS + 59_000, state.Retention(1, HOUR_MS)) == 0
    assert len(view.commits()) == 60


def test_manifests(state, view):
    payload = json.dumps({"files": ["a b", "ä"]})
    name = view.log.writeManifest(payload).get()
    assert name == "manifests/" + hashlib.sha256(payload.encode()).hexdigest()
    assert view.log.writeManifest(payload).get() == name
    assert view.log.writeManifest("").isEmpty()
    some = view.log.writeManifest(payload)
    assert view.log.readManifest(some) == payload
    unused = view.log.writeManifest("never committed").get()
    view.grow(2, manifest=name)
    view.log.cleanUp(int(time.time() * 1000), state.Retention(1, 0))
    assert (view.directory / unused).exists(), "young: a refresh at work may be about to name it"
    view.log.cleanUp(int(time.time() * 1000) + 48 * HOUR_MS, state.Retention(1, 0))
    assert not (view.directory / unused).exists()
    assert (view.directory / name).exists()
    (view.directory / name).write_text("changed")
    with pytest.raises(ERRORS, match="IVM_STATE_DAMAGED"):
        view.log.readManifest(some)
    (view.directory / name).unlink()
    with pytest.raises(ERRORS, match=r"IVM_STATE_DAMAGED.*missing"):
        view.log.readManifest(some)


def test_dropped(view):
    view.grow(2)
    other = view.reopen()
    assert other.log.latest().isDefined()
    view.log.drop()
    assert os.listdir(view.directory) == ["DROPPED"]
    for action in (view.log.latest, other.log.latest, other.log.history, lambda: other.log.read(0)):
        with pytest.raises(ERRORS, match="IVM_VIEW_DROPPED"):
            action()
    with pytest.raises(ERRORS, match="IVM_VIEW_DROPPED"):
        other.commit(other.record(2, "x"))
    view.log.drop()


def test_only_posix_paths(state, tmp_path):
    assert state.CommitLog.apply(f"file:{tmp_path}/a b").directory().toString() == f"{tmp_path}/a b"
    for location in ("s3a://bucket/x", "hdfs://host/x"):
        with pytest.raises(ERRORS, match="IVM_STATE_SCHEME_NOT_SUPPORTED"):
            state.CommitLog.apply(location)


def test_settings(spark, state):
    conf, jspark = state.IvmConf, spark._jsparkSession
    spark.conf.unset("spark.sql.ivm.stateLocation")
    assert conf.stateLocation(jspark).endswith("/_ivm")
    retention = conf.retention(jspark)
    assert (retention.versions(), retention.minAgeMs()) == (100, HOUR_MS)
    assert conf.statePartitions(jspark).isEmpty()
    try:
        spark.conf.set("spark.sql.ivm.retention.minAge", "90s")
        spark.conf.set("spark.sql.ivm.retention.versions", "7")
        spark.conf.set("spark.sql.ivm.statePartitions", "4")
        retention = conf.retention(jspark)
        assert (retention.versions(), retention.minAgeMs()) == (7, 90_000)
        assert conf.statePartitions(jspark).get() == 4
        spark.conf.set("spark.sql.ivm.retention.versions", "none")
        with pytest.raises(ERRORS, match="IVM_SETTING_INVALID"):
            conf.retention(jspark)
    finally:
        for key in ("retention.minAge", "retention.versions", "statePartitions"):
            spark.conf.unset(f"spark.sql.ivm.{key}")
