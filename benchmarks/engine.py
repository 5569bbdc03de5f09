"""The engine alone, without Spark: index and bottom-up pass on customer ⋈ orders ⋈ lineitem, SUM and COUNT by segment
(TPC-H Q3-like), and reading of large views.

    python benchmarks/engine.py [--orders N] [--rows N] [--dry]

Writes its table to RESULTS.md (not with --dry). Times are processor seconds of one thread: a busy machine makes them longer
only by what the neighbours take of the shared caches and memory.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_ivm.index import cache

started = time.process_time()
import numba  # noqa: E402, F401

imported = time.process_time()
cache.warmup()
loaded = time.process_time()

from pyspark_ivm.plan.block import (  # noqa: E402
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
from pyspark_ivm.state import store  # noqa: E402
from pyspark_ivm.strategies.yannakakis.block import BlockState, Delta  # noqa: E402
from pyspark_ivm.strategies.yannakakis.layout import BlockLayout  # noqa: E402
from pyspark_ivm.worker import functions  # noqa: E402
from pyspark_ivm.worker.reading import Reader  # noqa: E402

COUNT = AtomChannel("count", None)
CUSTOMER, ORDERS, LINEITEM = range(3)
LINES_PER_ORDER = 4


def q3_plan() -> BlockPlan:
    ck, ok, seg = range(3)
    return BlockPlan(
        id="b00", mode="aggregate",
        variables=tuple(Variable(name, (Column("word", False),)) for name in ("custkey", "orderkey", "segment")),
        wire=("word", "word", "word", "word"),
        atoms=(
            Atom(CUSTOMER, "customer", "s0", (ck, seg), ((0,), (2,)), (COUNT,)),
            Atom(ORDERS, "orders", "s1", (ok, ck), ((1,), (0,)), (COUNT,)),
            Atom(LINEITEM, "lineitem", "s2", (ok,), ((1,),), (COUNT, AtomChannel("int2", Feature("value", (3,))))),
        ),
        channels=(Channel("count", (0, 0, 0)), Channel("int2", (0, 0, 1))),
        nodes=(
            Node(0, (ok,), (ok,), LINEITEM, (), None, False),
            Node(1, (ok, ck), (ok, ck), ORDERS, (), None, False),
            Node(2, (ok, ck), (ck,), None, (1, 0), 1, False),
            Node(3, (ck, seg), (ck, seg), CUSTOMER, (), None, False),
            Node(4, (ck, seg), (seg,), None, (3, 2), 3, False),
            Node(5, (seg,), (), None, (4,), 4, True),
        ),
        outputs=(OutputColumn(seg, 0),), read_channels=(0, 1),
    )  # fmt: skip


def rows_plan() -> BlockPlan:
    """lineitem ⋈ orders as rows: (orderkey, custkey, line)."""
    ok, ck, line = range(3)
    return BlockPlan(
        id="b01", mode="rows",
        variables=tuple(Variable(name, (Column("word", False),)) for name in ("orderkey", "custkey", "line")),
        wire=("word", "word", "word"),
        atoms=(
            Atom(0, "orders", "s0", (ok, ck), ((0,), (1,)), (COUNT,)),
            Atom(1, "lineitem", "s1", (ok, line), ((0,), (2,)), (COUNT,)),
        ),
        channels=(Channel("count", (0, 0)),),
        nodes=(
            Node(0, (ok, ck), (ok,), 0, (), None, True),
            Node(1, (ok, line), (ok,), 1, (), None, True),
            Node(2, (ok,), (), None, (0, 1), 0, True),
        ),
        outputs=(OutputColumn(ok, 0), OutputColumn(ck, 0), OutputColumn(line, 0)),
    )  # fmt: skip


def table_plan() -> BlockPlan:
    """One table as rows of three columns."""
    return BlockPlan(
        id="b02", mode="rows", variables=(Variable("row", (Column("word", False),) * 3),), wire=("word",) * 3,
        atoms=(Atom(0, "lineitem", "s0", (0,), ((0, 1, 2),), (COUNT,)),), channels=(Channel("count", (0,)),),
        nodes=(Node(0, (0,), (), 0, (), None, True),), outputs=tuple(OutputColumn(0, i) for i in range(3)),
    )  # fmt: skip


def vectors(weights: np.ndarray, prices: np.ndarray) -> np.ndarray:
    out = np.empty((len(weights), 3), np.int64)
    out[:, 0] = weights
    out[:, 1] = weights * prices
    out[:, 2] = out[:, 1] >> 63
    return out


def build(orders: int, rng: np.random.Generator) -> tuple[BlockState, float]:
    state = BlockState(BlockLayout(q3_plan()))
    customers = max(10, orders // 10)
    ones = np.ones((orders, 1), np.int64)
    lines = orders * LINES_PER_ORDER
    customer = np.column_stack([np.arange(customers), rng.integers(0, 5, customers)]).astype(np.int64)
    order = np.column_stack([np.arange(orders), rng.integers(0, customers, orders)]).astype(np.int64)
    keys = np.repeat(np.arange(orders, dtype=np.int64), LINES_PER_ORDER).reshape(-1, 1)
    line_vectors = vectors(np.ones(lines, np.int64), rng.integers(1, 10**7, lines))
    begin = time.process_time()
    state.begin_batch(journaling=False)
    state.leaf(CUSTOMER).add(customer, np.ones((customers, 1), np.int64), signed=True)
    state.leaf(ORDERS).add(order, ones, signed=True)
    for first in range(0, lines, 1 << 16):
        state.leaf(LINEITEM).add(keys[first : first + (1 << 16)], line_vectors[first : first + (1 << 16)], signed=True)
    state.build()
    return state, (lines + orders + customers) / (time.process_time() - begin)


def apply_rate(state: BlockState, orders: int, size: int, rng: np.random.Generator) -> tuple[float, float]:
    """(rows/s, milliseconds a batch), median over repetitions."""
    size = min(size, orders)
    times = []
    for repetition in range(max(4, min(200, 400_000 // size))):
        if repetition % 2 == 0:  # insert a row for each of some orders; the next batch takes them back
            keys = rng.permutation(orders)[:size].astype(np.int64).reshape(-1, 1)
            prices = rng.integers(1, 10**7, size)
        delta = Delta(keys, vectors(np.full(size, 1 if repetition % 2 == 0 else -1), prices))
        begin = time.process_time()
        state.begin_batch()
        state.apply({LINEITEM: delta})
        times.append(time.process_time() - begin)
    median = sorted(times)[len(times) // 2]
    return size / median, median * 1000


class Worker:
    """The whole of ``maintain``: Arrow rows and the JSON spec in, change file and summary out."""

    def __init__(self, directory: Path, orders: int, rng: np.random.Generator) -> None:
        self.directory, self.orders, self.rng = directory, orders, rng
        self.plan = q3_plan().to_json()
        self.lineage: dict[str, Any] = {"checkpoint": None, "changes": []}
        self.version = 0
        customers = max(10, orders // 10)
        self.absorb(
            [
                self.wire(CUSTOMER, customers, {0: np.arange(customers), 2: rng.integers(0, 5, customers)}),
                self.wire(ORDERS, orders, {1: np.arange(orders), 0: rng.integers(0, customers, orders)}),
            ],
            build=True,
        )

    def wire(self, atom: int, rows: int, slots: dict[int, np.ndarray]) -> pa.RecordBatch:
        columns = [
            pa.array(np.zeros(rows, np.int32)),
            pa.array(np.full(rows, atom, np.int32)),
            pa.array(np.ones(rows, np.int64)),
            pa.array(self.rng.integers(0, 2**62, rows)),
            pa.array(np.zeros(rows, np.int32)),
            *(pa.array(slots[i]) if i in slots else pa.nulls(rows, pa.int64()) for i in range(4)),
        ]
        return pa.RecordBatch.from_arrays(columns, names=["p", "atom", "w", "h", "e", "x0", "x1", "x2", "x3"])

    def absorb(self, batches: list[pa.RecordBatch], build: bool = False) -> float:
        self.version += 1
        spec = json.dumps({
            "plan": self.plan, "planHash": "benchmark", "directory": str(self.directory), "version": self.version,
            "attempt": "0", "build": build, "resync": [], "replicated": [], "checkpointRatio": 0.5,
            "sources": {"s0": [CUSTOMER], "s1": [ORDERS], "s2": [LINEITEM]}, "partitions": {"0": self.lineage},
        })  # fmt: skip
        begin = time.thread_time()
        out = list(functions.maintain(spec, iter(batches)))
        spent = time.thread_time() - begin
        summary = json.loads(out[-1].column("s")[0].as_py())
        assert summary["status"] == "ok", summary
        if summary["checkpoint"]:
            self.lineage = {"checkpoint": summary["checkpoint"], "changes": []}
        elif summary["file"]:
            self.lineage["changes"].append(summary["file"])
        return spent

    def lines(self, rows: int) -> float:
        keys, prices = self.rng.integers(0, self.orders, rows), self.rng.integers(1, 10**7, rows)
        return self.absorb([self.wire(LINEITEM, rows, {1: keys, 3: prices})])


def filled(plan: BlockPlan, leaves: dict[int, np.ndarray]) -> BlockState:
    state = BlockState(BlockLayout(plan))
    state.begin_batch(journaling=False)
    for atom, keys in leaves.items():
        for first in range(0, len(keys), 1 << 16):
            part = np.ascontiguousarray(keys[first : first + (1 << 16)])
            state.leaf(atom).add(part, np.ones((len(part), 1), np.int64), signed=True)
    state.build()
    return state


def read_table(rows: int, rng: np.random.Generator) -> BlockState:
    columns = [np.arange(rows) // LINES_PER_ORDER, rng.integers(0, rows // 40 + 1, rows), np.arange(rows)]
    return filled(table_plan(), {0: np.column_stack(columns).astype(np.int64)})


def read_join(rows: int, rng: np.random.Generator) -> BlockState:
    orders = rows // LINES_PER_ORDER
    order = np.column_stack([np.arange(orders), rng.integers(0, orders // 10 + 1, orders)]).astype(np.int64)
    line = np.column_stack([np.arange(rows) // LINES_PER_ORDER, np.arange(rows)]).astype(np.int64)
    return filled(rows_plan(), {0: order, 1: line})


def parquet_rate(state: BlockState, directory: Path) -> float:
    """The same rows from a Parquet file, read batch by batch on one thread."""
    schema = Reader({"outputs": [0, 1, 2]}, state.layout).schema
    path = directory / "view.parquet"
    with pq.ParquetWriter(path, schema) as writer:
        for batch in Reader({"outputs": [0, 1, 2]}, state.layout).split(state, 0, 1, None):
            writer.write_batch(batch)
    file = pq.ParquetFile(path)
    return best_rate(lambda: sum(b.num_rows for b in file.iter_batches(1 << 16, use_threads=False)))


def best_rate(read: Callable[[], int]) -> float:
    """rows/s, median of 3."""
    rates = []
    for _ in range(3):
        begin = time.process_time()
        rows = read()
        rates.append(rows / (time.process_time() - begin))
    return sorted(rates)[1]


def read_rate(state: BlockState) -> float:
    return best_rate(
        lambda: sum(b.num_rows for b in Reader({"outputs": [0, 1, 2]}, state.layout).split(state, 0, 1, None))
    )


def table(orders: int, rows: int) -> list[str]:
    rng = np.random.default_rng(7)
    out = ["| what | rows | M rows/s | ms of processor time |", "|---|---:|---:|---:|"]

    def line(what: str, count: int | None, rate: float | None, milliseconds: float | None) -> None:
        cells = [
            what,
            f"{count:,}" if count else "",
            f"{rate / 1e6:.3g}" if rate else "",
            f"{milliseconds:.3g}" if milliseconds else "",
        ]
        out.append(f"| {' | '.join(cells)} |")
        print(out[-1], flush=True)

    line("import numba", None, None, 1000 * (imported - started))
    line("load the kernels after that", None, None, 1000 * (loaded - imported))
    state, rate = build(orders, rng)
    total = orders * (LINES_PER_ORDER + 1) + orders // 10
    line("build the state of customer, orders, lineitem", total, rate, 1000 * total / rate)
    for size in (1, 100, 10_000, 1_000_000):
        rate, milliseconds = apply_rate(state, orders, size, rng)
        line("apply a consolidated batch of line items", min(size, orders), rate, milliseconds)
    del state
    with tempfile.TemporaryDirectory() as directory:
        worker = Worker(Path(directory) / "state", orders, rng)
        for size in (1, 100, 10_000, 100_000):
            times = sorted(worker.lines(size) for _ in range(21 if size < 10_000 else 9))
            middle = times[len(times) // 2]
            line("maintain: decode, consolidate, apply, write the change file", size, size / middle, 1000 * middle)
        store.clear_cache()
        for what, make in (("one table", read_table), ("orders ⋈ lineitem", read_join)):
            held = make(rows, rng)
            rate, parquet = read_rate(held), parquet_rate(held, Path(directory))
            line(f"read {what}, 3 columns", rows, rate, 1000 * rows / rate)
            line("the same from Parquet (pyarrow)", rows, parquet, 1000 * rows / parquet)
    return out


def main() -> None:
    options = argparse.ArgumentParser(description="the engine alone, without Spark")
    options.add_argument("--orders", type=int, default=1_000_000)
    options.add_argument("--rows", type=int, default=10_000_000, help="rows of the views that are read")
    options.add_argument("--dry", action="store_true", help="do not write RESULTS.md")
    given = options.parse_args()
    text = "\n".join(table(given.orders, given.rows))
    if not given.dry:
        common.write_section(
            "engine",
            "## The engine alone (`python benchmarks/engine.py`)\n\n"
            f"{common.host()}. One thread, processor time, medians. State: {given.orders:,} orders, {LINES_PER_ORDER} line items "
            f"each, a tenth as many customers; SUM and COUNT by segment.\n\n{text}",
        )


if __name__ == "__main__":
    main()
