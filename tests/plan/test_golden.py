"""EXPLAIN of the shared queries, letter by letter. ``UPDATE_GOLDEN=1 pytest tests/plan`` writes the files anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_ivm.plan.planner import plan
from tests.plan.queries import QUERIES

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_explain(name: str, update_golden: bool) -> None:
    partitions = 4 if name == "segments" else 1
    answer = plan(QUERIES[name](), {"policy": "AUTO", "partitions": partitions})["ok"]
    text = answer["explain"] + "\n\n== extended ==\n" + answer["explainExtended"] + "\n"
    path = GOLDEN / f"{name}.txt"
    if update_golden:
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_no_golden_file_without_query() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == set(QUERIES)


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_plans_are_deterministic(name: str) -> None:
    assert plan(QUERIES[name]()) == plan(QUERIES[name]())
