"""The block plan: what the planner decides and the engine executes. Plain data, JSON in and out.

A block keeps one query over atoms (a base relation, or the deltas of another block). Law:
state(n+1) = apply(state(n), consolidated batch), read(state) = the block's query over the bags its atoms hold.

Vocabulary (papers 1 and 4, DESIGN §5):

* *wire*: the columns in which Spark sends an atom's rows to Python. Slots are shared by the atoms of a block; a
  slot is ``word`` (int64), ``double`` (float64) or ``bytes`` (binary). Spark has already evaluated every expression.
* *variable*: what joins or is output. A list of columns (word or bytes). In a relation's key a variable takes one
  int64 word per column (bytes columns: the id in the block's string table), and, if any of its columns is nullable,
  one more word at its end: the null mask (bit i = column i is NULL; the value word of a NULL is 0).
  A variable in several atoms is a join variable (never NULL: such rows are dropped by Spark before the wire).
  The output columns only one atom has are bundled into variables of that atom, as few as the mask allows.
* *channel*: a running value kept beside the multiplicity. Channel 0 is always the multiplicity (``count``).
* *node*: of a generalised join tree. Leaves are atoms. An inner node has no relation of its own: its tuples are
  those of its *guard* child (the guard's key equals the node's variables) that every other child joins with.
* *key* of a node: its variables that its parent also has. The message to the parent is the node's relation
  projected (summed) onto the key. The root's key is ``()``.
* *connex*: the node belongs to N, the connex set that carries exactly the output variables (contains the root
  unless N is empty, which cannot happen: a global aggregate has a root with no variables).
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal

SlotKind = Literal["word", "double", "bytes"]
ChannelKind = Literal["count", "int2", "int3", "float"]

#: int64 words that a channel takes in a vector.
#: count: one signed word. int2/int3: two's complement, least significant limb first (128 and 192 bit).
#: float: [hi, lo (double-double of the finite values), Σ|x|, the largest that Σ|x| ever was, NaNs, +Infs, -Infs,
#: number of finite values other than 0]; the first four are float64 bits (all 0 when that number is 0), the last four integers.
CHANNEL_WORDS: dict[str, int] = {"count": 1, "int2": 2, "int3": 3, "float": 9}


#: The null mask of a variable is one word, whose sign bit stays free.
MAX_VARIABLE_COLUMNS = 63


@dataclass(frozen=True)
class Column:
    kind: Literal["word", "bytes"]
    nullable: bool


@dataclass(frozen=True)
class Variable:
    name: str  # for EXPLAIN
    columns: tuple[Column, ...]

    @property
    def words(self) -> int:
        return len(self.columns) + (1 if self.nullable else 0)

    @property
    def nullable(self) -> bool:
        return any(c.nullable for c in self.columns)


@dataclass(frozen=True)
class Feature:
    """What a row contributes to a channel, before it is multiplied with the row's weight.

    ``value``: the slot's value, 0 where NULL. Slots: one ``word`` or ``double`` slot, or two ``word`` slots
    (low, high: a 128-bit integer). ``present``: 1 if none of the slots is NULL, else 0.
    ``error``: 1 if the row's error flag is set, else 0 (no slots).
    """

    function: Literal["value", "present", "error"]
    slots: tuple[int, ...] = ()


@dataclass(frozen=True)
class AtomChannel:
    kind: ChannelKind
    feature: Feature | None  # None only for channel 0: the weight itself


@dataclass(frozen=True)
class Atom:
    id: int  # position in BlockPlan.atoms; the value of the wire column `atom`
    label: str  # the table's name, for EXPLAIN
    source: str  # source id ("s0") or block id ("b00"): atoms of one source are counted once in rows_in
    variables: tuple[int, ...]  # indexes into BlockPlan.variables, in the order of the key
    slots: tuple[tuple[int, ...], ...]  # for each variable, the wire slot of each of its columns
    channels: tuple[AtomChannel, ...]  # [0] is the multiplicity


@dataclass(frozen=True)
class Channel:
    """A channel of the block: the product over all atoms of one local channel each (0 where no factor)."""

    kind: ChannelKind
    factors: tuple[int, ...]  # for each atom, the index of its local channel


@dataclass(frozen=True)
class Node:
    id: int  # position in BlockPlan.nodes, children before parents; the last is the root
    variables: tuple[int, ...]
    key: tuple[int, ...]  # in the order of `variables`; () for the root
    atom: int | None  # leaf
    children: tuple[int, ...]
    guard: int | None  # the child whose key is exactly `variables` (same set); None for a leaf
    connex: bool


@dataclass(frozen=True)
class OutputColumn:
    """A column of the block's output: column `column` of variable `variable`."""

    variable: int
    column: int


@dataclass(frozen=True)
class BlockPlan:
    id: str  # "b00"
    mode: Literal["aggregate", "rows"]
    variables: tuple[Variable, ...]
    wire: tuple[SlotKind, ...]
    atoms: tuple[Atom, ...]
    channels: tuple[Channel, ...]  # [0] is the multiplicity: factors all 0
    nodes: tuple[Node, ...]
    outputs: tuple[OutputColumn, ...]  # group columns (aggregate) or carried columns (rows)
    read_channels: tuple[int, ...] = ()  # aggregate: the channels a read delivers, in order (0 allowed)
    error_channels: tuple[int, ...] = ()  # count channels: errors in live outputs
    emits: bool = False  # rows mode: the deltas are consumed by another block
    global_aggregate: bool = False  # aggregate without GROUP BY: always one row, also over no rows
    partition: int | None = None  # the variable by whose hash the state is partitioned; None: one partition only
    partials: bool = False  # several partitions may hold the same group: reads merge them
    format: int = field(default=1)

    @property
    def root(self) -> Node:
        return self.nodes[-1]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any] | str) -> BlockPlan:
        d = json.loads(data) if isinstance(data, str) else dict(data)

        def feature(f: dict[str, Any] | None) -> Feature | None:
            return None if f is None else Feature(f["function"], tuple(f["slots"]))

        return BlockPlan(
            id=d["id"],
            mode=d["mode"],
            variables=tuple(
                Variable(v["name"], tuple(Column(c["kind"], c["nullable"]) for c in v["columns"]))
                for v in d["variables"]
            ),
            wire=tuple(d["wire"]),
            atoms=tuple(
                Atom(
                    a["id"],
                    a["label"],
                    a["source"],
                    tuple(a["variables"]),
                    tuple(tuple(s) for s in a["slots"]),
                    tuple(AtomChannel(c["kind"], feature(c["feature"])) for c in a["channels"]),
                )
                for a in d["atoms"]
            ),
            channels=tuple(Channel(c["kind"], tuple(c["factors"])) for c in d["channels"]),
            nodes=tuple(
                Node(
                    n["id"],
                    tuple(n["variables"]),
                    tuple(n["key"]),
                    n["atom"],
                    tuple(n["children"]),
                    n["guard"],
                    n["connex"],
                )
                for n in d["nodes"]
            ),
            outputs=tuple(OutputColumn(o["variable"], o["column"]) for o in d["outputs"]),
            read_channels=tuple(d["read_channels"]),
            error_channels=tuple(d["error_channels"]),
            emits=d["emits"],
            global_aggregate=d["global_aggregate"],
            partition=d["partition"],
            partials=d["partials"],
            format=d["format"],
        )
