"""A shop whose tables change while a view over them stays right: `make demo`.

Customers, orders and line items, about a million rows; a view of revenue and line items by customer segment. Each round
changes some thousand rows, then answers the same question twice: by running the query again, and by refreshing the view.
Uses Delta tables (inserts, updates, deletes) if IVM_DELTA_JARS names the Delta jars, else Parquet tables (inserts).
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

import pyspark_ivm
from pyspark_ivm import api
from pyspark_ivm.screen import jvm_output_to
from pyspark_ivm.session import quiet_log4j2

Answer = TypeVar("Answer")

LINES_PER_ORDER = 4
ORDERS_PER_CUSTOMER = 10
NEW_ORDERS_PER_ROUND = 250
UPDATED_ORDERS_PER_ROUND = 100
DELETED_ORDERS_PER_ROUND = 50
SEGMENTS = ["automobile", "building", "furniture", "household", "machinery"]

QUERY = """
SELECT c.segment, SUM(l.price * (1 - l.discount)) AS revenue, COUNT(*) AS line_items, AVG(l.quantity) AS mean_quantity
FROM customer c JOIN orders o ON o.customer_id = c.customer_id JOIN line_item l ON l.order_id = o.order_id
WHERE o.state <> 'cancelled'
GROUP BY c.segment
"""
CREATE = f"CREATE INCREMENTAL VIEW revenue_by_segment REFRESH ON DEMAND AS {QUERY.strip()}"


@dataclass
class Round:
    change: str
    recompute_ms: float
    refresh_ms: float
    read_ms: float
    rows_in: int
    rows_changed: int | None
    kind: str
    equal: bool


def start(scratch: Path, delta_jars: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet_log4j2().as_uri()}",
    }
    if delta_jars:
        settings |= {
            "spark.jars": delta_jars,
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # For the recompute's sake as much as ours: with the default of 50, reading Delta's log takes longer than either.
            "spark.databricks.delta.snapshotPartitions": "1",
        }
    with jvm_output_to(scratch / "jvm.log"):
        builder = SparkSession.builder.master("local[*]").appName("pyspark-ivm demo").config(map=settings)
        return pyspark_ivm.configure(builder).getOrCreate()


def customers(first: int, count: int) -> str:
    names = ", ".join(f"'{name}'" for name in SEGMENTS)
    return f"""SELECT id AS customer_id, element_at(array({names}), CAST(pmod(hash(id), {len(SEGMENTS)}) AS INT) + 1) AS segment
        FROM range({first}, {first + count})"""


def orders(first: int, count: int, customers: int) -> str:
    return f"""SELECT id AS order_id, pmod(xxhash64(id, 'customer'), {customers}) AS customer_id,
        date_add(DATE'2024-01-01', CAST(pmod(hash(id, 'date'), 730) AS INT)) AS ordered,
        IF(pmod(hash(id, 'state'), 20) = 0, 'cancelled', 'placed') AS state
        FROM range({first}, {first + count})"""


def line_items(first_order: int, orders: int) -> str:
    first, last = first_order * LINES_PER_ORDER, (first_order + orders) * LINES_PER_ORDER
    return f"""SELECT CAST(id DIV {LINES_PER_ORDER} AS BIGINT) AS order_id, CAST(id % {LINES_PER_ORDER} AS INT) AS line,
        CAST(1 + pmod(hash(id, 'quantity'), 50) AS INT) AS quantity,
        CAST((100 + pmod(hash(id, 'price'), 99900)) / 100 AS DECIMAL(12,2)) AS price,
        CAST(pmod(hash(id, 'discount'), 11) / 100 AS DECIMAL(4,2)) AS discount
        FROM range({first}, {last})"""


class Shop:
    def __init__(self, spark: SparkSession, rows: int, *, delta: bool) -> None:
        self.spark, self.delta = spark, delta
        self.orders = rows // (1 + LINES_PER_ORDER)
        self.customers = self.orders // ORDERS_PER_CUSTOMER
        self.next_order = self.orders
        self.first_left = 0
        form = "delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')" if delta else "parquet"
        spark.sql(f"CREATE TABLE customer USING {form} AS {customers(0, self.customers)}")
        spark.sql(f"CREATE TABLE orders USING {form} AS {orders(0, self.orders, self.customers)}")
        spark.sql(f"CREATE TABLE line_item USING {form} AS {line_items(0, self.orders)}")

    def change(self, number: int) -> str:
        """Orders come in; on Delta, some also change their prices and the oldest ones go. Says what happened."""
        new, self.next_order = self.next_order, self.next_order + NEW_ORDERS_PER_ROUND
        self.spark.sql(f"INSERT INTO orders {orders(new, NEW_ORDERS_PER_ROUND, self.customers)}")
        self.spark.sql(f"INSERT INTO line_item {line_items(new, NEW_ORDERS_PER_ROUND)}")
        if not self.delta:
            return "insert"
        if number % 3 == 2:
            start = self.orders // 2 + number * UPDATED_ORDERS_PER_ROUND
            within = f"order_id >= {start} AND order_id < {start + UPDATED_ORDERS_PER_ROUND}"
            self.spark.sql(f"UPDATE line_item SET price = price + 1.00 WHERE {within}")
            return "insert, update"
        if number % 3 == 0:
            old, self.first_left = self.first_left, self.first_left + DELETED_ORDERS_PER_ROUND
            within = f"order_id >= {old} AND order_id < {self.first_left}"
            self.spark.sql(f"DELETE FROM line_item WHERE {within}")
            self.spark.sql(f"DELETE FROM orders WHERE {within}")
            return "insert, delete"
        return "insert"


def timed(action: Callable[[], Answer]) -> tuple[Answer, float]:
    started = time.perf_counter()
    answer = action()
    return answer, (time.perf_counter() - started) * 1000


def play(spark: SparkSession, shop: Shop, number: int) -> Round:
    change = shop.change(number)
    expected, recompute_ms = timed(lambda: spark.sql(QUERY).collect())
    report, refresh_ms = timed(lambda: api.refresh(spark, "revenue_by_segment"))
    answer, read_ms = timed(lambda: spark.table("revenue_by_segment").collect())
    equal = bool(expected) and Counter(map(tuple, expected)) == Counter(map(tuple, answer))
    return Round(
        change, recompute_ms, refresh_ms, read_ms, report["rows_in"], report["rows_changed"], report["kind"], equal
    )


def plot(rounds: list[Round], file: Path) -> bool:
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    os.environ.setdefault("MPLBACKEND", "Agg")
    try:
        from matplotlib import pyplot
    except ImportError:
        return False
    numbers = range(1, len(rounds) + 1)
    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(numbers, [r.recompute_ms for r in rounds], "o-", color="tab:red", label="run the query again")
    axes.plot(numbers, [r.refresh_ms for r in rounds], "o-", color="tab:blue", label="refresh the view")
    axes.set(
        xlabel="round", ylabel="milliseconds", yscale="log", title="Revenue by segment after each round of changes"
    )
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="orders and line items together")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--parquet", action="store_true", help="Parquet tables, even if the Delta jars are there")
    parser.add_argument("--plot", type=Path, default=Path("demo.png"))
    options = parser.parse_args()
    delta_jars = "" if options.parquet else os.environ.get("IVM_DELTA_JARS", "")
    scratch = Path(tempfile.mkdtemp(prefix="pyspark-ivm-demo-"))
    spark = start(scratch, delta_jars)
    try:
        form = "Delta" if delta_jars else "Parquet"
        shop, made_ms = timed(lambda: Shop(spark, options.rows, delta=bool(delta_jars)))
        lines = shop.orders * LINES_PER_ORDER
        sizes = f"{shop.customers:,} customers, {shop.orders:,} orders, {lines:,} line items"
        print(f"{form} tables: {sizes} ({made_ms / 1000:.1f} s)")
        _, created_ms = timed(lambda: spark.sql(CREATE).collect())
        print(
            f"CREATE INCREMENTAL VIEW revenue_by_segment ({created_ms / 1000:.1f} s): customer ⋈ orders ⋈ line_item by segment\n"
        )
        play(spark, shop, 1)  # Not shown: the first run of either pays for class loading and starting workers.
        print(
            "round  change          rows in  recompute    refresh  speed-up     read  rows changed  kind         equal"
        )
        rounds = []
        for number in range(1, options.rounds + 1):
            r = play(spark, shop, number)
            rounds.append(r)
            print(
                f"{number:5}  {r.change:14}  {r.rows_in:7,}  {r.recompute_ms:6,.0f} ms  {r.refresh_ms:6,.0f} ms  "
                f"{r.recompute_ms / r.refresh_ms:6.1f} ×  {r.read_ms:4,.0f} ms  {r.rows_changed if r.rows_changed is not None else '?':>12}  {r.kind:11}  equal: {'yes' if r.equal else 'NO'}"
            )
        print(f"\nEXPLAIN {CREATE}\n")
        print(api.explain(spark, CREATE))
        if plot(rounds, options.plot):
            print(f"\nrecompute against refresh, round by round: {options.plot}")
        else:
            print("\nno plot: matplotlib is not installed (pip install 'pyspark-ivm[plot]')")
        return 0 if all(r.equal for r in rounds) else 1
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
