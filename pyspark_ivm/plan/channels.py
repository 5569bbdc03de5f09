"""Aggregates as channels (DESIGN §5, K-channel relations).

Law: SUM(Σ cₘ·Πf) = Σ cₘ·channel(Πf); COUNT and the divisor of AVG are the channel of the product of presences, which is
the multiplicity itself where nothing can be NULL. A monomial counts only where *every* factor of its argument is
not NULL: SUM(a + b) = Σ a·[b≠∅] + [a≠∅]·b.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark_ivm.plan.block import AtomChannel, Channel, ChannelKind, Feature
from pyspark_ivm.plan.export import AggregateFunction, Export, Expression
from pyspark_ivm.plan.factor import Monomial, factor
from pyspark_ivm.plan.reasons import NotIncremental, reason
from pyspark_ivm.plan.spark_types import is_float, is_summable
from pyspark_ivm.plan.wire import AtomWire


@dataclass
class Channels:
    """Collects the channels of one block; `atom_of` maps a relation id to its atom."""

    export: Export
    wires: list[AtomWire]
    atom_of: dict[int, int]
    local: list[list[AtomChannel]] = field(init=False)
    channels: list[Channel] = field(init=False)
    read: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.local = [[AtomChannel("count", None)] for _ in self.wires]
        self.channels = [Channel("count", (0,) * len(self.wires))]

    def _atom(self, e: Expression) -> int:
        return self.atom_of[e.relations[0]] if e.relations else 0

    def _spans_atoms(self, e: Expression) -> bool:
        """Over the deltas of an earlier block, the columns of several relations are columns of one atom."""
        return len({self.atom_of[r] for r in e.relations}) > 1

    def _local(self, atom: int, kind: ChannelKind, feature: Feature) -> int:
        channel = AtomChannel(kind, feature)
        if channel not in self.local[atom]:
            self.local[atom].append(channel)
        return self.local[atom].index(channel)

    def _channel(self, kind: ChannelKind, factors: dict[int, int]) -> int:
        channel = Channel(kind, tuple(factors.get(a, 0) for a in range(len(self.wires))))
        if channel not in self.channels:
            self.channels.append(channel)
        return self.channels.index(channel)

    def error(self, atom: int) -> None:
        """Rows of this atom may carry the error flag: count them in every output."""
        self.errors.append(self._channel("count", {atom: self._local(atom, "count", Feature("error"))}))

    def _read(self, channel: int) -> int:
        if channel not in self.read:
            self.read.append(channel)
        return self.read.index(channel)

    def presence(self, leaves: list[Expression]) -> int:
        """The channel that counts the rows in which none of these one-atom expressions is NULL."""
        by_atom: dict[int, dict[str, Expression]] = {}
        for e in leaves:
            if e.may_be_null:
                by_atom.setdefault(self._atom(e), {})[e.same] = e
        return self._channel("count", {a: self._present(a, list(es.values())) for a, es in sorted(by_atom.items())})

    def _present(self, atom: int, expressions: list[Expression]) -> int:
        return self._local(atom, "count", Feature("present", self.wires[atom].present(expressions)))

    def add(self, a: AggregateFunction) -> dict[str, Any]:
        """Channels of one aggregate function; the answer is its entry in the maintenance plan."""
        arguments = [self.export.expression(x) for x in a.args]
        if a.function == "count":
            leaves = [leaf for e in arguments for leaf in self._leaves(e)]
            return {"aggregate": a.id, "count": self._read(self.presence(leaves))}
        (argument,) = arguments
        if not is_summable(argument.type):
            raise NotIncremental(reason("AGGREGATE_NOT_SUPPORTED", function=f"{a.function}({argument.type})"))
        several = self._spans_atoms(argument)
        monomials = factor(self.export, argument.id) if several else (Monomial(1, (argument.id,)),)
        leaves = [self.export.expression(f) for m in monomials for f in m.factors]
        for m in monomials:  # values first: their slots also tell NULLs
            self._take_slots(m, leaves)
        sums = [self._read(self._monomial(m, leaves)) for m in monomials]
        return {
            "aggregate": a.id,
            "sum": sums,
            "coefficients": [str(m.coefficient) for m in monomials],
            "count": self._read(self.presence(leaves)),
        }

    def _leaves(self, e: Expression) -> list[Expression]:
        """One-atom expressions that are all not NULL iff `e` is not NULL."""
        if not self._spans_atoms(e):
            return [e]
        if not e.may_be_null:
            return []
        return [self.export.expression(f) for m in factor(self.export, e.id) for f in m.factors]

    def _split(
        self, m: Monomial, leaves: list[Expression]
    ) -> tuple[dict[int, Expression], dict[int, list[Expression]]]:
        """By atom: the monomial's own factor, and the argument's other factors that may be NULL."""
        own = {self._atom(self.export.expression(f)): self.export.expression(f) for f in m.factors}
        others: dict[int, dict[str, Expression]] = {}
        for e in leaves:
            atom = self._atom(e)
            if e.may_be_null and not (atom in own and own[atom].same == e.same):
                others.setdefault(atom, {}).setdefault(e.same, e)
        return own, {a: list(es.values()) for a, es in others.items()}

    def _take_slots(self, m: Monomial, leaves: list[Expression]) -> None:
        own, others = self._split(m, leaves)
        for atom, e in sorted(own.items()):
            self.wires[atom].value(e, tuple(x.id for x in others.get(atom, ())))

    def _monomial(self, m: Monomial, leaves: list[Expression]) -> int:
        own, others = self._split(m, leaves)
        factors: dict[int, int] = {}
        kinds: list[ChannelKind] = []
        for atom, e in sorted(own.items()):
            slots = self.wires[atom].value(e, tuple(x.id for x in others.pop(atom, ())))
            kind: ChannelKind = "float" if is_float(e.type) else "int3" if len(slots) == 2 else "int2"
            kinds.append(kind)
            factors[atom] = self._local(atom, kind, Feature("value", slots))
        for atom, missing in sorted(others.items()):
            factors[atom] = self._present(atom, missing)
        if not kinds:  # a constant summand: coefficient times the count
            return self._channel("count", factors)
        return self._channel(kinds[0] if len(kinds) == 1 else "int3", factors)
