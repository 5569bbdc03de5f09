"""Where the milliseconds of one refresh and of one read go: writes the table of docs/how-it-works.md.

    python benchmarks/milliseconds.py

A warm session, customer ⋈ orders ⋈ lineitem on Parquet, 1,000 rows inserted a round; medians over the rounds. The phases are
those that each refresh records of itself (DESCRIBE HISTORY, column `estimates`) and the metrics of the scan.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections import defaultdict
from typing import Any

import common
import refresh
from common import median, milliseconds, power
from refresh import QUERY, VIEW

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "how-it-works.md"
BEGIN, END = "<!-- milliseconds: begin -->", "<!-- milliseconds: end -->"
CHANGE = 1000
WARM_UP = 25  # rounds until the JVM has compiled what a refresh runs

#: The recorded phases in the order in which they happen, and what each is.
PHASES = {
    "newest commit": "newest commit (one `stat`)",
    "source versions": "source versions (three listings)",
    "changes": "which files are new",
    "plan": "plan of the changes: building, analysing, optimising, physical plan",
    "job": "the Spark job: scan, projection, Arrow to Python and back",
    "worker: state": "… of it in Python: the state, rolled forward",
    "worker: consolidate": "… decoding and consolidating the batch",
    "worker: apply": "… the bottom-up pass",
    "worker: write": "… change file (two fsyncs)",
    "manifests": "manifest of the moved sources (written while the job ran)",
}


def scan_metrics(spark: Any) -> dict[str, float]:
    """The scan's timing metrics of the newest execution that has them, in milliseconds."""
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    for i in range(executions.size() - 1, -1, -1):
        identity = executions.apply(i).executionId()
        values = store.executionMetrics(identity)
        nodes = store.planGraph(identity).allNodes()
        for n in range(nodes.size()):
            if nodes.apply(n).name() == "IncrementalViewScan":
                found = {}
                metrics = nodes.apply(n).metrics()
                for m in range(metrics.size()):
                    metric = metrics.apply(m)
                    value = values.get(metric.accumulatorId())
                    if metric.name().startswith("time to") and value.isDefined():
                        found[metric.name()] = _milliseconds(value.get())
                return found
    return {}


def _milliseconds(text: str) -> float:
    number, unit = text.split("\n")[-1].split(" ")[:2]
    return float(number.replace(",", "")) * {"ms": 1, "s": 1000, "m": 60_000}[unit]


def measure(spark: Any, directory: pathlib.Path, rows: int, repeat: int) -> dict[str, float]:
    common.create_tables(spark, directory, rows, "parquet")
    spark.sql(f"CREATE INCREMENTAL VIEW {VIEW} REFRESH ON DEMAND AS {QUERY}").collect()
    changes = refresh.Changes(spark, "parquet", rows)
    times: dict[str, list[float]] = defaultdict(list)
    for number in range(WARM_UP + repeat):
        done = refresh.round_(spark, directory, "parquet", changes, CHANGE)
        nothing, _ = milliseconds(lambda: spark.sql(f"REFRESH INCREMENTAL VIEW {VIEW}").collect())
        metrics = scan_metrics(spark)
        last = spark.sql(f"DESCRIBE HISTORY INCREMENTAL VIEW {VIEW}").orderBy("version").collect()[-1]
        if number >= WARM_UP:
            for phase, value in json.loads(last["estimates"])["ms"].items():
                times[phase].append(value)
            whole = {
                "bare": done.bare,
                "whole": done.refresh,
                "duration": done.report["duration_ms"],
                "nothing": nothing,
                "read": done.read,
            }
            for name, value in {**whole, **metrics}.items():
                times[name].append(value)
    spark.sql(f"DROP INCREMENTAL VIEW {VIEW}")
    common.drop_schema(spark)
    return {name: median(values) for name, values in times.items()}


def table(spark: Any, ms: dict[str, float], rows: int, repeat: int) -> str:
    def line(text: str, value: float, bold: bool = False) -> str:
        mark = "**" if bold else ""
        return f"| {mark}{text}{mark} | {mark}{value:.1f}{mark} |"

    pin, plan = ms.get("time to pin the version", 0.0), ms.get("time to plan the read", 0.0)
    return "\n".join(
        [
            "## Where the milliseconds go",
            "",
            f"`python benchmarks/milliseconds.py`: {common.machine(spark)}; customer ⋈ orders ⋈ lineitem on Parquet with {power(rows)} line items,",
            f"{CHANGE:,} rows inserted a round, medians of {repeat} rounds after {WARM_UP} to warm up. Every refresh records its own phases:",
            "`DESCRIBE HISTORY INCREMENTAL VIEW v`, column `estimates`.",
            "",
            "| one refresh | ms |",
            "|---|---:|",
            *(line(text, ms[phase]) for phase, text in PHASES.items() if phase in ms),
            line("`duration_ms`: all of this, before the commit", ms["duration"], bold=True),
            line("commit record (fsync, link, read back), parsing, the command, the answer row", ms["whole"] - ms["duration"]),
            line("the whole statement", ms["whole"], bold=True),
            line("a bare `mapInArrow` job over the same files", ms["bare"]),
            line("a REFRESH that finds nothing new (no job)", ms["nothing"]),
            "",
            "| one read (5 groups, `REFRESH ON DEMAND`) | ms |",
            "|---|---:|",
            line("version look-up", pin),
            line("planning the inner query", plan),
            line("parsing, planning the outer query, the job, the rows", ms["read"] - pin - plan),
            line("the whole SELECT", ms["read"], bold=True),
        ]
    )  # fmt: skip


def write(text: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN, 1)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dir", type=pathlib.Path, default=common.DIRECTORY, help="generated data (kept), tables and state"
    )
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**5)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--no-write", action="store_true", help="print only, leave the page as it is")
    options = parser.parse_args()
    directory = options.dir.resolve()
    spark = common.session(directory)
    text = table(spark, measure(spark, directory, options.rows, options.repeat), options.rows, options.repeat)
    print(text)
    if not options.no_write:
        write(text)
    spark.stop()


if __name__ == "__main__":
    main()
