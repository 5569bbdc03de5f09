"""What reading a view costs: a large view of joined rows against the same rows in Parquet.

    python benchmarks/read.py --rows 10000000

Full read to a noop sink, point lookup, LIMIT 10 and count(*), medians of 7. The view is read ON DEMAND, so no refresh
is in the times; ``refresh on read`` is the same point lookup with the check of the sources in it.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable
from typing import Any

import common
from common import SCHEMA, median, milliseconds, power

VIEW = f"{SCHEMA}.order_lines"
COPY = f"{SCHEMA}.order_lines_parquet"
QUERY = f"SELECT l.lid, l.ok, o.ck, l.qty FROM {SCHEMA}.lineitem l JOIN {SCHEMA}.orders o ON l.ok = o.ok"
FULL_READ = 1.5  # the target: view / Parquet
WARM_UP = 2


def to_noop(spark: Any, table: str) -> None:
    spark.sql(f"SELECT * FROM {table}").write.format("noop").mode("overwrite").save()


def timed(action: Callable[[], Any], repeat: int) -> float:
    return median([milliseconds(action)[0] for _ in range(WARM_UP + repeat)][WARM_UP:])


def measure(spark: Any, rows: int, repeat: int) -> list[tuple[str, float, float]]:
    key = rows // common.LINES_AN_ORDER // 2
    reads: list[tuple[str, Callable[[str], Any]]] = [
        ("full read to noop", lambda table: to_noop(spark, table)),
        ("point lookup (ok = …)", lambda table: spark.sql(f"SELECT * FROM {table} WHERE ok = {key}").collect()),
        ("LIMIT 10", lambda table: spark.sql(f"SELECT * FROM {table} LIMIT 10").collect()),
        ("count(*)", lambda table: spark.sql(f"SELECT count(*) FROM {table}").collect()),
    ]
    results = []
    for name, read in reads:
        times = [timed(lambda r=read, t=table: r(t), repeat) for table in (VIEW, COPY)]
        results.append((name, times[0], times[1]))
        print(f"  {name:24} view {times[0]:8,.0f}  Parquet {times[1]:8,.0f} ms", flush=True)
    [mine], [theirs] = (
        spark.sql(f"SELECT count(*), sum(CAST(xxhash64(*) AS DECIMAL(38,0))) FROM {t}").collect() for t in (VIEW, COPY)
    )
    if mine != theirs:
        raise SystemExit(f"the view and its copy differ: {mine} != {theirs}")
    spark.sql(f"ALTER INCREMENTAL VIEW {VIEW} REFRESH ON READ")
    lookup = reads[1][1]
    results.append(("point lookup, refresh on read", timed(lambda: lookup(VIEW), repeat), results[1][2]))
    return results


def report(spark: Any, results: list[tuple[str, float, float]], rows: int, repeat: int) -> str:
    lines = [
        "## Reading: `python benchmarks/read.py`",
        "",
        f"{common.machine(spark)}. A view of {power(rows)} joined rows, medians of {repeat}.",
        "",
        "| read | view | Parquet | ratio |",
        "|---|---:|---:|---:|",
    ]
    lines += [f"| {name} | {view:,.0f} | {parquet:,.0f} | {view / parquet:.2f} |" for name, view, parquet in results]
    ratio = results[0][1] / results[0][2]
    verdict = "met" if ratio <= FULL_READ else "MISSED"
    return "\n".join([*lines, "", f"- {verdict}: full read is {ratio:.2f}× Parquet (target ≤ {FULL_READ}×)"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dir", type=pathlib.Path, default=common.DIRECTORY, help="generated data (kept), tables and state"
    )
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**7)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--no-write", action="store_true", help="print only, leave RESULTS.md as it is")
    options = parser.parse_args()
    directory = options.dir.resolve()
    spark = common.session(directory)
    common.create_tables(spark, directory, options.rows, "parquet")
    build, _ = milliseconds(
        lambda: spark.sql(f"CREATE INCREMENTAL VIEW {VIEW} REFRESH ON DEMAND REFRESH POLICY AUTO AS {QUERY}").collect()
    )
    print(f"view of {power(options.rows)} rows built in {build:,.0f} ms", flush=True)
    spark.sql(f"CREATE TABLE {COPY} USING parquet AS {QUERY}")
    text = report(spark, measure(spark, options.rows, options.repeat), options.rows, options.repeat)
    print(text)
    if not options.no_write:
        common.write_section("read", text)
    spark.sql(f"DROP INCREMENTAL VIEW IF EXISTS {VIEW}")
    common.drop_schema(spark)
    spark.stop()


if __name__ == "__main__":
    main()
