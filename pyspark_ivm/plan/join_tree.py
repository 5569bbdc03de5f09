"""Search the generalised join trees for the cheapest that is compatible with the output (paper 1, §4).

Law: choose variables W for a node, K ⊆ W ⊆ var(some atom), where K is what the atoms below share with the rest. The
atoms below fall into the parts that W separates; each part becomes a child whose key is what it shares with W.
The part of the atom that contains W has key W: the guard. Running intersection holds because parts share
variables inside W only. Taking W = var(a) always makes progress, so an acyclic query always has a tree.

The nodes of N (the connex set) take W ⊆ output and go on until the part below holds no further output variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from pyspark_ivm.plan.block import Node
from pyspark_ivm.plan.gyo import is_free_connex
from pyspark_ivm.plan.hypergraph import Atoms, Hypergraph, Variables

#: Rows assumed for a source that does not know its own number.
UNKNOWN_ROWS = 100_000
#: Above this many atoms, nodes are only whole atoms and the variables that occur together (the search stays small).
MANY_ATOMS = 12
#: Up to this many variables that might join the output are tried in all combinations, more are dropped one by one.
MANY_EXTRA_VARIABLES = 8
#: What keeping one tuple in an inner node weighs against touching one tuple in an update.
MEMORY_WEIGHT = 1e-3


@dataclass(frozen=True)
class Statistics:
    rows: tuple[int, ...]  # by atom
    unique: tuple[tuple[Variables, ...], ...]  # by atom: sets of its variables known to be unique in it

    def weight(self, atom: int) -> float:
        """Share of the updates that hit the atom: large tables change more."""
        return max(self.rows[atom], 1) / max(sum(self.rows), 1)


@dataclass(frozen=True)
class Tree:
    variables: Variables
    key: Variables
    atom: int | None
    children: tuple[Tree, ...]  # the guard first
    connex: bool
    cost: float  # expected tuples touched below and in this node by one update, and the memory
    flow: float  # expected tuples of one update that leave this node upwards
    constant: bool  # every update below touches one tuple in each node: O(1) in the worst case, not just on average

    @property
    def objective(self) -> tuple[bool, float]:
        return not self.constant, self.cost + self.flow

    def shape(self) -> tuple[object, ...]:
        return (sorted(self.variables), -1 if self.atom is None else self.atom, [c.shape() for c in self.children])

    @property
    def leaf(self) -> int:
        """The atom at the end of the chain of guards: the node's tuples are among its projections."""
        return self.atom if self.atom is not None else self.children[0].leaf


def search(graph: Hypergraph, output: Variables, statistics: Statistics) -> Tree | None:
    """The cheapest compatible tree; None iff the query is not free-connex with respect to the output."""
    if not is_free_connex(graph.edges, output):
        return None
    return _Search(graph, output, statistics).root()


def cover(graph: Hypergraph, output: Variables) -> Variables:
    """A smallest superset of the output with respect to which an acyclic query is free-connex."""
    joined = {v for v in graph.variables if len(graph.atoms_of(v)) > 1}
    extra = sorted(joined - output)
    if len(extra) <= MANY_EXTRA_VARIABLES:
        for n in range(len(extra) + 1):
            for added in combinations(extra, n):
                if is_free_connex(graph.edges, output | set(added)):
                    return output | set(added)
    covered = output | set(extra)
    for v in extra:
        if is_free_connex(graph.edges, covered - {v}):
            covered = covered - {v}
    return covered


