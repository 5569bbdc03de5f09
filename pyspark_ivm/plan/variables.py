"""Join variables: the equivalence classes of `=` between one-atom expressions of different atoms.

Law: equality is transitive, so ``a = b AND b = c`` is one variable of three atoms. Both sides of an analysed `=`
have the same type, so a class has one type.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_ivm.plan.export import Export
from pyspark_ivm.plan.reasons import NotIncremental, reason
from pyspark_ivm.plan.region import Region
from pyspark_ivm.plan.spark_types import compares_by_bytes

Member = tuple[int, str]  # (atom, `same` of the expression)


@dataclass(frozen=True)
class JoinVariable:
    type: str
    expressions: tuple[tuple[int, int], ...]  # (atom, expression id), one for each atom, in the order of the atoms

    @property
    def atoms(self) -> frozenset[int]:
        return frozenset(a for a, _ in self.expressions)

    def expression(self, atom: int) -> int:
        return dict(self.expressions)[atom]


@dataclass(frozen=True)
class Joins:
    variables: tuple[JoinVariable, ...]
    residual: tuple[int, ...]  # conjuncts over several atoms that are no variable


def find_joins(export: Export, region: Region) -> Joins:
    position = {a.id: i for i, a in enumerate(region.atoms)}
    ids: dict[Member, int] = {}
    edges: list[tuple[Member, Member]] = []
    residual: list[int] = []
    for c in region.conjuncts:
        sides = _equality_sides(export, c)
        if sides is None:
            residual.append(c)
            continue
        members = []
        for side in sides:
            e = export.expression(side)
            if not compares_by_bytes(e.type):
                raise NotIncremental(reason("UNSUPPORTED_TYPE", type=e.type, use="a join key", expression=e.sql))
            member = (position[e.relations[0]], e.same)
            ids.setdefault(member, side)
            members.append(member)
        edges.append((members[0], members[1]))
    classes = _classes(edges)
    if not _connected(len(region.atoms), classes):
        # `a.k = 5 AND b.k = 5` joins a and b although no conjunct compares them.
        constants = _constant_edges(export, region, ids)
        members_only = [[m for m in c if m[0] >= 0] for c in _classes(edges + constants)]
        classes = [c for c in members_only if len({a for a, _ in c}) > 1]
    if not _connected(len(region.atoms), classes):
        raise NotIncremental(reason("CARTESIAN_PRODUCT", tables=_components(export, region, classes)))
    variables = [v for c in classes for v in _cut_class(export, c, ids)]
    return Joins(tuple(variables), tuple(residual))


def _equality_sides(export: Export, conjunct: int) -> tuple[int, int] | None:
    e = export.expression(conjunct)
    if e.op not in ("equal", "equalNullSafe"):
        return None
    left, right = (export.expression(c) for c in e.children)
    if len(left.relations) != 1 or len(right.relations) != 1 or left.relations == right.relations:
        return None
    if e.op == "equalNullSafe" and (left.may_be_null or right.may_be_null):
        return None  # NULL <=> NULL holds, a variable never is NULL
    return left.id, right.id


def _constant_edges(export: Export, region: Region, ids: dict[Member, int]) -> list[tuple[Member, Member]]:
    """`expression = literal` filters as edges to the literal, a member of no atom (-1)."""
    edges = []
    for atom, filters in enumerate(region.filters):
        for f in filters:
            e = export.expression(f)
            if e.op != "equal":
                continue
            for side, other in (e.children, e.children[::-1]):
                key, constant = export.expression(side), export.expression(other)
                if key.relations and constant.op == "literal" and compares_by_bytes(key.type):
                    ids.setdefault((atom, key.same), side)
                    edges.append(((atom, key.same), (-1, constant.same)))
    return edges


def _classes(edges: list[tuple[Member, Member]]) -> list[list[Member]]:
    """Union-find; classes and their members in order of first mention, so that plans are deterministic."""
    parent: dict[Member, Member] = {}

    def find(m: Member) -> Member:
        parent.setdefault(m, m)
        while parent[m] != m:
            parent[m] = parent[parent[m]]
            m = parent[m]
        return m

    for a, b in edges:
        ra, rb = find(a), find(b)
        if ra != rb:
            parent[rb] = ra
    classes: dict[Member, list[Member]] = {}
    for m in parent:
        classes.setdefault(find(m), []).append(m)
    return list(classes.values())


def _cut_class(export: Export, members: list[Member], ids: dict[Member, int]) -> list[JoinVariable]:
    """One variable takes one expression of each atom. Further expressions of an atom (``a.x = b.k AND a.y = b.k``)
    get a variable each, shared with one other atom's first expression: together they say the same as the class."""
    by_atom: dict[int, list[int]] = {}
    for m in members:
        by_atom.setdefault(m[0], []).append(ids[m])
    type_ = export.expression(ids[members[0]]).type

    def variable(expressions: dict[int, int]) -> JoinVariable:
        return JoinVariable(type_, tuple(sorted(expressions.items())))

    first = {atom: es[0] for atom, es in by_atom.items()}
    found = [variable(first)]
    pivot, second = sorted(by_atom)[:2]
    for atom in sorted(by_atom):
        partner = second if atom == pivot else pivot
        found.extend(variable({atom: extra, partner: first[partner]}) for extra in by_atom[atom][1:])
    return found


def _groups(n: int, classes: list[list[Member]]) -> list[int]:
    group = list(range(n))
    for c in classes:
        atoms = sorted({a for a, _ in c if a >= 0})
        for a in atoms[1:]:
            old, new = group[a], group[atoms[0]]
            group = [new if g == old else g for g in group]
    return group


def _connected(n: int, classes: list[list[Member]]) -> bool:
    return len(set(_groups(n, classes))) == 1


def _components(export: Export, region: Region, classes: list[list[Member]]) -> str:
    group = _groups(len(region.atoms), classes)
    parts = []
    for g in dict.fromkeys(group):
        names = [export.sources[a.source].table for a, x in zip(region.atoms, group, strict=True) if x == g]
        parts.append("{" + ", ".join(names) + "}")
    return " and ".join(parts)
