"""Kernels of the hash relation. Law: one pass over a batch costs what the batch costs, whatever the relation holds.

A relation is flat arrays (see ``relation.HashRelation``): ``keys[slot]``, ``vecs[slot]``, ``table`` (open addressing,
slot or
-1), ``meta`` (the counters below) and a journal: ``jslot[j]``, ``jold[j]`` hold a slot and its words before the
current step
first touched it, ``jpos[slot]`` where (a sparse set: trusted only if ``jslot[jpos[slot]] == slot`` and in the current
step).
Kernels never allocate relation memory: they stop where an array is full, and the caller grows it and goes on.
"""

from __future__ import annotations

from pyspark_ivm.index import cache

cache.prepare()

import numpy as np  # noqa: E402
from numba import njit, types  # noqa: E402

from pyspark_ivm.index.limbs import add, assign, i64, multiply, prefetch, u64, void, words1, words2  # noqa: E402

#: positions in ``meta``
USED, LIVE, STEP, JOURNALED, START, JOURNALING, NEGATIVE, NEGATIVE_SLOT = range(8)
META_WORDS = 8
#: positions in an index's ``imeta``
BUCKETS, BUCKETS_START, ASSIGNED = range(3)
UNLINKED = -2
FLOAT_KIND = 3
#: How many rows ahead a loop asks for memory: a probe is a chain of dependent misses (row → table → tuple), and the
#: processor
#: overlaps them only if told early. Small tables are in cache anyway.
ROW_AHEAD, TABLE_AHEAD, TUPLE_AHEAD = 24, 16, 8
SMALL_TABLE = 1 << 13

slots1 = types.int32[::1]


@njit(u64(words2, i64, words1), cache=True, forceinline=True)
def hash_words(keys, row, cols):  # type: ignore[no-untyped-def]
    """Multiply-xorshift over the words; the low bits are well mixed."""
    h = u64(0x9E3779B97F4A7C15)
    for c in range(cols.shape[0]):
        h = (h ^ u64(keys[row, cols[c]])) * u64(0xFF51AFD7ED558CCD)
        h ^= h >> u64(32)
    return h


@njit(i64(words2, slots1, words2, i64, words1), cache=True, forceinline=True)
def find(keys, table, source, row, cols):  # type: ignore[no-untyped-def]
    """The slot whose key is source[row, cols], or -1 - position of the free table entry."""
    mask = u64(table.shape[0] - 1)
    at = hash_words(source, row, cols) & mask
    width = cols.shape[0]
    while True:
        slot = table[at]
        if slot < 0:
            return -1 - i64(at)
        same = True
        for c in range(width):
            if keys[slot, c] != source[row, cols[c]]:
                same = False
                break
        if same:
            return i64(slot)
        at = (at + u64(1)) & mask


@njit(void(words2, slots1, words1, words2, words2, slots1, slots1, i64), cache=True, forceinline=True)
def look_ahead(source, rows, cols, keys, vecs, table, jpos, i):  # type: ignore[no-untyped-def]
    """Prefetch for the probes that follow row i."""
    n = rows.shape[0]
    mask = u64(table.shape[0] - 1)
    if i + ROW_AHEAD < n:
        prefetch(source, i64(rows[i + ROW_AHEAD]) * source.shape[1])
    if i + TABLE_AHEAD < n:
        prefetch(table, i64(hash_words(source, i64(rows[i + TABLE_AHEAD]), cols) & mask))
    if i + TUPLE_AHEAD < n:
        slot = i64(table[hash_words(source, i64(rows[i + TUPLE_AHEAD]), cols) & mask])
        if slot >= 0:
            prefetch(keys, slot * keys.shape[1])
            prefetch(vecs, slot * vecs.shape[1])
            prefetch(jpos, slot)


