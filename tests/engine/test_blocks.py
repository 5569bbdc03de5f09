"""Whole blocks against a naive evaluator, over the Arrow wire."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
import pytest

from pyspark_ivm.index import limbs
from pyspark_ivm.state import store
from pyspark_ivm.worker import functions, reading

from . import blocks


@pytest.mark.parametrize("make", blocks.ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("seed", range(6))
def test_random_batches(make, seed, tmp_path):
    rng = random.Random(f"{make.__name__}{seed}")
    plan = make()
    partitions = rng.choice([1, 3]) if plan.partition is not None else 1
    driver = blocks.Driver(plan, tmp_path, partitions)
    domain = rng.choice([2, 3, 5])
    for step in range(7):
        changes = blocks.random_changes(driver, rng, rng.choice([1, 3, 12, 25]), domain)
        if step == 0 and rng.random() < 0.5:
            driver.maintain(changes, build=True)
        else:
            summaries = driver.maintain(changes)
            assert all(s["status"] == "ok" for s in summaries), summaries
        if rng.random() < 0.3:
            store.clear_cache()
        driver.check()


def _content(driver):
    """Name of relation → key → vector, floats as their value and counters."""
    out = {}
    state = store._cache[(str(driver.directory), 0)].state
    for name, r in state.relations.items():
        held = out[name] = {}
        for s in r.live_slots():
            words = []
            for kind, at in zip(r.layout.kinds.tolist(), r.layout.offsets.tolist(), strict=True):
                vec = np.ascontiguousarray(r.vecs[s])
                if kind == limbs.FLOAT:
                    words += [
                        pytest.approx(sum(vec.view(np.float64)[at : at + 2]), rel=1e-12),
                        *vec[at + limbs.NANS : at + limbs.FLOAT_WORDS].tolist(),
                    ]
                else:
                    words += vec[at : at + kind + 1].tolist()
            held[tuple(r.keys[s].tolist())] = words
    return out


@pytest.mark.parametrize("make", blocks.ALL, ids=lambda f: f.__name__)
def test_linear_pass_is_the_general_one(make, tmp_path):
    """Batches that change one atom pass their delta through the products; the same with products before and after."""
    rng = random.Random(f"linear{make.__name__}")
    linear, general = (blocks.Driver(make(), tmp_path / name) for name in "lg")
    passes = functions.layout_of(json.loads(linear.spec())).steps
    assert make in (blocks.kinds,) or any(s.linear for s in passes)
    for step in functions.layout_of(json.loads(general.spec())).steps:
        step.linear = False
    source = [a.source for a in linear.plan.atoms]
    for turn in range(14):
        changes = blocks.random_changes(linear, rng, rng.choice([3, 12, 40]), 4)
        if turn:  # the first batch fills all atoms
            chosen = rng.choice(source)
            changes = [c for c in changes if source[c[0]] == chosen] or changes
        told = [
            [(s["status"], s["rowsChanged"], s["liveRows"]) for s in d.maintain(changes)] for d in (linear, general)
        ]
        assert told[0] == told[1]
        assert _content(linear) == _content(general)
        linear.check()


@pytest.mark.parametrize("make", [blocks.single, blocks.single_rows, blocks.q3, blocks.total], ids=lambda f: f.__name__)
def test_copied_runs_are_the_enumeration(make, tmp_path, monkeypatch):
    """Runs of tuples that are output rows once each are copied column by column; the same rows as enumeration."""
    rng = random.Random(make.__name__)
    driver = blocks.Driver(make(), tmp_path)
    for turn in range(8):
        changes = blocks.random_changes(driver, rng, rng.choice([1, 10, 30]), 4)
        if turn < 3:  # without duplicates and dead tuples at first
            changes = [
                (a, row, 1) for a, row in {(a, row): 0 for a, row, w in changes if w > 0 and not driver.bags[a][row]}
            ]
        driver.maintain(changes)
        copied = Counter(map(repr, driver.read(splits=2)))
        with monkeypatch.context() as m:
            m.setattr(reading.Reader, "_columns", lambda self: None)
            assert Counter(map(repr, driver.read(splits=2))) == copied
        for limit in (1, 2, 5):
            assert len(driver.read(limit=limit)) == min(limit, copied.total())
