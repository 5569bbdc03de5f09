"""Whole blocks against a naive evaluator, over the Arrow wire."""

from __future__ import annotations

import random

import pytest

from pyspark_ivm.state import store

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
