"""What a refresh costs: against recomputing the query, and against a bare mapInArrow job over the same changes.

    python benchmarks/refresh.py --max 10000000

The view: customer ⋈ orders ⋈ lineitem, SUM and COUNT by segment. A change of m rows is m/5 new orders and the rest line
items, half of them of the new orders (m = 1: one line item); on ``delta-mix`` a fifth of it is deletes, a fifth updates.
In each round: the change is made (not timed), then bare job, refresh, read and recompute are timed, in this order.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import common
from common import SCHEMA, median, milliseconds, power

QUERY = (
    "SELECT c.segment, sum(l.price * (1 - l.disc)) AS revenue, count(*) AS n "
    f"FROM {SCHEMA}.customer c JOIN {SCHEMA}.orders o ON c.ck = o.ck JOIN {SCHEMA}.lineitem l ON l.ok = o.ok GROUP BY c.segment"
)
VIEW = f"{SCHEMA}.revenue"
KEY_LIMIT = 2500  # customers of the smallest size: changes meet the same partners at every size
WARM_UP = 2  # rounds of each case
WARM_UP_SESSION = 15  # rounds before the first case: the JVM compiles what refresh, bare job and recompute run
FIRST_WARM_UP = 100  # their numbers, apart from those of the measured rounds, which are thus the same at every size

FLAT_TIME, BARE_JOB, SPEED_UP = 1.3, 1.5, 15.0  # the targets
TARGET_CHANGE = 1000


@dataclass
class Case:
    source: str
    rows: int
    change: int
    recompute: list[float] = field(default_factory=list)
    refresh: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    rows_in: set[int] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)


class Changes:
    """Makes changes that are a function of the round and the size of the change, never of the base."""

    def __init__(self, spark: Any, source: str, rows: int, before: int = 0) -> None:
        self.spark, self.source, self.round, self.rows = spark, source, before, rows

    def apply(self, change: int) -> None:
        self.round += 1
        first = 10**9 + self.round * 10**6
        orders = change // 5
        updates = deletes = change // 5 if self.source == "delta-mix" else 0
        lines = change - orders - updates - deletes
        if self.source == "delta-mix" and change == 1:
            lines, updates = 0, 1
        key_orders = KEY_LIMIT * common.ORDERS_A_CUSTOMER
        if orders:
            self.spark.sql(
                f"INSERT INTO {SCHEMA}.orders SELECT {first} + id, "
                f"CAST(pmod(xxhash64(id, {self.round}), {KEY_LIMIT}) AS INT), DATE'2025-01-01' FROM range(0, {orders}, 1, 1)"
            )
        if lines:
            key = f"pmod(xxhash64(id, {self.round}), {key_orders})"
            order = f"if(id % 2 = 0, {key}, {first} + id % {orders})" if orders else key
            self.spark.sql(
                f"INSERT INTO {SCHEMA}.lineitem SELECT {first} + id, {order}, 1 + CAST(id % 50 AS INT), "
                f"CAST(10 + id % 100 AS DECIMAL(12,2)), CAST(0.05 AS DECIMAL(4,2)) FROM range(0, {lines}, 1, 1)"
            )
        # Deletes and updates take line items of the base in ascending, disjoint ranges: each exists exactly once.
        if deletes:
            low = (2 * self.round) * deletes
            self.spark.sql(f"DELETE FROM {SCHEMA}.lineitem WHERE lid >= {low} AND lid < {low + deletes}")
        if updates:
            low = (2 * self.round + 1) * updates
            self.spark.sql(
                f"UPDATE {SCHEMA}.lineitem SET price = price + 1 WHERE lid >= {low} AND lid < {low + updates}"
            )

    def possible(self, change: int, rounds: int) -> bool:
        """The mix must find enough line items of the base to delete and update."""
        return self.source != "delta-mix" or (2 * (self.round + rounds) + 2) * (change // 5) < self.rows


class Position:
    """Where the tables stand, and the rows that came since: read as the bare job reads them."""

    def __init__(self, spark: Any, directory: pathlib.Path, source: str) -> None:
        self.spark, self.directory, self.source = spark, directory, source
        self.mark()

    def _state(self, table: str) -> Any:
        if self.source == "parquet":
            return {str(p) for p in (self.directory / "tables" / table).glob("*.parquet")}
        return self.spark.sql(f"DESCRIBE HISTORY {SCHEMA}.{table} LIMIT 1").collect()[0]["version"]

    def mark(self) -> None:
        self.state = {t: self._state(t) for t in ("orders", "lineitem")}

    def changes(self) -> Any | None:
        """The changes since the mark, as the narrow rows that cross to Python."""
        columns = {
            "orders": "1 AS atom, ok, CAST(ck AS BIGINT) AS key, CAST(NULL AS BIGINT) AS value",
            "lineitem": "2 AS atom, ok, CAST(NULL AS BIGINT) AS key, CAST(price * (1 - disc) * 10000 AS BIGINT) AS value",
        }
        parts = []
        for table, before in self.state.items():
            now = self._state(table)
            if now == before:
                continue
            if self.source == "parquet":
                schema = self.spark.table(f"{SCHEMA}.{table}").schema
                rows = self.spark.read.schema(schema).parquet(*sorted(now - before))
                parts.append(rows.selectExpr(*_split(columns[table]), "1L AS w"))
            else:
                rows = self.spark.sql(f"SELECT * FROM table_changes('{SCHEMA}.{table}', {before + 1}, {now})")
                sign = "if(_change_type IN ('delete', 'update_preimage'), -1L, 1L) AS w"
                parts.append(rows.selectExpr(*_split(columns[table]), sign))
        if not parts:
            return None
        union = parts[0]
        for part in parts[1:]:
            union = union.unionAll(part)
        return union


def _split(columns: str) -> list[str]:
    """The columns of a select list without nested commas."""
    return columns.split(", ")


def bare_job(position: Position) -> None:
    def identity(batches: Iterator[Any]) -> Iterator[Any]:  # inside: workers cannot import this module
        yield from batches

    changes = position.changes()
    if changes is not None:
        changes.mapInArrow(identity, changes.schema).write.format("noop").mode("overwrite").save()


def touched(spark: Any) -> str:
    rows = spark.sql(f"DESCRIBE EXTENDED INCREMENTAL VIEW {VIEW}").collect()
    return next((row["value"] for row in rows if row["key"] == "last_refresh_touched"), "")


@dataclass
class Round:
    bare: float
    refresh: float
    read: float
    recompute: float
    report: Any


def round_(spark: Any, directory: pathlib.Path, source: str, changes: Changes, size: int) -> Round:
    position = Position(spark, directory, source)
    changes.apply(size)
    bare, _ = milliseconds(lambda: bare_job(position))
    refresh, [report] = milliseconds(lambda: spark.sql(f"REFRESH INCREMENTAL VIEW {VIEW}").collect())
    read, mine = milliseconds(lambda: spark.sql(f"SELECT * FROM {VIEW}").collect())
    recompute, theirs = milliseconds(lambda: spark.sql(QUERY).collect())
    if sorted(map(tuple, mine)) != sorted(map(tuple, theirs)):
        raise SystemExit(f"wrong answer: {source}, {changes.rows} rows, {size} changed: {mine} != {theirs}")
    return Round(bare, refresh, read, recompute, report)


def measure(
    spark: Any, directory: pathlib.Path, source: str, rows: int, sizes: list[int], repeat: int, warm_up: int
) -> list[Case]:
    kind = "parquet" if source == "parquet" else "delta"
    common.create_tables(spark, directory, rows, kind)
    build, _ = milliseconds(
        lambda: spark.sql(f"CREATE INCREMENTAL VIEW {VIEW} REFRESH ON DEMAND REFRESH POLICY AUTO AS {QUERY}").collect()
    )
    print(f"{source}, {power(rows)} rows: built in {build:,.0f} ms", flush=True)
    changes, cases = Changes(spark, source, rows), []
    others = Changes(spark, source, rows, before=FIRST_WARM_UP)
    for _ in range(warm_up):
        round_(spark, directory, source, others, TARGET_CHANGE)
    for size in sizes:
        if not changes.possible(size, repeat + WARM_UP):
            print(f"  {size:,} changed rows: more deletes and updates than {power(rows)} rows have, left out")
            continue
        case = Case(source, rows, size)
        for number in range(WARM_UP + repeat):
            done = round_(spark, directory, source, changes, size)
            if number >= WARM_UP:
                case.bare.append(done.bare)
                case.refresh.append(done.refresh)
                case.read.append(done.read)
                case.recompute.append(done.recompute)
                case.kinds.add(done.report["kind"])
                case.rows_in.add(done.report["rows_in"])
                case.touched.add(touched(spark))
        cases.append(case)
        print(
            f"  {size:>7,} changed rows: recompute {median(case.recompute):8,.0f}  refresh {median(case.refresh):8,.0f}  "
            f"bare job {median(case.bare):8,.0f}  read {median(case.read):8,.0f} ms  ({', '.join(sorted(case.kinds))})",
            flush=True,
        )
    spark.sql(f"DROP INCREMENTAL VIEW IF EXISTS {VIEW}")
    common.drop_schema(spark)
    return cases


def span(values: set[Any]) -> str:
    known = sorted(values)
    return "" if not known or known == [""] else str(known[0]) if len(known) == 1 else f"{known[0]}–{known[-1]}"


def checks(cases: list[Case]) -> list[str]:
    """The issue's targets, each against what was measured; a target without its measurement says so."""
    lines = []

    def add(passed: bool | None, text: str) -> None:
        lines.append(f"{'not measured' if passed is None else 'met' if passed else 'MISSED'}: {text}")

    for source in sorted({c.source for c in cases}):
        mine = [c for c in cases if c.source == source]
        target = sorted((c for c in mine if c.change == TARGET_CHANGE), key=lambda c: c.rows)
        if len(target) > 1:
            small, large = target[0], target[-1]
            sizes = f"at {power(small.rows)} and {power(large.rows)}"
            add(
                small.rows_in == large.rows_in,
                f"{source}: rows read for {TARGET_CHANGE:,} changed rows {sizes}: {span(small.rows_in)} and {span(large.rows_in)}",
            )
            counted = small.touched != {""} and large.touched != {""}
            add(
                small.touched == large.touched if counted else None,
                f"{source}: tuples touched {sizes}: {span(small.touched)} and {span(large.touched)}",
            )
            ratio = median(large.refresh) / median(small.refresh)
            add(ratio <= FLAT_TIME, f"{source}: time {sizes}: {ratio:.2f}× (target ≤ {FLAT_TIME}×)")
        for case in target:
            ratio = median(case.refresh) / median(case.bare)
            add(
                ratio <= BARE_JOB,
                f"{source}, {power(case.rows)}: refresh is {ratio:.2f}× the bare job (target ≤ {BARE_JOB}×)",
            )
        slower = [c for c in mine if c.change * 100 <= c.rows and median(c.refresh) > median(c.recompute)]
        add(
            not slower,
            f"{source}: never slower than recompute for changes ≤ 1%"
            + "".join(
                f"; {power(c.rows)}/{c.change:,}: {median(c.refresh):,.0f} against {median(c.recompute):,.0f} ms"
                for c in slower
            ),
        )
        largest = [c for c in target if c.rows == 10**7]
        speed = median(largest[0].recompute) / median(largest[0].refresh) if largest else 0.0
        add(
            speed >= SPEED_UP if largest else None,
            f"{source}: at 10^7 rows {speed:.1f}× faster than recompute (target ≥ {SPEED_UP:.0f}×)",
        )
    return lines


