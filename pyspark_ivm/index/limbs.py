"""Arithmetic of channels. Law: a channel is an element of a ring; vectors add and multiply channel by channel.

``count`` is Z mod 2^64, ``int2``/``int3`` are Z mod 2^128 / 2^192 in two's complement limbs, least significant first
(so partial products may be computed in the kind of the final channel), ``float`` is a double-double with counters, a
module over ``count``: it is scaled by counts, never multiplied by another float.

All helpers work in place on rows of int64 matrices, so kernels need no temporary vectors.
"""

from __future__ import annotations

from pyspark_ivm.index import cache

cache.prepare()

import numpy as np  # noqa: E402
from llvmlite import ir  # noqa: E402
from numba import njit, types  # noqa: E402
from numba.core import cgutils  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

COUNT, INT2, INT3, FLOAT = 0, 1, 2, 3
KINDS = {"count": COUNT, "int2": INT2, "int3": INT3, "float": FLOAT}
#: words of a float channel: the sum and Σ|x| (double-doubles), the largest that Σ|x| ever was, then counters
HI, LO, ABS, ABS_LO, PEAK, NANS, POSITIVE, NEGATIVE, NUMBERS = range(9)
FLOAT_WORDS = 9

i64, u64, f64, boolean, void = types.int64, types.uint64, types.float64, types.boolean, types.void
words2 = types.int64[:, ::1]
words1 = types.int64[::1]


@intrinsic
def mul_high(typing, a, b):  # type: ignore[no-untyped-def]
    """High 64 bits of the unsigned product."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return u64(u64, u64), emit


@intrinsic
def as_float(typing, a):  # type: ignore[no-untyped-def]
    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.DoubleType())

    return f64(i64), emit


@intrinsic
def as_bits(typing, a):  # type: ignore[no-untyped-def]
    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.IntType(64))

    return i64(f64), emit


@intrinsic
def fma(typing, a, b, c):  # type: ignore[no-untyped-def]
    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.fma(*arguments)

    return f64(f64, f64, f64), emit


@intrinsic
def prefetch(typing, array, index):  # type: ignore[no-untyped-def]
    """Ask for the cache line of array.flat[index]; the array is contiguous."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, int32, int32, int32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(function, [pointer, int32(0), int32(3), int32(1)])
        return context.get_dummy_value()

    return void(array, i64), emit


@intrinsic
def load(typing, array, index):  # type: ignore[no-untyped-def]
    """array.flat[index] of a contiguous array, without Python's wrap-around of negative indexes: a few instructions less,
    and the kernels are bound by instructions once the cache misses overlap."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load(builder.gep(data, [arguments[1]]))

    return array.dtype(array, i64), emit


@intrinsic
def store(typing, array, index, value):  # type: ignore[no-untyped-def]
    """array.flat[index] = value; see ``load``."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        builder.store(arguments[2], builder.gep(data, [arguments[1]]))
        return context.get_dummy_value()

    return void(array, i64, array.dtype), emit


@njit(i64(i64), cache=True, forceinline=True)
def kind_words(kind):  # type: ignore[no-untyped-def]
    return i64(FLOAT_WORDS) if kind == FLOAT else kind + 1


@njit(void(words2, i64, f64, f64), cache=True, forceinline=True)
def float_add_pair(v, i, hi, lo):  # type: ignore[no-untyped-def]
    """Double-double addition (two-sum of the high parts, then renormalise). An overflowed sum stays infinite."""
    a, b = as_float(load(v, i)), as_float(load(v, i + 1))
    s = a + hi
    if not np.isfinite(s):
        store(v, i, as_bits(s))
        store(v, i + 1, 0)
        return
    t = s - a
    e = (a - (s - t)) + (hi - t) + b + lo
    h = s + e
    store(v, i, as_bits(h))
    store(v, i + 1, as_bits(e - (h - s)) if np.isfinite(h) else i64(0))


