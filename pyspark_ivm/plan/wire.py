"""Slots of the wire: which expression of an atom travels in which Arrow column.

An expression that an atom needs twice takes one slot; atoms share the slots of a kind, since a row belongs to one atom.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark_ivm.plan.block import SlotKind
from pyspark_ivm.plan.export import Export, Expression
from pyspark_ivm.plan.spark_types import is_float, key_columns, value_columns

Use = Literal["key", "value", "present"]


@dataclass
class Wire:
    export: Export
    kinds: list[SlotKind] = field(default_factory=list)

    def slot(self, kind: SlotKind, used: set[int]) -> int:
        for s, k in enumerate(self.kinds):
            if k == kind and s not in used:
                return s
        self.kinds.append(kind)
        return len(self.kinds) - 1


@dataclass
class AtomWire:
    wire: Wire
    columns: list[dict[str, Any]] = field(default_factory=list)
    not_null: list[int] = field(default_factory=list)
    _slots: dict[tuple[object, ...], tuple[int, ...]] = field(default_factory=dict)
    _null_iff: dict[frozenset[str], int] = field(default_factory=dict)  # expressions → a slot NULL iff one of them is

    def key(self, e: Expression, *, join: bool = False, carried: bool = False) -> tuple[int, ...]:
        """`carried`: the column neither joins nor groups, so a double keeps its very bits."""
        kinds = key_columns(e.type)
        assert kinds is not None, e.type
        carried = carried and is_float(e.type)
        slots = self._take(e, "key", kinds, ("key" if is_float(e.type) else "word", e.same, carried), carried=carried)
        if join:
            for i, c in enumerate(self.columns):
                if c["slot"] in slots and i not in self.not_null:
                    self.not_null.append(i)
        return slots

    def value(self, e: Expression, requires: tuple[int, ...]) -> tuple[int, ...]:
        """`requires`: the value counts as NULL where one of these expressions of the same atom is NULL."""
        kinds = value_columns(e.type)
        tag = "value" if is_float(e.type) else "word"
        identity: tuple[object, ...] = (tag, e.same, False)
        if requires:
            identity = (tag, e.same, tuple(sorted(self.wire.export.expression(r).same for r in requires)))
        return self._take(e, "value", kinds, identity, requires=requires)

    def present(self, expressions: list[Expression]) -> tuple[int, ...]:
        """Slots of which one is NULL iff one of the expressions is: slots they already have, else their own."""
        together = self._null_iff.get(frozenset(e.same for e in expressions))
        if together is not None:
            return (together,)
        return tuple(sorted({self._present(e) for e in expressions}))

    def _present(self, e: Expression) -> int:
        known = self._null_iff.get(frozenset((e.same,)))
        return known if known is not None else self._take(e, "present", ("word",), ("present", e.same))[0]

    def _take(
        self, e: Expression, use: Use, kinds: tuple[SlotKind, ...], identity: tuple[object, ...], *,
        requires: tuple[int, ...] = (), carried: bool = False,
    ) -> tuple[int, ...]:  # fmt: skip
        if identity not in self._slots:
            slots = []
            for part, kind in enumerate(kinds):
                used = {c["slot"] for c in self.columns}
                column: dict[str, Any] = {"slot": self.wire.slot(kind, used), "expr": e.id, "as": use}
                if len(kinds) > 1:
                    column["part"] = part
                if requires:
                    column["requires"] = list(requires)
                if carried:
                    column["carried"] = True
                self.columns.append(column)
                slots.append(column["slot"])
            self._slots[identity] = tuple(slots)
            nulls = frozenset((e.same, *(self.wire.export.expression(r).same for r in requires)))
            self._null_iff.setdefault(nulls, slots[0])
        return self._slots[identity]
