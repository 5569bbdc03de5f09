"""Cases that random batches hardly ever meet: retried tasks, cancellation out of sight, very wide rows."""

from __future__ import annotations

import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from pyspark_ivm.plan.block import Atom, BlockPlan, Channel, OutputColumn
from pyspark_ivm.state import store

from . import blocks
from .blocks import COUNT, Driver, node, value, word


def group(name: bytes, v: int, weight: int = 1) -> tuple[int, tuple[Any, ...], int]:
    return 0, (name, v, None, 0), weight


def test_a_retried_task_that_sees_its_rows_in_another_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 1 did the work but its answer was lost; worker 2 did it again and was committed. String ids differ between them."""
    caches: dict[int, OrderedDict] = {1: OrderedDict(), 2: OrderedDict()}
    worker = lambda n: monkeypatch.setattr(store, "_cache", caches[n])  # noqa: E731
    d = Driver(blocks.single(), tmp_path)
    worker(1)
    d.maintain([group(b"a", 1)], attempt="t0", build=True)
    worker(2)
    d.read()
    version = d.version
    worker(1)
    d.maintain([group(b"x", 10), group(b"y", 20)], commit=False, attempt="same")
    d.version = version
    worker(2)
    d.maintain([group(b"y", 20), group(b"x", 10)], attempt="same")
    d.maintain([group(b"x", 1000)])
    answers = []
    for n in (2, 1):
        worker(n)
        answers.append(sorted(map(repr, d.read())))
    assert answers[0] == answers[1]
    d.check()


def statuses(summaries: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(s["status"], s.get("reason")) for s in summaries]


def test_cancellation_in_a_message_that_only_a_read_multiplies(tmp_path: Path) -> None:
    """GROUP BY a.k, a.g, c.h with SUM(b.v): the connex nodes hold counts, the floats come from b's message."""
    plan = BlockPlan(
        id="b00", mode="aggregate", variables=(word("k"), word("g"), word("h")), wire=("word", "word", "double"),
        atoms=(
            Atom(0, "a", "s0", (0, 1), ((0,), (1,)), (COUNT,)),
            Atom(1, "b", "s1", (0,), ((0,),), (COUNT, value("float", 2))),
            Atom(2, "c", "s2", (0, 2), ((0,), (1,)), (COUNT,)),
        ),
        channels=(Channel("count", (0, 0, 0)), Channel("float", (0, 1, 0))),
        nodes=(
            node(0, (0, 1), (0,), atom=0, connex=True), node(1, (0, 2), (0,), atom=2, connex=True), node(2, (0,), (0,), atom=1),
            node(3, (0,), (), children=(2, 0, 1), guard=2, connex=True),
        ),
        outputs=(OutputColumn(0, 0), OutputColumn(1, 0), OutputColumn(2, 0)), read_channels=(1, 0),
    )  # fmt: skip
    d = Driver(plan, tmp_path)
    b = lambda v, w=1: (1, (1, None, v, 0), w)  # noqa: E731
    d.maintain([(0, (1, 5, None, 0), 1), (2, (1, 6, None, 0), 1), b(1.0), b(1e40)], build=True)
    assert statuses(d.maintain([b(1e40, -1)])) == [("failed", "FLOAT_CANCELLATION")]


@pytest.mark.parametrize("seed", range(6))
def test_cancellation_of_many_values(tmp_path: Path, seed: int) -> None:
    """After 20,000 values have come and gone, what they left of themselves must not pass for a sum."""
    rng = random.Random(seed)
    values = [rng.random() * 1e30 for _ in range(20_000)]
    row = lambda v, w: (0, (b"g", 0, v, 0), w)  # noqa: E731
    d = Driver(blocks.single(), tmp_path)
    d.maintain([row(1.0, 1)], build=True)
    d.maintain([row(v, 1) for v in values], size=0)
    rng.shuffle(values)
    found = statuses(d.maintain([row(v, -1) for v in values[:10_000]], size=0))
    found += statuses(d.maintain([row(v, -1) for v in values[10_000:]], size=0))
    assert found[-1] == ("failed", "FLOAT_CANCELLATION")


@pytest.mark.parametrize("left", [1, 500])
def test_what_a_double_double_can_hold_is_kept(tmp_path: Path, left: int) -> None:
    """A value 2^47 times the others goes: they are still there to the last bit."""
    rng = random.Random(left)
    rest = [rng.random() * 8 for _ in range(left)]
    row = lambda v, w: (0, (b"g", 0, v, 0), w)  # noqa: E731
    d = Driver(blocks.single(), tmp_path)
    d.maintain([row(v, 1) for v in rest], build=True)
    d.maintain([row(1e15, 1)])
    assert statuses(d.maintain([row(1e15, -1)])) == [("ok", None)]
    d.check()


def test_the_row_that_is_deleted_too_often_is_named(tmp_path: Path) -> None:
    d = Driver(blocks.single(), tmp_path)
    d.maintain([group(b"alice", 1)], build=True)
    [summary] = d.maintain([group(b"bobby", 7, -1)])
    assert summary["reason"] == "NEGATIVE_MULTIPLICITY"
    assert summary["detail"] == "r: the row with g = 'bobby' stands -1 times", summary["detail"]
