"""Every reason code is given for its query, and policies turn reasons into refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyspark_ivm.plan
from pyspark_ivm.plan.planner import plan
from pyspark_ivm.plan.reasons import conditions
from tests.plan.builder import Builder
from tests.plan.queries import QUERIES


def base() -> tuple[Builder, Any, Any]:
    q = Builder()
    return (
        q,
        q.table("a", k="int", x="int", s="string", c="string collate UNICODE_CI"),
        q.table("b", k="int", x="int", y="array<int>"),
    )


def outer(q: Builder, a: Any, b: Any) -> Any:
    return q.project(q.join(a, b, a.k == b.k, type="left"), x=a.x)


def semi(q: Builder, a: Any, b: Any) -> Any:
    return q.project(q.join(a, b, a.k == b.k, type="anti"), x=a.x)


def nested(q: Builder, a: Any, b: Any) -> Any:
    return q.project(q.join(q.aggregate(a, [a.k], n=("count",)), b), x=b.x)


def nested_twice(q: Builder, a: Any, b: Any) -> Any:
    return q.aggregate(q.aggregate(a, [a.k], n=("count",)), [], n=("count",))


def function(name: str) -> Callable[..., Any]:
    return lambda q, a, b: q.aggregate(a, [a.k], f=(name, a.x))


def call(op: str, **fields: Any) -> Callable[..., Any]:
    return lambda q, a, b: q.project(a, v=q.call(f"other:{op}", f"{op}()", [], "int", nullable=False, **fields))


CASES: list[tuple[str, Callable[..., Any]]] = [
    ("OUTER_JOIN", outer),
    ("SEMI_JOIN", semi),
    ("NESTED_AGGREGATE", nested),
    ("NESTED_AGGREGATE", nested_twice),
    ("AGGREGATE_NOT_SUPPORTED", function("max")),
    ("DISTINCT_AGGREGATE", function("sum distinct")),
    ("AGGREGATE_NOT_SUPPORTED", lambda q, a, b: q.aggregate(a, [a.k], f=("sum", a.x.cast("interval day to second")))),
    ("SET_OPERATION", lambda q, a, b: q.opaque("Union", a, b)),
    ("WINDOW", lambda q, a, b: q.opaque("Window", a)),
    ("WINDOW", lambda q, a, b: q.opaque("Something", a, reason="WINDOW")),
    ("GROUPING_SETS", lambda q, a, b: q.opaque("Expand", a)),
    ("GENERATOR", lambda q, a, b: q.opaque("Generate", a)),
    ("UNSUPPORTED_OPERATOR", lambda q, a, b: q.opaque("ScriptTransformation", a)),
    ("UNSUPPORTED_OPERATOR", lambda q, a, b: a),
    ("UNSUPPORTED_OPERATOR", lambda q, a, b: q.project(q.unary("sort", a), x=a.x)),
    ("LIMIT_BELOW", lambda q, a, b: q.aggregate(q.unary("limit", a), [a.k], n=("count",))),
    ("LIMIT_BELOW", lambda q, a, b: q.project(q.join(q.unary("limit", a), b, a.k == b.k), x=a.x)),
    ("SUBQUERY", call("ScalarSubquery")),
    ("NON_DETERMINISTIC", call("Rand", deterministic=False)),
    ("NON_DETERMINISTIC", call("MyUdf", deterministic=False)),
    ("NON_DETERMINISTIC", call("CurrentDate")),
    ("CARTESIAN_PRODUCT", lambda q, a, b: q.project(q.join(a, b, type="cross"), x=a.x)),
    ("CARTESIAN_PRODUCT", lambda q, a, b: q.project(q.join(a, b, a.x < b.x), x=a.x)),
    ("CARTESIAN_PRODUCT", lambda q, a, b: q.project(q.join(a, b, a.x.null_safe(b.x)), x=a.x)),
    ("UNSUPPORTED_TYPE", lambda q, a, b: q.aggregate(b, [b.y], n=("count",))),
    ("UNSUPPORTED_TYPE", lambda q, a, b: q.aggregate(a, [a.c], n=("count",))),
    ("UNSUPPORTED_TYPE", lambda q, a, b: q.project(q.join(a, b, a.k == b.k), y=b.y)),
    (
        "UNSUPPORTED_TYPE",
        lambda q, a, b: q.project(q.join(a, b, a.c == q.call("cast", "", [b.k], a.c.data["type"])), x=a.x),
    ),
]


@pytest.mark.parametrize(("code", "make"), CASES, ids=[f"{c}-{i}" for i, (c, _) in enumerate(CASES)])
def test_reason(code: str, make: Callable[..., Any]) -> None:
    q, a, b = base()
    export = q.export(make(q, a, b))
    answer = plan(export, {"policy": "AUTO"})["ok"]
    assert (answer["strategy"], answer["blocks"]) == ("full", [])
    assert [r["code"] for r in answer["reasons"]] == [code]
    assert f"{code}: {answer['reasons'][0]['sentence']}" in answer["explain"]
    assert not re.search(r"(^| )<\w+>", answer["reasons"][0]["sentence"]), "an unfilled parameter"
    for policy in ("INCREMENTAL", "INCREMENTAL STRICT"):
        error = plan(export, {"policy": policy, "view": "v"})["error"]
        assert error["condition"] == "IVM_NOT_INCREMENTAL"
        assert error["parameters"]["view"] == "v" and error["parameters"]["reasons"].startswith(code + ": ")


def test_all_reasons_at_once() -> None:
    codes = [r["code"] for r in plan(QUERIES["many_reasons"]())["ok"]["reasons"]]
    assert codes == ["AGGREGATE_NOT_SUPPORTED", "DISTINCT_AGGREGATE", "OUTER_JOIN"]


def test_policy_full() -> None:
    answer = plan(QUERIES["segments"](), {"policy": "FULL"})["ok"]
    assert (answer["strategy"], [r["code"] for r in answer["reasons"]]) == ("full", ["POLICY_FULL"])


def test_strict_refuses_tables_that_can_only_be_read_again() -> None:
    q = Builder()
    t = q.table("t", kind="resync", x="int")
    export = q.export(q.aggregate(t, [t.x], n=("count",)))
    assert "ok" in plan(export, {"policy": "INCREMENTAL"})
    error = plan(export, {"policy": "INCREMENTAL STRICT"})["error"]
    assert error == {"condition": "IVM_STRICT_NEEDS_CHANGES", "parameters": {"tables": "spark_catalog.default.t"}}


def test_every_code_of_the_planner_exists_and_every_reason_is_used() -> None:
    text = "".join(p.read_text() for p in Path(pyspark_ivm.plan.__file__).parent.glob("*.py"))
    used = set(re.findall(r'"([A-Z][A-Z]+(?:_[A-Z]+)+|WINDOW|SUBQUERY|GENERATOR)"', text))
    reasons = {c for c, d in conditions().items() if d["kind"] == "reason"}
    assert {c for c in used if c in conditions()} >= {c for c, _ in CASES} | {"CYCLIC_JOIN", "POLICY_FULL"}
    assert {c for c in used if not c.startswith("IVM_")} - {"TYPES"} <= reasons


def test_conditions_are_sorted() -> None:
    path = Path(pyspark_ivm.plan.__file__).parent.parent / "conditions.json"
    assert list(json.loads(path.read_text())) == sorted(conditions())
