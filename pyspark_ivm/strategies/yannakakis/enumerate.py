"""Reading. Law: the output is the join of the connex nodes' live tuples, top-down along the tree; its vector is the
product over the edges from connex to non-connex nodes (a connex leaf gives its own).

Every live tuple of a connex node has a live match below it (that is what live means), so the walk never runs into a
dead end and the first rows come at once. Filters are hints: they may let too much through, never too little.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyspark_ivm.index import kernels as k
from pyspark_ivm.index.relation import CHUNK, Layout, picked
from pyspark_ivm.strategies.yannakakis.block import DIRECT, FIRST_FACTOR, BlockState
from pyspark_ivm.strategies.yannakakis.delta import Emission, expansions

_WORD_MIN, _WORD_MAX = -(2**63), 2**63 - 1


@dataclass
class Rows:
    """A batch of output rows: slots of each connex node, and the vectors (see ``Product``)."""

    slots: dict[int, np.ndarray]
    vectors: np.ndarray


@dataclass
class Hint:
    """A filter on a word of a connex node. ``values``: sorted allowed words, or None for the range low…high."""

    node: int
    word: int
    mask: int
    bit: int
    values: np.ndarray | None
    low: int = _WORD_MIN
    high: int = _WORD_MAX

    def keep(self, state: BlockState, slots: np.ndarray) -> np.ndarray:
        keys = state.of(state.layout.rho[self.node]).rows
        column = np.empty(len(slots), np.int64)
        k.gather(keys, slots, self.word, column)
        keep = np.isin(column, self.values) if self.values is not None else (column >= self.low) & (column <= self.high)
        if self.mask >= 0:  # a comparison with NULL is not true
            k.gather(keys, slots, self.mask, column)
            keep &= ((column >> self.bit) & 1) == 0
        return keep


def hints(state: BlockState, filters: Sequence[dict[str, Any]]) -> list[Hint]:
    out = []
    for f in filters:
        if not 0 <= f["output"] < len(state.layout.output_at):
            continue
        node, word, mask, bit, kind = state.layout.output_at[f["output"]]
        op = f["op"]
        literals = f.get("values", []) if op == "in" else [f.get("value")]
        given = [v for v in literals if v is not None]
        if kind == "bytes":
            if op not in ("=", "in"):
                continue  # ids have no order
            known = state.strings.intern_values([base64.b64decode(v) for v in given], add=False)
            out.append(Hint(node, word, mask, bit, np.unique(known[known >= 0])))
        elif not all(isinstance(v, int) and _WORD_MIN <= v <= _WORD_MAX for v in given) or not given:
            continue
        elif op in ("=", "in"):
            out.append(Hint(node, word, mask, bit, np.unique(np.array(given, np.int64))))
        elif op in ("<=", "<"):
            if given[0] - (op == "<") < _WORD_MIN:
                out.append(Hint(node, word, mask, bit, np.zeros(0, np.int64)))
            else:
                out.append(Hint(node, word, mask, bit, None, high=given[0] - (op == "<")))
        elif op in (">=", ">"):
            if given[0] + (op == ">") > _WORD_MAX:
                out.append(Hint(node, word, mask, bit, np.zeros(0, np.int64)))
            else:
                out.append(Hint(node, word, mask, bit, None, low=given[0] + (op == ">")))
    return out


def _bound_start(state: BlockState, given: Sequence[Hint]) -> np.ndarray | None:
    """Root slots found by hash, where equalities bind the root's whole key or the words of one of its indexes."""
    layout = state.layout
    root = layout.plan.root
    rho = state.of(layout.rho[root.id])
    bound: dict[int, int] = {}
    for h in given:
        if h.node == root.id and h.values is not None and len(h.values) == 1:
            bound[h.word] = int(h.values[0])
    # a nullable variable whose nullable columns are all bound has the null mask 0
    for v in layout.rho[root.id].variables:
        variable = layout.plan.variables[v]
        words = layout.rho[root.id].words((v,))
        if variable.nullable and all(words[c] in bound for c, column in enumerate(variable.columns) if column.nullable):
            bound[words[-1]] = 0
    if rho.key_words and len(bound) == rho.key_words:
        slot = rho.find([bound[w] for w in range(rho.key_words)])
        return np.array([slot] if slot >= 0 and rho.vecs[slot, 0] > 0 else [], np.int32)
    for position, index in enumerate(rho.indexes):
        words = index.columns.tolist()
        if words and all(w in bound for w in words):
            key = np.array([[bound[w] for w in words]], np.int64)
            cursor, parts = np.array([0, -1], np.int64), []
            while cursor[0] < 1:
                out_row, out_slot = np.empty(CHUNK, np.int32), np.empty(CHUNK, np.int32)
                n = rho.expand(key, np.zeros(1, np.int32), np.arange(len(words)), position, cursor, out_row, out_slot)
                parts.append(out_slot[:n])
            return np.concatenate(parts)
    return None


