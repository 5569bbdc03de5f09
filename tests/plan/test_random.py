"""Random acyclic queries: every plan passes the validator, and a simple compatible tree is found iff one exists."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pyspark_ivm.plan.block import BlockPlan
from pyspark_ivm.plan.classify import classify
from pyspark_ivm.plan.gyo import is_acyclic, is_free_connex
from pyspark_ivm.plan.hypergraph import Hypergraph
from pyspark_ivm.plan.join_tree import Statistics, Tree, cover, search
from pyspark_ivm.plan.planner import plan
from pyspark_ivm.plan.validate import BrokenPlan, validate
from tests.plan.builder import Builder

TYPES = ("int", "bigint", "string", "decimal(30,2)", "double", "date", "boolean")


def random_graph(rng: random.Random) -> Hypergraph:
    """A random tree of edges, each sharing a random part of its parent's variables: acyclic by construction."""
    edges = [set(range(rng.randint(1, 4)))]
    fresh = 10
    for _ in range(rng.randint(0, 6)):
        parent = sorted(rng.choice(edges))
        edge = set(rng.sample(parent, rng.randint(1, len(parent))))
        for _ in range(rng.randint(0, 2)):
            edge.add(fresh)
            fresh += 1
        edges.append(edge)
    return Hypergraph(tuple(frozenset(e) for e in edges))


def simple(t: Tree) -> bool:
    return all(c.key == t.variables and simple(c) for c in t.children)


@pytest.mark.parametrize("seed", range(300))
def test_search_finds_a_tree_iff_free_connex(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng)
    assert is_acyclic(graph.edges)
    variables = sorted(graph.variables)
    output = frozenset(rng.sample(variables, rng.randint(0, len(variables))))
    n = len(graph.edges)
    statistics = Statistics(tuple(rng.choice([10, 1000, 10**6]) for _ in range(n)), ((),) * n)
    tree = search(graph, output, statistics)
    assert (tree is not None) == is_free_connex(graph.edges, output)
    if tree is not None:
        if classify(graph, output) == "q-hierarchical":
            assert simple(tree)
        else:
            assert not simple(tree)
    covered = cover(graph, output)
    assert covered >= output and search(graph, covered, statistics) is not None


def random_query(rng: random.Random) -> dict[str, object]:
    q = Builder()
    tables = []
    columns: list[list[str]] = []
    for i in range(rng.randint(1, 6)):
        types = {f"x{j}": rng.choice(TYPES) for j in range(rng.randint(2, 4))} | {
            "k1": "int",
            "k2": "int",
            "k3": "string",
        }
        nullable = rng.random() < 0.7
        unique = [["k1"]] if rng.random() < 0.3 else None
        tables.append(
            q.table(f"t{i % 4}", rows=rng.choice([None, 10, 10**5]), nullable=nullable, unique=unique, **types)
        )
        columns.append(list(types))

    def column(i: int, name: str) -> object:
        return getattr(tables[i], name)

    node: object = tables[0]
    for i in range(1, len(tables)):
        j = rng.randrange(i)
        pairs = [("k1", "k1"), ("k2", "k1"), ("k1", "k2"), ("k3", "k3")]
        on = [column(j, a) == column(i, b) for a, b in rng.sample(pairs, rng.choice([1, 1, 2]))]
        if rng.random() < 0.1:
            on.append(column(j, "k1") < column(i, "k2"))
        node = q.join(node, tables[i], *on)
    picks = [(i, n) for i in range(len(tables)) for n in columns[i]]
    wanted = [column(*p) for p in rng.sample(picks, min(len(picks), rng.randint(0, 4)))]
    if rng.random() < 0.3 and wanted:
        return q.export(q.project(node, **{f"o{i}": e for i, e in enumerate(wanted)}))
    ints = [p for p in picks if p[1] in ("k1", "k2")]
    a, b = column(*rng.choice(ints)), column(*rng.choice(ints))
    functions = {"n": ("count",), "s": ("sum", a), "m": ("avg", a.cast("bigint") * b.cast("bigint")), "c": ("count", b)}
    return q.export(q.aggregate(node, wanted, **dict(rng.sample(sorted(functions.items()), rng.randint(0, 4)))))


@pytest.mark.parametrize("seed", range(300))
def test_random_queries_give_valid_plans(seed: int) -> None:
    rng = random.Random(seed)
    answer = plan(random_query(rng), {"partitions": rng.choice([1, 4])})["ok"]
    if answer["strategy"] == "full":
        assert {r["code"] for r in answer["reasons"]} <= {"CYCLIC_JOIN", "UNSUPPORTED_TYPE"}
    for b in answer["blocks"]:
        p = BlockPlan.from_json(b["plan"])
        validate(p)
        for atom, i in zip(p.atoms, b["inputs"], strict=True):
            slots = [c["slot"] for c in i["columns"]]
            assert len(set(slots)) == len(slots), "a slot carries two things"
            used = {s for v in atom.slots for s in v} | {s for c in atom.channels if c.feature for s in c.feature.slots}
            assert used == set(slots), "exactly what travels is used"


def test_random_queries_are_mostly_incremental() -> None:
    """Else the test above proves nothing."""
    kinds = [plan(random_query(random.Random(s)))["ok"] for s in range(300)]
    assert sum(k["strategy"] == "yannakakis" for k in kinds) > 200
    assert sum(len(k["blocks"]) == 2 for k in kinds) > 20


def test_validator_sees_broken_plans() -> None:
    from tests.plan.queries import QUERIES

    good = BlockPlan.from_json(plan(QUERIES["segments_with_keys"]())["ok"]["blocks"][0]["plan"])
    validate(good)
    root, first = good.nodes[-1], good.nodes[0]
    broken = [
        replace(good, nodes=(*good.nodes[:-1], replace(root, connex=False))),
        replace(good, nodes=(*good.nodes[:-1], replace(root, guard=0))),
        replace(good, nodes=(replace(first, variables=()), *good.nodes[1:])),
        replace(good, nodes=good.nodes[:-1]),
        replace(good, outputs=()),
        replace(good, wire=tuple("double" for _ in good.wire)),
        replace(good, channels=good.channels[1:]),
        replace(good, partials=True),
        replace(good, global_aggregate=True),
        replace(good, emits=True),
    ]
    for p in broken:
        with pytest.raises(BrokenPlan):
            validate(p)
