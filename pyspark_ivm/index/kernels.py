"""Kernels of the hash relation. Law: one pass over a batch costs what the batch costs, whatever the relation holds.

A relation is flat arrays (see ``relation.HashRelation``). ``rows[slot]`` is one tuple in one piece, so that a probe that finds
it misses the cache once: its key words, its vector, and last its place in the journal. ``table`` is open addressing over
slots, ``meta`` the counters below. The journal: ``jslot[j]``, ``jold[j]`` hold a slot and its words before the current step
first touched it (the place in the row is a sparse set: trusted only if ``jslot[place] == slot`` and in the current step).
Kernels never allocate relation memory: they stop where an array is full, and the caller grows it and goes on.

A table entry holds the slot in its low bits and bits of the hash above them (as many as the table's size leaves of 32), so
that a probe hardly ever looks at a tuple it does not want. -1 is free.
"""

from __future__ import annotations

from pyspark_ivm.index import cache

cache.prepare()

import numpy as np  # noqa: E402
from numba import njit, types  # noqa: E402

from pyspark_ivm.index.limbs import (  # noqa: E402
    FLOAT,
    add,
    assign_vector,
    float_reset,
    i64,
    load,
    multiply_vector,
    prefetch,
    store,
    u64,
    void,
    words1,
    words2,
)

#: positions in ``meta``
USED, LIVE, STEP, JOURNALED, START, JOURNALING, NEGATIVE, NEGATIVE_SLOT, KEY_WORDS = range(9)
META_WORDS = 9
FLOAT_KIND = FLOAT
#: A probe is a chain of dependent misses (row → table → tuple). Loops go block by block and ask for the memory of each link
#: for the whole block, so that the processor overlaps the misses. Small tables are in cache anyway.
BLOCK = 32
SMALL_TABLE = 1 << 13

slots1 = types.int32[::1]
hashes1 = types.uint64[::1]


@njit(u64(words2, i64, words1), cache=True, forceinline=True)
def hash_words(source, row, cols):  # type: ignore[no-untyped-def]
    """Multiply-xorshift over the words; the low bits are well mixed, the high ones are those of a product."""
    h = u64(0x9E3779B97F4A7C15)
    base = row * source.shape[1]
    for c in range(cols.shape[0]):
        h = (h ^ u64(load(source, base + load(cols, c)))) * u64(0xFF51AFD7ED558CCD)
        h ^= h >> u64(32)
    return h


@njit(types.int32(u64, i64, i64), cache=True, forceinline=True)
def table_entry(h, low, slot):  # type: ignore[no-untyped-def]
    """``low`` = table size / 2 - 1: the bits that a slot can have."""
    return np.int32((i64(h >> u64(32)) & ~low) | slot)


@njit(types.boolean(i64, u64, i64), cache=True, forceinline=True)
def may_match(entry, h, low):  # type: ignore[no-untyped-def]
    return ((entry ^ i64(h >> u64(32))) & i64(0xFFFFFFFF)) <= low


@njit(i64(words2, slots1, words2, i64, words1, u64), cache=True, forceinline=True)
def find_hashed(rows, table, source, row, cols, h):  # type: ignore[no-untyped-def]
    """The slot whose key is source[row, cols], of hash h, or -1 - position of the free table entry."""
    mask = i64(table.shape[0] - 1)
    low = mask >> 1
    at = i64(h & u64(mask))
    base, width = row * source.shape[1], rows.shape[1]
    while True:
        entry = i64(load(table, at))
        if entry == -1:
            return -1 - at
        if may_match(entry, h, low):
            slot = entry & low
            same = True
            for c in range(cols.shape[0]):
                if load(rows, slot * width + c) != load(source, base + load(cols, c)):
                    same = False
                    break
            if same:
                return slot
        at = (at + 1) & mask


@njit(i64(words2, slots1, words2, i64, words1), cache=True)
def find(rows, table, source, row, cols):  # type: ignore[no-untyped-def]
    return find_hashed(rows, table, source, row, cols, hash_words(source, row, cols))


