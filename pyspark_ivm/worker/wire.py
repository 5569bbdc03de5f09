"""Arrow ↔ words. Law: encode(row of atom a with weight w) = (key words of a, w · features of a); decode is its inverse
on keys."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_ivm.index.limbs import FLOAT, encode_value, finalise_floats
from pyspark_ivm.index.relation import FIRST_FACTOR, HashRelation, Layout, identity
from pyspark_ivm.index.strings import StringTable
from pyspark_ivm.plan.block import BlockPlan
from pyspark_ivm.strategies.yannakakis.layout import BlockLayout

_EMPTY_BYTES = np.zeros(0, np.uint8)


def validity(array: pa.Array) -> np.ndarray | None:
    """One flag a row, None if no row is NULL."""
    if array.null_count == 0:
        return None
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    first, last = array.offset // 8, (array.offset + len(array) + 7) // 8
    flags = np.unpackbits(bits[first:last], bitorder="little")
    return flags[array.offset % 8 : array.offset % 8 + len(array)].view(np.bool_)


def words(array: pa.Array) -> tuple[np.ndarray, np.ndarray | None]:
    """(int64 words, validity): 64-bit columns as they are (doubles by their bits), others widened. 0 where NULL."""
    valid = validity(array)
    if len(array) == 0:
        return np.zeros(0, np.int64), valid
    width = array.type.bit_width
    kind = np.int64 if width == 64 else np.int32
    values = np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]
    if kind is not np.int64:
        values = values.astype(np.int64)
    if valid is not None:
        values = np.where(valid, values, 0)
    return values, valid


def byte_ids(array: pa.Array, strings: StringTable) -> tuple[np.ndarray, np.ndarray | None]:
    """(ids in the string table, validity)."""
    valid = validity(array)
    if len(array) == 0:
        return np.zeros(0, np.int64), valid
    if pa.types.is_dictionary(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.binary())
    large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64 if large else np.int32)[array.offset : array.offset + len(array) + 1].astype(
        np.int64
    )
    source = np.frombuffer(data, np.uint8) if data is not None and data.size else _EMPTY_BYTES
    flags = valid if valid is not None else np.ones(len(array), np.bool_)
    return strings.intern(ends, source, np.ascontiguousarray(flags)), valid


def groups(batch: pa.RecordBatch) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """(partition, atom, its rows in order). Runs of one atom are sliced, not copied."""
    p, _ = words(batch.column(0))
    atom, _ = words(batch.column(1))
    if len(p) == 0:
        return
    if (p == p[0]).all() and (atom == atom[0]).all():
        yield int(p[0]), int(atom[0]), batch
        return
    code = p * (1 << 32) + (atom + (1 << 31))
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        rows = order[start:end]
        first = int(rows[0])
        together = int(rows[-1]) - first + 1 == len(rows)
        part = batch.slice(first, len(rows)) if together else batch.take(pa.array(rows))
        yield int(p[first]), int(atom[first]), part


WEIGHT, HASH, ERROR, SLOTS = 2, 3, 4, 5  # wire columns


class AtomEncoder:
    """Encodes the wire rows of one atom."""

    def __init__(self, layout: BlockLayout, atom: int) -> None:
        self.plan = layout.plan
        self.atom = layout.plan.atoms[atom]
        self.relation = layout.leaf[atom]

    def __call__(self, batch: pa.RecordBatch, strings: StringTable) -> tuple[np.ndarray, np.ndarray]:
        n = batch.num_rows
        w, _ = words(batch.column(WEIGHT))
        columns: dict[int, tuple[np.ndarray, np.ndarray | None]] = {}

        def column(slot: int) -> tuple[np.ndarray, np.ndarray | None]:
            if slot not in columns:
                array = batch.column(SLOTS + slot)
                columns[slot] = byte_ids(array, strings) if self.plan.wire[slot] == "bytes" else words(array)
            return columns[slot]

        keys = np.zeros((n, self.relation.key_words), np.int64)
        at = 0
        for v, slots in zip(self.atom.variables, self.atom.slots, strict=True):
            variable = self.plan.variables[v]
            mask = at + len(slots)
            for position, slot in enumerate(slots):
                values, valid = column(slot)
                keys[:, at + position] = values
                if valid is not None and variable.nullable:
                    keys[:, mask] |= (~valid).astype(np.int64) << position
            at += variable.words
        vecs = np.zeros((n, self.relation.layout.words), np.int64)
        vecs[:, 0] = w
        weights = np.ascontiguousarray(w).reshape(-1, 1) if w.flags.writeable else w.copy().reshape(-1, 1)
        for c, channel in enumerate(self.atom.channels):
            feature, o = channel.feature, int(self.relation.layout.offsets[c])
            if feature is None:
                continue
            if feature.function == "error":
                vecs[:, o] = w * words(batch.column(ERROR))[0]
                continue
            flags = np.ones(n, np.bool_)
            for slot in feature.slots:
                # NULL-ness alone needs no ids
                valid = validity(batch.column(SLOTS + slot)) if feature.function == "present" else column(slot)[1]
                if valid is not None:
                    flags &= valid
            if feature.function == "present":
                vecs[:, o] = w * flags
                continue
            low = np.array(column(feature.slots[0])[0])  # a copy: Arrow memory is read-only
            high = np.array(column(feature.slots[1])[0]) if len(feature.slots) == 2 else low
            encode_value(
                vecs, o, int(self.relation.layout.kinds[c]), low, high, len(feature.slots) == 2, weights, flags
            )
        return keys, vecs


class PartOfLeaf:
    """The tuples of an atom's leaf that lie in some partitions of its table: those whose keys hold the values of one."""

    def __init__(self, layout: BlockLayout, atom: int, within: dict[str, Any], strings: StringTable) -> None:
        plan, self.places = layout.plan, []
        at, word_of = 0, {}
        for v, slots in zip(plan.atoms[atom].variables, plan.atoms[atom].slots, strict=True):
            mask = at + len(slots) if plan.variables[v].nullable else -1
            word_of.update({slot: (at + position, mask, position) for position, slot in enumerate(slots)})
            at += plan.variables[v].words
        columns = []
        for slot, values in zip(within["slots"], zip(*within["values"], strict=True), strict=True):
            self.places.append(word_of[slot])
            nulls = np.array([value is None for value in values], np.int64)
            if plan.wire[slot] == "bytes":  # an unknown text is -1, which no tuple holds
                words_ = strings.intern_values([base64.b64decode(value or "") for value in values], add=False)
            else:
                words_ = np.array([value or 0 for value in values], np.int64)
            columns += [np.where(nulls == 1, 0, words_), nulls]
        self.partitions = HashRelation(len(columns), Layout.of(["count"]))
        keys = np.ascontiguousarray(np.stack(columns, axis=1))
        self.partitions.add(keys, np.ones((len(keys), 1), np.int64))

    def of(self, leaf: HashRelation, slots: np.ndarray) -> np.ndarray:
        columns = []
        for word, mask, bit in self.places:
            nulls = (leaf.rows[slots, mask] >> bit) & 1 if mask >= 0 else np.zeros(len(slots), np.int64)
            columns += [np.where(nulls == 1, 0, leaf.rows[slots, word]), nulls]
        keys = np.ascontiguousarray(np.stack(columns, axis=1))
        found = np.empty((len(slots), 1), np.int64)
        partitions = self.partitions
        partitions.multiply_into(
            keys,
            identity(len(slots)),
            partitions.columns,
            np.zeros(1, np.int64),
            partitions.layout,
            found,
            found,
            FIRST_FACTOR,
        )
        return slots[found[:, 0] > 0]


