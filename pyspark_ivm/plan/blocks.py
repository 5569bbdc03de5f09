"""Cut the query into blocks: one aggregate block where everything factors, else a rows block and an aggregate over it.

Law: γ(⋈) is one block if its group variables are carried by a connex set and its arguments factor over the atoms;
always γ(⋈) = γ(rows(⋈)), where the second block sees the first one's deltas and Spark evaluates what spans atoms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark_ivm.plan.block import MAX_VARIABLE_COLUMNS, Atom, BlockPlan, Column, OutputColumn, Variable
from pyspark_ivm.plan.channels import Channels
from pyspark_ivm.plan.classify import QueryClass, classify
from pyspark_ivm.plan.export import Export, Expression, Node
from pyspark_ivm.plan.gyo import cyclic_core
from pyspark_ivm.plan.hypergraph import Hypergraph
from pyspark_ivm.plan.join_tree import UNKNOWN_ROWS, Statistics, cover, nodes, search
from pyspark_ivm.plan.partition import partition
from pyspark_ivm.plan.print_sql import SqlPrinter
from pyspark_ivm.plan.reasons import NotIncremental, Reason, reason
from pyspark_ivm.plan.region import Region, flatten
from pyspark_ivm.plan.shape import Shape
from pyspark_ivm.plan.spark_types import compares_by_bytes, is_float, key_columns
from pyspark_ivm.plan.variables import Joins, JoinVariable, find_joins
from pyspark_ivm.plan.wire import AtomWire, Wire


@dataclass(frozen=True)
class AtomInput:
    """Where an atom's rows come from: a relation of the export, or the deltas of an earlier block."""

    label: str
    source: str  # source id or block id
    relations: tuple[int, ...]  # exported nodes whose columns the atom's expressions use
    filters: tuple[int, ...]
    rows: int
    node: int | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    throws: bool = False  # an expression evaluated before this input may set the error flag

    @property
    def block(self) -> str | None:
        return self.source if self.node is None else None


@dataclass(frozen=True)
class Block:
    plan: BlockPlan
    replaces: int
    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[dict[str, Any], ...]
    aggregates: tuple[dict[str, Any], ...]
    residual: tuple[int, ...]
    query_class: QueryClass
    statistics: Statistics
    filters: tuple[tuple[int, ...], ...]  # by atom, for EXPLAIN
    not_chosen: tuple[Reason, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.plan.id,
            "strategy": "yannakakis",
            "replaces": self.replaces,
            "deltas": self.plan.emits,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "aggregates": list(self.aggregates),
            "residual": list(self.residual),
            "plan": self.plan.to_json(),
        }


def cut(export: Export, shape: Shape, partitions: int) -> tuple[Block, ...]:
    region = flatten(export, shape.region)
    joins = find_joins(export, region)
    graph_edges = [
        frozenset(i for i, v in enumerate(joins.variables) if a in v.atoms) for a in range(len(region.atoms))
    ]
    if core := cyclic_core(graph_edges):
        names = ", ".join(export.sources[region.atoms[a].source].table for a in core)
        raise NotIncremental(reason("CYCLIC_JOIN", tables=names))
    inputs = _inputs(export, region)
    if shape.aggregate is None:
        wanted = _needed(export, shape.above, joins.residual)
        return (_rows(export, "b00", shape.region, inputs, joins, wanted, partitions, emits=False),)
    try:
        if joins.residual:
            spelled = "; ".join(SqlPrinter(export)(c) for c in joins.residual)
            raise NotIncremental(reason("RESIDUAL_PREDICATE", predicate=spelled))
        return (_aggregate(export, "b00", shape.aggregate, inputs, joins.variables, partitions),)
    except NotIncremental as e:
        if any(r.code not in _TWO_BLOCKS for r in e.reasons):
            raise
        not_chosen = tuple(reason(r.code, block="b00", **dict(r.parameters)) for r in e.reasons)
    wanted = _needed(export, (shape.aggregate,), joins.residual)
    rows = _rows(export, "b00", shape.region, inputs, joins, wanted, partitions, emits=True, not_chosen=not_chosen)
    above = AtomInput(
        label="rows of b00",
        source="b00",
        relations=tuple(a.id for a in region.atoms),
        filters=(),
        rows=max(i.rows for i in inputs),
        throws=any(export.expression(c).throws for c in joins.residual),
    )
    return rows, _aggregate(export, "b01", shape.aggregate, (above,), (), partitions)