@njit(void(words2, slots1, words1, words2, slots1, i64, i64, hashes1), cache=True, forceinline=True)
def look_ahead(source, picks, cols, rows, table, first, last, hashes):  # type: ignore[no-untyped-def]
    """Hashes of source[picks[first:last], cols]; their table entries, tuples and the next block's sources are asked for."""
    large = table.shape[0] > SMALL_TABLE
    mask = u64(table.shape[0] - 1)
    for i in range(first, last):
        h = hash_words(source, i64(load(picks, i)), cols)
        hashes[i - first] = h
        if large:
            prefetch(table, i64(h & mask))
    if large:
        n = picks.shape[0]
        for i in range(last, min(last + BLOCK, n)):
            prefetch(source, i64(load(picks, i)) * source.shape[1])
        width, low = rows.shape[1], i64(mask) >> 1
        for i in range(last - first):
            entry = i64(load(table, i64(hashes[i] & mask)))
            if entry != -1:
                at = (entry & low) * width
                prefetch(rows, at)
                prefetch(rows, at + width - 1)


@njit(i64(words1, words2, slots1, i64), cache=True, forceinline=True)
def journal_position(meta, rows, jslot, slot):  # type: ignore[no-untyped-def]
    """Where the current step keeps the old words of the slot, or -1 if it did not touch it."""
    j = load(rows, (slot + 1) * rows.shape[1] - 1)
    if load(meta, STEP) <= j < load(meta, JOURNALED) and i64(load(jslot, j)) == slot:
        return j
    return i64(-1)


@njit(void(words2, slots1, i64, i64, words1), cache=True)
def rebuild_table(rows, table, first, used, cols):  # type: ignore[no-untyped-def]
    """Enter slots in order, so that the last appended can always be taken out first (undo)."""
    mask = i64(table.shape[0] - 1)
    for slot in range(first, used):
        h = hash_words(rows, slot, cols)
        at = i64(h & u64(mask))
        while table[at] != -1:
            at = (at + 1) & mask
        table[at] = table_entry(h, mask >> 1, slot)


