"""Block plans made by hand, a naive evaluator of them, and a driver that plays Spark's part of the wire."""

from __future__ import annotations

import itertools
import json
import math
import random
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_ivm.plan.block import (
    CHANNEL_WORDS,
    Atom,
    AtomChannel,
    BlockPlan,
    Channel,
    Column,
    Feature,
    Node,
    OutputColumn,
    Variable,
)  # fmt: skip
from pyspark_ivm.worker import functions

COUNT = AtomChannel("count", None)
ERROR = AtomChannel("count", Feature("error"))


def value(kind: str, *slots: int) -> AtomChannel:
    return AtomChannel(kind, Feature("value", slots))  # type: ignore[arg-type]


def present(*slots: int) -> AtomChannel:
    return AtomChannel("count", Feature("present", slots))


def word(name: str, nullable: bool = False) -> Variable:
    return Variable(name, (Column("word", nullable),))


def text(name: str, nullable: bool = False) -> Variable:
    return Variable(name, (Column("bytes", nullable),))


def node(i: int, variables: tuple[int, ...], key: tuple[int, ...], atom: int | None = None, children: tuple[int, ...] = (),
         guard: int | None = None, connex: bool = False) -> Node:  # fmt: skip
    return Node(i, variables, key, atom, children, guard, connex)


def q3(**changes: Any) -> BlockPlan:
    """customer(ck, seg) ⋈ orders(ok, ck) ⋈ lineitem(ok; price), SUM and COUNT by segment."""
    plan = BlockPlan(
        id="b00", mode="aggregate",
        variables=(word("ck"), word("ok"), text("seg")),
        wire=("word", "word", "bytes", "word"),
        atoms=(
            Atom(0, "customer", "s0", (0, 2), ((0,), (2,)), (COUNT,)),
            Atom(1, "orders", "s1", (1, 0), ((1,), (0,)), (COUNT,)),
            Atom(2, "lineitem", "s2", (1,), ((1,),), (COUNT, value("int2", 3), present(3))),
        ),
        channels=(Channel("count", (0, 0, 0)), Channel("int2", (0, 0, 1)), Channel("count", (0, 0, 2))),
        nodes=(
            node(0, (1,), (1,), atom=2),
            node(1, (1, 0), (1, 0), atom=1),
            node(2, (1, 0), (0,), children=(1, 0), guard=1),
            node(3, (0, 2), (0, 2), atom=0),
            node(4, (0, 2), (2,), children=(3, 2), guard=3),
            node(5, (2,), (), children=(4,), guard=4, connex=True),
        ),
        outputs=(OutputColumn(2, 0),), read_channels=(1, 2, 0), partition=0, partials=True,
    )  # fmt: skip
    return _with(plan, changes)


def star_rows(**changes: Any) -> BlockPlan:
    """R(a; x) ⋈ S(a; y) ⋈ T(a): rows a, x (word and bytes, nullable), y; T only multiplies."""
    plan = BlockPlan(
        id="b01", mode="rows",
        variables=(word("a"), Variable("x", (Column("word", True), Column("bytes", True), Column("word", False))), word("y", True)),
        wire=("word", "word", "bytes", "word"),
        atoms=(
            Atom(0, "r", "s0", (0, 1), ((0,), (1, 2, 3)), (COUNT,)),
            Atom(1, "s", "s1", (2, 0), ((1,), (0,)), (COUNT, ERROR)),
            Atom(2, "t", "s2", (0,), ((0,),), (COUNT,)),
        ),
        channels=(Channel("count", (0, 0, 0)), Channel("count", (0, 1, 0))),
        nodes=(
            node(0, (0, 1), (0,), atom=0, connex=True),
            node(1, (0, 2), (0,), atom=1, connex=True),
            node(2, (0,), (0,), atom=2),
            node(3, (0,), (), children=(0, 1, 2), guard=2, connex=True),
        ),
        outputs=(OutputColumn(0, 0), OutputColumn(1, 0), OutputColumn(1, 1), OutputColumn(1, 2), OutputColumn(2, 0)),
        error_channels=(1,), emits=True, partition=0,
    )  # fmt: skip
    return _with(plan, changes)


