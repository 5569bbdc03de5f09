"""Flatten a join region into atoms and conjuncts.

Law: an inner join is a filter over a product; products are associative and commutative, and filters and
deterministic projections commute with them, so any nest of them is one product of atoms under one conjunction.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_ivm.plan.export import Export, Node
from pyspark_ivm.plan.reasons import NotIncremental, reason


@dataclass(frozen=True)
class Region:
    atoms: tuple[Node, ...]  # relation nodes, in the order of the query
    filters: tuple[tuple[int, ...], ...]  # for each atom, conjuncts over it alone
    conjuncts: tuple[int, ...]  # conjuncts over several atoms

    def atom_of(self, relation: int) -> int:
        return next(i for i, a in enumerate(self.atoms) if a.id == relation)


def flatten(export: Export, top: Node) -> Region:
    atoms: list[Node] = []
    conditions: list[int] = []

    def visit(node: Node) -> None:
        if node.kind == "relation":
            atoms.append(node)
        else:
            conditions.extend(_split(export, node.conditions))
            for c in node.children:
                visit(c)

    visit(top)
    if not atoms:
        raise NotIncremental(reason("UNSUPPORTED_OPERATOR", operator="a query without tables", detail=""))
    position = {a.id: i for i, a in enumerate(atoms)}
    filters: list[list[int]] = [[] for _ in atoms]
    conjuncts: list[int] = []
    seen: set[str] = set()
    for id_ in conditions:
        e = export.expression(id_)
        if e.same in seen:
            continue
        seen.add(e.same)
        if len(e.relations) > 1:
            conjuncts.append(id_)
        elif e.relations:
            filters[position[e.relations[0]]].append(id_)
        else:  # a constant condition: filtering any one atom by it empties or keeps the whole product
            filters[0].append(id_)
    return Region(tuple(atoms), tuple(tuple(f) for f in filters), tuple(conjuncts))


def _split(export: Export, ids: tuple[int, ...]) -> list[int]:
    found: list[int] = []
    for id_ in ids:
        e = export.expression(id_)
        found.extend(_split(export, e.children) if e.op == "and" else [id_])
    return found
