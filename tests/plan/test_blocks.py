"""The maintenance plan as the JVM reads it: inputs, outputs, what is replaced, equality classes."""

from __future__ import annotations

from typing import Any

from pyspark_ivm.plan.block import BlockPlan
from pyspark_ivm.plan.planner import plan
from tests.plan.builder import Builder
from tests.plan.queries import QUERIES


def only(answer: dict[str, Any]) -> tuple[dict[str, Any], BlockPlan]:
    (block,) = answer["ok"]["blocks"]
    return block, BlockPlan.from_json(block["plan"])


def test_join_keys_are_not_null_and_filters_stay_with_their_atom() -> None:
    block, _ = only(plan(QUERIES["segments"]()))
    assert [i["notNull"] for i in block["inputs"]] == [[0], [0, 1], [0]]
    assert [len(i["filters"]) for i in block["inputs"]] == [0, 1, 0]
    assert [i["source"] for i in block["inputs"]] == ["s0", "s1", "s2"]


def test_wide_decimals_take_two_columns() -> None:
    block, p = only(plan(QUERIES["star_rows"]()))
    assert [o["words"] for o in block["outputs"]] == [1, 1, 1, 2]
    assert len(p.outputs) == 5
    parts = [c for i in block["inputs"] for c in i["columns"] if "part" in c]
    assert [c["part"] for c in parts] == [0, 1]


def test_carried_doubles_keep_their_bits() -> None:
    block, _ = only(plan(QUERIES["star_rows"]()))
    assert sum(c.get("carried", False) for i in block["inputs"] for c in i["columns"]) == 1


def test_double_join_key_is_not_an_output_of_rows() -> None:
    q = Builder()
    a, b = q.table("a", k="double"), q.table("b", k="double")
    block, p = only(plan(q.export(q.project(q.join(a, b, a.k == b.k), x=a.k))))
    assert len(p.variables) == 2 and p.outputs[0].variable == 1
    assert [c.get("carried", False) for c in block["inputs"][0]["columns"]] == [False, True]


def test_rows_block_replaces_the_node_below_the_projection() -> None:
    q = Builder()
    t = q.table("t", x="int", y="int")
    f = q.filter(t, t.x > 1)
    block, p = only(plan(q.export(q.unary("limit", q.unary("sort", q.project(f, z=t.y))))))
    assert block["replaces"] == f["id"] and not block["deltas"]
    assert [q.expressions[str(o["expr"])]["op"] for o in block["outputs"]] == ["column"]
    assert len(p.nodes) == 1 and p.root.atom == 0


def test_equality_is_transitive() -> None:
    q = Builder()
    a, b, c = (q.table(n, k="int", x="int") for n in "abc")
    j = q.join(q.join(a, b, a.k == b.k), c, b.k == c.k, a.k == c.k)
    _, p = only(plan(q.export(q.aggregate(j, [a.k], n=("count",)))))
    assert len(p.variables) == 1 and all(x.variables == (0,) for x in p.atoms)


def test_two_expressions_of_one_atom_in_a_class_are_two_variables() -> None:
    q = Builder()
    a, b = q.table("a", x="int", y="int"), q.table("b", k="int")
    block, p = only(plan(q.export(q.aggregate(q.join(a, b, a.x == b.k, a.y == b.k), [], n=("count",)))))
    assert [x.variables for x in p.atoms] == [(0, 1), (0, 1)]
    assert [len(i["columns"]) for i in block["inputs"]] == [2, 1]


def test_equal_constants_join() -> None:
    q = Builder()
    a, b = q.table("a", k="int", x="int"), q.table("b", k="int")
    j = q.filter(q.join(a, b, type="cross"), a.k == 5, b.k == 5)
    block, p = only(plan(q.export(q.aggregate(j, [a.x], n=("count",)))))
    assert [len(i["filters"]) for i in block["inputs"]] == [1, 1]
    assert p.atoms[1].variables == (0,)


def test_group_by_the_join_expression_uses_its_variable() -> None:
    q = Builder()
    a, b = q.table("a", k="int"), q.table("b", k="bigint")
    j = q.join(a, b, a.k.cast("bigint") == b.k)
    _, p = only(plan(q.export(q.aggregate(j, [a.k.cast("bigint")], n=("count",)))))
    assert len(p.variables) == 1
    _, p = only(plan(q.export(q.aggregate(j, [a.k], n=("count",)))))
    assert len(p.variables) == 2


def test_constant_and_repeated_groups() -> None:
    q = Builder()
    a, b = q.table("a", k="int"), q.table("b", k="int", y="int")
    j = q.join(a, b, a.k == b.k)
    block, p = only(plan(q.export(q.aggregate(j, [q.lit("x", "string"), b.y, b.y], n=("count",)))))
    assert len(block["outputs"]) == 3 and len(p.outputs) == 3
    assert p.outputs[1] == p.outputs[2]


def test_group_spanning_tables_and_residual_go_through_rows() -> None:
    q = Builder()
    a, b = q.table("a", k="int", x="int"), q.table("b", k="int", y="int")
    j = q.join(a, b, a.k == b.k, (a.x + b.y) > q.lit(0))
    answer = plan(q.export(q.aggregate(j, [a.x + b.y], s=("sum", a.x * b.y))))["ok"]
    rows, aggregate = answer["blocks"]
    assert [r["code"] for r in answer["reasons"]] == ["RESIDUAL_PREDICATE"]
    assert rows["deltas"] and len(rows["residual"]) == 1 and rows["replaces"] == j["id"]
    assert aggregate["inputs"][0]["block"] == "b00" and aggregate["inputs"][0]["source"] is None
    p = BlockPlan.from_json(aggregate["plan"])
    assert len(p.error_channels) == 1, "the ANSI sum of the residual may overflow"
    assert {q.expressions[str(o["expr"])]["sql"] for o in rows["outputs"]} == {a.x.data["sql"], b.y.data["sql"]}


def test_global_aggregate() -> None:
    _, p = only(plan(QUERIES["global_aggregate"](), {"partitions": 4}))
    assert p.global_aggregate and p.root.variables == () and p.partials
    q = Builder()
    t = q.table("t", x="int")
    _, p = only(plan(q.export(q.aggregate(t, [], s=("sum", t.x))), {"partitions": 4}))
    assert p.partition is None and len(p.nodes) == 1