def report(spark: Any, cases: list[Case], repeat: int) -> str:
    lines = [
        "## Refresh: `python benchmarks/refresh.py`",
        "",
        f"{common.machine(spark)}. Medians of {repeat} after {WARM_UP} warm-up rounds ({WARM_UP_SESSION} more for each source); every answer compared with the recompute. `customer ⋈ orders ⋈ lineitem`, SUM and COUNT by segment.",
        "",
        "| source | base rows | changed rows | recompute | refresh | bare job | read | refresh/bare | recompute/refresh | rows_in | touched | kind |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for c in cases:
        recompute, refresh, bare = median(c.recompute), median(c.refresh), median(c.bare)
        lines.append(
            f"| {c.source} | {power(c.rows)} | {c.change:,} | {recompute:,.0f} | {refresh:,.0f} | {bare:,.0f} | {median(c.read):,.0f} | "
            f"{refresh / bare:.2f} | {recompute / refresh:.1f} | {span(c.rows_in)} | {span(c.touched)} | {', '.join(sorted(c.kinds))} |"
        )
    return "\n".join([*lines, "", *(f"- {line}" for line in checks(cases))])


def numbers(text: str) -> list[int]:
    return [int(float(part)) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dir", type=pathlib.Path, default=common.DIRECTORY, help="generated data (kept), tables and state"
    )
    parser.add_argument("--rows", type=numbers, default=[10**5, 10**6, 10**7])
    parser.add_argument("--max", type=float, default=10**7, help="leave out larger sizes")
    parser.add_argument("--changes", type=numbers, default=[1, 1000, 100_000])
    parser.add_argument("--sources", default="parquet,delta,delta-mix")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--no-write", action="store_true", help="print only, leave RESULTS.md as it is")
    options = parser.parse_args()
    directory = options.dir.resolve()
    spark = common.session(directory)
    sources = [s for s in options.sources.split(",") if s == "parquet" or common.delta_jars()]
    cases = [
        case
        for source in sources
        for rows in options.rows
        if rows <= options.max
        for case in measure(
            spark,
            directory,
            source,
            rows,
            options.changes,
            options.repeat,
            0 if rows > options.rows[0] else WARM_UP_SESSION,
        )
    ]
    text = report(spark, cases, options.repeat)
    print(text)
    if not options.no_write:
        common.write_section("refresh", text)
    spark.stop()


if __name__ == "__main__":
    main()
