"""The text of EXPLAIN CREATE: what was chosen, what an update and a read cost, and why nothing better was taken."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_ivm.plan.block import BlockPlan, Node
from pyspark_ivm.plan.blocks import Block
from pyspark_ivm.plan.costs import Cost, atom_cost, guard_leaf
from pyspark_ivm.plan.export import Export
from pyspark_ivm.plan.print_sql import SqlPrinter
from pyspark_ivm.plan.reasons import Reason


@dataclass(frozen=True)
class Explained:
    text: str
    extended: str
    costs: dict[str, str]
    delay: str


def explain_full(export: Export, reasons: tuple[Reason, ...]) -> Explained:
    lines = ["Strategy: full", "  every refresh that finds a change runs the query again", "Not chosen:"]
    for r in reasons:
        lines.append(f"  yannakakis: {r.code}: {r.sentence}")
        if r.way_out:
            lines.append(f"    way out: {r.way_out}")
    tables = sorted({s.table for s in export.sources.values()})
    costs = dict.fromkeys(tables, "O(n)")
    lines += ["Update cost:", *(f"  {t}: O(n)" for t in tables), "Read delay: O(1)"]
    text = "\n".join(lines)
    return Explained(text, text, costs, "O(1)")


def explain_blocks(export: Export, blocks: tuple[Block, ...], not_chosen: tuple[Reason, ...]) -> Explained:
    printer = SqlPrinter(export)
    lines: list[str] = []
    extended: list[str] = []
    for b in blocks:
        head = _block(b, printer)
        lines += head
        extended += [*head, *_details(b, printer)]
    costs = _costs(export, blocks)
    delay = _delay(blocks)
    tail = ["Update cost:", *(f"  {t}: {c}{why}" for t, (c, why) in costs.items()), f"Read delay: {delay}"]
    if not_chosen:
        tail.append("Not chosen:")
        for r in not_chosen:
            tail.append(f"  {_better(r)}: {r.code}: {r.sentence}")
    return Explained("\n".join(lines + tail), "\n".join(extended + tail), {t: c for t, (c, _) in costs.items()}, delay)


def _better(r: Reason) -> str:
    return "simple join tree" if r.code == "NOT_Q_HIERARCHICAL" else "one block"


def _block(b: Block, printer: SqlPrinter) -> list[str]:
    p = b.plan
    lines = [f"Block {p.id}: {_purpose(b)}", "Strategy: yannakakis", f"  Class: {b.query_class}", "  Join tree:"]
    lines += _draw(p, p.root, "    ", "")
    if b.residual:
        lines.append(f"  Residual filter (by Spark): {' AND '.join(printer(c) for c in b.residual)}")
    lines += ["  Indexes:", *(f"    {i}" for i in _indexes(p))]
    if p.partition is not None:
        replicated = [a.label for a in p.atoms if p.partition not in a.variables]
        text = f"  Partitioned by: {p.variables[p.partition].name}"
        if replicated:
            text += f"; in every partition: {', '.join(dict.fromkeys(replicated))}"
        lines.append(text + ("; groups are merged at read" if p.partials else ""))
    return lines


def _purpose(b: Block) -> str:
    p = b.plan
    if p.mode == "rows":
        return "rows, deltas to the next block" if p.emits else "rows"
    if p.global_aggregate:
        return "aggregate without groups"
    names = [p.variables[v].name for v in dict.fromkeys(o.variable for o in p.outputs)]
    return f"aggregate by {', '.join(names)}"


def _names(p: BlockPlan, variables: tuple[int, ...]) -> str:
    return "[" + ", ".join(p.variables[v].name for v in variables) + "]"


def _draw(p: BlockPlan, node: Node, first: str, rest: str, guards: bool = False) -> list[str]:
    """`first` opens the node's line, `rest` the lines below it."""
    label = _names(p, node.variables)
    if node.atom is not None:
        label = f"{p.atoms[node.atom].label} {label}"
    marks = [m for m, holds in (("N", node.connex), ("guard", guards), ("simple", _simple(p, node))) if holds]
    lines = [first + label + (f"  ({', '.join(marks)})" if marks else "")]
    rest = rest or " " * len(first)
    for i, c in enumerate(node.children):
        last = i == len(node.children) - 1
        lines += _draw(
            p, p.nodes[c], rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), c == node.guard
        )
    return lines


