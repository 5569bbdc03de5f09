"""Kernels of the secondary index. Law: a chain holds exactly the live tuples with its sub-key; linking and unlinking are O(1).

``table`` finds a bucket by sub-key (entries as in ``kernels``), ``buckets[b]`` = (a tuple that shows the sub-key, head of the
chain), ``links[slot]`` = (its bucket, previous, next): what is needed together lies together.
"""

from __future__ import annotations

from pyspark_ivm.index import cache

cache.prepare()

import numpy as np  # noqa: E402
from numba import njit, types  # noqa: E402

from pyspark_ivm.index.kernels import (  # noqa: E402
    BLOCK,
    KEY_WORDS,
    SMALL_TABLE,
    USED,
    find_hashed,
    hash_words,
    look_ahead,
    may_match,
    slots1,
    table_entry,
)
from pyspark_ivm.index.limbs import i64, load, prefetch, store, u64, void, words1, words2  # noqa: E402

#: positions in ``imeta``
BUCKETS, BUCKETS_START, ASSIGNED = range(3)
#: positions in ``links``
BUCKET, BEFORE, AFTER = range(3)
LINK_WORDS = 4  # one unused: a link never straddles cache lines
REP, HEAD = range(2)
UNLINKED = -2

slots2 = types.int32[:, ::1]


@njit(i64(words2, words1, slots1, slots2, words2, i64, words1, u64), cache=True, forceinline=True)
def find_bucket(rows, icols, table, buckets, source, row, cols, h):  # type: ignore[no-untyped-def]
    """The bucket whose sub-key is source[row, cols], or -1 - position of the free table entry."""
    mask = i64(table.shape[0] - 1)
    low = mask >> 1
    at = i64(h & u64(mask))
    base = row * source.shape[1]
    while True:
        entry = i64(load(table, at))
        if entry == -1:
            return -1 - at
        if may_match(entry, h, low):
            b = entry & low
            shown = i64(load(buckets, 2 * b)) * rows.shape[1]
            same = True
            for c in range(cols.shape[0]):
                if load(rows, shown + load(icols, c)) != load(source, base + load(cols, c)):
                    same = False
                    break
            if same:
                return b
        at = (at + 1) & mask


@njit(i64(words2, words1, words1, words1, slots1, slots2, slots2), cache=True)
def index_assign(rows, meta, cols, imeta, table, buckets, links):  # type: ignore[no-untyped-def]
    """Give each slot appended since the last call its bucket. Returns 1 when all are done, 0 for want of buckets."""
    low = i64(table.shape[0] // 2 - 1)
    limit = min(i64(buckets.shape[0]), low)
    for slot in range(imeta[ASSIGNED], meta[USED]):
        h = hash_words(rows, slot, cols)
        found = find_bucket(rows, cols, table, buckets, rows, slot, cols, h)
        if found < 0:
            if imeta[BUCKETS] >= limit:
                return i64(0)
            at = -1 - found
            found = imeta[BUCKETS]
            imeta[BUCKETS] += 1
            table[at] = table_entry(h, low, found)
            buckets[found, REP] = np.int32(slot)
            buckets[found, HEAD] = np.int32(-1)
        links[slot, BUCKET] = np.int32(found)
        links[slot, BEFORE] = np.int32(UNLINKED)
        links[slot, AFTER] = np.int32(-1)
        imeta[ASSIGNED] = slot + 1
    return i64(1)


@njit(void(words2, i64, slots1, slots2, slots2), cache=True)
def index_sync(rows, key_words, slots, buckets, links):  # type: ignore[no-untyped-def]
    """Link the slots that live and are not in their chain, unlink those that died."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        lives = rows[slot, key_words] > 0
        if lives == (links[slot, BEFORE] != UNLINKED):
            continue
        b = links[slot, BUCKET]
        if lives:
            head = buckets[b, HEAD]
            links[slot, BEFORE] = np.int32(-1)
            links[slot, AFTER] = head
            if head >= 0:
                links[head, BEFORE] = slot
            buckets[b, HEAD] = slot
        else:
            before, after = links[slot, BEFORE], links[slot, AFTER]
            if before >= 0:
                links[before, AFTER] = after
            else:
                buckets[b, HEAD] = after
            if after >= 0:
                links[after, BEFORE] = before
            links[slot, BEFORE] = np.int32(UNLINKED)
            links[slot, AFTER] = np.int32(-1)


@njit(
    i64(words2, slots1, words1, words2, slots1, words1, words1, slots1, slots2, slots2, i64, words1, slots1, slots1),
    cache=True,
)
def expand(  # type: ignore[no-untyped-def]
    source, picks, cols, rows, table, meta, icols, btable, buckets, links, primary, state, out_row, out_slot
):
    """Join a batch with a relation: all pairs (i, live slot) whose (sub-)key equals source[picks[i], cols].

    ``state`` = [next i, next slot of its chain or -1]: where to go on when the output was full. Returns the pairs written.
    """
    n, room, filled = i64(picks.shape[0]), out_row.shape[0], 0
    resume = state[1]
    key_words, stride = meta[KEY_WORDS], rows.shape[1]
    mask, blow = u64(btable.shape[0] - 1), i64(btable.shape[0] // 2 - 1)
    large = btable.shape[0] > SMALL_TABLE
    hashes = np.empty(BLOCK, np.uint64)
    first = state[0]
    while first < n:
        last = min(first + BLOCK, n)
        if primary:
            look_ahead(source, picks, cols, rows, table, first, last, hashes)
        else:
            for i in range(first, last):
                h = hash_words(source, i64(load(picks, i)), cols)
                hashes[i - first] = h
                if large:
                    prefetch(btable, i64(h & mask))
            if large:
                for i in range(last, min(last + BLOCK, n)):
                    prefetch(source, i64(load(picks, i)) * source.shape[1])
                for i in range(last - first):
                    entry = i64(load(btable, i64(hashes[i] & mask)))
                    if entry != -1:
                        prefetch(buckets, 2 * (entry & blow))
                for i in range(last - first):
                    entry = i64(load(btable, i64(hashes[i] & mask)))
                    if entry != -1:
                        b = entry & blow
                        prefetch(rows, i64(load(buckets, 2 * b)) * stride)
                        head = i64(load(buckets, 2 * b + HEAD))
                        if head >= 0:
                            prefetch(links, head * LINK_WORDS)
        for i in range(first, last):
            slot = i64(-1)
            if resume >= 0:
                slot = resume
                resume = i64(-1)
            elif primary:
                slot = find_hashed(rows, table, source, i64(load(picks, i)), cols, hashes[i - first])
                if slot >= 0 and load(rows, slot * stride + key_words) <= 0:
                    slot = i64(-1)
            else:
                b = find_bucket(rows, icols, btable, buckets, source, i64(load(picks, i)), cols, hashes[i - first])
                if b >= 0:
                    slot = i64(load(buckets, 2 * b + HEAD))
            while slot >= 0:
                if filled >= room:
                    state[0] = i
                    state[1] = slot
                    return filled
                store(out_row, filled, np.int32(i))
                store(out_slot, filled, np.int32(slot))
                filled += 1
                slot = i64(-1) if primary else i64(load(links, slot * LINK_WORDS + AFTER))
        first = last
    state[0] = n
    state[1] = -1
    return filled