#: Reasons against one block that two blocks overcome.
_TWO_BLOCKS = ("RESIDUAL_PREDICATE", "GROUP_SPANS_TABLES", "ARGUMENT_NOT_FACTORED", "NOT_FREE_CONNEX")


def _inputs(export: Export, region: Region) -> tuple[AtomInput, ...]:
    def rows(node: Node) -> int:
        known = export.sources[node.source].rows
        return UNKNOWN_ROWS if known is None else known

    seen: dict[str, int] = {}

    def label(node: Node) -> str:
        """Atoms of one table are told apart: t, t #2, …"""
        seen[node.source] = seen.get(node.source, 0) + 1
        table = export.sources[node.source].table
        return table if seen[node.source] == 1 else f"{table} #{seen[node.source]}"

    return tuple(
        AtomInput(
            label=label(a),
            source=a.source,
            relations=(a.id,),
            filters=f,
            rows=rows(a),
            node=a.id,
            unique=a.unique,
        )
        for a, f in zip(region.atoms, region.filters, strict=True)
    )


def _needed(export: Export, above: tuple[Node, ...], residual: tuple[int, ...]) -> tuple[Expression, ...]:
    """The relation columns that the operators above or a residual conjunct read, in order of first use."""
    by_name = export.columns_by_name()
    names: dict[str, None] = {}
    read: list[int] = []
    for n in above:  # an aggregate's outputs are over its own results
        read.extend(
            [*n.groups, *(x for a in n.aggregates for x in a.args)] if n.kind == "aggregate" else n.expression_ids()
        )
    for id_ in (*read, *residual):
        for e in export.walk_expression(id_):
            if e.op == "column":
                names.update(dict.fromkeys(e.columns))
    relations = {n.id for n in export.root.walk() if n.kind == "relation"}
    return tuple(e for e in (by_name[n] for n in names) if relations.issuperset(e.relations) and e.relations)