def path_rows(**changes: Any) -> BlockPlan:
    """Self-join E(a, b) ⋈ E(b, c), with F(c; d) below: rows a, b, c. Connex: two levels; F is below the frontier."""
    plan = BlockPlan(
        id="b02", mode="rows",
        variables=(word("a"), word("b"), word("c")),
        wire=("word", "word", "word"),
        atoms=(
            Atom(0, "e", "s0", (0, 1), ((0,), (1,)), (COUNT,)),
            Atom(1, "e", "s0", (1, 2), ((0,), (1,)), (COUNT,)),
            Atom(2, "f", "s1", (2,), ((2,),), (COUNT,)),
        ),
        channels=(Channel("count", (0, 0, 0)),),
        nodes=(
            node(0, (0, 1), (1,), atom=0, connex=True),
            node(1, (1, 2), (1, 2), atom=1),
            node(2, (2,), (2,), atom=2),
            node(3, (1, 2), (1,), children=(1, 2), guard=1, connex=True),
            node(4, (1,), (), children=(0, 3), guard=0, connex=True),
        ),
        outputs=(OutputColumn(0, 0), OutputColumn(1, 0), OutputColumn(2, 0)), emits=True, partition=1,
    )  # fmt: skip
    return _with(plan, changes)


def deep_rows(**changes: Any) -> BlockPlan:
    """R(a, b) ⋈ S(b; y) ⋈ T(a) ⋈ U(b): rows a, b, y. The root has connex and non-connex children: its guard is a
    connex leaf."""
    plan = BlockPlan(
        id="b03", mode="rows",
        variables=(word("a"), word("b"), word("y")),
        wire=("word", "word", "word"),
        atoms=(
            Atom(0, "r", "s0", (0, 1), ((0,), (1,)), (COUNT,)),
            Atom(1, "s", "s1", (1, 2), ((1,), (2,)), (COUNT,)),
            Atom(2, "t", "s2", (0,), ((0,),), (COUNT,)),
            Atom(3, "u", "s3", (1,), ((1,),), (COUNT,)),
        ),
        channels=(Channel("count", (0, 0, 0, 0)),),
        nodes=(
            node(0, (0, 1), (0, 1), atom=0),
            node(1, (1, 2), (1,), atom=1, connex=True),
            node(2, (0,), (0,), atom=2),
            node(3, (1,), (1,), atom=3),
            node(4, (1, 0), (), children=(0, 1, 2, 3), guard=0, connex=True),
        ),
        outputs=(OutputColumn(2, 0), OutputColumn(0, 0), OutputColumn(1, 0)), emits=True,
    )  # fmt: skip
    return _with(plan, changes)


def kinds(**changes: Any) -> BlockPlan:
    """R(a, g; v, f) ⋈ S(a, h; u): groups g, h (two connex nodes), every kind of channel, products across atoms,
    errors."""
    plan = BlockPlan(
        id="b04", mode="aggregate",
        variables=(word("a"), word("g", True), text("h")),
        wire=("word", "word", "bytes", "word", "double", "word"),
        atoms=(
            Atom(0, "r", "s0", (0, 1), ((0,), (1,)), (COUNT, value("int2", 3), value("float", 4), present(3), ERROR)),
            Atom(1, "s", "s1", (2, 0), ((2,), (0,)), (COUNT, value("int3", 3, 5), present(3, 5), ERROR)),
        ),
        channels=(
            Channel("count", (0, 0)), Channel("int2", (1, 0)), Channel("int3", (1, 1)), Channel("float", (2, 0)),
            Channel("count", (3, 2)), Channel("float", (2, 2)), Channel("int3", (0, 1)), Channel("count", (4, 0)), Channel("count", (0, 3)),
        ),
        nodes=(
            node(0, (0, 1), (0,), atom=0, connex=True),
            node(1, (0, 2), (0,), atom=1, connex=True),
            node(2, (0,), (), children=(0, 1), guard=0, connex=True),
        ),
        outputs=(OutputColumn(1, 0), OutputColumn(2, 0), OutputColumn(0, 0)),
        read_channels=(0, 1, 2, 3, 4, 5, 6), error_channels=(7, 8), partition=0,
    )  # fmt: skip
    return _with(plan, changes)


def single(**changes: Any) -> BlockPlan:
    """R(g; v, f): one atom, groups g."""
    plan = BlockPlan(
        id="b05", mode="aggregate",
        variables=(text("g", True),),
        wire=("bytes", "word", "double"),
        atoms=(Atom(0, "r", "s0", (0,), ((0,),), (COUNT, value("int2", 1), value("float", 2), ERROR)),),
        channels=(Channel("count", (0,)), Channel("int2", (1,)), Channel("float", (2,)), Channel("count", (3,))),
        nodes=(node(0, (0,), (), atom=0, connex=True),),
        outputs=(OutputColumn(0, 0),), read_channels=(1, 0, 2), error_channels=(3,),
    )  # fmt: skip
    return _with(plan, changes)


