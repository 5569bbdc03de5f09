"""Channel arithmetic against Python integers and fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_ivm.index import limbs

WORDS = {limbs.COUNT: 1, limbs.INT2: 2, limbs.INT3: 3}
MASK = 2**64 - 1
integers = st.one_of(st.integers(-(2**191), 2**191 - 1), st.integers(-(2**65), 2**65), st.integers(-3, 3))
kinds = st.sampled_from(sorted(WORDS))


def encode(x: int, kind: int) -> np.ndarray:
    words = [(x >> (64 * i)) & MASK for i in range(WORDS[kind])]
    return np.array(words, np.uint64).view(np.int64).reshape(1, -1)


def decode(v: np.ndarray) -> int:
    return sum((int(w) & MASK) << (64 * i) for i, w in enumerate(v[0])) % 2 ** (64 * v.shape[1])


@given(integers, integers, kinds, st.sampled_from([1, -1]))
def test_add(a, b, kind, sign):
    v = encode(a, kind)
    limbs.add(v, 0, 0, encode(b, kind), 0, 0, kind, sign)
    assert decode(v) == (a + sign * b) % 2 ** (64 * WORDS[kind])


def fits(x: int, kind: int) -> int:
    """The value an encoding of this kind stands for."""
    bits = 64 * WORDS[kind]
    return (x + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


@given(integers, integers, kinds, kinds)
@settings(max_examples=300)
def test_multiply_and_assign(a, b, kind, by):
    if kind == limbs.COUNT and by != limbs.COUNT:
        by = limbs.COUNT
    a, b = fits(a, kind), fits(b, by)
    v = encode(a, kind)
    limbs.multiply(v, 0, 0, kind, encode(b, by), 0, 0, by)
    assert decode(v) == (a * b) % 2 ** (64 * WORDS[kind])
    limbs.assign(v, 0, 0, kind, encode(b, by), 0, 0, by)
    assert decode(v) == b % 2 ** (64 * WORDS[kind])


def encoded_floats(values, weights) -> np.ndarray:
    v = np.zeros((len(values), limbs.FLOAT_WORDS), np.int64)
    low = np.array(values, np.float64).view(np.int64)
    w = np.array(weights, np.int64).reshape(-1, 1)
    limbs.encode_value(v, 0, limbs.FLOAT, low, low, False, w, np.ones(len(values), np.bool_))
    return v


finite = st.floats(-1e30, 1e30).filter(lambda x: x == 0 or abs(x) > 1e-30)


@given(
    st.lists(
        st.tuples(st.one_of(finite, st.sampled_from([math.nan, math.inf, -math.inf])), st.integers(-5, 5).filter(bool)),
        max_size=12,
    )
)
def test_float_sums(rows):
    v = encoded_floats([x for x, _ in rows], [w for _, w in rows])
    total = np.zeros((1, limbs.FLOAT_WORDS), np.int64)
    for r in range(len(rows)):
        limbs.add(total, 0, 0, v, r, 0, limbs.FLOAT, 1)
    numbers = [(Fraction(x), w) for x, w in rows if math.isfinite(x)]
    got = Fraction(total.view(np.float64)[0, 0]) + Fraction(total.view(np.float64)[0, 1])
    scale = sum(abs(x * w) for x, w in numbers)
    assert abs(got - sum(x * w for x, w in numbers)) <= scale * Fraction(1, 2**95)
    assert total[0, limbs.NANS] == sum(w for x, w in rows if math.isnan(x))
    assert total[0, limbs.POSITIVE] == sum(w for x, w in rows if x == math.inf)
    assert total[0, limbs.NEGATIVE] == sum(w for x, w in rows if x == -math.inf)
    prefixes = list(itertools.accumulate(abs(x) * w for x, w in numbers))
    peak = max([abs(p) for p in prefixes] + [abs(x * w) for x, w in numbers], default=0)
    assert abs(Fraction(total.view(np.float64)[0, limbs.PEAK]) - peak) <= scale * Fraction(1, 2**45)


@given(finite, st.integers(-(2**40), 2**40).filter(bool), st.integers(-(2**20), 2**20).filter(bool))
def test_float_times_count(x, c, d):
    """count · float in either order is the float scaled by the count."""
    v = encoded_floats([x], [c])
    limbs.multiply(v, 0, 0, limbs.FLOAT, encode(d, limbs.COUNT), 0, 0, limbs.COUNT)
    u = np.zeros((1, limbs.FLOAT_WORDS), np.int64)
    limbs.assign(u, 0, 0, limbs.FLOAT, encode(d, limbs.COUNT), 0, 0, limbs.COUNT)
    limbs.multiply(u, 0, 0, limbs.FLOAT, encoded_floats([x], [c]), 0, 0, limbs.FLOAT)
    for words in (v, u):
        got = Fraction(words.view(np.float64)[0, 0]) + Fraction(words.view(np.float64)[0, 1])
        assert abs(got - Fraction(x) * c * d) <= abs(Fraction(x) * c * d) * Fraction(1, 2**95)


def test_finalise():
    rows = encoded_floats([1.5, math.nan, math.inf, -math.inf], [2, 1, 1, 1])
    both = rows[2:3].copy()
    limbs.add(both, 0, 0, rows, 3, 0, limbs.FLOAT, 1)
    out = np.empty(5)
    limbs.finalise_floats(np.concatenate([rows, both]), 0, out)
    assert out[0] == 3.0 and math.isnan(out[1]) and out[2] == math.inf and out[3] == -math.inf and math.isnan(out[4])
