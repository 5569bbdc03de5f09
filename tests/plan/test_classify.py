"""Classes and trees of the shared queries, and the hypergraph notions by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_ivm.plan.block import BlockPlan
from pyspark_ivm.plan.classify import classify
from pyspark_ivm.plan.gyo import cyclic_core
from pyspark_ivm.plan.hypergraph import Hypergraph
from pyspark_ivm.plan.planner import plan
from tests.plan.builder import Builder
from tests.plan.queries import QUERIES


def graph(*edges: str) -> Hypergraph:
    return Hypergraph(tuple(frozenset(map(ord, e)) for e in edges))


@pytest.mark.parametrize(
    ("edges", "output", "expected"),
    [
        (("xy", "yz"), "", "q-hierarchical"),
        (("xy", "yz"), "y", "q-hierarchical"),
        (("xy", "yz"), "x", "free-connex"),  # x is output, y with more atoms is not
        (("xy", "yz"), "xz", "acyclic"),
        (("xy", "yz"), "xyz", "q-hierarchical"),
        (("x", "xy", "y"), "", "free-connex"),  # not hierarchical
        (("xk", "km", "my"), "xy", "acyclic"),
        (("xk", "km", "my"), "xkm", "free-connex"),
        (("xyz", "xyu", "yvw", "yvp"), "xyzuvwp", "q-hierarchical"),  # paper 1, proposition 4.27
        (("xy", "yz", "zx"), "x", "cyclic"),
        (("xy", "yz", "zx", "xyz"), "x", "free-connex"),  # an edge over the triangle makes it acyclic
    ],
)
def test_classes(edges: tuple[str, ...], output: str, expected: str) -> None:
    assert classify(graph(*edges), frozenset(map(ord, output))) == expected


def test_cyclic_core_leaves_out_the_ears() -> None:
    assert cyclic_core(graph("xy", "yz", "zx", "xa", "ab").edges) == (0, 1, 2)


def blocks(name: str, **options: Any) -> list[BlockPlan]:
    return [BlockPlan.from_json(b["plan"]) for b in plan(QUERIES[name](), options)["ok"]["blocks"]]


def test_sum_by_segment_is_one_block_with_the_segment_at_the_root() -> None:
    (b,) = blocks("segments_with_keys")
    assert [b.variables[v].name for v in b.root.variables] == ["c_mktsegment"]
    assert [n.id for n in b.nodes if n.connex] == [b.root.id]
    costs = plan(QUERIES["segments_with_keys"]())["ok"]["costs"]
    assert set(costs.values()) == {"O(1)"}
    assert sorted(costs) == [f"spark_catalog.default.{t}" for t in ("customer", "lineitem", "orders")]


def test_without_keys_the_cost_is_not_claimed() -> None:
    costs = plan(QUERIES["segments"]())["ok"]["costs"]
    assert costs["spark_catalog.default.customer"] == "O(1)"
    assert costs["spark_catalog.default.lineitem"] == "O(matches)"


def test_path_needs_two_blocks() -> None:
    rows, aggregate = blocks("path_not_free_connex")
    assert (rows.mode, rows.emits, aggregate.mode, aggregate.emits) == ("rows", True, "aggregate", False)
    assert [r["code"] for r in plan(QUERIES["path_not_free_connex"]())["ok"]["reasons"]] == ["NOT_FREE_CONNEX"]
    assert aggregate.atoms[0].source == "b00"


def test_groups_of_two_tables_with_their_join_column_have_several_nodes_in_n() -> None:
    (b,) = blocks("groups_of_two_tables")
    assert sum(n.connex for n in b.nodes) == 3


def test_self_join_has_two_atoms_of_one_source() -> None:
    rows, _ = blocks("self_join_residual")
    assert [a.source for a in rows.atoms] == ["s0", "s0"]


def test_partition_variable_replicates_least() -> None:
    (b,) = blocks("segments", partitions=4)
    assert b.partition is not None and b.variables[b.partition].name == "o_orderkey"
    assert b.partials
    assert blocks("segments", partitions=1)[0].partition is None
    (b,) = blocks("groups_of_two_tables", partitions=4)
    assert b.partition is not None and b.variables[b.partition].name == "a.k" and not b.partials


def test_many_tables_plan_at_once() -> None:
    """A search over unions of hyperedges would never end here."""
    q = Builder()
    n = 25
    fact = q.table("fact", rows=10**6, **{f"k{i}": "int" for i in range(n)})
    node: Any = fact
    names = {}
    for i in range(n):
        dimension = q.table(f"d{i}", k="int", name="string")
        node = q.join(node, dimension, getattr(fact, f"k{i}") == dimension.k)
        names[f"n{i}"] = dimension.name
    (block,) = plan(q.export(q.project(node, **names)))["ok"]["blocks"]
    assert len(block["inputs"]) == n + 1


def test_bag_of_a_hierarchical_join_is_kept_in_constant_time() -> None:
    q = Builder()
    tables = [q.table(f"t{i}", k="int", v="int") for i in range(4)]
    node: Any = tables[0]
    for t in tables[1:]:
        node = q.join(node, t, tables[0].k == t.k)
    answer = plan(q.export(q.project(node, **{f"v{i}": t.v for i, t in enumerate(tables)})))["ok"]
    assert set(answer["costs"].values()) == {"O(1)"} and answer["reasons"] == []
    assert "Class: q-hierarchical" in answer["explain"]
