"""From block plan to relations. Law: node n keeps rho_n (its tuples) and M_n = rho_n summed onto key(n), with the
channels that differ inside its subtree; where key(n) = var(n), M_n *is* rho_n.

Kept: leaves; M_n of every node but the root; rho_n of connex nodes; and the total of the root's multiplicity and error
channels (so errors in live output are known without a scan).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pyspark_ivm.index.relation import Layout
from pyspark_ivm.index.strings import StringTable
from pyspark_ivm.plan.block import BlockPlan, Node

ADD, SET = 0, 2  # modes of kernels.upsert


@dataclass
class Relation:
    """A relation to keep: its key variables in order and its channels."""

    name: str
    plan: BlockPlan
    variables: tuple[int, ...]
    kinds: tuple[str, ...]
    channel_of: tuple[int, ...]  # block channel → channel here
    indexes: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.layout = Layout.of(self.kinds)
        self.key_words = sum(self.plan.variables[v].words for v in self.variables)

    def words(self, variables: tuple[int, ...]) -> tuple[int, ...]:
        """Positions of the variables' words in this relation's key."""
        at, start = 0, {}
        for v in self.variables:
            start[v] = at
            at += self.plan.variables[v].words
        return tuple(start[v] + i for v in variables for i in range(self.plan.variables[v].words))

    def word(self, variable: int, column: int) -> int:
        return self.words((variable,))[column]

    def mask_word(self, variable: int) -> int:
        """The null mask of a nullable variable, else -1."""
        return self.words((variable,))[-1] if self.plan.variables[variable].nullable else -1


@dataclass
class Probe:
    """Find the tuples of ``target`` that agree with a source tuple on some variables."""

    source: Relation
    target: Relation
    columns: np.ndarray  # of the source's key
    index: tuple[int, ...] | None  # the target's words, None: its whole key


@dataclass
class Factor:
    """A child's message, looked up with words of the node's tuple. ``direct``: the node's tuples are its slots."""

    relation: Relation
    columns: np.ndarray
    channel: np.ndarray  # channel of the product → channel of the relation
    direct: bool
    scalar: bool = False  # gives its multiplicity to every channel

    def __post_init__(self) -> None:
        self.scalar = not self.channel.any()


@dataclass
class Target:
    relation: Relation
    columns: np.ndarray  # words of the guard's key
    words: np.ndarray | None  # words of the product to keep; None: all
    mode: int


@dataclass
class Step:
    """One node of the bottom-up pass: product over the children, for the affected tuples of the guard."""

    node: Node
    guard: Relation
    factors: list[Factor]
    layout: Layout
    targets: list[Target]
    affected: list[Probe]  # from the messages of the children that are not the guard, into the guard
    linear: bool = False  # the targets may take the product's change instead of its new value

    def __post_init__(self) -> None:
        # a sum of floats set anew forgets rounding, a sum added to does not: those stay as they are
        self.linear = all(t.mode == ADD or "float" not in t.relation.kinds for t in self.targets)
        self.kinds = self.layout.kinds.tolist()


@dataclass
class Weight:
    """How a connex node's tuple weighs in the output: by its own vector, or by the messages of its non-connex
    children."""

    node: int
    factors: list[Factor]


def _words(positions: tuple[int, ...]) -> np.ndarray:
    return np.array(positions, np.int64)


