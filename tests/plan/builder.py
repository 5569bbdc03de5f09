"""A small language for exported plans (docs/contracts.md A), so that a test reads like its query.

q = Builder() o = q.table("orders", o_orderkey="bigint", o_total="decimal(12,2)") export = q.export(q.aggregate(o,
groups=[o.o_orderkey], s=("sum", o.o_total)))
"""

from __future__ import annotations

from typing import Any

from pyspark_ivm.plan.spark_types import decimal, is_integer


class Expr:
    def __init__(self, builder: Builder, id_: int):
        self.builder, self.id = builder, id_

    @property
    def data(self) -> dict[str, Any]:
        return self.builder.expressions[str(self.id)]

    def __add__(self, other: Any) -> Expr:
        return self.builder.arithmetic("add", "+", self, other)

    def __sub__(self, other: Any) -> Expr:
        return self.builder.arithmetic("subtract", "-", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return self.builder.arithmetic("subtract", "-", other, self)

    def __mul__(self, other: Any) -> Expr:
        return self.builder.arithmetic("multiply", "*", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return self.builder.arithmetic("multiply", "*", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return self.builder.op("divide", "/", [self, other], "double", throws=True)

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]
        return self.builder.op("equal", "=", [self, other], "boolean")

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> Expr:
        return self.builder.op("less", "<", [self, other], "boolean")

    def __gt__(self, other: Any) -> Expr:
        return self.builder.op("greater", ">", [self, other], "boolean")

    def null_safe(self, other: Any) -> Expr:
        return self.builder.op("equalNullSafe", "<=>", [self, other], "boolean")

    def cast(self, type_: str, throws: bool = False) -> Expr:
        return self.builder.call("cast", f"CAST({self.data['sql']} AS {type_.upper()})", [self], type_, throws=throws)


class Table:
    def __init__(self, builder: Builder, node: dict[str, Any], columns: dict[str, str]):
        self._builder, self._node, self._columns = builder, node, columns

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._builder.column(self._node, name)


class Builder:
    def __init__(self) -> None:
        self.expressions: dict[str, dict[str, Any]] = {}
        self.sources: list[dict[str, Any]] = []
        self.by_same: dict[str, int] = {}
        self.next_node = 0
        self.next_column = 0

    def node(self, kind: str, **fields: Any) -> dict[str, Any]:
        self.next_node += 1
        return {"id": self.next_node, "kind": kind, **fields}

    def fresh(self) -> str:
        self.next_column += 1
        return f"c{self.next_column}"

    def table(
        self, name: str, /, *, rows: int | None = 1000, kind: str = "files", nullable: bool = True,
        unique: list[list[str]] | None = None, **columns: str,
    ) -> Table:  # fmt: skip
        full = f"spark_catalog.default.{name}"
        source = next((s for s in self.sources if s["table"] == full), None)
        if source is None:
            source = {"id": f"s{len(self.sources)}", "table": full, "kind": kind, "rows": rows}
            self.sources.append(source)
        listed = [{"column": self.fresh(), "label": c, "type": t, "nullable": nullable} for c, t in columns.items()]
        node = self.node("relation", source=source["id"], columns=listed)
        names = {c["label"]: c["column"] for c in listed}
        if unique:
            node["unique"] = [[names[c] for c in u] for u in unique]
        return Table(self, node, names)

    def expression(self, same: str, **fields: Any) -> Expr:
        """Every mention gets an id of its own, as in Spark; `same` tells equal ones."""
        id_ = 100 + len(self.expressions)
        fields.setdefault("deterministic", True)
        fields.setdefault("throws", False)
        fields.setdefault("literal", None)
        key = f"k{self.by_same.setdefault(same, len(self.by_same))}"
        self.expressions[str(id_)] = {"same": key, **fields}
        return Expr(self, id_)

    def column(self, node: dict[str, Any], label: str) -> Expr:
        c = next(c for c in node["columns"] if c["label"] == label)
        return self.expression(
            c["column"], sql=c["column"], type=c["type"], nullable=c["nullable"], op="column", children=[],
            columns=[c["column"]], relations=[node["id"]],
        )  # fmt: skip

    def lit(self, value: Any, type_: str = "int") -> Expr:
        quoted = {"string": f"'{value}'", "date": f"DATE '{value}'"}
        sql = quoted.get(type_, str(value))
        return self.expression(
            f"{sql}:{type_}", sql=sql, type=type_, nullable=value is None, op="literal", children=[], columns=[],
            relations=[], literal=None if value is None else str(value),
        )  # fmt: skip

    def lift(self, value: Any, like: Expr | None = None) -> Expr:
        if isinstance(value, Expr):
            return value
        if like is not None and decimal(like.data["type"]):
            return self.lit(value, f"decimal({len(str(abs(value)))},0)")
        if isinstance(value, str):
            return self.lit(value, "string")
        return self.lit(value, like.data["type"] if like is not None and is_integer(like.data["type"]) else "int")

    def call(self, op: str, sql: str, children: list[Expr], type_: str, **fields: Any) -> Expr:
        nullable = fields.pop("nullable", any(c.data["nullable"] for c in children))
        return self.expression(
            f"{op}({','.join(c.data['same'] for c in children)}):{type_}", sql=sql, type=type_, nullable=nullable, op=op,
            children=[c.id for c in children],
            columns=sorted({x for c in children for x in c.data["columns"]}),
            relations=sorted({x for c in children for x in c.data["relations"]}),
            deterministic=all(c.data["deterministic"] for c in children) and fields.pop("deterministic", True),
            throws=fields.pop("throws", False) or any(c.data["throws"] for c in children),
        )  # fmt: skip

    def op(self, op: str, symbol: str, operands: list[Any], type_: str, **fields: Any) -> Expr:
        like = next(x for x in operands if isinstance(x, Expr))
        left, right = (self.lift(x, like) for x in operands)
        return self.call(op, f"({left.data['sql']} {symbol} {right.data['sql']})", [left, right], type_, **fields)

    def arithmetic(self, op: str, symbol: str, left: Any, right: Any) -> Expr:
        like = left if isinstance(left, Expr) else right
        x, y = self.lift(left, like), self.lift(right, like)
        a, b = decimal(x.data["type"]), decimal(y.data["type"])
        if a and b:
            if op == "multiply":
                precision, scale = a.precision + b.precision + 1, a.scale + b.scale
            else:
                scale = max(a.scale, b.scale)
                precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
            if precision > 38:  # Spark's adjustPrecisionScale
                whole = precision - scale
                scale = max(38 - whole, min(scale, 6))
                return self.op(op, symbol, [x, y], f"decimal(38,{scale})", throws=True)
            return self.op(op, symbol, [x, y], f"decimal({precision},{scale})")
        return self.op(op, symbol, [x, y], x.data["type"], throws=is_integer(x.data["type"]))

    # operators

    @staticmethod
    def plan(x: Any) -> dict[str, Any]:
        return x._node if isinstance(x, Table) else x

    def join(self, left: Any, right: Any, *on: Expr, type: str = "inner") -> dict[str, Any]:
        return self.node("join", type=type, conditions=[c.id for c in on], left=self.plan(left), right=self.plan(right))

    def filter(self, child: Any, *conditions: Expr) -> dict[str, Any]:
        return self.node("filter", conditions=[c.id for c in conditions], child=self.plan(child))

    def project(self, child: Any, **outputs: Expr) -> dict[str, Any]:
        listed = [{"name": n, "column": self.fresh(), "expr": e.id} for n, e in outputs.items()]
        return self.node("project", outputs=listed, child=self.plan(child))

    def aggregate(self, child: Any, groups: list[Expr] | None = None, **functions: tuple[Any, ...]) -> dict[str, Any]:
        """name=("sum", expr…); a function name ending in " distinct" is a distinct aggregate."""
        listed, outputs = [], []
        node = self.node("aggregate", groups=[g.id for g in groups or []], child=self.plan(child))
        for i, g in enumerate(groups or []):
            e = self.expression(
                f"group{node['id']}.{i}", sql=g.data["sql"], type=g.data["type"], nullable=g.data["nullable"],
                op="groupResult", children=[], columns=[], relations=[node["id"]],
            )  # fmt: skip
            outputs.append({"name": f"g{i}", "column": self.fresh(), "expr": e.id})
        for i, (name, (function, *args)) in enumerate(functions.items()):
            listed.append(
                {
                    "id": f"a{i}", "function": function.removesuffix(" distinct"), "args": [a.id for a in args],
                    "distinct": function.endswith(" distinct"), "type": "bigint",
                    "inputTypes": [a.data["type"] for a in args],
                }
            )  # fmt: skip
            e = self.expression(
                f"aggregate{node['id']}.{i}", sql=function, type="bigint", nullable=True, op="aggregateResult",
                children=[], columns=[], relations=[node["id"]],
            )  # fmt: skip
            outputs.append({"name": name, "column": self.fresh(), "expr": e.id})
        return {**node, "aggregates": listed, "outputs": outputs}

    def unary(self, kind: str, child: Any) -> dict[str, Any]:
        return self.node(kind, child=self.plan(child))

    def opaque(self, name: str, *children: Any, reason: str = "") -> dict[str, Any]:
        return self.node("opaque", name=name, children=[self.plan(c) for c in children], reason=reason)

    def export(self, root: Any) -> dict[str, Any]:
        return {
            "format": 1,
            "settings": {"ansi": True, "timeZone": "UTC", "caseSensitive": False},
            "expressions": self.expressions,
            "sources": self.sources,
            "root": self.plan(root),
        }