@njit(
    i64(words2, slots1, words1, slots1, words2, words1, words1, words2, slots1, words1, words2, words2, i64, i64),
    cache=True,
    forceinline=True,
)
def upsert_any(  # type: ignore[no-untyped-def]
    rows, table, meta, jslot, jold, kinds, offs, source, picks, cols, new, old, start, mode
):
    """For each i ≥ start: the tuple with key source[picks[i], cols] changes by new[i] - old[i].

    mode 0: add new - old. mode 1: add new. mode 2: set to new. mode 3: add new to a signed bag (a batch being consolidated,
    leaves being built): no journal, no liveness. Returns the first i not done for want of room (len(picks) when all done).
    """
    key_words, stride = meta[KEY_WORDS], rows.shape[1]
    width = stride - key_words - 1
    channels = kinds.shape[0]
    low = i64(table.shape[0] // 2 - 1)
    capacity = min(i64(rows.shape[0]), low)
    room, step, journaling = i64(jslot.shape[0]), meta[STEP], meta[JOURNALING] == 1
    used, live, journaled = meta[USED], meta[LIVE], meta[JOURNALED]
    hashes = np.empty(BLOCK, np.uint64)
    n = i64(picks.shape[0])
    stop = n
    first = start
    while first < stop:
        last = min(first + BLOCK, n)
        look_ahead(source, picks, cols, rows, table, first, last, hashes)
        for i in range(first, last):
            given = i * width
            if mode < 2:
                changes = False
                for k in range(width):
                    if load(new, given + k) != (i64(0) if mode == 1 else load(old, given + k)):
                        changes = True
                        break
                if not changes:
                    continue
            row = i64(load(picks, i))
            h = hashes[i - first]
            slot = find_hashed(rows, table, source, row, cols, h)
            if slot < 0:
                if mode == 2 and load(new, given) <= 0:
                    continue
                if used >= capacity or (mode != 3 and journaling and journaled >= room):
                    stop = i
                    break
                at = -1 - slot
                slot = used
                used += 1
                store(table, at, table_entry(h, low, slot))
                base = slot * stride
                origin = row * source.shape[1]
                for c in range(cols.shape[0]):
                    store(rows, base + c, load(source, origin + load(cols, c)))
                for k in range(width):
                    store(rows, base + key_words + k, 0)
            base = slot * stride + key_words
            if mode == 3:
                for c in range(channels):
                    o = load(offs, c)
                    add(rows, slot, key_words + o, new, i, o, load(kinds, c), 1)
                continue
            if mode == 2:
                if load(new, given) <= 0 and load(rows, base) == 0:
                    continue
                changes = False
                for k in range(width):
                    if load(rows, base + k) != load(new, given + k):
                        changes = True
                        break
                if not changes:
                    continue
            if journaling:
                j = load(rows, base + width)
                if not (step <= j < journaled and i64(load(jslot, j)) == slot):
                    if journaled >= room:
                        stop = i
                        break
                    store(jslot, journaled, np.int32(slot))
                    store(rows, base + width, journaled)
                    for k in range(width):
                        store(jold, journaled * width + k, load(rows, base + k))
                    journaled += 1
            lived = load(rows, base) > 0
            if mode == 2:
                for k in range(width):
                    store(rows, base + k, load(new, given + k))
            else:
                for c in range(channels):
                    o, kind = load(offs, c), load(kinds, c)
                    add(rows, slot, key_words + o, new, i, o, kind, 1)
                    if mode == 0:
                        add(rows, slot, key_words + o, old, i, o, kind, -1)
                    if kind == FLOAT:
                        float_reset(rows, slot, key_words + o)
            count = load(rows, base)
            if count == 0:
                for k in range(width):
                    store(rows, base + k, 0)
            elif count < 0:
                meta[NEGATIVE] += 1
                meta[NEGATIVE_SLOT] = slot
            if count > 0:
                if not lived:
                    live += 1
            elif lived:
                live -= 1
        first = last
    meta[USED], meta[LIVE], meta[JOURNALED] = used, live, journaled
    return stop


_UPSERT = i64(words2, slots1, words1, slots1, words2, words1, words1, words2, slots1, words1, words2, words2, i64, i64)


@njit(_UPSERT, cache=True)
def upsert(rows, table, meta, jslot, jold, kinds, offs, source, picks, cols, new, old, start, mode):  # type: ignore[no-untyped-def]
    """See ``upsert_any``; compiled for each frequent mode."""
    if mode == 1:
        return upsert_any(rows, table, meta, jslot, jold, kinds, offs, source, picks, cols, new, new, start, 1)
    if mode == 3:
        return upsert_any(rows, table, meta, jslot, jold, kinds, offs, source, picks, cols, new, new, start, 3)
    return upsert_any(rows, table, meta, jslot, jold, kinds, offs, source, picks, cols, new, old, start, mode)


@njit(void(words2, words1, words1, words1), cache=True)
def settle(rows, meta, kinds, offs):  # type: ignore[no-untyped-def]
    """After a signed bag was filled: tuples of count 0 become all zero, live ones are counted, negative ones noted."""
    meta[LIVE] = 0
    key_words = meta[KEY_WORDS]
    for slot in range(meta[USED]):
        count = rows[slot, key_words]
        if count > 0:
            meta[LIVE] += 1
            for c in range(kinds.shape[0]):
                if kinds[c] == FLOAT:
                    float_reset(rows, slot, key_words + offs[c])
        elif count < 0:
            meta[NEGATIVE] += 1
            meta[NEGATIVE_SLOT] = slot
        else:
            for k in range(key_words, rows.shape[1] - 1):
                rows[slot, k] = 0


@njit(
    void(words2, slots1, words1, words2, slots1, words1, slots1, words2, words1, words1,
         words1, words1, words1, words2, words2, i64),
    cache=True,
)  # fmt: skip
def multiply_child(  # type: ignore[no-untyped-def]
    source, picks, cols,
    rows, table, meta, jslot, jold, kinds, offs,
    channel, out_kinds, out_offs, new, old, flags,
):  # fmt: skip
    """new[i], old[i] (of kinds out_kinds) *= the child's tuple with key source[picks[i], cols], after and before this step.

    Channel k takes the child's channel ``channel[k]``. flags: 1 = first factor (assign), 2 = picks are the child's slots,
    4 = compute old too, 8 = every channel takes the child's count.
    """
    first, direct, want_old, scalar = (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0
    width, key_words, stride = new.shape[1], meta[KEY_WORDS], rows.shape[1]
    large = table.shape[0] > SMALL_TABLE
    hashes = np.empty(BLOCK, np.uint64)
    n = i64(picks.shape[0])
    for start in range(0, n, BLOCK):
        last = min(start + BLOCK, n)
        if not direct:
            look_ahead(source, picks, cols, rows, table, start, last, hashes)
        elif large:
            for i in range(last, min(last + BLOCK, n)):
                prefetch(rows, i64(load(picks, i)) * stride + key_words)
        for i in range(start, last):
            slot = i64(load(picks, i))
            if not direct:
                slot = find_hashed(rows, table, source, slot, cols, hashes[i - start])
            count = i64(0)
            if slot >= 0:
                count = load(rows, slot * stride + key_words)
            given = i * width
            if count <= 0:
                for k in range(width):
                    store(new, given + k, 0)
            elif first:
                assign_vector(new, i, out_offs, out_kinds, rows, slot, key_words, channel, offs, kinds)
            elif not (scalar and count == 1):
                multiply_vector(new, i, out_offs, out_kinds, rows, slot, key_words, channel, offs, kinds)
            if not want_old:
                continue
            j = journal_position(meta, rows, jslot, slot) if slot >= 0 else i64(-1)
            if j < 0:
                if count <= 0:
                    for k in range(width):
                        store(old, given + k, 0)
                elif first:
                    for k in range(width):
                        store(old, given + k, load(new, given + k))
                elif not (scalar and count == 1):
                    multiply_vector(old, i, out_offs, out_kinds, rows, slot, key_words, channel, offs, kinds)
            elif jold[j, 0] <= 0:
                for k in range(width):
                    store(old, given + k, 0)
            elif first:
                assign_vector(old, i, out_offs, out_kinds, jold, j, i64(0), channel, offs, kinds)
            else:
                multiply_vector(old, i, out_offs, out_kinds, jold, j, i64(0), channel, offs, kinds)


@njit(void(words2, slots1, words1, words2, slots1, words1, words2, i64), cache=True)
def multiply_counts(source, picks, cols, rows, table, meta, out, flags):  # type: ignore[no-untyped-def]
    """``multiply_child`` where only the multiplicity is wanted (out has one column): most reads of rows."""
    first, direct = (flags & 1) != 0, (flags & 2) != 0
    key_words, stride = meta[KEY_WORDS], rows.shape[1]
    hashes = np.empty(BLOCK, np.uint64)
    n = i64(picks.shape[0])
    for start in range(0, n, BLOCK):
        last = min(start + BLOCK, n)
        if direct:
            for i in range(last, min(last + BLOCK, n)):
                prefetch(rows, i64(load(picks, i)) * stride + key_words)
        else:
            look_ahead(source, picks, cols, rows, table, start, last, hashes)
        for i in range(start, last):
            slot = i64(load(picks, i))
            if not direct:
                slot = find_hashed(rows, table, source, slot, cols, hashes[i - start])
            count = max(load(rows, slot * stride + key_words), 0) if slot >= 0 else i64(0)
            store(out, i, count if first else load(out, i) * count)


@njit(void(words2, words1, slots1, words2, words1, words1, i64, words2), cache=True)
def differences(rows, meta, jslot, jold, kinds, offs, first, out):  # type: ignore[no-untyped-def]
    """out[i] = what the current step did to the vector of the tuple at place first + i of the journal."""
    key_words, stride, width = meta[KEY_WORDS], rows.shape[1], out.shape[1]
    for i in range(out.shape[0]):
        j = first + i
        if i + BLOCK < out.shape[0]:
            prefetch(rows, i64(load(jslot, j + BLOCK)) * stride + key_words)
        base = i64(load(jslot, j)) * stride + key_words
        for k in range(width):
            store(out, i * width + k, load(rows, base + k))
        for c in range(kinds.shape[0]):
            add(out, i, load(offs, c), jold, j, load(offs, c), load(kinds, c), -1)


@njit(void(words2, slots1, words1, words1, words1, words1, words1, words2), cache=True)
def assign_rows(given, picks, kinds, offs, channel, out_kinds, out_offs, out):  # type: ignore[no-untyped-def]
    """out[i] = given[picks[i]], its channels chosen and widened as in ``multiply_child``."""
    for i in range(picks.shape[0]):
        assign_vector(out, i, out_offs, out_kinds, given, i64(load(picks, i)), i64(0), channel, offs, kinds)


@njit(void(words2, words1, slots1, slots1, i64, i64), cache=True)
def forget_last(rows, cols, table, rep, first, used):  # type: ignore[no-untyped-def]
    """Take entries used-1 … first out of an open-addressing table. Sound because they went in last, in this order.
    ``rep`` maps an entry to the row that shows its key (the identity for slots: pass an empty array)."""
    mask = i64(table.shape[0] - 1)
    low = mask >> 1
    for back in range(used - first):
        entry = used - 1 - back
        row = i64(rep[entry]) if rep.shape[0] > 0 else entry
        h = hash_words(rows, row, cols)
        wanted = table_entry(h, low, entry)
        at = i64(h & u64(mask))
        while table[at] != wanted:
            at = (at + 1) & mask
        table[at] = np.int32(-1)


@njit(void(words2, words1, slots1, words2), cache=True)
def undo_words(rows, meta, jslot, jold):  # type: ignore[no-untyped-def]
    """Restore the words of every step, newest first."""
    key_words = meta[KEY_WORDS]
    for back in range(meta[JOURNALED]):
        j = meta[JOURNALED] - 1 - back
        slot = jslot[j]
        if rows[slot, key_words] > 0:
            meta[LIVE] -= 1
        for k in range(jold.shape[1]):
            rows[slot, key_words + k] = jold[j, k]
        if rows[slot, key_words] > 0:
            meta[LIVE] += 1


@njit(i64(slots1, slots1, i64, slots1, i64), cache=True)
def add_unseen(slots, seen, epoch, out, filled):  # type: ignore[no-untyped-def]
    """Append the slots not yet marked with this epoch; returns the new length."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        if seen[slot] != epoch:
            seen[slot] = np.int32(epoch)
            out[filled] = slot
            filled += 1
    return filled


@njit(i64(words2, i64, i64, i64, slots1), cache=True)
def live_slots(rows, key_words, first, last, out):  # type: ignore[no-untyped-def]
    filled = 0
    stride = rows.shape[1]
    for slot in range(first, last):
        store(out, filled, np.int32(slot))
        filled += 1 if load(rows, slot * stride + key_words) > 0 else 0
    return filled


@njit(void(words2, slots1, i64, words1), cache=True)
def gather(matrix, picks, column, out):  # type: ignore[no-untyped-def]
    stride, n = matrix.shape[1], picks.shape[0]
    for i in range(n):
        if i + BLOCK < n:
            prefetch(matrix, i64(load(picks, i + BLOCK)) * stride + column)
        store(out, i, load(matrix, i64(load(picks, i)) * stride + column))


@njit(void(words2, slots1, words1, words2), cache=True)
def gather_columns(matrix, picks, columns, out):  # type: ignore[no-untyped-def]
    """out[c] = word columns[c] of the tuples picked: each tuple is fetched once."""
    stride, n = matrix.shape[1], picks.shape[0]
    width = columns.shape[0]
    for first in range(0, n, BLOCK):
        last = min(first + BLOCK, n)
        for i in range(last, min(last + BLOCK, n)):
            prefetch(matrix, i64(load(picks, i)) * stride)
        for c in range(width):
            column = load(columns, c)
            for i in range(first, last):
                store(out, c * n + i, load(matrix, i64(load(picks, i)) * stride + column))


@njit(void(slots1, slots1, slots1), cache=True)
def pick(slots, picks, out):  # type: ignore[no-untyped-def]
    for i in range(picks.shape[0]):
        store(out, i, load(slots, i64(load(picks, i))))


@njit(types.boolean(words2, i64, i64, words1, words2, types.boolean), cache=True)
def copy_columns(rows, key_words, first, columns, out, ones):  # type: ignore[no-untyped-def]
    """out[c] = word columns[c] of a run of tuples from ``first`` on, in one pass. False if a multiplicity is not 1 (``ones``),
    or not positive: then the run needs a closer look."""
    stride, n = rows.shape[1], out.shape[1]
    other = i64(0)
    for i in range(n):
        base = (first + i) * stride
        count = load(rows, base + key_words)
        other |= (count ^ 1) if ones else (count - 1)  # the sign of count - 1 tells; counts are below 2^63
        for c in range(columns.shape[0]):
            store(out, c * n + i, load(rows, base + load(columns, c)))
    return other == 0 if ones else other >= 0
