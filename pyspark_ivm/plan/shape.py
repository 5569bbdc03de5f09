"""Find what a block replaces: one aggregate over a join region, or the region alone (rows).

Law: whatever stands above the replaced node is evaluated by Spark on the block's answer, so it may be any
deterministic projection, filter (HAVING), sort, limit or offset.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_ivm.plan.export import Export, Node
from pyspark_ivm.plan.reasons import NotIncremental, Reason, reason

#: Operators with one child that Spark can run on top of a block's answer.
_UNARY = ("project", "filter", "sort", "limit", "offset")

_OPAQUE_BY_NAME = (
    ("WINDOW", ("Window",)),
    ("SET_OPERATION", ("Union", "Intersect", "Except", "Distinct", "Deduplicate")),
    ("GROUPING_SETS", ("Expand", "GroupingSets", "Rollup", "Cube", "BaseGroupingSets")),
    ("GENERATOR", ("Generate",)),
    ("LIMIT_BELOW", ("Limit", "Offset", "Tail", "Sample")),
    ("SUBQUERY", ("Subquery", "LateralJoin", "DomainJoin")),
)
_SUBQUERY_OPS = ("ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery", "DynamicPruningSubquery")
_TIME_DEPENDENT_OPS = (
    "CurrentDate", "CurrentTimestamp", "CurrentTime", "Now", "LocalTimestamp", "CurrentUser", "SessionUser",
    "CurrentDatabase", "CurrentCatalog", "CurrentBatchTimestamp", "InputFileName", "SparkPartitionID",
    "MonotonicallyIncreasingID", "Rand", "Randn", "Uuid", "Shuffle",
)  # fmt: skip
_GENERATOR_OPS = ("Explode", "PosExplode", "Inline", "Stack", "JsonTuple", "SQLKeywords")
_GROUPING_OPS = ("Grouping", "GroupingID", "Rollup", "Cube", "GroupingSets", "GroupingAnalytics")

_NO_PROJECTION = "The plan names no output columns."
_NO_SORT_KEYS = "It sorts by columns that no projection names."


@dataclass(frozen=True)
class Shape:
    aggregate: Node | None
    region: Node  # topmost node of the join region
    above: tuple[Node, ...]  # from the root down to, without, the replaced node

    @property
    def replaced(self) -> Node:
        return self.aggregate or self.region


def find_shape(export: Export) -> Shape:
    problems = [*_expression_problems(export), *_operator_problems(export.root)]
    if problems:
        raise NotIncremental(*problems)
    chain = [export.root]
    while chain[-1].kind in _UNARY:
        chain.append(chain[-1].child)
    if chain[-1].kind == "aggregate":
        return Shape(chain[-1], chain[-1].child, tuple(chain[:-1]))
    # Rows: the region starts below the last limit, and below the projections that give the view its columns.
    start = max((i + 1 for i, n in enumerate(chain) if n.kind in ("limit", "offset")), default=0)
    while chain[start].kind in ("project", "sort"):
        start += 1
    shape = Shape(None, chain[start], tuple(chain[:start]))
    _check_names(shape)
    return shape


def _check_names(shape: Shape) -> None:
    """The columns a rows block must keep are those its operators name: a projection and, below it, sorts by name."""
    last = max((i for i, n in enumerate(shape.above) if n.kind == "project"), default=-1)
    if last < 0:
        raise NotIncremental(reason("UNSUPPORTED_OPERATOR", operator=shape.region.kind, detail=_NO_PROJECTION))
    if any(n.kind == "sort" and n.keys is None for n in shape.above[last + 1 :]):
        raise NotIncremental(reason("UNSUPPORTED_OPERATOR", operator="sort", detail=_NO_SORT_KEYS))


def _operator_problems(root: Node) -> list[Reason]:
    """Reasons of the operators themselves, in plan order; one for each code and place."""
    found: list[Reason] = []

    def visit(node: Node, inside: bool, below_aggregate: bool) -> None:
        # `inside`: within a block's region, where only inner joins, filters, projections and sorts are kept.
        kind = node.kind
        if kind == "aggregate":
            if inside:
                found.append(reason("NESTED_AGGREGATE", place="another aggregate" if below_aggregate else "a join"))
            found.extend(_aggregate_problems(node))
            visit(node.child, True, True)
            return
        if kind == "join":
            if node.join_type not in ("inner", "cross"):
                code = "SEMI_JOIN" if node.join_type in ("semi", "anti", "existence") else "OUTER_JOIN"
                found.append(reason(code, type=node.join_type.upper()))
            inside = True
        elif kind in ("limit", "offset") and inside:
            found.append(reason("LIMIT_BELOW", operator=kind.upper()))
        elif kind == "opaque":
            found.append(_opaque_reason(node))
            inside = True
        for c in node.children:
            visit(c, inside, below_aggregate)

    visit(root, False, False)
    return found


def _aggregate_problems(node: Node) -> list[Reason]:
    found = []
    for a in node.aggregates:
        if a.function not in ("sum", "count", "avg"):
            found.append(reason("AGGREGATE_NOT_SUPPORTED", function=a.function))
        elif a.distinct:
            found.append(reason("DISTINCT_AGGREGATE", function=a.function))
    return found


def _opaque_reason(node: Node) -> Reason:
    known = {code for code, _ in _OPAQUE_BY_NAME} | {"NON_DETERMINISTIC", "UNSUPPORTED_TYPE"}
    for code, names in _OPAQUE_BY_NAME:
        if node.reason == code or (node.reason not in known and any(n in node.name for n in names)):
            return reason(code, operator=node.name)
    if node.reason == "NON_DETERMINISTIC":
        return reason(node.reason, expression=node.name)
    return reason("UNSUPPORTED_OPERATOR", operator=node.name or "unknown", detail=node.reason)


def _expression_problems(export: Export) -> list[Reason]:
    """Every expression anywhere in the plan must be a deterministic function of the row it is evaluated on."""
    found: list[Reason] = []
    for node in export.root.walk():
        for id_ in node.expression_ids():
            for e in export.walk_expression(id_):
                name = e.op.removeprefix("other:")
                if name in _SUBQUERY_OPS:
                    found.append(reason("SUBQUERY", operator=name))
                elif name == "WindowExpression":
                    found.append(reason("WINDOW", operator="Window"))
                elif name in _GENERATOR_OPS:
                    found.append(reason("GENERATOR", operator=name))
                elif name in _GROUPING_OPS:
                    found.append(reason("GROUPING_SETS", operator=name))
                elif name in _TIME_DEPENDENT_OPS or (not e.deterministic and not e.children):
                    found.append(reason("NON_DETERMINISTIC", expression=e.sql))
            if not export.expression(id_).deterministic and not any(r.code == "NON_DETERMINISTIC" for r in found):
                found.append(reason("NON_DETERMINISTIC", expression=export.expression(id_).sql))
    return found