def single_rows(**changes: Any) -> BlockPlan:
    plan = BlockPlan(
        id="b06", mode="rows", variables=(Variable("x", (Column("word", False), Column("bytes", True))),), wire=("word", "bytes"),
        atoms=(Atom(0, "r", "s0", (0,), ((0, 1),), (COUNT,)),), channels=(Channel("count", (0,)),),
        nodes=(node(0, (0,), (), atom=0, connex=True),), outputs=(OutputColumn(0, 1), OutputColumn(0, 0)),
    )  # fmt: skip
    return _with(plan, changes)


def total(**changes: Any) -> BlockPlan:
    """Global aggregate over R(a) ⋈ S(a)."""
    plan = BlockPlan(
        id="b07", mode="aggregate", variables=(word("a"),), wire=("word", "word"),
        atoms=(
            Atom(0, "r", "s0", (0,), ((0,),), (COUNT, value("int2", 1))),
            Atom(1, "s", "s1", (0,), ((0,),), (COUNT, value("int2", 1))),
        ),
        channels=(Channel("count", (0, 0)), Channel("int3", (1, 1))),
        nodes=(
            node(0, (0,), (0,), atom=0), node(1, (0,), (0,), atom=1),
            node(2, (0,), (), children=(0, 1), guard=1), node(3, (), (), children=(2,), guard=2, connex=True),
        ),
        outputs=(), read_channels=(0, 1), global_aggregate=True, partition=0, partials=True,
    )  # fmt: skip
    return _with(plan, changes)


ALL = (q3, star_rows, path_rows, deep_rows, kinds, single, single_rows, total)


def _with(plan: BlockPlan, changes: dict[str, Any]) -> BlockPlan:
    import dataclasses

    return dataclasses.replace(plan, **changes)


# -- the naive evaluator ---------------------------------------------------------------------------------------------
Row = tuple[Any, ...]  # the wire slots (None: NULL) and, last, the error flag


def feature(channel: AtomChannel, row: Row) -> Any:
    f = channel.feature
    if f is None:
        return 1
    if f.function == "error":
        return row[-1]
    given = [row[s] for s in f.slots]
    if f.function == "present":
        return int(all(v is not None for v in given))
    if any(v is None for v in given):
        return 0
    return given[0] if len(given) == 1 else (given[1] << 64) + (given[0] & (2**64 - 1))


def evaluate(plan: BlockPlan, bags: list[Counter[Row]]) -> dict[Row, list[Any]]:
    """output columns → channels, over the live rows. Joins with nested loops."""
    out: dict[Row, list[Any]] = {}
    width = len(plan.channels)
    indexed: list[dict[Any, list[tuple[Row, int]]]] = []
    for bag in bags:
        rows = [(r, w) for r, w in bag.items() if w]
        indexed.append({None: rows})
    for choice in itertools.product(*(i[None] for i in indexed)) if len(bags) < 3 else _joined(plan, bags):
        bound: dict[int, Row] = {}
        if not _bind(plan, choice, bound):
            continue
        key = tuple(bound[o.variable][o.column] for o in plan.outputs)
        sums = out.setdefault(key, [0] * width)
        weight = math.prod(w for _, w in choice)
        for c, channel in enumerate(plan.channels):
            x: Any = weight
            for (row, _), atom, f in zip(choice, plan.atoms, channel.factors, strict=True):
                x = _times(x, feature(atom.channels[f], row))
            sums[c] += x
    return {key: sums for key, sums in out.items() if sums[0]}


def _times(a: Any, b: Any) -> Any:
    return 0 if (a == 0 and isinstance(a, int)) or (b == 0 and isinstance(b, int)) else a * b


def _bind(plan: BlockPlan, choice: Any, bound: dict[int, Row]) -> bool:
    for (row, _), atom in zip(choice, plan.atoms, strict=False):
        for v, slots in zip(atom.variables, atom.slots, strict=True):
            got = tuple(row[s] for s in slots)
            if bound.setdefault(v, got) != got:
                return False
    return True


def _joined(plan: BlockPlan, bags: list[Counter[Row]]) -> Any:
    partial: list[tuple[Any, ...]] = [()]
    for bag in bags:
        rows = [(r, w) for r, w in bag.items() if w]
        partial = [c for p in partial for row in rows if _bind(plan, c := (*p, row), {})]
    return partial


# -- Spark's part ----------------------------------------------------------------------------------------------------
TYPES = {"word": pa.int64(), "double": pa.float64(), "bytes": pa.binary()}