# -- out -------------------------------------------------------------------------------------------------------------
def word_array(values: np.ndarray, nulls: np.ndarray | None) -> pa.Array:
    bitmap = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(values), [bitmap, pa.py_buffer(values)])


def bytes_array(ids: np.ndarray, nulls: np.ndarray | None, strings: StringTable) -> pa.Array:
    valid = np.ones(len(ids), np.bool_) if nulls is None else ~nulls
    offsets, data = strings.decode(ids, valid)
    bitmap = None if nulls is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(ids), [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def output_array(
    plan: BlockPlan, output: int, values: np.ndarray, nulls: np.ndarray | None, strings: StringTable
) -> pa.Array:
    o = plan.outputs[output]
    if plan.variables[o.variable].columns[o.column].kind == "bytes":
        return bytes_array(values, nulls, strings)
    return word_array(values, nulls)


#: Arrow types of outputs that go out as Spark's own values; the names are those of Wire.native in the shim
_NATIVE = {"bigint": pa.int64(), "int": pa.int32(), "date": pa.date32(), "double": pa.float64(), "string": pa.string()}


def native_array(
    plan: BlockPlan, output: int, values: np.ndarray, nulls: np.ndarray | None, strings: StringTable, type_: str | None
) -> pa.Array:
    """``output_array`` as a column of Spark's type ``type_``; None: as the wire has it."""
    if type_ in (None, "bigint"):
        return output_array(plan, output, values, nulls, strings)
    if type_ == "string":
        array = bytes_array(values, nulls, strings)
        return pa.Array.from_buffers(pa.string(), len(array), array.buffers())
    bitmap = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    data = values.view(np.float64) if type_ == "double" else values.astype(np.int32)
    return pa.Array.from_buffers(_NATIVE[type_], len(values), [bitmap, pa.py_buffer(data)])


def native_field(plan: BlockPlan, output: int, name: str, type_: str | None) -> pa.Field:
    return output_field(plan, output, name) if type_ is None else pa.field(name, _NATIVE[type_])


def output_field(plan: BlockPlan, output: int, name: str) -> pa.Field:
    o = plan.outputs[output]
    kind = plan.variables[o.variable].columns[o.column].kind
    return pa.field(name, pa.binary() if kind == "bytes" else pa.int64())


def channel_fields(plan: BlockPlan) -> list[pa.Field]:
    """The limbs of the read channels, in order: ``c<i>`` or ``c<i>_<limb>``."""
    out = []
    for i, c in enumerate(plan.read_channels):
        kind = plan.channels[c].kind
        if kind == "count":
            out.append(pa.field(f"c{i}", pa.int64()))
        elif kind == "float":
            out.append(pa.field(f"c{i}", pa.float64()))
        else:
            out += [pa.field(f"c{i}_{limb}", pa.int64()) for limb in range(2 if kind == "int2" else 3)]
    return out


def channel_arrays(vectors: np.ndarray, layout: Layout, channels: list[int]) -> list[pa.Array]:
    """Columns of the limbs of some channels of a batch of vectors; floats finalised."""
    out = []
    for c in channels:
        o, kind = int(layout.offsets[c]), int(layout.kinds[c])
        if kind == FLOAT:
            values = np.empty(len(vectors), np.float64)
            finalise_floats(vectors, o, values)
            out.append(pa.array(values))
        else:
            out += [word_array(np.ascontiguousarray(vectors[:, o + limb]), None) for limb in range(kind + 1)]
    return out
