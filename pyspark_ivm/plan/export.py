"""The exported plan (docs/contracts.md A) as typed values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

NodeKind = Literal["relation", "filter", "project", "join", "aggregate", "sort", "limit", "offset", "opaque"]


@dataclass(frozen=True)
class Expression:
    id: int
    sql: str
    type: str
    nullable: bool
    op: str
    children: tuple[int, ...]
    columns: tuple[str, ...]
    relations: tuple[int, ...]
    deterministic: bool
    throws: bool
    same: str
    literal: Any

    @property
    def may_be_null(self) -> bool:
        """NULL on the wire: a throwing expression is sent as NULL with the row's error flag set."""
        return self.nullable or self.throws


@dataclass(frozen=True)
class Source:
    id: str
    table: str
    kind: str
    rows: int | None


@dataclass(frozen=True)
class RelationColumn:
    column: str
    label: str
    type: str
    nullable: bool


@dataclass(frozen=True)
class Output:
    name: str
    column: str
    expr: int


@dataclass(frozen=True)
class AggregateFunction:
    id: str
    function: str
    args: tuple[int, ...]
    distinct: bool
    type: str


@dataclass(frozen=True)
class Node:
    """One exported operator; the fields that its kind does not have are empty."""

    id: int
    kind: str
    children: tuple[Node, ...] = ()
    source: str = ""  # relation
    columns: tuple[RelationColumn, ...] = ()  # relation
    unique: tuple[tuple[str, ...], ...] = ()  # relation: column sets known to be unique (optional in the export)
    conditions: tuple[int, ...] = ()  # filter, join
    join_type: str = ""  # join
    outputs: tuple[Output, ...] = ()  # project, aggregate
    groups: tuple[int, ...] = ()  # aggregate
    aggregates: tuple[AggregateFunction, ...] = ()  # aggregate
    name: str = ""  # opaque
    reason: str = ""  # opaque
    keys: tuple[int, ...] | None = None  # sort: its expressions, where the export names them

    @property
    def child(self) -> Node:
        return self.children[0]

    def walk(self) -> Iterator[Node]:
        yield self
        for c in self.children:
            yield from c.walk()

    def expression_ids(self) -> Iterator[int]:
        """Every expression the node itself names."""
        yield from self.conditions
        yield from self.groups
        for a in self.aggregates:
            yield from a.args
        for o in self.outputs:
            yield o.expr
        yield from self.keys or ()


@dataclass(frozen=True)
class Export:
    expressions: dict[int, Expression]
    sources: dict[str, Source]
    root: Node

    def expression(self, id_: int) -> Expression:
        return self.expressions[id_]

    def walk_expression(self, id_: int) -> Iterator[Expression]:
        open_ = [id_]  # no recursion: a generated IN or OR may be thousands deep
        while open_:
            e = self.expressions[open_.pop()]
            yield e
            open_.extend(reversed(e.children))

    def columns_by_name(self) -> dict[str, Expression]:
        """For each relation column, the expression (op ``column``) that names it; the lowest id wins."""
        found: dict[str, Expression] = {}
        for id_ in sorted(self.expressions):
            e = self.expressions[id_]
            if e.op == "column" and len(e.columns) == 1:
                found.setdefault(e.columns[0], e)
        return found


def read_export(data: dict[str, Any]) -> Export:
    expressions = {int(k): _expression(int(k), v) for k, v in data["expressions"].items()}
    sources = {
        s["id"]: Source(s["id"], s["table"], s["kind"], None if s.get("rows") is None else int(s["rows"]))
        for s in data["sources"]
    }
    return Export(expressions, sources, _node(data["root"]))


def _expression(id_: int, d: dict[str, Any]) -> Expression:
    return Expression(
        id=id_,
        sql=d["sql"],
        type=d["type"],
        nullable=bool(d["nullable"]),
        op=d["op"],
        children=tuple(int(c) for c in d.get("children") or ()),
        columns=tuple(d.get("columns") or ()),
        relations=tuple(int(r) for r in d.get("relations") or ()),
        deterministic=bool(d.get("deterministic", True)),
        throws=bool(d.get("throws", False)),
        same=str(d["same"]),
        literal=d.get("literal"),
    )


def _node(d: dict[str, Any]) -> Node:
    children = [d[name] for name in ("child", "left", "right") if d.get(name) is not None]
    children += d.get("children") or []
    return Node(
        id=int(d["id"]),
        kind=d["kind"],
        children=tuple(_node(c) for c in children),
        source=d.get("source") or "",
        columns=tuple(
            RelationColumn(c["column"], c.get("label") or c["column"], c["type"], bool(c["nullable"]))
            for c in (d.get("columns") or [] if d["kind"] == "relation" else [])
        ),
        unique=tuple(tuple(u) for u in d.get("unique") or ()),
        conditions=tuple(int(e) for e in d.get("conditions") or ()),
        join_type=d.get("type") or "" if d["kind"] == "join" else "",
        outputs=tuple(
            Output(o["name"], o["column"], int(o["expr"]))
            for o in (d.get("outputs") or [])
            if o.get("expr") is not None
        ),
        groups=tuple(int(e) for e in d.get("groups") or ()),
        aggregates=tuple(
            AggregateFunction(
                a["id"], a["function"], tuple(int(e) for e in a.get("args") or ()), bool(a.get("distinct")), a["type"]
            )
            for a in d.get("aggregates") or ()
        ),
        name=d.get("name") or "",
        reason=d.get("reason") or "",
        keys=tuple(int(e) for e in d["keys"]) if d.get("keys") is not None else None,
    )
