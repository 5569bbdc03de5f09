"""Maintaining: wire rows → consolidated batch per partition and atom → state, change file, summary. Law: state(n+1) =
apply(state(n), consolidated batch); what a summary does not name as ``ok`` never happened.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_ivm.index import vectors
from pyspark_ivm.index.relation import CHUNK, HashRelation, Layout
from pyspark_ivm.state import store
from pyspark_ivm.state.array_file import StateDamaged
from pyspark_ivm.strategies.yannakakis.block import BlockState, Delta, Refused
from pyspark_ivm.strategies.yannakakis.delta import Emission, apply_emitting
from pyspark_ivm.strategies.yannakakis.enumerate import whole_output
from pyspark_ivm.strategies.yannakakis.layout import BlockLayout
from pyspark_ivm.worker.wire import (
    ERROR,
    HASH,
    WEIGHT,
    AtomEncoder,
    PartOfLeaf,
    groups,
    output_array,
    output_field,
    word_array,
    words,
)

PASS_ON = -1  # atom of rows that carry an earlier block's summary; with s NULL: only wakes the partition


def run(spec: dict[str, Any], layout: BlockLayout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    out = Output(layout)
    tasks: dict[int, PartitionTask] = {}
    for batch in batches:
        for p, atom, rows in groups(batch):
            if atom == PASS_ON:
                texts = (
                    [] if "s" not in rows.schema.names else [s for s in rows.column("s").to_pylist() if s is not None]
                )
                if texts:
                    yield out.summaries(texts)
                    continue
            if p not in tasks:
                tasks[p] = PartitionTask(spec, layout, p)
            if atom != PASS_ON:
                tasks[p].add(atom, rows)
    for p in sorted(tasks):
        summary, emission = tasks.pop(p).finish()
        yield from out.emitted(emission)
        yield out.summaries([json.dumps(summary)])


class Output:
    """Batches of the declared schema: ``s`` alone, or ``w``, the outputs, ``s`` where the block emits."""

    def __init__(self, layout: BlockLayout) -> None:
        self.plan = plan = layout.plan
        fields = []
        if plan.emits:
            fields = [pa.field("w", pa.int64()), *(output_field(plan, i, f"o{i}") for i in range(len(plan.outputs)))]
        self.schema = pa.schema([*fields, pa.field("s", pa.string())])

    def summaries(self, texts: list[str]) -> pa.RecordBatch:
        nothing = [pa.nulls(len(texts), f.type) for f in list(self.schema)[:-1]]
        return pa.RecordBatch.from_arrays([*nothing, pa.array(texts, pa.string())], schema=self.schema)

    def emitted(self, emissions: Iterable[Emission]) -> Iterator[pa.RecordBatch]:
        for emission in emissions:
            yield from self._batches(emission)

    def _batches(self, emission: Emission) -> Iterator[pa.RecordBatch]:
        for weights, columns, nulls in emission.batches():
            arrays = [word_array(np.ascontiguousarray(weights), None)]
            for i, (values, missing) in enumerate(zip(columns, nulls, strict=True)):
                arrays.append(output_array(self.plan, i, values, missing, emission.state.strings))
            yield pa.RecordBatch.from_arrays([*arrays, pa.nulls(len(weights), pa.string())], schema=self.schema)


class Counter:
    """rows_in of one source: Σ|weight| after consolidation by the hash of the row. The atoms of a source see the same
    rows, so each has a column of its own and a row counts as often as the atom that saw it most."""

    def __init__(self, atoms: list[int]) -> None:
        self.column = {a: i for i, a in enumerate(atoms)}
        self.rows = HashRelation(1, Layout.of(["count"] * (len(atoms) + 1)))

    def add(self, atom: int, rows: pa.RecordBatch) -> None:
        h, valid = words(rows.column(HASH))
        w, _ = words(rows.column(WEIGHT))
        if valid is not None:
            h, w = h[valid], w[valid]
        if len(h):
            vecs = np.zeros((len(h), self.rows.layout.words), np.int64)
            vecs[:, self.column.get(atom, len(self.column))] = w
            self.rows.add(np.array(h).reshape(-1, 1), vecs, signed=True)

    def total(self) -> int:
        return int(np.abs(self.rows.vecs[: self.rows.used]).max(axis=1).sum()) if self.rows.used else 0


class PartitionTask:
    """One partition's share of a refresh."""

    def __init__(self, spec: dict[str, Any], layout: BlockLayout, partition: int) -> None:
        self.spec, self.layout, self.partition = spec, layout, partition
        self.build: bool = bool(spec.get("build"))
        self.resync = set(spec.get("resync") or ())
        self.within: dict[str, dict[str, Any]] = spec.get("within") or {}
        self.replicated = set(spec.get("replicated") or ())
        self.sources: dict[str, list[int]] = spec.get("sources") or {}
        self.source_of = {a: s for s, atoms in self.sources.items() for a in atoms}
        self.counters: dict[str, Counter] = {}
        self.raised: dict[str, int] = {}
        self.batch: dict[int, HashRelation] = {}
        self.encoders: dict[int, AtomEncoder] = {}
        self.failure: dict[str, Any] | None = None
        self.held: store.Held | None = None
        self.ms: dict[str, float] = {}  # by phase; reading the input counts for nobody
        start = time.perf_counter()
        try:
            if self.build:
                self.held = store.Held(BlockState(layout), spec["planHash"], frozenset())
            else:
                lineage = (spec.get("partitions") or {}).get(str(partition))
                self.held = store.acquire(layout, spec["planHash"], spec["directory"], partition, lineage)
            self.errors_before, self.bytes_before = (
                (0, 0) if self.build else (self.held.state.live_errors(), self.held.state.bytes)
            )
            self.held.state.begin_batch(journaling=not self.build)
            self.held.before = None  # the undo of the batch before is gone
        except StateDamaged as e:
            self._fail("STATE_DAMAGED", str(e))
        self._lap("state", start)

    def _lap(self, phase: str, start: float) -> float:
        now = time.perf_counter()
        self.ms[phase] = round(self.ms.get(phase, 0.0) + (now - start) * 1000, 3)
        return now

    def _fail(self, reason: str, detail: str) -> None:
        self.failure = {"status": "failed", "reason": reason, "detail": detail}

    def add(self, atom: int, rows: pa.RecordBatch) -> None:
        if self.failure or self.held is None:
            return
        start = time.perf_counter()
        self._count(atom, rows)
        if atom >= 0:
            self._consolidate(atom, rows)
        self._lap("consolidate", start)

    def _consolidate(self, atom: int, rows: pa.RecordBatch) -> None:
        assert self.held is not None
        if atom not in self.encoders:
            self.encoders[atom] = AtomEncoder(self.layout, atom)
        state = self.held.state
        if self.build:
            target = state.leaf(atom)
        else:
            target = self.batch.get(atom)  # type: ignore[assignment]
            if target is None:
                relation = self.layout.leaf[atom]
                target = self.batch[atom] = HashRelation(relation.key_words, relation.layout)
        keys, vecs = self.encoders[atom](rows, state.strings)
        target.add(keys, vecs, signed=True)

    def _count(self, atom: int, rows: pa.RecordBatch) -> None:
        if atom in self.resync or (atom in self.replicated and self.partition != 0):
            return
        if atom >= 0:
            source = self.source_of.get(atom)
        else:
            number = -2 - atom
            source = f"s{number}"
            if source not in self.sources:
                source = list(self.sources)[number] if number < len(self.sources) else None
            if source is not None:
                self._count_raised(source, rows)
                if self.resync.intersection(self.sources[source]):
                    return
        if source is not None:
            if source not in self.counters:
                self.counters[source] = Counter(self.sources[source])
            self.counters[source].add(atom, rows)

    def _count_raised(self, source: str, rows: pa.RecordBatch) -> None:
        """Rows that reached no atom because a filter or a join key raised: Spark raises, whatever they would join."""
        flags, _ = words(rows.column(ERROR).cast(pa.int64()))
        weights, _ = words(rows.column(WEIGHT))
        self.raised[source] = self.raised.get(source, 0) + int((flags * weights).sum())

    def _deltas(self) -> tuple[dict[int, Delta], dict[int, int]]:
        """(non-zero deltas by atom, rows in by resynced atom)."""
        assert self.held is not None
        deltas, resynced = {}, {}
        for atom in sorted(self.batch.keys() | self.resync):
            relation = self.layout.leaf[atom]
            bag = self.batch.pop(atom, None) or HashRelation(relation.key_words, relation.layout)
            if atom in self.resync:
                self._subtract_held(atom, bag)
            out = np.empty(bag.used, np.int32)
            kept = out[: vectors.non_zero(bag.rows, bag.used, bag.layout.kinds, bag.layout.offsets, bag.key_words, out)]
            if atom in self.resync:
                counts = np.abs(bag.vecs[kept, 0])
                resynced[atom] = int(np.where(counts == 0, 2, counts).sum())
            if len(kept):
                whole = len(kept) == bag.used
                deltas[atom] = Delta(
                    np.ascontiguousarray(bag.keys[: bag.used] if whole else bag.keys[kept]),
                    np.ascontiguousarray(bag.vecs[: bag.used] if whole else bag.vecs[kept]),
                )
        return deltas, resynced

    def _subtract_held(self, atom: int, bag: HashRelation) -> None:
        """The batch is the atom's whole content, or that of some of its table's partitions: what changes is its difference
        from what the leaf holds there."""
        assert self.held is not None
        leaf = self.held.state.leaf(atom)
        within = self.within.get(str(atom))
        part = None if within is None else PartOfLeaf(self.layout, atom, within, self.held.state.strings)
        nothing = np.zeros((CHUNK, bag.layout.words), np.int64)
        for first in range(0, leaf.used, CHUNK):  # every held tuple of the part gets a row in the batch
            slots = leaf.live_slots(first, min(first + CHUNK, leaf.used))
            if part is not None:
                slots = part.of(leaf, slots)
            bag.upsert(leaf.rows, slots, leaf.columns, nothing[: len(slots)], nothing[: len(slots)], 3)
        channel = np.arange(len(bag.layout.kinds), dtype=np.int64)
        for first in range(0, bag.used, CHUNK):
            rows = np.arange(first, min(first + CHUNK, bag.used), dtype=np.int32)
            held = np.empty((len(rows), bag.layout.words), np.int64)
            leaf.multiply_into(bag.rows, rows, leaf.columns, channel, bag.layout, held, held, 1)
            vectors.subtract_held(bag.rows, first, held, bag.layout.kinds, bag.layout.offsets, bag.key_words)

    def finish(self) -> tuple[dict[str, Any], Iterable[Emission]]:
        head = {"block": self.layout.plan.id, "partition": self.partition}
        if self.failure or self.held is None:
            return {**head, **(self.failure or {})}, ()
        held, state, spec = self.held, self.held.state, self.spec
        # The task's own: a retried or speculative task may see its rows in another order, and a file is a state's identity.
        name = f"p{self.partition:03d}/{spec['version']}-{spec['attempt']}-{uuid.uuid4().hex[:12]}.ivm"
        file = checkpoint = None
        emission: Iterable[Emission] = ()
        resynced: dict[int, int] = {}
        changed: int | None
        start = time.perf_counter()
        try:
            if self.build:
                state.build()
                changed = state.live_rows()
                start = self._lap("apply", start)
                if self.layout.plan.emits:
                    emission = whole_output(state)
                checkpoint = store.write_checkpoint(held, spec["directory"], f"checkpoints/{name}", spec["version"])
            else:
                deltas, resynced = self._deltas()
                if self.layout.plan.emits:
                    change = apply_emitting(state, deltas)
                    emission = [change]
                    changed = int(np.abs(change.rows.vecs[: change.rows.used, 0]).sum())
                else:
                    state.apply(deltas)
                    changed = state.rows_changed()
                if self.layout.plan.partials and len(spec.get("partitions") or ()) > 1:
                    changed = None  # a group's row may be spread over partitions
                start = self._lap("apply", start)
                if deltas:
                    file = store.write_change(held, spec["directory"], f"changes/{name}", spec["version"], deltas)
                    if store.checkpoint_due(held, spec.get("checkpointRatio", 0.5), spec.get("checkpointMinimum")):
                        checkpoint = store.write_checkpoint(
                            held, spec["directory"], f"checkpoints/{name}", spec["version"]
                        )
                else:
                    state.undo()  # strings may have come with rows that cancelled: ids must follow the files
        except Refused as e:
            if not self.build:
                store.put_back(spec["directory"], self.partition, held)
            self._fail(e.reason, e.detail)
            return {**head, **(self.failure or {})}, ()
        self._lap("write", start)
        store.put_back(spec["directory"], self.partition, held)
        return {
            **head,
            "status": "ok",
            "file": file,
            "checkpoint": checkpoint,
            "rowsIn": self._rows_in(resynced),
            "rowsChanged": changed,
            "raised": self.raised,
            "touched": state.touched,
            "liveRows": state.live_rows(),
            "liveErrors": state.live_errors(),
            "liveErrorsDelta": state.live_errors() - self.errors_before,
            "stateBytes": state.bytes,
            "stateBytesDelta": state.bytes - self.bytes_before,
            "ms": self.ms,
        }, emission

    def _rows_in(self, resynced: dict[int, int]) -> dict[str, int]:
        out = {source: counter.total() for source, counter in self.counters.items()}
        for atom, rows in resynced.items():
            if (source := self.source_of.get(atom)) and (atom not in self.replicated or self.partition == 0):
                out[source] = max(out.get(source, 0), rows)
        return out