@dataclass
class _Builder:
    """Variables, wire and tree of one block."""

    export: Export
    id: str
    inputs: tuple[AtomInput, ...]
    joins: tuple[JoinVariable, ...]
    carried: bool  # bundle columns are only carried (rows), not compared (groups)
    bundles: list[dict[str, Expression]] = field(init=False)  # by atom: `same` → expression

    def __post_init__(self) -> None:
        self.bundles = [{} for _ in self.inputs]
        self.atom_of = {r: a for a, i in enumerate(self.inputs) for r in i.relations}
        self.print = SqlPrinter(self.export)

    def atoms(self, e: Expression) -> tuple[int, ...]:
        return tuple(sorted({self.atom_of[r] for r in e.relations}))

    def place_all(self, expressions: list[Expression]) -> list[Callable[[], tuple[int, int]]]:
        """Constants go with any other output, so that they need no node of their own."""
        home = next((self.atoms(e)[0] for e in expressions if e.relations), 0)
        return [self._place(e, self.atoms(e)[0] if e.relations else home) for e in expressions]

    def _place(self, e: Expression, atom: int) -> Callable[[], tuple[int, int]]:
        """Give an output expression its variable; the answer is known when all are placed: (variable, column)."""
        for i, v in enumerate(self.joins):
            joined = atom in v.atoms and self.export.expression(v.expression(atom)).same == e.same
            if joined and not (self.carried and is_float(e.type)):  # a key's bits are normalised: 0.0 for -0.0
                return lambda: (i, 0)
        bundle = self.bundles[atom]
        bundle.setdefault(e.same, e)

        def position() -> tuple[int, int]:
            variable = len(self.joins) + sum(len(self.chunks(a)) for a in range(atom))
            for chunk in self.chunks(atom):
                column = 0
                for other in chunk:
                    if other.same == e.same:
                        return variable, column
                    column += _width(other)
                variable += 1
            raise AssertionError("every placed expression is in a chunk")

        return position

    def chunks(self, atom: int) -> list[list[Expression]]:
        """The atom's bundle, cut where a variable would have more columns than its null mask has bits."""
        found: list[list[Expression]] = []
        room = 0
        for e in self.bundles[atom].values():
            if _width(e) > room:
                found.append([])
                room = MAX_VARIABLE_COLUMNS
            found[-1].append(e)
            room -= _width(e)
        return found

    def variables(self) -> tuple[Variable, ...]:
        found = []
        for v in self.joins:
            columns = tuple(Column("bytes" if k == "bytes" else "word", False) for k in key_columns(v.type) or ())
            found.append(Variable(self.print(v.expressions[0][1]), columns))
        for chunk in (c for a in range(len(self.inputs)) for c in self.chunks(a)):
            columns = tuple(
                Column("bytes" if k == "bytes" else "word", e.may_be_null)
                for e in chunk
                for k in key_columns(e.type) or ()
            )
            found.append(Variable(", ".join(self.print(e.id) for e in chunk), columns))
        return tuple(found)

    def atom_variables(self) -> tuple[tuple[int, ...], ...]:
        found = []
        bundle = len(self.joins)
        for a in range(len(self.inputs)):
            own = [i for i, v in enumerate(self.joins) if a in v.atoms]
            for _ in self.chunks(a):
                own.append(bundle)
                bundle += 1
            found.append(tuple(own))
        return tuple(found)

    def wires(self) -> tuple[Wire, list[AtomWire], list[tuple[tuple[int, ...], ...]]]:
        wire = Wire(self.export)
        wires, slots = [], []
        for a in range(len(self.inputs)):
            w = AtomWire(wire)
            own = [w.key(self.export.expression(v.expression(a)), join=True) for v in self.joins if a in v.atoms]
            own += [tuple(s for e in chunk for s in w.key(e, carried=self.carried)) for chunk in self.chunks(a)]
            wires.append(w)
            slots.append(tuple(own))
        return wire, wires, slots

    def statistics(self, atom_variables: tuple[tuple[int, ...], ...]) -> Statistics:
        unique = []
        for a, i in enumerate(self.inputs):
            variable_of: dict[str, int] = {}
            for n, v in enumerate(self.joins):
                if a in v.atoms:
                    e = self.export.expression(v.expression(a))
                    if e.op == "column":
                        variable_of[e.columns[0]] = n
            chunks = self.chunks(a)
            for chunk, variable in zip(chunks, atom_variables[a][len(atom_variables[a]) - len(chunks) :], strict=True):
                for e in chunk:
                    if e.op == "column":
                        variable_of.setdefault(e.columns[0], variable)
            known = [u for u in i.unique if all(c in variable_of for c in u)]
            unique.append(tuple(frozenset(variable_of[c] for c in u) for u in known))
        return Statistics(tuple(i.rows for i in self.inputs), tuple(unique))

    def throws(self, atom: int, wire: AtomWire) -> bool:
        """A row may reach the atom with its error flag set. Filters and join keys do not count: a row for which one of
        them raises reaches no atom, it is counted for its source."""
        sent = {e for c in wire.columns for e in (c["expr"], *c.get("requires", ()))}
        sent -= {wire.columns[i]["expr"] for i in wire.not_null}
        return self.inputs[atom].throws or any(self.export.expression(e).throws for e in sent)

    def count_errors(self, wires: list[AtomWire], channels: Channels) -> None:
        for a, wire in enumerate(wires):
            if self.throws(a, wire):
                channels.error(a)

    def atom_plans(
        self, variables: tuple[tuple[int, ...], ...], slots: list[tuple[tuple[int, ...], ...]], channels: Channels
    ) -> tuple[Atom, ...]:
        return tuple(
            Atom(a, i.label, i.source, variables[a], slots[a], tuple(channels.local[a]))
            for a, i in enumerate(self.inputs)
        )

    def input_json(self, wires: list[AtomWire]) -> tuple[dict[str, Any], ...]:
        return tuple(
            {
                "atom": a,
                "node": i.node,
                "source": None if i.block else i.source,
                "block": i.block,
                "filters": list(i.filters),
                "notNull": sorted(w.not_null),
                "columns": w.columns,
            }
            for a, (i, w) in enumerate(zip(self.inputs, wires, strict=True))
        )


def _width(e: Expression) -> int:
    """Words of a key that the expression takes."""
    return len(key_columns(e.type) or ())


