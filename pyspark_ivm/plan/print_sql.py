"""Print an exported expression for people: column labels instead of generated names, no qualifiers, no cast that the
analyzer put in. Spark never reads this text."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from typing import Any

from pyspark_ivm.plan.export import Export

#: Spark writes decimal literals as 0.05BD
_DECIMAL = re.compile(r"\b(\d+(?:\.\d+)?)BD\b")


class SqlPrinter:
    def __init__(self, export: Export):
        self.export = export

    @cached_property
    def _labels(self) -> dict[str, str]:
        """Generated column → its label; qualified by the table where several relations have such a label."""
        relations = [n for n in self.export.root.walk() if n.kind == "relation"]
        bearers = Counter(label for n in relations for label in {c.label for c in n.columns})
        seen: Counter[str] = Counter()
        found: dict[str, str] = {}
        for n in relations:
            seen[n.source] += 1
            table = self.export.sources[n.source].table.rsplit(".", 1)[-1]
            if seen[n.source] > 1:
                table += f"#{seen[n.source]}"
            for c in n.columns:
                found[c.column] = f"{table}.{c.label}" if bearers[c.label] > 1 else c.label
        return found

    def __call__(self, id_: int) -> str:
        e = self.export.expression(id_)
        if e.op == "column" and e.columns and e.columns[0] in self._labels:
            return self._labels[e.columns[0]]
        return pretty(e.sql, self._labels)


def pretty(sql: str, labels: dict[str, str]) -> str:
    try:
        # Imported late: planning without EXPLAIN of an expression should not pay for the parser.
        import sqlglot
        from sqlglot import expressions as exp

        tree = sqlglot.parse_one(_DECIMAL.sub(r"\1", sql), dialect="spark")

        def simplify(node: Any) -> Any:
            if isinstance(node, exp.Column):
                return exp.Var(this=labels.get(node.name, node.name))
            if isinstance(node, exp.Cast) and isinstance(node.this, (exp.Column, exp.Var, exp.Literal, exp.Cast)):
                return node.this
            if isinstance(node, exp.Paren) and isinstance(
                node.this, (exp.Column, exp.Var, exp.Literal, exp.Paren, exp.Func)
            ):
                return node.this
            return node

        tree = tree.transform(simplify)
        while isinstance(tree, exp.Paren):
            tree = tree.this
        return tree.sql(dialect="spark")
    except Exception:  # Spark's text is wider than any parser of it; a label must never stop a plan
        return sql
