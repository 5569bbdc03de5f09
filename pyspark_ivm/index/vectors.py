"""Kernels over whole vectors: what a batch says, how it differs from what is held, whether sums can be trusted."""

from __future__ import annotations

from pyspark_ivm.index import cache

cache.prepare()

import numpy as np  # noqa: E402
from numba import njit, types  # noqa: E402

from pyspark_ivm.index.limbs import (  # noqa: E402
    ABS,
    FLOAT_WORDS,
    NANS,
    NUMBERS,
    PEAK,
    add,
    as_float,
    f64,
    i64,
    load,
    store,
    u64,
    words1,
    words2,
)
from pyspark_ivm.index.limbs import FLOAT as FLOAT_KIND  # noqa: E402

slots1 = types.int32[::1]
GROUPS, BAG, ALWAYS = range(3)  # modes of ``changes``


@njit(i64(words2, i64, words1, words1, i64, slots1), cache=True)
def non_zero(rows, used, kinds, offs, key_words, out):  # type: ignore[no-untyped-def]
    """The rows of a consolidated batch that still say something (the largest |x| seen alone says nothing)."""
    filled = 0
    for r in range(used):
        if load(rows, r * rows.shape[1] + key_words) != 0:  # most rows: no need to look further
            store(out, filled, np.int32(r))
            filled += 1
            continue
        keep = False
        for c in range(kinds.shape[0]):
            o = key_words + offs[c]
            if kinds[c] == FLOAT_KIND:
                for k in (0, 1, 4, 5, 6, 7):
                    if rows[r, o + k] != 0 and not (k < 2 and as_float(rows[r, o + k]) == 0.0):
                        keep = True
            else:
                for k in range(kinds[c] + 1):
                    if rows[r, o + k] != 0:
                        keep = True
        if keep:
            out[filled] = np.int32(r)
            filled += 1
    return filled


@njit(i64(words2, i64, words2, words1, words1, i64), cache=True)
def subtract_held(rows, first, held, kinds, offs, key_words):  # type: ignore[no-untyped-def]
    """vector of rows[first + i] -= held[i], exactly 0 where both say the same. Floats summed in another order differ in
    their last bits of 106: less than 2^-80 of the largest Σ|x| is the same. Returns how many rows are now zero."""
    same_rows = 0
    for i in range(held.shape[0]):
        r = first + i
        same = True
        for c in range(kinds.shape[0]):
            o = offs[c]
            p = o + key_words
            if kinds[c] == FLOAT_KIND:
                difference = (as_float(rows[r, p]) - as_float(held[i, o])) + (
                    as_float(rows[r, p + 1]) - as_float(held[i, o + 1])
                )
                peak = max(as_float(rows[r, p + PEAK]), as_float(held[i, o + PEAK]))
                if not abs(difference) <= peak * f64(2.0**-80):
                    same = False
                for k in range(NANS, FLOAT_WORDS):
                    if rows[r, p + k] != held[i, o + k]:
                        same = False
            else:
                for k in range(kinds[c] + 1):
                    if rows[r, p + k] != held[i, o + k]:
                        same = False
        if same:
            same_rows += 1
            for k in range(held.shape[1]):
                rows[r, key_words + k] = 0
        else:
            for c in range(kinds.shape[0]):
                add(rows, r, key_words + offs[c], held, i, offs[c], kinds[c], -1)
    return same_rows


@njit(i64(words2, slots1, words1, words1, i64), cache=True)
def cancelled(rows, slots, kinds, offs, key_words):  # type: ignore[no-untyped-def]
    """How many live tuples lost more than 50 bits of the largest Σ|x| they ever had to cancellation, or overflowed: of the 106 bits of a
    double-double, a double's worth is left until then. A sum of no values cannot: its words are 0 (``limbs.float_reset``), the peak too."""
    found = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        if rows[slot, key_words] <= 0:
            continue
        for c in range(kinds.shape[0]):
            if kinds[c] == FLOAT_KIND:
                o = key_words + offs[c]
                peak = as_float(rows[slot, o + PEAK])
                if (peak > 0 and as_float(rows[slot, o + ABS]) < peak * f64(2.0**-50)) or not np.isfinite(
                    as_float(rows[slot, o])
                ):
                    found += 1
    return found


@njit(words1(words2, slots1, words2, i64, words1, words1, words1, i64), cache=True)
def changes(rows, jslot, jold, journaled, kinds, offs, channels, mode):  # type: ignore[no-untyped-def]
    """(tuples that died, that came alive, that lived on and show another value in one of the channels). Of a float the
    value and the counters are shown, not the peak. mode: GROUPS; BAG: instead, the multiplicities lost and
    won; ALWAYS: a dead tuple is a row of zeros."""
    key_words = rows.shape[1] - 1 - jold.shape[1]
    out = np.zeros(3, np.int64)
    for j in range(journaled):
        slot = jslot[j]
        lived, lives = jold[j, 0], rows[slot, key_words]
        if mode == BAG:
            out[1 if lives > lived else 0] += abs(lives - lived)
        elif mode == GROUPS and (lived > 0) != (lives > 0):
            out[1 if lives > 0 else 0] += 1
        elif mode == ALWAYS or lives > 0:
            differs = False
            for i in range(channels.shape[0]):
                o, kind = offs[channels[i]], kinds[channels[i]]
                p = key_words + o
                if kind == FLOAT_KIND:
                    was = as_float(jold[j, o]) + as_float(jold[j, o + 1])
                    if was != as_float(rows[slot, p]) + as_float(rows[slot, p + 1]):
                        differs = True
                    for k in range(NANS, NUMBERS):
                        if jold[j, o + k] != rows[slot, p + k]:
                            differs = True
                else:
                    for k in range(kind + 1):
                        if jold[j, o + k] != rows[slot, p + k]:
                            differs = True
            if differs:
                out[2] += 1
    return out


@njit(u64(types.Array(types.uint64, 1, "C", readonly=True), u64), cache=True)
def checksum(data, seed):  # type: ignore[no-untyped-def]
    """64-bit checksum in four independent lanes, as fast as memory. Finds damage; it is no defence against forgery."""
    prime = u64(0x9FB21C651E98DF25)
    a, b, c, d = seed, seed + u64(1), seed + u64(2), seed + u64(3)
    n = data.shape[0]
    i = 0
    while i + 4 <= n:
        a = (a ^ data[i]) * prime
        b = (b ^ data[i + 1]) * prime
        c = (c ^ data[i + 2]) * prime
        d = (d ^ data[i + 3]) * prime
        a ^= a >> u64(29)
        b ^= b >> u64(29)
        c ^= c >> u64(29)
        d ^= d >> u64(29)
        i += 4
    while i < n:
        a = (a ^ data[i]) * prime
        a ^= a >> u64(29)
        i += 1
    for lane in (b, c, d, u64(n)):
        a = (a ^ lane) * prime
        a ^= a >> u64(32)
    return a