def _aggregate(
    export: Export,
    id_: str,
    node: Node,
    inputs: tuple[AtomInput, ...],
    joins: tuple[JoinVariable, ...],
    partitions: int,
) -> Block:
    b = _Builder(export, id_, inputs, joins, carried=False)
    groups = [export.expression(g) for g in node.groups]
    for e in groups:
        if not compares_by_bytes(e.type):
            raise NotIncremental(reason("UNSUPPORTED_TYPE", type=e.type, use="a group key", expression=b.print(e.id)))
    spanning = [e for e in groups if len(b.atoms(e)) > 1]
    if spanning:
        spelled = ", ".join(b.print(e.id) for e in spanning)
        raise NotIncremental(reason("GROUP_SPANS_TABLES", expression=spelled))
    places = b.place_all(groups)
    variables, atom_variables = b.variables(), b.atom_variables()
    graph = Hypergraph(tuple(frozenset(v) for v in atom_variables))
    output = frozenset(p()[0] for p in places)
    statistics = b.statistics(atom_variables)
    tree = search(graph, output, statistics)
    wire, wires, slots = b.wires()
    channels = Channels(export, wires, b.atom_of)
    reasons: list[Reason] = []
    aggregates = []
    for function in node.aggregates:
        try:
            aggregates.append(channels.add(function))
        except NotIncremental as e:
            reasons.extend(e.reasons)
    if tree is None:
        spelled = ", ".join(variables[v].name for v in sorted(output))
        reasons.insert(0, reason("NOT_FREE_CONNEX", columns=spelled))
    if reasons or tree is None:
        raise NotIncremental(*reasons)
    b.count_errors(wires, channels)
    outputs, exported = _outputs(groups, places)
    plan = BlockPlan(
        id=id_,
        mode="aggregate",
        variables=variables,
        wire=tuple(wire.kinds),
        atoms=b.atom_plans(atom_variables, slots, channels),
        channels=tuple(channels.channels),
        nodes=nodes(tree),
        outputs=outputs,
        read_channels=tuple(channels.read),
        error_channels=tuple(channels.errors),
        global_aggregate=not groups,
    )
    return Block(
        plan=partition(plan, statistics.rows, partitions),
        replaces=node.id,
        inputs=b.input_json(wires),
        outputs=exported,
        aggregates=tuple(aggregates),
        residual=(),
        query_class=classify(graph, output),
        statistics=statistics,
        filters=tuple(i.filters for i in inputs),
    )


def _rows(
    export: Export, id_: str, region: Node, inputs: tuple[AtomInput, ...], joins: Joins,
    wanted: tuple[Expression, ...], partitions: int, *, emits: bool, not_chosen: tuple[Reason, ...] = (),
) -> Block:  # fmt: skip
    b = _Builder(export, id_, inputs, joins.variables, carried=True)
    for e in wanted:
        if key_columns(e.type) is None:
            raise NotIncremental(reason("UNSUPPORTED_TYPE", type=e.type, use="a kept column", expression=b.print(e.id)))
    places = b.place_all(list(wanted))
    variables, atom_variables = b.variables(), b.atom_variables()
    graph = Hypergraph(tuple(frozenset(v) for v in atom_variables))
    output = frozenset(p()[0] for p in places)
    carried = cover(graph, output)
    statistics = b.statistics(atom_variables)
    tree = search(graph, carried, statistics)
    assert tree is not None, "an acyclic join is free-connex with respect to its cover"
    wire, wires, slots = b.wires()
    channels = Channels(export, wires, b.atom_of)
    b.count_errors(wires, channels)
    outputs, exported = _outputs(list(wanted), places)
    plan = BlockPlan(
        id=id_,
        mode="rows",
        variables=variables,
        wire=tuple(wire.kinds),
        atoms=b.atom_plans(atom_variables, slots, channels),
        channels=tuple(channels.channels),
        nodes=nodes(tree),
        outputs=outputs,
        error_channels=tuple(channels.errors),
        emits=emits,
    )
    return Block(
        plan=partition(plan, statistics.rows, partitions),
        replaces=region.id,
        inputs=b.input_json(wires),
        outputs=exported,
        aggregates=(),
        residual=joins.residual,
        # A bag is kept over the cover; an aggregate above asks about the outputs alone.
        query_class=classify(graph, output if emits else carried),
        statistics=statistics,
        filters=tuple(i.filters for i in inputs),
        not_chosen=not_chosen,
    )


def _outputs(
    expressions: list[Expression], places: list[Callable[[], tuple[int, int]]]
) -> tuple[tuple[OutputColumn, ...], tuple[dict[str, Any], ...]]:
    outputs: list[OutputColumn] = []
    exported: list[dict[str, Any]] = []
    for e, place in zip(expressions, places, strict=True):
        variable, column = place()
        words = _width(e)
        outputs.extend(OutputColumn(variable, column + w) for w in range(words))
        exported.append({"expr": e.id, "words": words})
    return tuple(outputs), tuple(exported)
