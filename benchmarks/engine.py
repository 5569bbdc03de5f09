"""The engine alone, without Spark: index and bottom-up pass on customer ⋈ orders ⋈ lineitem, SUM and COUNT by segment
(TPC-H Q3-like).

    python benchmarks/engine.py [orders]

Prints a markdown table: rows/s of building, of applying consolidated batches of line items (inserts, then deletes of
them), and of reading a large view. No Spark, no files. Times are processor seconds of the one thread: a busy machine
does not change them.
"""

from __future__ import annotations

import sys
import time

import numpy as np

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
from pyspark_ivm.strategies.yannakakis.block import BlockState, Delta  # noqa: E402
from pyspark_ivm.strategies.yannakakis.layout import BlockLayout  # noqa: E402
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


def read_rate(orders: int, rng: np.random.Generator) -> tuple[int, float]:
    state = BlockState(BlockLayout(rows_plan()))
    state.begin_batch(journaling=False)
    lines = orders * LINES_PER_ORDER
    order = np.column_stack([np.arange(orders), rng.integers(0, orders // 10 + 1, orders)]).astype(np.int64)
    line = np.column_stack([np.repeat(np.arange(orders), LINES_PER_ORDER), np.arange(lines)]).astype(np.int64)
    state.leaf(0).add(order, np.ones((orders, 1), np.int64), signed=True)
    state.leaf(1).add(line, np.ones((lines, 1), np.int64), signed=True)
    state.build()
    reader = Reader({"outputs": [0, 1, 2]}, state.layout)
    begin = time.process_time()
    rows = sum(batch.num_rows for batch in reader.split(state, 0, 1, None))
    return rows, rows / (time.process_time() - begin)


def main() -> None:
    orders = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rng = np.random.default_rng(7)
    print("| what | rows | M rows/s | ms a batch |\n|---|---:|---:|---:|")
    print(
        f"| import numba, then load kernels | | | {1000 * (imported - started):.0f}, then {1000 * (loaded - imported):.0f} |"
    )
    state, rate = build(orders, rng)
    print(f"| build (customer, orders, lineitem) | {orders * (LINES_PER_ORDER + 1):,} | {rate / 1e6:.2f} | |")
    for size in (1, 100, 10_000, 1_000_000):
        rate, milliseconds = apply_rate(state, orders, size, rng)
        print(f"| apply, batch of {size:,} | {min(size, orders):,} | {rate / 1e6:.3f} | {milliseconds:.3f} |")
    rows, rate = read_rate(orders, rng)
    print(f"| read orders ⋈ lineitem, 3 columns | {rows:,} | {rate / 1e6:.1f} | |")


if __name__ == "__main__":
    main()
