"""The oracle: random data, random batches; after each refresh every view equals Spark's own answer, both ways.

* default: a small seeded sample (``IVM_ORACLE_SAMPLE`` queries, ``IVM_ORACLE_SEED``), for ``make test``
* ``slow``: a larger sample with random queries, for CI
* ``long``: every hand-written query, and 200 random ones, each world with its own rotation of the source kinds and 1 or 4 state
  partitions; writes RESULTS.md
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from .compare import Comparison, Outcome, Summary
from .harness import Query, World
from .queries import QUERIES
from .random_queries import random_query

BATCHES = 5
SLOW_BATCHES = 4
SAMPLE_BATCHES = 3  # with the sample of 12: under four minutes on two idle cores
SEED = int(os.environ.get("IVM_ORACLE_SEED", "1"))
SAMPLE = int(os.environ.get("IVM_ORACLE_SAMPLE", "12"))
SETS = sorted(QUERIES)
LONG_SEED = 101
RANDOM_QUERIES = 200
VIEWS_A_WORLD = 20
SHOWN_FAILURES = 5
REPRODUCTION_LINES = 60


def sample(table_set: str, number: int, seed: int) -> list[Query]:
    order = np.random.default_rng([seed, SETS.index(table_set)]).permutation(len(QUERIES[table_set]))
    return [QUERIES[table_set][i] for i in order[:number]]


def chunks(queries: list[Query]) -> list[list[Query]]:
    return [queries[i : i + VIEWS_A_WORLD] for i in range(0, len(queries), VIEWS_A_WORLD)]


def run_world(
    spark: Any,
    table_set: str,
    queries: list[Query],
    seed: int,
    *,
    on_read: bool = False,
    batches: int = BATCHES,
    directory: pathlib.Path,
) -> Summary:
    """Creates the views, applies the batches, compares after each; the summary says what was and was not proven."""
    summary = Summary(batches=batches)
    with World(spark, table_set, seed, partitions=(1, 4)[seed % 2]) as world:
        world.create_views(queries, on_read=on_read)
        comparison = Comparison(world)
        live = []
        for view in world.views:
            if view.created_error:
                _record(summary, world, Outcome(view, -1, failure=f"CREATE failed: {view.created_error}"), directory)
            else:
                live.append(view)
        for outcome in comparison.run(live, -1) if live else []:
            _record(summary, world, outcome, directory)
        for number in range(batches):
            batch = world.step()
            compared = []
            for view in live:
                wrong: list[str] = []
                if not on_read:
                    try:
                        wrong = world.kind_errors(view, batch, world.refresh(view))
                    except Exception as error:
                        wrong = [f"REFRESH failed: {type(error).__name__}: {str(error)[:600]}"]
                if wrong:
                    _record(summary, world, Outcome(view, number, failure="; ".join(wrong)), directory)
                if not any(w.startswith("REFRESH failed") for w in wrong):
                    compared.append(view)
            for outcome in comparison.run(compared, number) if compared else []:
                _record(summary, world, outcome, directory)
            if on_read:
                for view in compared:
                    touched = sum(batch.changed.get(t, 0) for t in view.query.tables)
                    kind = world.describe(view)["last_refresh_kind"]
                    if touched and view.strategy != "full" and kind != "incremental":
                        _record(
                            summary, world, Outcome(view, number, failure=f"the read refreshed by {kind}"), directory
                        )
    return summary


def _record(summary: Summary, world: World, outcome: Outcome, directory: pathlib.Path) -> None:
    known = len(summary.failures)
    summary.add(outcome, world)
    if outcome.failure and known < SHOWN_FAILURES:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{world.schema}.{outcome.view.query.name}.sql"
        text = world.reproduction(outcome.view.query)
        path.write_text(text, encoding="utf-8")
        lines = text.splitlines()
        print(f"\n=== {summary.failures[-1]}\n=== reproduction ({path}):")
        print("\n".join(line[:400] for line in lines[:REPRODUCTION_LINES]))


def verdict(summary: Summary, capacity: str = "") -> None:
    print(
        f"\noracle {capacity}: {len(summary.queries)} queries, {summary.batches} batches, {summary.comparisons} comparisons, "
        f"{len(summary.vacuous)} vacuous, {len(summary.failures)} failures"
    )
    for line in summary.vacuous[:SHOWN_FAILURES]:
        print(f"  vacuous: {line}")
    assert not summary.failures, "\n".join(summary.failures[:20])
    unproven = sorted(summary.queries - summary.proven)
    # A query whose every comparison is vacuous has not been tested; only random ones may be so, and few.
    assert not [q for q in unproven if not q.startswith("random_")], f"nothing proven for {unproven}"
    assert len(unproven) * 4 <= len(summary.queries), f"nothing proven for {len(unproven)} queries: {unproven}"


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(os.environ.get("IVM_ORACLE_REPRODUCTIONS", str(tmp_path)))


@pytest.mark.parametrize("table_set", SETS)
def test_sample(spark: Any, table_set: str, directory: pathlib.Path) -> None:
    number = max(1, SAMPLE // len(SETS))
    seed = SEED + SETS.index(table_set)
    queries = sample(table_set, number, SEED)
    verdict(run_world(spark, table_set, queries, seed, batches=SAMPLE_BATCHES, directory=directory), table_set)


def test_reading_alone_refreshes(spark: Any, directory: pathlib.Path) -> None:
    queries = [q for q in QUERIES["shop"] if q.name in ("shop_revenue_by_segment", "shop_customer_orders_rows")]
    verdict(run_world(spark, "shop", queries, SEED + 50, on_read=True, batches=2, directory=directory), "on read")


@pytest.mark.slow
@pytest.mark.parametrize("table_set", SETS)
def test_larger_sample(spark: Any, table_set: str, directory: pathlib.Path) -> None:
    seed = SEED + 10 + SETS.index(table_set)
    queries = sample(table_set, 2 * SAMPLE // 3 or 1, SEED + 1) + [
        random_query(table_set, SEED * 1000 + i) for i in range(4)
    ]
    verdict(
        run_world(spark, table_set, queries, seed, batches=SLOW_BATCHES, directory=directory), f"{table_set}, larger"
    )


# -- the long run ---------------------------------------------------------------------------------------------------

_long_results: list[tuple[str, Summary]] = []


@pytest.fixture(scope="module")
def results() -> Iterator[list[tuple[str, Summary]]]:
    yield _long_results
    if _long_results:
        (pathlib.Path(__file__).parent / "RESULTS.md").write_text(results_table(_long_results), encoding="utf-8")


def results_table(parts: list[tuple[str, Summary]]) -> str:
    total = Summary()
    lines = [
        "# The oracle's long run",
        "",
        "Written by `pytest -m long tests/oracle`. A comparison is one view against Spark's answer after one batch; *vacuous* ones",
        "(both sides empty, or not kept incrementally) prove nothing and are not counted as passes.",
        "",
        "| part | queries | batches | comparisons | vacuous | failures |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, part in parts:
        total.merge(part)
        lines.append(_line(name, part))
    lines.append(_line("**all**", total))
    for title, items in (("Failures", total.failures), ("Vacuous", total.vacuous)):
        if items:
            lines += ["", f"## {title}", "", *(f"- {item.splitlines()[0][:300]}" for item in items[:200])]
    return "\n".join(lines) + "\n"


def _line(name: str, s: Summary) -> str:
    return f"| {name} | {len(s.queries)} | {s.batches} | {s.comparisons} | {len(s.vacuous)} | {len(s.failures)} |"


HAND_WRITTEN = [(s, i) for s in SETS for i in range(len(chunks(QUERIES[s])))]
RANDOM = [(SETS[w % len(SETS)], w) for w in range(-(-RANDOM_QUERIES // VIEWS_A_WORLD))]


@pytest.mark.long
@pytest.mark.parametrize(("table_set", "chunk"), HAND_WRITTEN)
def test_all_hand_written(
    spark: Any, results: list[tuple[str, Summary]], table_set: str, chunk: int, directory: pathlib.Path
) -> None:
    seed = LONG_SEED + HAND_WRITTEN.index((table_set, chunk))
    summary = run_world(spark, table_set, chunks(QUERIES[table_set])[chunk], seed, batches=6, directory=directory)
    results.append((f"{table_set} {chunk}, seed {seed}", summary))
    verdict(summary, f"{table_set} {chunk}")


@pytest.mark.long
@pytest.mark.parametrize(("table_set", "world"), RANDOM)
def test_random(
    spark: Any, results: list[tuple[str, Summary]], table_set: str, world: int, directory: pathlib.Path
) -> None:
    numbers = range(world * VIEWS_A_WORLD, min((world + 1) * VIEWS_A_WORLD, RANDOM_QUERIES))
    summary = run_world(
        spark, table_set, [random_query(table_set, 5000 + i) for i in numbers], 500 + world, directory=directory
    )
    results.append((f"random {table_set} {world}", summary))
    verdict(summary, f"random {world}")


def test_at_least_sixty_queries() -> None:
    """No Spark: the promise of the issue, and that names are unique (they name views)."""
    incremental = [q for qs in QUERIES.values() for q in qs if q.expected[0] == "yannakakis"]
    assert len(incremental) >= 60
    assert len({q.name for q in incremental}) == len(incremental)