@njit(void(words2, i64, i64, words2, i64, i64, i64, i64), cache=True, forceinline=True)
def add(v, r, o, x, q, p, kind, sign):  # type: ignore[no-untyped-def]
    """v[r, o:] += sign * x[q, p:], both of the same kind; sign is 1 or -1."""
    i, j = r * v.shape[1] + o, q * x.shape[1] + p
    if kind == COUNT:
        store(v, i, load(v, i) + sign * load(x, j))
    elif kind == FLOAT:
        s = f64(sign)
        float_add_pair(v, i, s * as_float(load(x, j)), s * as_float(load(x, j + 1)))
        float_add_pair(v, i + ABS, s * as_float(load(x, j + ABS)), s * as_float(load(x, j + ABS_LO)))
        total = as_float(load(v, i + ABS))
        store(v, i + PEAK, as_bits(max(abs(total), max(as_float(load(v, i + PEAK)), as_float(load(x, j + PEAK))))))
        for k in range(NANS, FLOAT_WORDS):
            store(v, i + k, load(v, i + k) + sign * load(x, j + k))
    else:
        # a - b = a + ~b + 1
        carry = u64(1) if sign < 0 else u64(0)
        for k in range(kind + 1):
            a = u64(load(v, i + k))
            b = u64(load(x, j + k))
            if sign < 0:
                b = ~b
            s1 = a + b
            c1 = u64(1) if s1 < a else u64(0)
            s2 = s1 + carry
            c2 = u64(1) if s2 < s1 else u64(0)
            store(v, i + k, i64(s2))
            carry = c1 + c2


@njit(void(words2, i64, i64), cache=True, forceinline=True)
def float_reset(v, r, o):  # type: ignore[no-untyped-def]
    """A sum of no values is exactly 0, whatever was lost while they came and went. For kept tuples, where the number of
    values is a true count; not for a change, whose {+10, -7} has a number of 0 and a sum of 3."""
    i = r * v.shape[1] + o
    if load(v, i + NUMBERS) == 0:
        for k in range(NANS):
            store(v, i + k, 0)


@njit(void(words2, i64, words2, i64, f64), cache=True, forceinline=True)
def float_scale_pair(v, i, x, j, f):  # type: ignore[no-untyped-def]
    """The double-double at i = the one at j * f, a whole number; 0 times anything is 0."""
    hi, lo = as_float(load(x, j)), as_float(load(x, j + 1))
    product = hi * f
    if np.isfinite(product):
        e = fma(hi, f, -product) + lo * f
        h = product + e
        store(v, i, as_bits(h))
        store(v, i + 1, as_bits(e - (h - product)) if np.isfinite(h) else i64(0))
    else:
        store(v, i, as_bits(product) if f != 0.0 else i64(0))
        store(v, i + 1, 0)


@njit(void(words2, i64, words2, i64, i64), cache=True, forceinline=True)
def float_scale(v, i, x, j, c):  # type: ignore[no-untyped-def]
    """v.flat[i:] = x.flat[j:] * c for a count c. v and x may be the same words."""
    if c == 1:
        for k in range(FLOAT_WORDS):
            store(v, i + k, load(x, j + k))
        return
    f = f64(c)
    float_scale_pair(v, i, x, j, f)
    float_scale_pair(v, i + ABS, x, j + ABS, f)
    store(v, i + PEAK, as_bits(as_float(load(x, j + PEAK)) * abs(f)) if c != 0 else i64(0))
    for k in range(NANS, FLOAT_WORDS):
        store(v, i + k, load(x, j + k) * c)


@njit(void(words2, i64, i64, i64, words2, i64, i64, i64), cache=True, forceinline=True)
def assign(v, r, o, kind, x, q, p, from_kind):  # type: ignore[no-untyped-def]
    """v[r, o:] (of kind) = x[q, p:] (of from_kind). A count assigned to a float is that many ones."""
    i, j = r * v.shape[1] + o, q * x.shape[1] + p
    if kind == FLOAT:
        if from_kind == FLOAT:
            for k in range(FLOAT_WORDS):
                store(v, i + k, load(x, j + k))
        else:
            c = load(x, j)
            hi = f64(c)
            store(v, i, as_bits(hi))
            store(v, i + 1, as_bits(f64(c - i64(hi))) if abs(hi) < 9.0e18 else i64(0))
            store(v, i + ABS, as_bits(abs(hi)))
            store(v, i + ABS_LO, 0)
            store(v, i + PEAK, as_bits(abs(hi)))
            for k in range(NANS, NUMBERS):
                store(v, i + k, 0)
            store(v, i + NUMBERS, c)
        return
    have = kind_words(from_kind)
    fill = load(x, j + have - 1) >> 63
    for k in range(kind + 1):
        store(v, i + k, load(x, j + k) if k < have else fill)


