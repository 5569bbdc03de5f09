"""The join block's state and its bottom-up pass. Law (paper 1, algorithm 2, for a whole batch at once):

    ΔM_n = Σ over the affected guard tuples t, onto key(n), of  Π M_c[new](t) − Π M_c[old](t)

where t is affected if the guard's tuple changed or the message of another child changed at t's key. Old messages come
from the journals, so nothing is read that the change does not touch.
"""

from __future__ import annotations

import numpy as np

from pyspark_ivm.index import kernels as k
from pyspark_ivm.index import vectors
from pyspark_ivm.index.relation import CHUNK, DIRECT, FIRST_FACTOR, SCALAR, WITH_OLD, HashRelation, identity
from pyspark_ivm.index.strings import StringTable
from pyspark_ivm.strategies.yannakakis.layout import BlockLayout, Factor, Probe, Relation, Step

#: changed tuples that the linear pass takes at a time: their vectors and products stay in the second-level cache
_LINEAR = 1 << 13


class Refused(Exception):
    """A batch the state cannot absorb; it has been undone. ``reason`` is a code of the summary."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class Delta:
    """The consolidated change of one atom: key words and vector deltas, each key once."""

    __slots__ = ("keys", "vecs")

    def __init__(self, keys: np.ndarray, vecs: np.ndarray) -> None:
        self.keys, self.vecs = keys, vecs

    def __len__(self) -> int:
        return len(self.vecs)


class BlockState:
    def __init__(self, layout: BlockLayout) -> None:
        self.layout = layout
        self.strings = StringTable()
        self.relations = {r.name: HashRelation(r.key_words, r.layout, r.indexes) for r in layout.relations.values()}
        self.touched = 0
        self._probes: dict[int, int] = {}
        self._buffers: dict[tuple[str, int], np.ndarray] = {}
        self._pair = (np.empty(0, np.int32), np.empty(0, np.int32))

    def of(self, relation: Relation) -> HashRelation:
        return self.relations[relation.name]

    def leaf(self, atom: int) -> HashRelation:
        return self.of(self.layout.leaf[atom])

    @property
    def bytes(self) -> int:
        return self.strings.bytes + sum(r.bytes for r in self.relations.values())

    # -- batches -----------------------------------------------------------------------------------------------------
    def begin_batch(self, journaling: bool = True) -> None:
        self.touched = 0
        self.strings.begin_batch()
        for r in self.relations.values():
            r.begin_batch(journaling)

    def undo(self) -> None:
        for r in self.relations.values():
            r.undo()
        self.strings.undo()

    def add_to_leaf(self, atom: int, delta: Delta) -> None:
        leaf = self.leaf(atom)
        leaf.add(delta.keys, delta.vecs)
        if leaf.meta[k.NEGATIVE]:
            raise Refused("NEGATIVE_MULTIPLICITY", self._describe(atom))
        leaf.sync_indexes()
        self.touched += len(delta)

    def _describe(self, atom: int) -> str:
        """The row that is deleted too often, by the columns that the block keeps of it."""
        leaf = self.leaf(atom)
        slot = int(leaf.meta[k.NEGATIVE_SLOT])
        row = self.layout.spell(atom, leaf.keys[slot], self.strings)
        others = int(leaf.meta[k.NEGATIVE]) - 1
        more = f", and {others} more like it" if others else ""
        return f"{row} stands {int(leaf.vecs[slot, 0])} times{more}"

    def apply(self, deltas: dict[int, Delta], replay: bool = False) -> None:
        """Absorb a batch (``begin_batch`` came before). On refusal everything is undone. A replayed batch was checked
        once."""
        try:
            for atom, delta in deltas.items():
                self.add_to_leaf(atom, delta)
            for step in self.layout.steps:
                self.propagate(step)
            if not replay:
                self.check_floats()
        except Refused:
            self.undo()
            raise

    def check_floats(self) -> None:
        """Of everything a read takes its sums from: the connex nodes, and the messages of others into them."""
        read = {i.name: i for n in self.layout.connex for i in (self.layout.rho[n], *self.layout.messages_into(n))}
        for relation in read.values():
            if "float" in relation.kinds:
                r = self.of(relation)
                journaled = r.jslot[: int(r.meta[k.JOURNALED])]
                if found := vectors.cancelled(r.rows, journaled, r.layout.kinds, r.layout.offsets, r.key_words):
                    raise Refused("FLOAT_CANCELLATION", f"{found} sums lost precision to cancellation or overflowed")

    def build(self) -> None:
        """Leaves were filled as signed bags from the empty state: settle them, then one pass over everything."""
        for atom, leaf in ((a, self.leaf(a)) for a in self.layout.leaf):
            leaf.settle()
            if leaf.meta[k.NEGATIVE]:
                raise Refused("NEGATIVE_MULTIPLICITY", self._describe(atom))
            leaf.sync_indexes(identity(leaf.used))
            self.touched += leaf.used
        for step in self.layout.steps:
            guard = self.of(step.guard)
            self._products(step, guard.live_slots(), False)
            for target in step.targets:
                r = self.of(target.relation)
                r.sync_indexes(identity(r.used))

    # -- the bottom-up pass ------------------------------------------------------------------------------------------
    def probe_index(self, probe: Probe) -> int:
        """Position of the probe's index in its target."""
        known = self._probes.get(id(probe))
        if known is None:
            known = -1 if probe.index is None else self.of(probe.target).index_on(probe.index)
            self._probes[id(probe)] = known
        return known

    def matches(self, probe: Probe, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(live slots of the target that match any of the source's tuples, the source's slot of each)."""
        source, target, index = self.of(probe.source), self.of(probe.target), self.probe_index(probe)
        state = np.array([0, -1], np.int64)
        room = max(64, min(CHUNK, 4 * len(rows)))
        found, origin = [], []
        while state[0] < len(rows):
            out_row, out_slot = np.empty(room, np.int32), np.empty(room, np.int32)
            filled = target.expand(source.rows, rows, probe.columns, index, state, out_row, out_slot)
            found.append(out_slot[:filled])
            origin.append(rows[out_row[:filled]])
            room = CHUNK
        return (found[0], origin[0]) if len(found) == 1 else (np.concatenate(found), np.concatenate(origin))

    def propagate(self, step: Step) -> None:
        """Where one child alone changed, its change passes through the product (which is linear in each factor). Else, and where
        a target's floats must be set anew, the products before and after."""
        own = self.of(step.guard).touched()
        changed = [i for i, probe in enumerate(step.affected) if len(self.of(probe.source).touched())]
        if not len(own) and not changed:
            return
        if step.linear and len(changed) == (0 if len(own) else 1):
            self._linear(step, changed[0] if changed else -1)
        else:
            rows, name, origin = self._affected(step, own, changed)
            if not len(rows):
                return
            self._products(step, rows, True, name, origin)
        for target in step.targets:
            self.of(target.relation).sync_indexes()

    def _affected(self, step: Step, own: np.ndarray, changed: list[int]) -> tuple[np.ndarray, str, np.ndarray]:
        """(the guard's affected slots, and where one child alone changed: its relation's name and its slot for each)."""
        parts = [own] if len(own) else []
        origin, name = own, ""
        for i in changed:
            probe = step.affected[i]
            slots, origin = self.matches(probe, self.of(probe.source).touched())
            parts.append(slots)
            name = probe.source.name
        if len(parts) > 1:
            return self.of(step.guard).unseen(parts), "", own
        return parts[0], name, origin  # distinct keys of one child match distinct tuples

    def _linear(self, step: Step, changed: int) -> None:
        """Law: Π(…, M_c + ΔM_c, …) − Π(…, M_c, …) = Π(…, ΔM_c, …). ``changed``: position in ``step.affected``, -1 for the guard."""
        guard = self.of(step.guard)
        factor = step.factors[changed + 1]
        child = self.of(factor.relation)
        probe = step.affected[changed] if changed >= 0 else None
        touched = child.touched()
        plain = factor.channel.tolist() == list(range(len(step.kinds))) and child.layout.kinds.tolist() == step.kinds
        for first in range(0, len(touched), _LINEAR):
            slots = touched[first : first + _LINEAR]
            delta = self._scratch("delta", len(slots), child.layout.words)
            child.differences(first, delta)
            if probe is None:
                self._spread(
                    step,
                    changed,
                    slots,
                    delta if plain else self._assigned(step, factor, child, delta, identity(len(slots))),
                )
                continue
            index = self.probe_index(probe)
            cursor = np.array([0, -1], np.int64)
            out_row, out_slot = self._pairs(4 * len(slots))
            while cursor[0] < len(slots):
                n = guard.expand(child.rows, slots, probe.columns, index, cursor, out_row, out_slot)
                if n:
                    self._spread(step, changed, out_slot[:n], self._assigned(step, factor, child, delta, out_row[:n]))

    def _assigned(
        self, step: Step, factor: Factor, child: HashRelation, delta: np.ndarray, picks: np.ndarray
    ) -> np.ndarray:
        out = self._scratch("product", len(picks), step.layout.words)
        kinds, offsets = step.layout.kinds, step.layout.offsets
        k.assign_rows(delta, picks, child.layout.kinds, child.layout.offsets, factor.channel, kinds, offsets, out)
        return out

    def _spread(self, step: Step, changed: int, slots: np.ndarray, product: np.ndarray) -> None:
        """The change of one factor at some of the guard's slots, times the others, onto the targets."""
        guard = self.of(step.guard)
        for position, f in enumerate(step.factors):
            if position != changed + 1:
                flags = (DIRECT if f.direct else 0) | (SCALAR if f.scalar else 0)
                self.of(f.relation).multiply_into(
                    guard.rows, slots, f.columns, f.channel, step.layout, product, product, flags
                )
        for target in step.targets:
            given = product if target.words is None else np.ascontiguousarray(product[:, target.words])
            self.of(target.relation).upsert(guard.rows, slots, target.columns, given, given, 1)
        self.touched += len(slots) * (len(step.factors) + len(step.targets))

    def _scratch(self, role: str, rows: int, words: int) -> np.ndarray:
        """A scratch matrix; reused, because allocating it costs more than a small batch."""
        held = self._buffers.get((role, words))
        if held is None or len(held) < rows:
            held = self._buffers[role, words] = np.empty((min(CHUNK, max(256, 2 * rows)), words), np.int64)
        return held[:rows]

    def _pairs(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Scratch for the pairs of a probe."""
        if len(self._pair[0]) < min(rows, CHUNK):
            size = min(CHUNK, max(256, rows))
            self._pair = (np.empty(size, np.int32), np.empty(size, np.int32))
        return self._pair

    def _products(
        self, step: Step, rows: np.ndarray, with_old: bool, known: str = "", known_slots: np.ndarray | None = None
    ) -> None:
        """Products for the guard's slots ``rows``, onto the targets. ``known``: a child whose slots need no look-up."""
        guard = self.of(step.guard)
        factors = [(self.of(f.relation), f) for f in step.factors]
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            new, old = (self._scratch(role, len(chunk), step.layout.words) for role in ("new", "old"))
            for position, (relation, f) in enumerate(factors):
                flags = (
                    (FIRST_FACTOR if position == 0 else 0)
                    | (DIRECT if f.direct else 0)
                    | (WITH_OLD if with_old else 0)
                    | (SCALAR if f.scalar else 0)
                )
                slots = chunk
                if known_slots is not None and f.relation.name == known:
                    slots, flags = known_slots[start : start + CHUNK], flags | DIRECT
                relation.multiply_into(guard.rows, slots, f.columns, f.channel, step.layout, new, old, flags)
            self.touched += len(chunk) * len(factors)
            for target in step.targets:
                n, o = new, old
                if target.words is not None:
                    n = np.ascontiguousarray(new[:, target.words])
                    o = np.ascontiguousarray(old[:, target.words]) if with_old else n
                mode = target.mode if with_old or target.mode else 1
                self.of(target.relation).upsert(guard.rows, chunk, target.columns, n, o, mode)
                self.touched += len(chunk)

    # -- what the summary says ---------------------------------------------------------------------------------------
    def live_errors(self) -> int:
        total = self.of(self.layout.total)
        slot = total.find(())
        if slot < 0:
            return 0
        offsets = total.layout.offsets
        return sum(
            int(total.vecs[slot, offsets[self.layout.total.channel_of[c]]]) for c in self.layout.plan.error_channels
        )

    def live_rows(self) -> int:
        """Rows of the output where known (rows mode: with multiplicity), else live tuples of the root."""
        plan = self.layout.plan
        if plan.global_aggregate:
            return 1
        if plan.mode == "rows":
            total = self.of(self.layout.total)
            slot = total.find(())
            return int(total.vecs[slot, 0]) if slot >= 0 else 0
        return self.of(self.layout.rho[plan.root.id]).live

    def rows_changed(self) -> int | None:
        """View rows inserted + deleted by the batch, where the root's tuples are the view's rows; else unknown."""
        layout, plan = self.layout, self.layout.plan
        if not layout.single:
            return None
        rho = layout.rho[plan.root.id]
        r = self.of(rho)
        local = np.array([rho.channel_of[c] for c in plan.read_channels], np.int64)
        mode = vectors.BAG if plan.mode == "rows" else vectors.ALWAYS if plan.global_aggregate else vectors.GROUPS
        lost, won, differing = vectors.changes(
            r.rows, r.jslot, r.jold, int(r.meta[k.JOURNALED]), r.layout.kinds, r.layout.offsets, local, mode
        ).tolist()
        return lost + won + 2 * differing

    # -- checkpoints -------------------------------------------------------------------------------------------------
    def arrays(self) -> dict[str, tuple[np.ndarray, int]]:
        out = self.strings.arrays("strings")
        for name, r in self.relations.items():
            out.update(r.arrays(name))
        return out

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        self.strings.load("strings", arrays)
        for name, r in self.relations.items():
            r.load(name, arrays)