def _simple(p: BlockPlan, node: Node) -> bool:
    """Every child has all of the node's variables: nothing below can touch two of its tuples at once."""
    return bool(node.children) and all(len(p.nodes[c].key) == len(node.variables) for c in node.children)


def _indexes(p: BlockPlan) -> list[str]:
    found = []
    for n in p.nodes:
        name = f"{_names(p, n.variables)} of " + (
            p.atoms[n.atom].label if n.atom is not None else f"the node guarded by {p.atoms[guard_leaf(p, n)].label}"
        )
        found.append(f"hash {name}")
        probes = [p.nodes[c].key for c in n.children if len(p.nodes[c].key) < len(n.variables)]
        if n.connex and n.id != p.root.id and len(n.key) < len(n.variables):
            probes.append(n.key)
        found += [f"  by {_names(p, key)}" for key in dict.fromkeys(probes)]
    return found


def _details(b: Block, printer: SqlPrinter) -> list[str]:
    """EXPLAIN EXTENDED: what travels for each atom, and the channels."""
    p = b.plan
    lines = [f"  Inputs of {p.id}:"]
    for a, i in zip(p.atoms, b.inputs, strict=True):
        lines.append(f"    {a.label}")
        lines += [f"      filter: {printer(f)}" for f in i["filters"]]
        for c in i["columns"]:
            part = f" part {c['part']}" if "part" in c else ""
            needs = "".join(f", if {printer(r)} is not NULL" for r in c.get("requires", ()))
            lines.append(f"      x{c['slot']} {p.wire[c['slot']]} {c['as']}: {printer(c['expr'])}{part}{needs}")
    lines.append("  Channels:")
    for k, channel in enumerate(p.channels):
        factors = [
            f"{p.atoms[a].label}.{_feature(p, a, f)}" for a, f in enumerate(channel.factors) if f
        ]  # fmt: skip
        note = " (errors)" if k in p.error_channels else ""
        lines.append(f"    {k} {channel.kind}: {' * '.join(factors) or 'multiplicity'}{note}")
    return lines


def _feature(p: BlockPlan, atom: int, local: int) -> str:
    f = p.atoms[atom].channels[local].feature
    assert f is not None
    return f"{f.function}({', '.join(f'x{s}' for s in f.slots)})"


def _costs(export: Export, blocks: tuple[Block, ...]) -> dict[str, tuple[str, str]]:
    """For each base table its worst atom: class and, where one tuple may touch many, the key that decides it."""
    found: dict[str, tuple[str, str]] = {}
    b = blocks[0]
    two = len(blocks) > 1
    for a in b.plan.atoms:
        table = export.sources[a.source].table
        cost = atom_cost(b.plan, b.statistics, a.id)
        if table in found and found[table][0] != "O(1)":
            continue
        found[table] = (cost.text, "" if two else _why(b.plan, cost))
    return dict(sorted(found.items()))


def _why(p: BlockPlan, cost: Cost) -> str:
    if cost.node is None:
        return ""
    guard = p.atoms[guard_leaf(p, p.nodes[cost.node])].label
    if not cost.key:
        return f"  (every tuple of {guard})"
    return f"  (tuples of {guard} with the same {', '.join(p.variables[v].name for v in cost.key)})"


def _delay(blocks: tuple[Block, ...]) -> str:
    last = blocks[-1]
    if last.residual:
        return "O(1) for each row before the residual filter"
    return "O(1) after merging the partitions" if last.plan.partials else "O(1)"