@njit(i64(words1, slots1, slots1, i64), cache=True, forceinline=True)
def journal_position(meta, jpos, jslot, slot):  # type: ignore[no-untyped-def]
    """Where the current step keeps the old words of the slot, or -1 if it did not touch it."""
    j = i64(jpos[slot])
    if meta[STEP] <= j < meta[JOURNALED] and jslot[j] == slot:
        return j
    return i64(-1)


@njit(void(words2, slots1, i64, i64, words1), cache=True)
def rebuild_table(keys, table, first, used, cols):  # type: ignore[no-untyped-def]
    """Enter slots in order, so that the last appended can always be taken out first (undo)."""
    mask = u64(table.shape[0] - 1)
    for slot in range(first, used):
        at = hash_words(keys, slot, cols) & mask
        while table[at] >= 0:
            at = (at + u64(1)) & mask
        table[at] = np.int32(slot)


@njit(
    i64(words2, words2, slots1, words1, slots1, slots1, words2, words1, words1,
        words2, slots1, words1, words2, words2, i64, i64),
    cache=True,
)  # fmt: skip
def upsert(  # type: ignore[no-untyped-def]
    keys, vecs, table, meta, jpos, jslot, jold, kinds, offs,
    source, rows, cols, new, old, mode, start,
):  # fmt: skip
    """For each i ≥ start: the tuple with key source[rows[i], cols] changes by new[i] - old[i].

    mode 0: add new - old. mode 1: add new. mode 2: set to new. mode 3: add new to a signed bag (a batch being
    consolidated,
    leaves being built): no journal, no liveness. Returns the first i not done for want of room (len(rows) when all
    done).
    """
    width = vecs.shape[1]
    channels = kinds.shape[0]
    capacity = keys.shape[0]
    if vecs.shape[0] < capacity:
        capacity = vecs.shape[0]
    limit = table.shape[0] // 2
    large = table.shape[0] > SMALL_TABLE
    for i in range(start, rows.shape[0]):
        if large:
            look_ahead(source, rows, cols, keys, vecs, table, jpos, i)
        changes = mode == 2 or mode == 3
        if not changes:
            for k in range(width):
                if new[i, k] != 0 if mode == 1 else new[i, k] != old[i, k]:
                    changes = True
                    break
        if not changes:
            continue
        row = i64(rows[i])
        slot = find(keys, table, source, row, cols)
        if slot < 0:
            if mode == 2 and new[i, 0] <= 0:
                continue
            if meta[USED] >= capacity or meta[USED] >= limit:
                return i
            if mode != 3 and meta[JOURNALING] == 1 and meta[JOURNALED] >= jslot.shape[0]:
                return i
            at = -1 - slot
            slot = meta[USED]
            meta[USED] += 1
            table[at] = np.int32(slot)
            for c in range(cols.shape[0]):
                keys[slot, c] = source[row, cols[c]]
            for k in range(width):
                vecs[slot, k] = 0
        if mode == 3:
            for c in range(channels):
                add(vecs, slot, offs[c], new, i, offs[c], kinds[c], 1)
            continue
        if mode == 2:
            if new[i, 0] <= 0 and vecs[slot, 0] == 0:
                continue
            changes = False
            for k in range(width):
                if vecs[slot, k] != new[i, k]:
                    changes = True
                    break
            if not changes:
                continue
        if meta[JOURNALING] == 1 and journal_position(meta, jpos, jslot, slot) < 0:
            j = meta[JOURNALED]
            if j >= jslot.shape[0]:
                return i
            jslot[j] = np.int32(slot)
            jpos[slot] = np.int32(j)
            for k in range(width):
                jold[j, k] = vecs[slot, k]
            meta[JOURNALED] = j + 1
        lived = vecs[slot, 0] > 0
        if mode == 2:
            for k in range(width):
                vecs[slot, k] = new[i, k]
        else:
            for c in range(channels):
                add(vecs, slot, offs[c], new, i, offs[c], kinds[c], 1)
                if mode == 0:
                    add(vecs, slot, offs[c], old, i, offs[c], kinds[c], -1)
        count = vecs[slot, 0]
        if count == 0:
            for k in range(width):
                vecs[slot, k] = 0
        elif count < 0:
            meta[NEGATIVE] += 1
            meta[NEGATIVE_SLOT] = slot
        lives = count > 0
        if lives and not lived:
            meta[LIVE] += 1
        elif lived and not lives:
            meta[LIVE] -= 1
    return i64(rows.shape[0])


