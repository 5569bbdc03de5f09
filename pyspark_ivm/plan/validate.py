"""Check every invariant of block.py: the engine relies on them and checks none."""

from __future__ import annotations

from pyspark_ivm.plan.block import BlockPlan, Feature


class BrokenPlan(AssertionError):
    """A block plan that the engine could not run: always a defect of the planner."""


def validate(plan: BlockPlan) -> None:
    _Check(plan).run()


class _Check:
    def __init__(self, plan: BlockPlan):
        self.plan = plan

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise BrokenPlan(f"{self.plan.id}: {what}")

    def run(self) -> None:
        for check in (self.variables, self.atoms, self.channels, self.tree, self.connex_set, self.outputs, self.rest):
            check()

    def variables(self) -> None:
        p = self.plan
        for i, v in enumerate(p.variables):
            owners = [a for a in p.atoms if i in a.variables]
            self.require(bool(v.columns), f"variable {v.name} has no columns")
            self.require(bool(owners), f"variable {v.name} is in no atom")
            self.require(len(owners) == 1 or not v.nullable, f"join variable {v.name} is nullable")
            self.require(
                len(owners) > 1 or any(o.variable == i for o in p.outputs), f"{v.name} neither joins nor is output"
            )

    def atoms(self) -> None:
        p = self.plan
        for i, a in enumerate(p.atoms):
            self.require(a.id == i, f"atom {a.id} at position {i}")
            self.require(len(set(a.variables)) == len(a.variables), f"atom {i} repeats a variable")
            self.require(len(a.slots) == len(a.variables), f"atom {i}: slots and variables differ in number")
            for v, slots in zip(a.variables, a.slots, strict=True):
                kinds = tuple(c.kind for c in p.variables[v].columns)
                self.require(
                    tuple(p.wire[s] for s in slots) == kinds,
                    f"atom {i}: slots of {p.variables[v].name} are not {kinds}",
                )
            self.require(
                bool(a.channels) and a.channels[0].kind == "count" and a.channels[0].feature is None,
                f"atom {i}: channel 0 is not the multiplicity",
            )
            for c in a.channels[1:]:
                self.require(c.feature is not None, f"atom {i}: a channel without feature")
                assert c.feature is not None
                self.feature(i, c.kind, c.feature)

    def feature(self, atom: int, kind: str, f: Feature) -> None:
        wire = [self.plan.wire[s] for s in f.slots]
        if f.function == "error":
            self.require(not f.slots and kind == "count", f"atom {atom}: error feature with slots")
        elif f.function == "present":
            self.require(bool(f.slots) and kind == "count", f"atom {atom}: present feature without slots")
        elif kind == "float":
            self.require(wire == ["double"], f"atom {atom}: float value from {wire}")
        else:
            self.require(wire in (["word"], ["word", "word"]), f"atom {atom}: integer value from {wire}")
            self.require(kind == ("int3" if len(wire) == 2 else "int2"), f"atom {atom}: {kind} value from {wire}")

    def channels(self) -> None:
        p = self.plan
        self.require(bool(p.channels), "no channels")
        self.require(
            p.channels[0].kind == "count" and not any(p.channels[0].factors), "channel 0 is not the multiplicity"
        )
        for k, c in enumerate(p.channels):
            self.require(len(c.factors) == len(p.atoms), f"channel {k}: factors and atoms differ in number")
            kinds = [p.atoms[a].channels[f].kind for a, f in enumerate(c.factors)]
            values = [x for x in kinds if x != "count"]
            if c.kind == "float":
                self.require(values == ["float"], f"channel {k}: float from {kinds}")
            elif c.kind == "count":
                self.require(not values, f"channel {k}: count from {kinds}")
            else:
                self.require(bool(values) and "float" not in values, f"channel {k}: {c.kind} from {kinds}")
                self.require(c.kind == "int3" or values == ["int2"], f"channel {k}: int2 cannot hold {kinds}")
        self.require(p.mode == "aggregate" or not p.read_channels, "rows mode reads channels")
        for k in (*p.read_channels, *p.error_channels):
            self.require(0 <= k < len(p.channels), f"channel {k} does not exist")
        for k in p.error_channels:
            self.require(p.channels[k].kind == "count", f"error channel {k} is not a count")

    def tree(self) -> None:
        p = self.plan
        parent: dict[int, int] = {}
        self.require(bool(p.nodes), "no nodes")
        for i, n in enumerate(p.nodes):
            self.require(n.id == i, f"node {n.id} at position {i}")
            self.require(len(set(n.variables)) == len(n.variables), f"node {i} repeats a variable")
            for c in n.children:
                self.require(c < i and c not in parent, f"node {c} is not a child of {i} alone, before it")
                parent[c] = i
            if n.atom is not None:
                self.require(not n.children and n.guard is None, f"leaf {i} has children")
                self.require(set(n.variables) == set(p.atoms[n.atom].variables), f"leaf {i}: variables of its atom")
            else:
                self.require(n.guard in n.children, f"node {i}: guard is no child")
                assert n.guard is not None
                self.require(set(p.nodes[n.guard].key) == set(n.variables), f"node {i}: the guard's key differs")
        self.require(sorted(parent) == list(range(len(p.nodes) - 1)), "not one tree with the last node as root")
        for i, n in enumerate(p.nodes):
            above = set(p.nodes[parent[i]].variables) if i in parent else set()
            self.require(
                n.key == tuple(v for v in n.variables if v in above), f"node {i}: key is not what its parent has"
            )
        leaves = [n.atom for n in p.nodes if n.atom is not None]
        self.require(sorted(leaves) == list(range(len(p.atoms))), "the leaves are not the atoms, once each")
        for v in range(len(p.variables)):  # running intersection: the nodes with v form a subtree
            having = {n.id for n in p.nodes if v in n.variables}
            tops = [i for i in having if parent.get(i) not in having]
            self.require(len(tops) == 1, f"variable {p.variables[v].name} is in {len(tops)} separate parts of the tree")

    def connex_set(self) -> None:
        p = self.plan
        self.require(p.root.connex, "the root is not in N")
        for n in p.nodes:
            for c in n.children:
                self.require(n.connex or not p.nodes[c].connex, f"N is not connected at node {c}")
        carried = {v for n in p.nodes if n.connex for v in n.variables}
        wanted = {o.variable for o in p.outputs}
        if p.mode == "aggregate":
            self.require(carried == wanted, "N does not carry exactly the group variables")
        else:  # rows: N may carry more (the smallest free-connex cover); a bag does not mind
            self.require(carried >= wanted, "N does not carry the outputs")

    def outputs(self) -> None:
        p = self.plan
        for o in p.outputs:
            self.require(
                0 <= o.variable < len(p.variables) and 0 <= o.column < len(p.variables[o.variable].columns),
                f"output {o} does not exist",
            )

    def rest(self) -> None:
        p = self.plan
        self.require(p.global_aggregate == (p.mode == "aggregate" and not p.outputs), "global_aggregate is wrong")
        self.require(p.mode == "rows" or not p.emits, "an aggregate block does not emit")
        if p.partition is None:
            self.require(not p.partials, "partials without partitions")
        else:
            groups = {o.variable for o in p.outputs}
            self.require(0 <= p.partition < len(p.variables), "the partition variable does not exist")
            self.require(p.partials == (p.mode == "aggregate" and p.partition not in groups), "partials do not follow")
