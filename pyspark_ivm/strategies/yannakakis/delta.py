"""Delta enumeration. Law (telescoping): Q(new) − Q(old) = Σ over atoms, Σ over (its deletes, its inserts) of the
output rows that pass through a changed tuple, with the other relations as they are at that moment.

One atom's deletes or inserts change the weights at its frontier node f (the lowest connex node above it) in one
direction. The rows through a changed tuple t of f weigh Δ_f(t) times the full weights of the other connex nodes.
Deletes are enumerated after f has changed and before its ancestors do, inserts after all have: so no walk runs into a
dead end.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyspark_ivm.index import kernels as k
from pyspark_ivm.index import vectors
from pyspark_ivm.index.relation import CHUNK, HashRelation, Layout, picked
from pyspark_ivm.strategies.yannakakis.block import DIRECT, FIRST_FACTOR, WITH_OLD, BlockState, Delta, Refused
from pyspark_ivm.strategies.yannakakis.layout import Probe

_COUNT = Layout.of(["count"])
_CHANNEL_0 = np.zeros(1, np.int64)


class Emission:
    """The consolidated output rows of a batch: key = the words of the output columns and their NULL bits, channel 0 =
    weight."""

    def __init__(self, state: BlockState) -> None:
        self.state = state
        outputs = state.layout.output_at
        self.nullable = [i for i, o in enumerate(outputs) if o[2] >= 0]
        self.rows = HashRelation(len(outputs) + (len(self.nullable) + 62) // 63, _COUNT)

    def add(self, slots: dict[int, np.ndarray], weights: np.ndarray) -> None:
        state, outputs = self.state, self.state.layout.output_at
        keys = np.zeros((len(weights), self.rows.key_words), np.int64)
        column = np.empty(len(weights), np.int64)
        bit = 0
        for i, (node, word, mask, position, _) in enumerate(outputs):
            relation = state.of(state.layout.rho[node])
            k.gather(relation.rows, slots[node], word, column)
            keys[:, i] = column
            if mask >= 0:
                k.gather(relation.rows, slots[node], mask, column)
                keys[:, len(outputs) + bit // 63] |= ((column >> position) & 1) << (bit % 63)
                bit += 1
        self.rows.add(keys, weights.reshape(-1, 1), signed=True)

    def batches(self, size: int = CHUNK) -> Iterator[tuple[np.ndarray, list[np.ndarray], list[np.ndarray | None]]]:
        """(weights, a word column an output, its NULL flags or None)."""
        out = np.empty(self.rows.used, np.int32)
        kept = out[
            : vectors.non_zero(self.rows.rows, self.rows.used, _COUNT.kinds, _COUNT.offsets, self.rows.key_words, out)
        ]
        outputs = self.state.layout.output_at
        for start in range(0, len(kept), size):
            rows = kept[start : start + size]
            keys = self.rows.keys[rows]
            columns = [np.ascontiguousarray(keys[:, i]) for i in range(len(outputs))]
            nulls: list[np.ndarray | None] = [None] * len(outputs)
            for bit, i in enumerate(self.nullable):
                nulls[i] = (keys[:, len(outputs) + bit // 63] >> (bit % 63) & 1).astype(np.bool_)
            yield self.rows.vecs[rows, 0], columns, nulls


def apply_emitting(state: BlockState, deltas: dict[int, Delta]) -> Emission:
    """Absorb a batch and enumerate what it does to the output. On refusal everything is undone."""
    emission = Emission(state)
    try:
        for atom, delta in deltas.items():
            leaving = delta.vecs[:, 0] < 0
            # a delta of weight 0 (only error flags moved) changes no row: it goes with the inserts
            for part, inserts in ((leaving, False), (~leaving, True)):
                if part.all():
                    _step(state, atom, delta, inserts, emission)
                elif part.any():
                    _step(state, atom, Delta(delta.keys[part], delta.vecs[part]), inserts, emission)
        state.check_floats()
    except Refused:
        state.undo()
        raise
    return emission


def _step(state: BlockState, atom: int, delta: Delta, inserts: bool, emission: Emission) -> None:
    layout = state.layout
    for r in state.relations.values():
        r.begin_step()
    state.add_to_leaf(atom, delta)
    frontier = layout.frontier[atom]
    path, node = [layout.leaf_node[atom]], layout.leaf_node[atom]
    while node in layout.parent:
        node = layout.parent[node]
        path.append(node)
    steps = [layout.step_of[i] for i in path if i in layout.step_of]
    below = [s for s in steps if s.node.id <= frontier and s.node.id in path[: path.index(frontier) + 1]]
    for s in below:
        state.propagate(s)
    if not inserts:
        enumerate_changes(state, frontier, emission)
    for s in steps[len(below) :]:
        state.propagate(s)
    if inserts:
        enumerate_changes(state, frontier, emission)


def enumerate_changes(state: BlockState, frontier: int, emission: Emission) -> None:
    layout = state.layout
    rho = state.of(layout.rho[frontier])
    touched = rho.touched()
    for start in range(0, len(touched), CHUNK):
        seeds = touched[start : start + CHUNK]
        new, old = np.empty((len(seeds), 1), np.int64), np.empty((len(seeds), 1), np.int64)
        for position, f in enumerate(layout.weights[frontier].factors):
            flags = WITH_OLD | (0 if position else FIRST_FACTOR) | (DIRECT if f.direct else 0)
            state.of(f.relation).multiply_into(rho.rows, seeds, f.columns, _CHANNEL_0, _COUNT, new, old, flags)
        weights = (new - old)[:, 0]
        changed = weights != 0
        if not changed.all():
            seeds, weights = seeds[changed], weights[changed]
        if len(seeds):
            _walk(state, layout.walks[frontier], 0, {frontier: np.ascontiguousarray(seeds)}, weights, emission)


def _walk(
    state: BlockState,
    walk: list[tuple[int, int, Probe]],
    at: int,
    slots: dict[int, np.ndarray],
    weights: np.ndarray,
    emission: Emission,
) -> None:
    if at == len(walk):
        emission.add(slots, weights)
        return
    source, node, probe = walk[at]
    for rows, found in expansions(state, probe, slots[source]):
        state.touched += len(found)
        further = {i: picked(s, rows) for i, s in slots.items()}
        further[node] = found
        factor = node_weights(state, node, found)
        _walk(state, walk, at + 1, further, weights[rows] * factor if factor is not None else weights[rows], emission)


def expansions(state: BlockState, probe: Probe, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(row, matching live slot) pairs, a bounded batch at a time."""
    source, target, index = state.of(probe.source), state.of(probe.target), state.probe_index(probe)
    cursor = np.array([0, -1], np.int64)
    while cursor[0] < len(rows):
        room = CHUNK if index >= 0 else min(CHUNK, len(rows))
        out_row, out_slot = np.empty(room, np.int32), np.empty(room, np.int32)
        filled = target.expand(source.rows, rows, probe.columns, index, cursor, out_row, out_slot)
        if filled:
            yield out_row[:filled], out_slot[:filled]


def node_weights(state: BlockState, node: int, slots: np.ndarray) -> np.ndarray | None:
    """Multiplicities that a connex node's tuples contribute; None: all 1."""
    weight = state.layout.weights[node]
    if not weight.factors:
        return None
    rho = state.of(state.layout.rho[node])
    new = np.empty((len(slots), 1), np.int64)
    for position, f in enumerate(weight.factors):
        flags = (0 if position else FIRST_FACTOR) | (DIRECT if f.direct else 0)
        state.of(f.relation).multiply_into(rho.rows, slots, f.columns, _CHANNEL_0, _COUNT, new, new, flags)
    return new[:, 0]
