"""Reading: the output of a block as Arrow batches, and the merge of partial groups. Law: read(state) = the block's
query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_ivm.index import kernels as k
from pyspark_ivm.index.relation import CHUNK, HashRelation, Layout, identity
from pyspark_ivm.index.strings import StringTable
from pyspark_ivm.plan.block import CHANNEL_WORDS
from pyspark_ivm.state import store
from pyspark_ivm.strategies.yannakakis.block import BlockState
from pyspark_ivm.strategies.yannakakis.enumerate import Product, Rows, enumerate_rows, rows_of, spans
from pyspark_ivm.strategies.yannakakis.layout import BlockLayout
from pyspark_ivm.worker.wire import (
    byte_ids,
    channel_arrays,
    channel_fields,
    native_array,
    native_field,
    output_field,
    validity,
    word_array,
    words,
)


class Reader:
    def __init__(self, spec: dict[str, Any], layout: BlockLayout) -> None:
        self.spec, self.layout, self.plan = spec, layout, layout.plan
        wanted: list[int] | None = spec.get("outputs")
        self.outputs = wanted if wanted is not None else list(range(len(layout.plan.outputs)))
        self.raw: bool = bool(spec.get("raw"))
        self.vectors = self.plan.mode == "aggregate" and spec.get("channels", True)
        self.types: list[str | None] = spec.get("types") or [None] * len(self.outputs)
        fields = [
            native_field(self.plan, o, f"o{i}", t)
            for i, (o, t) in enumerate(zip(self.outputs, self.types, strict=True))
        ]
        if self.raw:
            fields.append(pa.field("vec", pa.binary()))
        elif self.vectors:
            fields += channel_fields(self.plan)
        self.schema = pa.schema(fields)
        self.limit: int | None = spec.get("limit")
        #: the words of each node that the outputs are made of (values, NULL masks), and the place of each among them
        self.word_at: dict[int, dict[int, int]] = {}
        for o in self.outputs:
            node, word, mask, _, _ = layout.output_at[o]
            at = self.word_at.setdefault(node, {})
            for w in (word, mask) if mask >= 0 else (word,):
                at.setdefault(w, len(at))
        self.words = {node: np.array(list(at), np.int64) for node, at in self.word_at.items()}

    def channels(self) -> list[int]:
        if self.raw:
            return list(range(1, len(self.plan.channels)))  # after the multiplicity: the block's full vector
        return list(self.plan.read_channels) if self.vectors else []

    def batch(self, arrays: list[pa.Array], rows: int) -> pa.RecordBatch:
        if not arrays:  # a count of rows and nothing else
            return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None], children=[]))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def zeros(self) -> pa.RecordBatch:
        arrays = [pa.array([0.0 if pa.types.is_floating(f.type) else 0], f.type) for f in self.schema]
        return self.batch(arrays, 1)

    def split(self, state: BlockState, split: int, splits: int, limit: int | None) -> Iterator[pa.RecordBatch]:
        left = limit
        for batch in self._batches(state, split, splits):
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            yield batch
            if left == 0:
                return

    def _batches(self, state: BlockState, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        channels = self.channels()
        filters = self.spec.get("filters") or ()
        columns = self._columns() if not filters else None
        if columns is None:
            layout = Product(state, channels).layout
            for rows in enumerate_rows(state, filters, split, splits, channels):
                yield from self._rows(state, rows, layout)
            return
        product = Product(state, channels)
        for first, last in spans(state, split, splits):
            run = self._run(state, columns, first, last)
            if run is not None:
                yield run
                continue
            for rows in rows_of(state, first, last, product):
                yield from self._rows(state, rows, product.layout)

    def _columns(self) -> np.ndarray | None:
        """Where one node carries all output, the words of its tuples that make it up: values and NULL masks of the outputs, then
        the limbs of the channels. None if a read needs more than copying words."""
        rho = self.layout.rho[self.plan.root.id]
        if not self.layout.single or self.raw or not self.schema:
            return None
        out = []
        for o in self.outputs:
            _, word, mask, _, _ = self.layout.output_at[o]
            out += [word] if mask < 0 else [word, mask]
        for c in self.channels():
            local = rho.channel_of[c]
            kind = rho.kinds[local]
            if kind != self.plan.channels[c].kind or kind == "float":
                return None
            at = rho.key_words + int(rho.layout.offsets[local])
            out += range(at, at + CHANNEL_WORDS[kind])
        return np.array(out, np.int64)

    def _run(self, state: BlockState, columns: np.ndarray, first: int, last: int) -> pa.RecordBatch | None:
        """A run of tuples that all are rows of the output, once each."""
        rho = state.of(self.layout.rho[self.plan.root.id])
        data = np.empty((len(columns), last - first), np.int64)
        if not k.copy_columns(rho.rows, rho.key_words, first, columns, data, self.plan.mode == "rows"):
            return None
        arrays, at = [], 0
        for o, type_ in zip(self.outputs, self.types, strict=True):
            _, _, mask, bit, _ = self.layout.output_at[o]
            nulls = None if mask < 0 else _null_flags(data[at + 1], bit)
            arrays.append(native_array(self.plan, o, data[at], nulls, state.strings, type_))
            at += 1 if mask < 0 else 2
        arrays += [word_array(limb, None) for limb in data[at:]]
        return self.batch(arrays, last - first)

    def _rows(self, state: BlockState, rows: Rows, layout: Layout) -> Iterator[pa.RecordBatch]:
        positions = list(range(1, len(layout.kinds)))
        slots, vectors = rows.slots, rows.vectors
        if self.plan.mode == "rows" and (vectors[:, 0] != 1).any():
            for part in _repeats(vectors[:, 0]):
                yield from self._emit(state, {i: s[part] for i, s in slots.items()}, None, layout, positions, len(part))
        else:
            yield from self._emit(state, slots, vectors, layout, positions, len(vectors))

    def _emit(self, state: BlockState, slots: dict[int, np.ndarray], vectors: np.ndarray | None, layout: Layout, positions: list[int],
              n: int) -> Iterator[pa.RecordBatch]:  # fmt: skip
        if n == 0:
            return
        arrays = []
        data = {
            node: np.empty((len(columns), n), np.int64) for node, columns in self.words.items()
        }  # by node: values and NULL masks, in one pass each
        for node, columns in self.words.items():
            k.gather_columns(state.of(self.layout.rho[node]).rows, slots[node], columns, data[node])
        for o, type_ in zip(self.outputs, self.types, strict=True):
            node, word, mask, bit, _ = self.layout.output_at[o]
            at = self.word_at[node]
            nulls = None if mask < 0 else _null_flags(data[node][at[mask]], bit)
            arrays.append(native_array(self.plan, o, data[node][at[word]], nulls, state.strings, type_))
        if self.raw:
            assert vectors is not None
            offsets = np.arange(n + 1, dtype=np.int32) * (layout.words * 8)
            data = pa.py_buffer(np.ascontiguousarray(vectors))
            arrays.append(pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), data]))
        elif self.vectors:
            assert vectors is not None
            arrays += channel_arrays(vectors, layout, positions)
        yield self.batch(arrays, n)


def _null_flags(masks: np.ndarray, bit: int) -> np.ndarray | None:
    if not int(np.bitwise_or.reduce(masks)) >> bit & 1:  # one pass, and mostly the only one
        return None
    return ((masks >> bit) & 1).astype(np.bool_)


def _repeats(counts: np.ndarray) -> Iterator[np.ndarray]:
    """Row positions, each as often as its multiplicity, in pieces of bounded length."""
    ends = np.cumsum(counts)
    total = int(ends[-1])
    if total <= 4 * CHUNK:
        whole = np.repeat(identity(len(counts)), counts)
        yield from (whole[start : start + CHUNK] for start in range(0, total, CHUNK))
        return
    for start in range(0, total, CHUNK):
        yield np.searchsorted(ends, np.arange(start, min(start + CHUNK, total)), side="right").astype(np.int32)


def run(spec: dict[str, Any], layout: BlockLayout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    reader = Reader(spec, layout)
    left = reader.limit
    for batch in batches:
        for p, split, splits in zip(*(batch.column(i).to_pylist() for i in range(3)), strict=True):
            if left is not None and left <= 0:
                continue
            lineage = (spec.get("partitions") or {}).get(str(p))
            held = store.acquire(layout, spec["planHash"], spec["directory"], p, lineage)
            store.put_back(spec["directory"], p, held)
            empty = True
            for out in reader.split(held.state, split, splits, left):
                empty = False
                if left is not None:
                    left -= out.num_rows
                yield out
            if (
                empty
                and layout.plan.global_aggregate
                and not reader.raw
                and split == 0
                and p == 0
                and not held.state.of(layout.rho[layout.plan.root.id]).live
            ):
                yield reader.zeros()


def merge(spec: dict[str, Any], layout: BlockLayout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sum raw vectors by output columns (NULL equals NULL), then finalise. All of the block's outputs come in, so that
    groups which differ only in a column that is not wanted stay apart; the wanted ones go out."""
    reader = Reader({**spec, "raw": False}, layout)
    plan, strings = layout.plan, StringTable()
    width, masks = len(plan.outputs), (len(plan.outputs) + 62) // 63
    groups = HashRelation(width + masks, layout.block_layout)
    for batch in batches:
        n = batch.num_rows
        if n == 0:
            continue
        keys = np.zeros((n, width + masks), np.int64)
        for i in range(width):
            column = batch.column(i)
            of_bytes = pa.types.is_binary(output_field(plan, i, "").type)
            keys[:, i] = byte_ids(column, strings)[0] if of_bytes else words(column)[0]
            if (valid := validity(column)) is not None:
                keys[:, width + i // 63] |= (~valid).astype(np.int64) << (i % 63)
        vec = batch.column(width)
        start = int(np.frombuffer(vec.buffers()[1], np.int32)[vec.offset])
        data = np.frombuffer(vec.buffers()[2], np.uint8)[start : start + n * layout.block_layout.words * 8]
        groups.add(keys, np.array(data).view(np.int64).reshape(n, -1), signed=True)
    left = reader.limit if reader.limit is not None else groups.used
    if groups.used == 0 and plan.global_aggregate and left >= 0:
        yield reader.zeros()
    for first in range(0, min(left, groups.used), CHUNK):
        last = min(first + CHUNK, groups.used, left)
        arrays = []
        for i, type_ in zip(reader.outputs, reader.types, strict=True):
            values = np.ascontiguousarray(groups.keys[first:last, i])
            nulls = ((groups.keys[first:last, width + i // 63] >> (i % 63)) & 1).astype(np.bool_)
            arrays.append(native_array(plan, i, values, nulls if nulls.any() else None, strings, type_))
        if reader.vectors:
            arrays += channel_arrays(
                np.ascontiguousarray(groups.vecs[first:last]), layout.block_layout, list(plan.read_channels)
            )
        yield reader.batch(arrays, last - first)


__all__ = ["Reader", "merge", "run"]