def enumerate_rows(
    state: BlockState,
    filters: Sequence[dict[str, Any]] = (),
    split: int = 0,
    splits: int = 1,
    channels: Sequence[int] = (),
) -> Iterator[Rows]:
    """Batches of output rows, lazily. ``channels``: block channels of the vectors, in order, after the multiplicity."""
    given = hints(state, filters)
    start = _bound_start(state, given)
    product = Product(state, channels)
    if start is not None:
        if split == 0:
            yield from _from_root(state, start, given, product)
        return
    rho = state.of(state.layout.rho[state.layout.plan.root.id])
    for first, last in spans(state, split, splits):
        yield from _from_root(state, rho.live_slots(first, last), given, product)


def spans(state: BlockState, split: int, splits: int) -> Iterator[tuple[int, int]]:
    """The root's slots that a split covers, in bounded runs."""
    used = state.of(state.layout.rho[state.layout.plan.root.id]).used
    first, last = used * split // splits, used * (split + 1) // splits
    return ((at, min(at + CHUNK, last)) for at in range(first, last, CHUNK))


def rows_of(state: BlockState, first: int, last: int, product: Product) -> Iterator[Rows]:
    """The output rows below a run of the root's slots."""
    rho = state.of(state.layout.rho[state.layout.plan.root.id])
    return _from_root(state, rho.live_slots(first, last), [], product)


def _from_root(state: BlockState, slots: np.ndarray, given: list[Hint], product: Product) -> Iterator[Rows]:
    root = state.layout.plan.root.id
    by_node: dict[int, list[Hint]] = {}
    for h in given:
        by_node.setdefault(h.node, []).append(h)
    slots = _filtered(state, by_node.get(root), slots)
    if len(slots):
        yield from _descend(state, 1, {root: slots}, by_node, product)


def whole_output(state: BlockState) -> Iterator[Emission]:
    """What a freshly built block emits: its output is the delta from nothing. In parts, so that no more than one is
    ever held beside the state."""
    for rows in enumerate_rows(state):
        emission = Emission(state)
        emission.add(rows.slots, rows.vectors[:, 0])
        yield emission


def _filtered(state: BlockState, given: list[Hint] | None, slots: np.ndarray) -> np.ndarray:
    for h in given or ():
        slots = slots[h.keep(state, slots)]
    return slots


def _descend(
    state: BlockState, at: int, slots: dict[int, np.ndarray], by_node: dict[int, list[Hint]], product: Product
) -> Iterator[Rows]:
    layout = state.layout
    if at == len(layout.connex):
        yield Rows(slots, product(slots))
        return
    node = layout.connex[at]
    for rows, found in expansions(state, layout.down[node], slots[layout.parent[node]]):
        for h in by_node.get(node, ()):
            keep = h.keep(state, found)
            rows, found = rows[keep], found[keep]
        if len(found):
            further = {i: picked(s, rows) for i, s in slots.items()}
            further[node] = found
            yield from _descend(state, at + 1, further, by_node, product)


class Product:
    """The vectors of output rows: the multiplicity, then the chosen block channels (so channel i is at
    layout.offsets[i + 1])."""

    def __init__(self, state: BlockState, channels: Sequence[int]) -> None:
        self.state = state
        self.channels = np.array([0, *channels], np.int64)
        self.layout = Layout.of([state.layout.plan.channels[c].kind for c in self.channels])
        self.factors = [
            (state.of(state.layout.rho[node]), node, f, f.channel[self.channels])
            for node in state.layout.connex
            for f in state.layout.weights[node].factors
        ]

    def __call__(self, slots: dict[int, np.ndarray]) -> np.ndarray:
        rows = len(next(iter(slots.values())))
        out = np.empty((rows, self.layout.words), np.int64)
        for position, (rho, node, f, channel) in enumerate(self.factors):
            flags = (0 if position else FIRST_FACTOR) | (DIRECT if f.direct else 0)
            relation = self.state.of(f.relation)
            relation.multiply_into(rho.rows, slots[node], f.columns, channel, self.layout, out, out, flags)
        return out