@njit(void(words2, words1), cache=True)
def settle(vecs, meta):  # type: ignore[no-untyped-def]
    """After a signed bag was filled: tuples of count 0 become all zero, live ones are counted, negative ones noted."""
    meta[LIVE] = 0
    for slot in range(meta[USED]):
        count = vecs[slot, 0]
        if count > 0:
            meta[LIVE] += 1
        elif count < 0:
            meta[NEGATIVE] += 1
            meta[NEGATIVE_SLOT] = slot
        else:
            for k in range(vecs.shape[1]):
                vecs[slot, k] = 0


@njit(
    void(words2, slots1, words1, words2, words2, slots1, words1, slots1, slots1, words2, words1, words1,
         words1, words1, words1, words2, words2, i64),
    cache=True,
)  # fmt: skip
def multiply_child(  # type: ignore[no-untyped-def]
    source, rows, cols,
    keys, vecs, table, meta, jpos, jslot, jold, kinds, offs,
    channel, out_kinds, out_offs, new, old, flags,
):  # fmt: skip
    """new[i], old[i] (of kinds out_kinds) *= the child's tuple with key source[rows[i], cols], after and before this
    step.

    Channel k takes the child's channel ``channel[k]``. flags: 1 = first factor (assign), 2 = rows are the child's
    slots,
    4 = compute old too.
    """
    first, direct, want_old = flags & 1, flags & 2, flags & 4
    width = new.shape[1]
    large = table.shape[0] > SMALL_TABLE
    for i in range(rows.shape[0]):
        slot = i64(rows[i])
        if large:
            if not direct:
                look_ahead(source, rows, cols, keys, vecs, table, jpos, i)
            elif i + TABLE_AHEAD < rows.shape[0]:
                prefetch(vecs, i64(rows[i + TABLE_AHEAD]) * vecs.shape[1])
                prefetch(jpos, i64(rows[i + TABLE_AHEAD]))
        if not direct:
            slot = find(keys, table, source, i64(rows[i]), cols)
        if slot < 0:
            for k in range(width):
                new[i, k] = 0
                if want_old:
                    old[i, k] = 0
            continue
        if vecs[slot, 0] <= 0:
            for k in range(width):
                new[i, k] = 0
        elif first:
            for c in range(out_kinds.shape[0]):
                s = channel[c]
                assign(new, i, out_offs[c], out_kinds[c], vecs, slot, offs[s], kinds[s])
        elif new[i, 0] != 0:
            for c in range(out_kinds.shape[0]):
                s = channel[c]
                multiply(new, i, out_offs[c], out_kinds[c], vecs, slot, offs[s], kinds[s])
        if not want_old:
            continue
        j = journal_position(meta, jpos, jslot, slot)
        if j < 0:
            if vecs[slot, 0] <= 0:
                for k in range(width):
                    old[i, k] = 0
            elif first:
                for k in range(width):
                    old[i, k] = new[i, k]
            elif old[i, 0] != 0:
                for c in range(out_kinds.shape[0]):
                    s = channel[c]
                    multiply(old, i, out_offs[c], out_kinds[c], vecs, slot, offs[s], kinds[s])
        elif jold[j, 0] <= 0:
            for k in range(width):
                old[i, k] = 0
        elif first:
            for c in range(out_kinds.shape[0]):
                s = channel[c]
                assign(old, i, out_offs[c], out_kinds[c], jold, j, offs[s], kinds[s])
        elif old[i, 0] != 0:
            for c in range(out_kinds.shape[0]):
                s = channel[c]
                multiply(old, i, out_offs[c], out_kinds[c], jold, j, offs[s], kinds[s])