@dataclass
class Driver:
    plan: BlockPlan
    directory: Path
    partitions: int = 1
    ratio: float = 0.5
    lineage: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = 0
    bags: list[Counter[Row]] = field(default_factory=list)
    emitted: Counter[Row] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.bags = [Counter() for _ in self.plan.atoms]
        self.hash = f"{self.plan.id}-{uuid.uuid4().hex}"
        self.replicated = [
            a.id for a in self.plan.atoms if self.plan.partition not in a.variables and self.plan.partition is not None
        ]

    def spec(self, **more: Any) -> str:
        sources: dict[str, list[int]] = defaultdict(list)
        for a in self.plan.atoms:
            sources[a.source].append(a.id)
        base = {
            "plan": self.plan.to_json(), "planHash": self.hash, "directory": str(self.directory), "version": self.version,
            "attempt": uuid.uuid4().hex[:8], "build": False, "resync": [], "sources": sources, "replicated": self.replicated,
            "partitions": self.lineage, "checkpointRatio": self.ratio,
        }  # fmt: skip
        return json.dumps({**base, **more})

    def partition_of(self, atom: Atom, row: Row) -> list[int]:
        if self.partitions == 1:
            return [0]
        if atom.id in self.replicated:
            return list(range(self.partitions))
        at = atom.variables.index(self.plan.partition)  # type: ignore[arg-type]
        return [hash(tuple(row[s] for s in atom.slots[at])) % self.partitions]

    def wire(
        self, changes: list[tuple[int, Row, int]], size: int = 7, extra: list[tuple[int, int, int, int]] = ()
    ) -> list[pa.RecordBatch]:  # type: ignore[assignment]
        rows = []
        for atom, row, w in changes:
            used = {s for slots in self.plan.atoms[atom].slots for s in slots}
            used |= {s for c in self.plan.atoms[atom].channels if c.feature for s in c.feature.slots}
            source = self.plan.atoms[atom].source
            for p in self.partition_of(self.plan.atoms[atom], row):
                slots = [v if s in used else None for s, v in enumerate(row[:-1])]
                rows.append((p, atom, w, hash((source, row)), row[-1], *slots))
        rows += [(p, atom, w, h, 0, *([None] * len(self.plan.wire))) for p, atom, w, h in extra]
        schema = pa.schema([
            ("p", pa.int32()), ("atom", pa.int32()), ("w", pa.int64()), ("h", pa.int64()), ("e", pa.int32()),
            *((f"x{i}", TYPES[kind]) for i, kind in enumerate(self.plan.wire)),
        ])  # fmt: skip
        columns = list(zip(*rows, strict=True)) if rows else [[]] * len(schema)
        whole = pa.RecordBatch.from_arrays(
            [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
        )
        return [whole.slice(i, size) for i in range(0, whole.num_rows, size)] if size else [whole]

    def maintain(self, changes: list[tuple[int, Row, int]], commit: bool = True, **more: Any) -> list[dict[str, Any]]:
        extra = more.pop("extra", ())
        batches = self.wire(changes, more.pop("size", 7), extra)
        self.version += 1
        summaries = []
        emitted: Counter[Row] = Counter()
        for batch in functions.maintain(self.spec(**more), iter(batches)):
            for row in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if row[-1] is not None:
                    summaries.append(json.loads(row[-1]))
                else:
                    emitted[row[1:-1]] += row[0]
        if commit and all(s["status"] == "ok" for s in summaries):
            for s in summaries:
                lineage = self.lineage.setdefault(str(s["partition"]), {"checkpoint": None, "changes": []})
                if s["file"]:
                    lineage["changes"].append(s["file"])
                if s["checkpoint"]:
                    lineage.update(checkpoint=s["checkpoint"], changes=[])
            if more.get("resync"):
                for a in more["resync"]:
                    self.bags[a] = Counter()
            for atom, row, w in changes:
                self.bags[atom][row] += w
            for row, w in emitted.items():
                self.emitted[row] += w
        return summaries

    def read(self, splits: int = 1, **more: Any) -> list[Row]:
        jobs = [(p, s, splits) for p in range(self.partitions) for s in range(splits)]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(c, pa.int32()) for c in zip(*jobs, strict=True)], names=["p", "split", "splits"]
        )
        merging = self.plan.partials and self.partitions > 1
        base = {"outputs": list(range(len(self.plan.outputs))), "channels": True, "filters": [], "limit": None}
        spec = self.spec(**{**base, **more, **({"raw": True, "outputs": base["outputs"]} if merging else {})})
        out = functions.enumerate_block(spec, iter([batch]))
        if merging:
            out = functions.merge_partials(self.spec(**{**base, **more}), out)
        return [row for b in out for row in zip(*(c.to_pylist() for c in b.columns), strict=True)]

    # -- comparisons -----------------------------------------------------------------------------------------------
    def expected(self) -> dict[Row, list[Any]]:
        return evaluate(self.plan, self.bags)

    def check(self) -> None:
        expected, got = self.expected(), self.read(splits=2)
        if self.plan.mode == "rows":
            assert Counter(got) == Counter({key: sums[0] for key, sums in expected.items()})
            if self.plan.emits:
                assert {r: w for r, w in self.emitted.items() if w} == {key: sums[0] for key, sums in expected.items()}
            return
        width = len(self.plan.outputs)
        if self.plan.global_aggregate and not expected:
            expected = {(): [0] * len(self.plan.channels)}
        assert len(got) == len(expected) == len({r[:width] for r in got})
        for row in got:
            sums, at = expected[row[:width]], width
            for c in self.plan.read_channels:
                kind = self.plan.channels[c].kind
                if kind == "float":
                    _same_float(row[at], sums[c])
                    at += 1
                    continue
                limbs = row[at : at + CHANNEL_WORDS[kind]]
                at += len(limbs)
                number = sum((limb & (2**64 - 1)) << (64 * i) for i, limb in enumerate(limbs[:-1])) + (
                    limbs[-1] << (64 * (len(limbs) - 1))
                )
                assert (number - sums[c]) % 2 ** (64 * len(limbs)) == 0, (
                    row,
                    c,
                    sums,
                )  # a ring: values may exceed the test data