class _Search:
    def __init__(self, graph: Hypergraph, output: Variables, statistics: Statistics):
        self.graph, self.output, self.statistics = graph, output, statistics
        self.known: dict[tuple[Atoms, Variables, bool], Tree | None] = {}
        edges = graph.edges
        together = {frozenset.intersection(*(edges[a] for a in graph.atoms_of(v))) for v in graph.variables}
        pairs = {a & b for a, b in combinations(edges, 2)} if len(edges) <= MANY_ATOMS else set()
        self.candidates: set[Variables] = {v for v in {*edges, *together, *pairs} if v}

    def root(self) -> Tree | None:
        atoms = self.graph.atoms
        if len(atoms) == 1 and self.graph.edges[0] == self.output:
            return self._leaf(0, frozenset(), True)
        if not self.output:
            return self._node(atoms, frozenset(), frozenset(), True)
        return self._best(atoms, frozenset(), True)

    def _best(self, atoms: Atoms, key: Variables, connex: bool) -> Tree | None:
        """`connex`: the parent is in N (or this is the root); the node itself is if output variables are left."""
        connex = connex and not (self.output & self.graph.variables_of(atoms) <= key)
        memo = (atoms, key, connex)
        if memo not in self.known:
            self.known[memo] = self._compute(atoms, key, connex)
        return self.known[memo]

    def _compute(self, atoms: Atoms, key: Variables, connex: bool) -> Tree | None:
        if len(atoms) == 1:
            (atom,) = atoms
            if not connex or self.graph.edges[atom] <= self.output:
                return self._leaf(atom, key, connex)
        edges = [self.graph.edges[a] for a in atoms]
        choices = {c & self.output if connex else c for c in self.candidates}
        trees = [
            self._node(atoms, key, w, connex)
            for w in sorted(choices, key=sorted)
            if w > key and any(w <= e for e in edges) and not (len(atoms) == 1 and w == edges[0])
        ]
        found = [t for t in trees if t is not None]
        return min(found, key=lambda t: (t.objective, t.shape()), default=None)

    def _leaf(self, atom: int, key: Variables, connex: bool) -> Tree:
        weight = self.statistics.weight(atom)
        return Tree(self.graph.edges[atom], key, atom, (), connex, weight, weight, True)

    def _node(self, atoms: Atoms, key: Variables, w: Variables, connex: bool) -> Tree | None:
        children = []
        for part in self.graph.components(atoms, w):
            part_key = self.graph.variables_of(part) & w
            if part == atoms and part_key == key and w == key and key:
                return None
            child = self._best(part, part_key, connex)
            if child is None:
                return None
            children.append(child)
        # Any child with key W can guard; the smallest leaf gives the fewest tuples that join nothing.
        guards = [c for c in children if c.key == w]
        if not guards:
            return None
        guard = min(guards, key=lambda c: (not c.connex, self.statistics.rows[c.leaf], c.leaf))
        others = sorted((c for c in children if c is not guard), key=lambda c: c.shape())
        size = self.statistics.rows[guard.leaf]
        fans = [fan_out(self.statistics, self.graph, guard.leaf, c.key, w) for c in (guard, *others)]
        flow = sum(c.flow * fan for c, fan in zip((guard, *others), fans, strict=True))
        constant = all(c.constant for c in children) and all(fan == 1.0 for fan in fans)
        cost = sum(c.cost for c in children) + flow + MEMORY_WEIGHT * size / max(sum(self.statistics.rows), 1)
        return Tree(w, key, None, (guard, *others), connex, cost, flow, constant)


def is_unique(statistics: Statistics, leaf: int, key: Variables) -> bool:
    return any(u <= key for u in statistics.unique[leaf])


def fan_out(statistics: Statistics, graph: Hypergraph, leaf: int, key: Variables, w: Variables) -> float:
    """Expected tuples of a node (variables `w`, guarded by atom `leaf`) that match one tuple of a child's key."""
    if key == w or is_unique(statistics, leaf, key):
        return 1.0
    distinct = min((statistics.rows[a] for a, e in enumerate(graph.edges) if key <= e), default=1) if key else 1
    return 1.0 + max(statistics.rows[leaf], 1) / max(distinct, 1)


def nodes(tree: Tree) -> tuple[Node, ...]:
    """The tree as block nodes: children before parents, the root last."""
    found: list[Node] = []

    def visit(t: Tree) -> int:
        children = tuple(visit(c) for c in t.children)
        variables = tuple(sorted(t.variables))
        found.append(
            Node(
                id=len(found),
                variables=variables,
                key=tuple(v for v in variables if v in t.key),
                atom=t.atom,
                children=children,
                guard=children[0] if children else None,
                connex=t.connex,
            )
        )
        return found[-1].id

    visit(tree)
    return tuple(found)