@njit(void(words2, i64, i64, i64, words2, i64, i64, i64), cache=True, forceinline=True)
def multiply(v, r, o, kind, x, q, p, by_kind):  # type: ignore[no-untyped-def]
    """v[r, o:] (of kind) *= x[q, p:] (of by_kind)."""
    i, j = r * v.shape[1] + o, q * x.shape[1] + p
    if kind == COUNT:
        store(v, i, load(v, i) * load(x, j))
    elif kind == FLOAT:
        if by_kind == FLOAT:  # so far a product of counts: see assign
            c = i64(as_float(load(v, i))) + i64(as_float(load(v, i + 1)))
            float_scale(v, i, x, j, c)
        else:
            float_scale(v, i, v, i, load(x, j))
    else:
        have = kind_words(by_kind)
        fill = u64(load(x, j + have - 1) >> 63)
        a0, a1 = u64(load(v, i)), u64(load(v, i + 1))
        b0 = u64(load(x, j))
        b1 = u64(load(x, j + 1)) if have > 1 else fill
        low = a0 * b0
        high = mul_high(a0, b0)
        if kind == INT2:
            store(v, i, i64(low))
            store(v, i + 1, i64(high + a0 * b1 + a1 * b0))
            return
        a2 = u64(load(v, i + 2))
        b2 = u64(load(x, j + 2)) if have > 2 else fill
        top = a0 * b2 + a1 * b1 + a2 * b0
        m = a0 * b1
        middle = high + m
        top += mul_high(a0, b1) + (u64(1) if middle < m else u64(0))
        m = a1 * b0
        middle2 = middle + m
        top += mul_high(a1, b0) + (u64(1) if middle2 < m else u64(0))
        store(v, i, i64(low))
        store(v, i + 1, i64(middle2))
        store(v, i + 2, i64(top))


vector_signature = void(words2, i64, words1, words1, words2, i64, i64, words1, words1, words1)


@njit(vector_signature, cache=True, forceinline=True)
def assign_vector(v, r, offs, kinds, x, q, base, channel, from_offs, from_kinds):  # type: ignore[no-untyped-def]
    """v[r] = x[q, base:]: channel c of v (at offs[c], of kinds[c]) takes channel ``channel[c]`` of x."""
    for c in range(kinds.shape[0]):
        s = load(channel, c)
        assign(v, r, load(offs, c), load(kinds, c), x, q, base + load(from_offs, s), load(from_kinds, s))


@njit(vector_signature, cache=True, forceinline=True)
def multiply_vector(v, r, offs, kinds, x, q, base, channel, by_offs, by_kinds):  # type: ignore[no-untyped-def]
    """v[r] *= x[q, base:], channel by channel as in ``assign_vector``."""
    for c in range(kinds.shape[0]):
        s = load(channel, c)
        multiply(v, r, load(offs, c), load(kinds, c), x, q, base + load(by_offs, s), load(by_kinds, s))


@njit(void(words2, i64, i64, words1, words1, boolean, words2, types.boolean[::1]), cache=True)
def encode_value(v, o, kind, low, high, has_high, w, valid):  # type: ignore[no-untyped-def]
    """Column o of a batch of vectors = weight * value, 0 where the value is NULL. ``high`` is read if has_high;
    w has one column; for floats ``low`` holds float64 bits."""
    for r in range(w.shape[0]):
        if not valid[r]:
            continue  # v starts as zeros
        weight = w[r, 0]
        if kind == FLOAT:
            x = as_float(low[r])
            if np.isnan(x):
                v[r, o + NANS] = weight
            elif np.isinf(x):
                v[r, o + (POSITIVE if x > 0 else NEGATIVE)] = weight
            elif x != 0.0:
                v[r, o] = low[r]
                v[r, o + ABS] = as_bits(abs(x))
                v[r, o + PEAK] = as_bits(abs(x))
                v[r, o + NUMBERS] = 1
                at = r * v.shape[1] + o
                float_scale(v, at, v, at, weight)
        else:
            top = high[r] if has_high else low[r] >> 63
            v[r, o] = low[r]
            if kind >= INT2:
                v[r, o + 1] = top
            if kind == INT3:
                v[r, o + 2] = top >> 63
            if weight != 1:
                multiply(v, r, o, kind, w, r, 0, COUNT)


@njit(void(words2, i64, types.float64[::1]), cache=True)
def finalise_floats(v, o, out):  # type: ignore[no-untyped-def]
    """The double a float channel stands for: NaN if any NaN or infinities of both signs, else the infinity, else the
    sum."""
    for r in range(v.shape[0]):
        if v[r, o + NANS] > 0 or (v[r, o + POSITIVE] > 0 and v[r, o + NEGATIVE] > 0):
            out[r] = np.nan
        elif v[r, o + POSITIVE] > 0:
            out[r] = np.inf
        elif v[r, o + NEGATIVE] > 0:
            out[r] = -np.inf
        else:
            out[r] = as_float(v[r, o]) + as_float(v[r, o + 1])