@njit(i64(words2, words1, words1, words1, slots1, slots1, slots1, slots1, slots1, slots1), cache=True)
def index_assign(keys, meta, cols, imeta, btable, brep, bhead, bucket, prev, following):  # type: ignore[no-untyped-def]
    """Give each slot appended since the last call its bucket. Returns 1 when all are done, 0 for want of buckets."""
    mask = u64(btable.shape[0] - 1)
    limit = min(i64(brep.shape[0]), i64(btable.shape[0] // 2))
    for slot in range(imeta[ASSIGNED], meta[USED]):
        at = hash_words(keys, slot, cols) & mask
        found = i64(-1)
        while True:
            b = i64(btable[at])
            if b < 0:
                break
            rep = brep[b]
            same = True
            for c in range(cols.shape[0]):
                if keys[rep, cols[c]] != keys[slot, cols[c]]:
                    same = False
                    break
            if same:
                found = b
                break
            at = (at + u64(1)) & mask
        if found < 0:
            if imeta[BUCKETS] >= limit:
                return i64(0)
            found = imeta[BUCKETS]
            imeta[BUCKETS] += 1
            btable[at] = np.int32(found)
            brep[found] = np.int32(slot)
            bhead[found] = np.int32(-1)
        bucket[slot] = np.int32(found)
        prev[slot] = np.int32(UNLINKED)
        following[slot] = np.int32(-1)
        imeta[ASSIGNED] = slot + 1
    return i64(1)


@njit(void(words2, slots1, slots1, slots1, slots1, slots1), cache=True)
def index_sync(vecs, slots, bhead, bucket, prev, following):  # type: ignore[no-untyped-def]
    """Link the slots that live and are not in their chain, unlink those that died. O(1) a slot: chains are doubly
    linked."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        lives = vecs[slot, 0] > 0
        linked = prev[slot] != UNLINKED
        if lives == linked:
            continue
        b = bucket[slot]
        if lives:
            head = bhead[b]
            prev[slot] = np.int32(-1)
            following[slot] = head
            if head >= 0:
                prev[head] = slot
            bhead[b] = slot
        else:
            before, after = prev[slot], following[slot]
            if before >= 0:
                following[before] = after
            else:
                bhead[b] = after
            if after >= 0:
                prev[after] = before
            prev[slot] = np.int32(UNLINKED)
            following[slot] = np.int32(-1)


@njit(void(words2, words1, slots1, slots1, i64, i64), cache=True)
def forget_last(keys, cols, table, rep, first, used):  # type: ignore[no-untyped-def]
    """Take entries used-1 … first out of an open-addressing table. Sound because they went in last, in this order.
    ``rep`` maps an entry to the row of ``keys`` that shows its key (the identity for slots: pass an empty array)."""
    mask = u64(table.shape[0] - 1)
    for back in range(used - first):
        entry = used - 1 - back
        row = i64(rep[entry]) if rep.shape[0] > 0 else entry
        at = hash_words(keys, row, cols) & mask
        while i64(table[at]) != entry:
            at = (at + u64(1)) & mask
        table[at] = np.int32(-1)


@njit(void(words2, words1, slots1, words2), cache=True)
def undo_words(vecs, meta, jslot, jold):  # type: ignore[no-untyped-def]
    """Restore the words of every step, newest first."""
    for back in range(meta[JOURNALED]):
        j = meta[JOURNALED] - 1 - back
        slot = jslot[j]
        if vecs[slot, 0] > 0:
            meta[LIVE] -= 1
        for k in range(vecs.shape[1]):
            vecs[slot, k] = jold[j, k]
        if vecs[slot, 0] > 0:
            meta[LIVE] += 1


@njit(void(words2, slots1, words1, words2, slots1, slots1, slots1, slots1, i64), cache=True, forceinline=True)
def look_ahead_bucket(source, rows, cols, keys, btable, brep, bhead, following, i):  # type: ignore[no-untyped-def]
    """Prefetch for the index probes that follow row i: row → table → bucket → tuple."""
    n = rows.shape[0]
    mask = u64(btable.shape[0] - 1)
    if i + ROW_AHEAD + 8 < n:
        prefetch(source, i64(rows[i + ROW_AHEAD + 8]) * source.shape[1])
    if i + ROW_AHEAD < n:
        prefetch(btable, i64(hash_words(source, i64(rows[i + ROW_AHEAD]), cols) & mask))
    if i + TABLE_AHEAD < n:
        b = i64(btable[hash_words(source, i64(rows[i + TABLE_AHEAD]), cols) & mask])
        if b >= 0:
            prefetch(brep, b)
            prefetch(bhead, b)
    if i + TUPLE_AHEAD < n:
        b = i64(btable[hash_words(source, i64(rows[i + TUPLE_AHEAD]), cols) & mask])
        if b >= 0:
            prefetch(keys, i64(brep[b]) * keys.shape[1])
            if bhead[b] >= 0:
                prefetch(following, i64(bhead[b]))


@njit(
    i64(words2, slots1, words1, words2, words2, slots1, words1, slots1, slots1, slots1, slots1, i64, words1, slots1, slots1),
    cache=True,
)  # fmt: skip
def expand(  # type: ignore[no-untyped-def]
    source, rows, cols, keys, vecs, table, icols, btable, brep, bhead, following, primary, state, out_row, out_slot
):
    """Join a batch with a relation: all pairs (i, live slot) whose (sub-)key equals source[rows[i], cols].

    ``state`` = [next i, next slot of its chain or -1]: where to go on when the output was full. Returns the pairs
    written.
    """
    n = rows.shape[0]
    room = out_row.shape[0]
    filled = 0
    i = state[0]
    resume = state[1]
    mask = u64(btable.shape[0] - 1)
    large = (table.shape[0] if primary else btable.shape[0]) > SMALL_TABLE
    while i < n:
        if large and primary:
            look_ahead(source, rows, cols, keys, vecs, table, following, i)
        elif large:
            look_ahead_bucket(source, rows, cols, keys, btable, brep, bhead, following, i)
        slot = i64(-1)
        if resume >= 0:
            slot = resume
            resume = -1
        elif primary:
            slot = find(keys, table, source, i64(rows[i]), cols)
            if slot >= 0 and vecs[slot, 0] <= 0:
                slot = i64(-1)
        else:
            row = i64(rows[i])
            at = hash_words(source, row, cols) & mask
            while True:
                b = i64(btable[at])
                if b < 0:
                    break
                rep = brep[b]
                same = True
                for c in range(icols.shape[0]):
                    if keys[rep, icols[c]] != source[row, cols[c]]:
                        same = False
                        break
                if same:
                    slot = i64(bhead[b])
                    break
                at = (at + u64(1)) & mask
        while slot >= 0:
            if filled >= room:
                state[0] = i
                state[1] = slot
                return filled
            out_row[filled] = np.int32(i)
            out_slot[filled] = np.int32(slot)
            filled += 1
            slot = i64(-1) if primary else i64(following[slot])
        i += 1
    state[0] = n
    state[1] = -1
    return filled


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


@njit(i64(words2, i64, i64, slots1), cache=True)
def live_slots(vecs, first, last, out):  # type: ignore[no-untyped-def]
    filled = 0
    for slot in range(first, last):
        if vecs[slot, 0] > 0:
            out[filled] = np.int32(slot)
            filled += 1
    return filled


@njit(void(words2, slots1, i64, words1), cache=True)
def gather(matrix, rows, column, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        out[i] = matrix[rows[i], column]