def _same_float(a: float, b: Any) -> None:
    if math.isnan(b) or math.isinf(b):
        assert a == b or (math.isnan(a) and math.isnan(b))
    else:
        assert abs(a - b) <= 1e-9 * max(1.0, abs(b)), (a, b)


def random_row(plan: BlockPlan, rng: random.Random, domain: int, nulls: bool = True) -> Row:
    nullable = {
        s for a in plan.atoms for v, slots in zip(a.variables, a.slots, strict=True)
        for c, s in zip(plan.variables[v].columns, slots, strict=True) if not c.nullable
    }  # fmt: skip
    keyed = {s for a in plan.atoms for slots in a.slots for s in slots}
    row: list[Any] = []
    for s, kind in enumerate(plan.wire):
        if nulls and s not in nullable and rng.random() < 0.2:
            row.append(None)
        elif kind == "word":
            row.append(
                rng.randrange(domain) - 1
                if s in keyed
                else rng.choice([rng.randrange(-99, 99), rng.randrange(-(2**63), 2**63)])
            )
        elif kind == "double":
            row.append(
                rng.choice(
                    [
                        1.5,
                        -2.25,
                        1e10,
                        0.1,
                        3.0,
                        rng.random(),
                        *([math.nan, math.inf, -math.inf] if rng.random() < 0.05 else []),
                    ]
                )
            )
        else:
            row.append(rng.choice([b"", b"x", b"yy", b"long string of bytes"][:domain]))
    return (*row, int(rng.random() < 0.1))


def normal(plan: BlockPlan, atom: int, row: Row) -> Row:
    """A row as the atom sees it: slots it does not use are NULL."""
    a = plan.atoms[atom]
    used = {s for slots in a.slots for s in slots} | {s for c in a.channels if c.feature for s in c.feature.slots}
    errors = any(c.feature and c.feature.function == "error" for c in a.channels)
    return (*(v if s in used else None for s, v in enumerate(row[:-1])), row[-1] if errors else 0)


def random_changes(driver: Driver, rng: random.Random, rows: int, domain: int) -> list[tuple[int, Row, int]]:
    """Inserts, deletes of what is there, and pairs that cancel; a self-join feeds both atoms the same rows."""
    plan, out = driver.plan, []
    held = [Counter(b) for b in driver.bags]
    by_source: dict[str, list[int]] = defaultdict(list)
    for a in plan.atoms:
        by_source[a.source].append(a.id)
    for _ in range(rows):
        atoms = by_source[rng.choice(sorted(by_source))]
        there = [r for r, w in held[atoms[0]].items() if w > 0]
        if there and rng.random() < 0.45:
            row = rng.choice(there)
            w = -rng.randint(1, held[atoms[0]][row])
        else:
            row, w = normal(plan, atoms[0], random_row(plan, rng, domain)), rng.choice([1, 1, 2, 3])
        for a in atoms:
            held[a][row] += w
            out.append((a, row, w))
    rng.shuffle(out)
    return out