class BlockLayout:
    def __init__(self, plan: BlockPlan) -> None:
        self.plan = plan
        nodes = plan.nodes
        self.parent = {c: n.id for n in nodes for c in n.children}
        self.atoms_below: list[frozenset[int]] = []
        for n in nodes:
            below = {n.atom} if n.atom is not None else set()
            self.atoms_below.append(frozenset(below).union(*(self.atoms_below[c] for c in n.children)))
        self.relations: dict[str, Relation] = {}
        self.leaf: dict[int, Relation] = {}
        self.leaf_node = {n.atom: n.id for n in nodes if n.atom is not None}
        self.message: dict[int, Relation] = {}
        self.rho: dict[int, Relation] = {}
        for n in nodes:
            self._keep(n)
        root = plan.root
        errors = plan.error_channels
        if root.variables:
            positions = {c: i + 1 for i, c in enumerate(dict.fromkeys(errors))}
            kinds = ("count",) * (1 + len(positions))
            self.total = self._relation(
                "total", (), kinds, tuple(positions.get(c, 0) for c in range(len(plan.channels)))
            )
        else:
            self.total = self.rho[root.id]
        self.steps = [step for n in nodes if (step := self._step(n))]
        self.step_of = {s.node.id: s for s in self.steps}
        self._enumeration()
        for r in self.relations.values():
            r.indexes.sort()

    # -- relations ---------------------------------------------------------------------------------------------------
    def _relation(
        self, name: str, variables: tuple[int, ...], kinds: tuple[str, ...], channel_of: tuple[int, ...]
    ) -> Relation:
        r = Relation(name, self.plan, variables, kinds, channel_of)
        self.relations[name] = r
        return r

    def _channels(self, n: Node) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The distinct channels of a subtree: a product without a factor inside is the multiplicity; counts stay
        counts; others take the kind of the whole channel (rings mod 2^k: partial products need no more)."""
        atoms = sorted(self.atoms_below[n.id])
        known: dict[tuple[tuple[int, ...], str], int] = {((0,) * len(atoms), "count"): 0}
        channel_of = []
        for ch in self.plan.channels:
            inside = tuple(ch.factors[a] for a in atoms)
            local = {self.plan.atoms[a].channels[f].kind for a, f in zip(atoms, inside, strict=True)}
            kind = "count" if local == {"count"} else ch.kind
            if (
                kind == "float"
                and sum(self.plan.atoms[a].channels[f].kind != "count" for a, f in zip(atoms, inside, strict=True)) > 1
            ):
                raise ValueError("a float channel has one factor that is not a count")
            channel_of.append(known.setdefault((inside, kind), len(known)))
        return tuple(kind for _, kind in known), tuple(channel_of)

    def _keep(self, n: Node) -> None:
        plan = self.plan
        same = set(n.key) == set(n.variables)
        root = n is plan.root
        if n.atom is not None:
            atom = plan.atoms[n.atom]
            kinds: tuple[str, ...] = tuple(c.kind for c in atom.channels)
            leaf = self._relation(
                f"leaf{n.atom}", atom.variables, kinds, tuple(c.factors[n.atom] for c in plan.channels)
            )
            self.leaf[n.atom] = self.rho[n.id] = leaf
            if same and not root:
                self.message[n.id] = leaf
                return
        kinds, channel_of = self._channels(n)
        if not root:
            if same:
                self.message[n.id] = self._relation(f"message{n.id}", n.variables, kinds, channel_of)
                if n.connex:
                    self.rho[n.id] = self.message[n.id]
                return
            self.message[n.id] = self._relation(f"message{n.id}", n.key, kinds, channel_of)
        if n.connex and n.atom is None:
            if any(plan.nodes[c].connex for c in n.children):  # only liveness is read: see Weight
                kinds, channel_of = ("count",), (0,) * len(plan.channels)
                if root and not n.variables:
                    kinds, channel_of = self._channels(n)
            self.rho[n.id] = self._relation(f"rho{n.id}", n.variables, kinds, channel_of)

    def _probe(self, source: Relation, target: Relation, variables: tuple[int, ...]) -> Probe:
        columns, words = source.words(variables), target.words(variables)
        if len(words) == target.key_words:
            by_word = dict(zip(words, columns, strict=True))
            return Probe(source, target, _words(tuple(by_word[w] for w in range(target.key_words))), None)
        order = sorted(range(len(words)), key=lambda i: words[i])
        words = tuple(words[i] for i in order)
        if words not in target.indexes:
            target.indexes.append(words)
        return Probe(source, target, _words(tuple(columns[i] for i in order)), words)

    # -- bottom-up ---------------------------------------------------------------------------------------------------
    def _step(self, n: Node) -> Step | None:
        root = n is self.plan.root
        if n.atom is not None:
            guard, children = self.leaf[n.atom], []
        else:
            assert n.guard is not None
            guard, children = self.message[n.guard], [n.guard, *(c for c in n.children if c != n.guard)]
        targets = []
        kinds, channel_of = self._channels(n)
        layout = Layout.of(kinds)
        outputs = [] if root else [self.message[n.id]]
        if n.atom is None and n.connex and self.rho[n.id] not in outputs:
            outputs.append(self.rho[n.id])
        if root and self.total not in outputs:
            outputs.append(self.total)
        for r in outputs:
            if r is guard:
                continue
            words = None
            if r.kinds != kinds or r.channel_of != channel_of:
                # representative block channel of each channel kept
                block = [r.channel_of.index(c) for c in range(len(r.kinds))]
                words = _words(tuple(int(layout.offsets[channel_of[b]]) for b in block))
                assert all(kind == "count" for kind in r.kinds)
            mode = SET if set(r.variables) == set(n.variables) else ADD
            targets.append(Target(r, _words(guard.words(r.variables)), words, mode))
        if not targets:
            return None
        representative = [channel_of.index(c) for c in range(len(kinds))]
        factors, affected = [], []
        if n.atom is not None:
            factors.append(
                Factor(guard, guard_columns(guard), _words(tuple(guard.channel_of[b] for b in representative)), True)
            )
        for c in children:
            m = self.message[c]
            channel = _words(tuple(m.channel_of[b] for b in representative))
            factors.append(Factor(m, _words(guard.words(m.variables)), channel, c == n.guard))
            if c != n.guard:
                affected.append(self._probe(m, guard, m.variables))
        return Step(n, guard, factors, layout, targets, affected)

    def messages_into(self, node: int) -> list[Relation]:
        """What a read of a connex node multiplies besides the node's own vector."""
        return [f.relation for f in self.weights[node].factors]

    def spell(self, atom: int, key: np.ndarray, strings: StringTable) -> str:
        """A leaf's tuple for a person: its columns by the names of their expressions, words as Spark sent them."""
        parts, at = [], 0
        for v in self.plan.atoms[atom].variables:
            variable = self.plan.variables[v]
            mask = int(key[at + len(variable.columns)]) if variable.nullable else 0
            values = [
                "NULL"
                if mask >> i & 1
                else repr(strings.text(int(key[at + i])))
                if c.kind == "bytes"
                else str(key[at + i])
                for i, c in enumerate(variable.columns)
            ]
            parts.append(
                f"({variable.name}) = ({', '.join(values)})" if len(values) > 1 else f"{variable.name} = {values[0]}"
            )
            at += variable.words
        return (
            f"{self.plan.atoms[atom].label}: the row with {', '.join(parts)}" if parts else self.plan.atoms[atom].label
        )

    # -- top-down ----------------------------------------------------------------------------------------------------
    def _enumeration(self) -> None:
        plan = self.plan
        self.connex = [n.id for n in reversed(plan.nodes) if n.connex]  # parents first
        self.single = len(self.connex) == 1
        self.block_layout = Layout.of([c.kind for c in plan.channels])
        self.down = {c: self._probe(self.rho[self.parent[c]], self.rho[c], plan.nodes[c].key) for c in self.connex[1:]}
        self.weights: dict[int, Weight] = {}
        for i in self.connex:
            n, rho = plan.nodes[i], self.rho[i]
            if not any(plan.nodes[c].connex for c in n.children):
                factors = [Factor(rho, guard_columns(rho), _words(rho.channel_of), True)]
            else:
                factors = []
                for c in n.children:
                    if not plan.nodes[c].connex:
                        m = self.message[c]
                        factors.append(Factor(m, _words(rho.words(m.variables)), _words(m.channel_of), False))
            self.weights[i] = Weight(i, factors)
        #: output column → (connex node that carries it, word, word of its null mask or -1, its bit, kind)
        self.output_at = []
        for o in plan.outputs:
            i = next(i for i in self.connex if o.variable in plan.nodes[i].variables)
            v = plan.variables[o.variable]
            column = v.columns[o.column]
            mask = self.rho[i].mask_word(o.variable) if column.nullable else -1
            self.output_at.append((i, self.rho[i].word(o.variable, o.column), mask, o.column, column.kind))
        self.frontier: dict[int, int] = {}
        self.walks: dict[int, list[tuple[int, int, Probe]]] = {}
        if plan.emits:
            for a, i in self.leaf_node.items():
                while not plan.nodes[i].connex:
                    i = self.parent[i]
                self.frontier[a] = i
                if i not in self.walks:
                    self.walks[i] = self._walk(i)

    def _walk(self, start: int) -> list[tuple[int, int, Probe]]:
        """The edges of N in breadth-first order from a node: (from, to, probe)."""
        plan, seen, queue, out = self.plan, {start}, [start], []
        for i in queue:
            around = [c for c in plan.nodes[i].children if plan.nodes[c].connex]
            if i in self.parent:
                around.insert(0, self.parent[i])
            for j in around:
                if j in seen:
                    continue
                key = plan.nodes[j].key if self.parent.get(j) == i else plan.nodes[i].key
                out.append((i, j, self._probe(self.rho[i], self.rho[j], key)))
                seen.add(j)
                queue.append(j)
        return out


def guard_columns(r: Relation) -> np.ndarray:
    return np.arange(r.key_words, dtype=np.int64)
