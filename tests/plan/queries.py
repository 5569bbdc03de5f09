"""The queries that several tests and the golden files share: name → export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.plan.builder import Builder

QUERIES: dict[str, Callable[[], dict[str, Any]]] = {}


def query(f: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    QUERIES[f.__name__] = f
    return f


def _shop(q: Builder, keys: bool) -> tuple[Any, Any, Any]:
    def unique(*names: str) -> list[list[str]] | None:
        return [list(names)] if keys else None

    c = q.table("customer", rows=150_000, unique=unique("c_custkey"), c_custkey="bigint", c_mktsegment="string")
    o = q.table("orders", rows=1_500_000, unique=unique("o_orderkey"), o_orderkey="bigint", o_custkey="bigint",
                o_orderdate="date")  # fmt: skip
    li = q.table("lineitem", rows=6_000_000, l_orderkey="bigint", l_extendedprice="decimal(12,2)",
                 l_discount="decimal(12,2)", l_suppkey="bigint", l_partkey="bigint",
                 l_quantity="decimal(12,2)")  # fmt: skip
    return c, o, li


def _segments(keys: bool) -> dict[str, Any]:
    q = Builder()
    c, o, li = _shop(q, keys)
    j = q.join(q.join(c, o, c.c_custkey == o.o_custkey), li, o.o_orderkey == li.l_orderkey)
    f = q.filter(j, o.o_orderdate < q.lit("1995-03-15", "date"))
    revenue = li.l_extendedprice * (1 - li.l_discount)
    a = q.aggregate(f, [c.c_mktsegment], revenue=("sum", revenue), orders=("count",), mean=("avg", li.l_quantity))
    return q.export(q.unary("sort", a))


@query
def segments_with_keys() -> dict[str, Any]:
    return _segments(True)


@query
def segments() -> dict[str, Any]:
    return _segments(False)


@query
def product_profit() -> dict[str, Any]:
    """TPC-H Q9 without the nation and part tables' filters: a product across tables."""
    q = Builder()
    _, _, li = _shop(q, False)
    s = q.table("supplier", rows=10_000, s_suppkey="bigint", s_nationkey="bigint")
    ps = q.table("partsupp", rows=800_000, ps_suppkey="bigint", ps_partkey="bigint", ps_supplycost="decimal(12,2)")
    n = q.table("nation", rows=25, n_nationkey="bigint", n_name="string")
    j = q.join(li, s, s.s_suppkey == li.l_suppkey)
    j = q.join(j, ps, ps.ps_suppkey == li.l_suppkey, ps.ps_partkey == li.l_partkey)
    j = q.join(j, n, s.s_nationkey == n.n_nationkey)
    profit = li.l_extendedprice * (1 - li.l_discount) - ps.ps_supplycost * li.l_quantity
    return q.export(q.aggregate(j, [n.n_name], profit=("sum", profit)))


@query
def path_not_free_connex() -> dict[str, Any]:
    q = Builder()
    a = q.table("a", x="int", k="int")
    b = q.table("b", k="int", m="int")
    c = q.table("c", m="int", y="int")
    j = q.join(q.join(a, b, a.k == b.k), c, b.m == c.m)
    return q.export(q.aggregate(j, [a.x, c.y], n=("count",)))


@query
def groups_of_two_tables() -> dict[str, Any]:
    """Free-connex only because the join column is grouped by too."""
    q = Builder()
    a = q.table("a", x="int", k="int")
    b = q.table("b", k="int", y="string", v="double")
    j = q.join(a, b, a.k == b.k)
    return q.export(q.aggregate(j, [a.x, b.y, a.k], s=("sum", b.v), n=("count", b.v)))


@query
def star_rows() -> dict[str, Any]:
    q = Builder()
    f = q.table("fact", rows=1_000_000, d1="int", d2="int", v="double", wide="decimal(30,4)")
    d1 = q.table("dim1", rows=100, k="int", name="string")
    d2 = q.table("dim2", rows=50, k="int", name="string")
    j = q.join(q.join(f, d1, f.d1 == d1.k), d2, f.d2 == d2.k)
    return q.export(q.project(q.filter(j, f.v > q.lit(0, "double")), a=d1.name, b=d2.name, v=f.v, w=f.wide))


@query
def self_join_residual() -> dict[str, Any]:
    """Pairs of orders of one customer, the earlier one first: a residual predicate over two atoms."""
    q = Builder()
    a = q.table("orders", rows=500, o_orderkey="bigint", o_custkey="bigint")
    b = q.table("orders", rows=500, o_orderkey="bigint", o_custkey="bigint")
    j = q.join(a, b, a.o_custkey == b.o_custkey, a.o_orderkey < b.o_orderkey)
    return q.export(q.aggregate(j, [a.o_custkey], n=("count",)))


@query
def single_table() -> dict[str, Any]:
    q = Builder()
    t = q.table("t", g="string", x="int", y="int")
    a = q.aggregate(t, [t.g], s=("sum", t.x / t.y), n=("count", t.x))
    return q.export(q.filter(a, q.lit(1) == q.lit(1)))


@query
def global_aggregate() -> dict[str, Any]:
    q = Builder()
    a = q.table("a", k="int", x="bigint")
    b = q.table("b", k="int")
    return q.export(q.aggregate(q.join(a, b, a.k == b.k), [], s=("sum", a.x), n=("count",)))


@query
def triangle() -> dict[str, Any]:
    q = Builder()
    r = q.table("r", x="int", y="int")
    s = q.table("s", y="int", z="int")
    t = q.table("t", z="int", x="int")
    j = q.join(q.join(r, s, r.y == s.y), t, s.z == t.z, t.x == r.x)
    return q.export(q.aggregate(j, [r.x], n=("count",)))


@query
def many_reasons() -> dict[str, Any]:
    q = Builder()
    a = q.table("a", k="int", x="int")
    b = q.table("b", k="int", x="int")
    j = q.join(a, b, a.k == b.k, type="left")
    return q.export(q.aggregate(j, [a.k], m=("max", b.x), d=("count distinct", b.x)))
