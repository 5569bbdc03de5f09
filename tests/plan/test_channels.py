"""Channels: which there are, and that they add up to Spark's answer on random rows with NULLs."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from pyspark_ivm.plan.block import BlockPlan
from pyspark_ivm.plan.planner import plan
from tests.plan.builder import Builder, Expr


def two_tables(nullable: bool = True) -> tuple[Builder, Any, Any]:
    q = Builder()
    a = q.table(
        "a",
        nullable=nullable,
        k="int",
        d="decimal(10,2)",
        e="decimal(8,1)",
        i="int",
        b="bigint",
        f="double",
        s="smallint",
    )
    b = q.table(
        "b",
        nullable=nullable,
        k="int",
        d="decimal(10,2)",
        e="decimal(8,3)",
        i="int",
        b="bigint",
        f="double",
        s="smallint",
    )
    return q, a, b


def planned(q: Builder, a: Any, b: Any, *functions: tuple[Any, ...]) -> dict[str, Any]:
    j = q.join(a, b, a.k == b.k)
    return plan(q.export(q.aggregate(j, [a.k], **{f"f{i}": f for i, f in enumerate(functions)})))["ok"]


FACTORED = {
    "sum of two": lambda q, a, b: a.d + b.d,
    "difference": lambda q, a, b: a.d - b.d,
    "product": lambda q, a, b: a.d * b.e,
    "scales differ": lambda q, a, b: a.d + b.e,
    "constant": lambda q, a, b: 2 * (a.d + b.d),
    "constant summand": lambda q, a, b: a.d + b.d + q.lit("1.5", "decimal(2,1)"),
    "two factors of one table": lambda q, a, b: a.d * b.d - b.e,
    "product of sums": lambda q, a, b: (a.d + b.d) * q.lit(3, "decimal(1,0)"),
    "q9": lambda q, a, b: a.d * (1 - a.e) - b.e * a.d,
    "widened ints": lambda q, a, b: a.i.cast("bigint") * b.i.cast("bigint"),
    "ints as decimals": lambda q, a, b: a.i.cast("decimal(10,0)") * b.d,
    "wide": lambda q, a, b: (a.d * a.e) * b.s.cast("decimal(5,0)"),
    "cast of a sum": lambda q, a, b: (a.d + b.d).cast("decimal(20,4)"),
}

REFUSED = {
    "int overflow": lambda q, a, b: a.i + b.i,
    "bigint product": lambda q, a, b: a.b * b.b,
    "doubles": lambda q, a, b: a.f * b.f,
    "division": lambda q, a, b: a.d / b.d,
    "capped decimal": lambda q, a, b: a.d * b.d * b.d * b.d,
    "narrowing cast": lambda q, a, b: (a.d * b.d).cast("decimal(10,2)", throws=True),
    "coalesce": lambda q, a, b: q.call("coalesce", "coalesce(a, b)", [a.d, b.d], "decimal(10,2)"),
    "same table twice": lambda q, a, b: a.d * b.d * a.e,
}


@pytest.mark.parametrize("name", REFUSED)
def test_not_factored_is_two_blocks(name: str) -> None:
    q, a, b = two_tables()
    answer = planned(q, a, b, ("sum", REFUSED[name](q, a, b)))
    assert len(answer["blocks"]) == 2
    assert [r["code"] for r in answer["reasons"]] == ["ARGUMENT_NOT_FACTORED"]


def evaluate(q: Builder, id_: int, row: dict[str, int | None]) -> tuple[int, int] | None:
    """(unscaled value, scale), or None for NULL. Columns hold unscaled integers."""
    e = q.expressions[str(id_)]
    kind = e["type"]
    scale = int(kind.split(",")[1].rstrip(")")) if kind.startswith("decimal") else 0
    if e["op"] == "column":
        value = row[e["columns"][0]]
        return None if value is None else (value, scale)
    if e["op"] == "literal":
        text = e["literal"]
        digits = text.split(".")[1] if "." in text else ""
        return int(text.replace(".", "")) * 10 ** (scale - len(digits)), scale
    children = [evaluate(q, c, row) for c in e["children"]]
    if any(c is None for c in children):
        return None
    values = [c for c in children if c is not None]
    if e["op"] == "cast":
        return values[0][0] * 10 ** (scale - values[0][1]), scale
    (x, sx), (y, sy) = values
    if e["op"] == "multiply":
        return x * y, sx + sy
    x, y = x * 10 ** (scale - sx), y * 10 ** (scale - sy)
    return (x + y if e["op"] == "add" else x - y), scale


def wire_row(q: Builder, columns: list[dict[str, Any]], row: dict[str, int | None]) -> dict[int, int | None]:
    """What the JVM sends: slot → word; `requires` makes a value NULL."""
    found: dict[int, int | None] = {}
    for c in columns:
        value = evaluate(q, c["expr"], row)
        if any(evaluate(q, r, row) is None for r in c.get("requires", ())):
            value = None
        word = None if value is None else value[0]
        if word is not None and "part" in c:
            low = word & ((1 << 64) - 1)
            word = low if c["part"] == 0 else (word - low) >> 64
        found[c["slot"]] = word
    return found


def feature(f: Any, slots: dict[int, int | None]) -> int:
    if f is None:
        return 1
    words = [slots[s] for s in f.slots]
    if f.function == "present":
        return int(all(w is not None for w in words))
    if any(w is None for w in words):
        return 0
    return sum((w or 0) << (64 * i) for i, w in enumerate(words))


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("name", FACTORED)
def test_channels_add_up(name: str, nullable: bool) -> None:
    q, a, b = two_tables(nullable)
    argument: Expr = FACTORED[name](q, a, b)
    answer = planned(q, a, b, ("sum", argument), ("count", argument))
    (block,) = answer["blocks"]
    p = BlockPlan.from_json(block["plan"])
    rng = random.Random(name)
    total, count = 0, 0
    channels = [0] * len(p.channels)
    rows = [
        [
            {c: None if nullable and rng.random() < 0.3 else rng.randint(-9999, 9999) for c in t._columns.values()}
            for _ in range(20)
        ]
        for t in (a, b)
    ]
    for pair in itertools.product(*rows):
        value = evaluate(q, argument.id, {**pair[0], **pair[1]})
        if value is not None:
            total, count = total + value[0], count + 1
        slots = [wire_row(q, i["columns"], r) for i, r in zip(block["inputs"], pair, strict=True)]
        for k, channel in enumerate(p.channels):
            product = 1
            for atom, local in enumerate(channel.factors):
                product *= feature(p.atoms[atom].channels[local].feature, slots[atom])
            channels[k] += product
    read = [channels[k] for k in p.read_channels]
    s, n = block["aggregates"]
    assert sum(int(c) * read[i] for c, i in zip(s["coefficients"], s["sum"], strict=True)) == total
    assert read[s["count"]] == read[n["count"]] == count
    assert count > 0


def test_count_of_what_cannot_be_null_is_the_multiplicity() -> None:
    q, a, b = two_tables(nullable=False)
    answer = planned(q, a, b, ("count", a.d), ("sum", b.d), ("count",))
    p = BlockPlan.from_json(answer["blocks"][0]["plan"])
    assert len(p.channels) == 2 and p.channels[1].kind == "int2"
    assert [x["count"] for x in answer["blocks"][0]["aggregates"]] == [0, 0, 0]


def test_kinds() -> None:
    q, a, b = two_tables()
    answer = planned(q, a, b, ("sum", a.i), ("avg", a.f), ("sum", a.d * a.d), ("sum", a.d * b.d))
    p = BlockPlan.from_json(answer["blocks"][0]["plan"])
    kinds = [p.channels[p.read_channels[x["sum"][0]]].kind for x in answer["blocks"][0]["aggregates"]]
    assert kinds == ["int2", "float", "int3", "int3"]


def test_count_of_several_arguments_and_of_any_type() -> None:
    q = Builder()
    a = q.table("a", k="int", x="array<int>")
    b = q.table("b", k="int", y="string")
    answer = planned(q, a, b, ("count", a.x, b.y))
    p = BlockPlan.from_json(answer["blocks"][0]["plan"])
    assert p.channels[1].factors == (1, 1)
    assert [c["as"] for i in answer["blocks"][0]["inputs"] for c in i["columns"]] == [
        "key",
        "present",
        "key",
        "present",
    ]


def test_throwing_expressions_have_an_error_channel_for_their_atom() -> None:
    q, a, b = two_tables(nullable=False)
    j = q.filter(q.join(a, b, a.k == b.k), (b.d / b.e) > q.lit(1, "double"))
    answer = plan(q.export(q.aggregate(j, [a.k], n=("count", a.d / a.e))))["ok"]
    p = BlockPlan.from_json(answer["blocks"][0]["plan"])
    assert [p.channels[k].factors for k in p.error_channels] == [(2, 0)]
    # b's filter raises whether or not the row joins: such a row is counted for its source, in no channel.
    rows = plan(q.export(q.project(j, x=a.d)))["ok"]["blocks"][0]["plan"]
    assert not rows["error_channels"]


def test_group_by_without_functions() -> None:
    q, a, b = two_tables()
    answer = planned(q, a, b)
    p = BlockPlan.from_json(answer["blocks"][0]["plan"])
    assert p.read_channels == () and p.mode == "aggregate"
