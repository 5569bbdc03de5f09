"""Hash relation and string table against dictionaries, with undo."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pyspark_ivm.index.relation import HashRelation, Layout
from pyspark_ivm.index.strings import StringTable


def content(r: HashRelation) -> dict[tuple[int, ...], tuple[int, ...]]:
    return {tuple(r.keys[s].tolist()): tuple(r.vecs[s].tolist()) for s in r.live_slots()}


def chains(
    r: HashRelation, columns: list[int], keys: list[tuple[int, ...]]
) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    out = {}
    index = r.index_on(columns)
    for key in keys:
        state, row, slot = np.array([0, -1], np.int64), np.empty(3, np.int32), np.empty(3, np.int32)
        found = []
        source = np.array([key], np.int64).reshape(1, len(columns))
        while state[0] < 1:  # room for three pairs: chains are longer, so the probe must go on where it stopped
            n = r.expand(source, np.zeros(1, np.int32), np.arange(len(columns)), index, state, row, slot)
            found += [tuple(r.keys[s].tolist()) for s in slot[:n]]
        assert len(found) == len(set(found))
        out[key] = set(found)
    return out


@pytest.mark.parametrize("seed", range(8))
def test_relation_against_dictionary(seed):
    rng = random.Random(seed)
    words = rng.choice([0, 1, 2, 3])
    subset = sorted(rng.sample(range(words), rng.randint(0, words - 1))) if words else []
    layout = Layout.of(["count", "int2"])
    r = HashRelation(words, layout, [subset] if words else [])
    model: dict[tuple[int, ...], list[int]] = {}
    for _ in range(60):
        before = {k: list(v) for k, v in model.items()}
        r.begin_batch()
        slots_before = {k: r.find(k) for k in model}
        batch = {}
        for _ in range(rng.choice([1, 5, 80])):
            key = tuple(rng.randrange(12) for _ in range(words))
            held = model.get(key, [0, 0])[0]
            w = -held if held and rng.random() < 0.5 else rng.randint(-held, 5)
            batch[key] = (w, w * rng.randint(-9, 9) if w != -held else 0)
        keys = np.array(list(batch), np.int64).reshape(len(batch), words)
        vecs = np.array([[w, x, x >> 63] for w, x in batch.values()], np.int64)
        r.add(keys, vecs)
        r.sync_indexes()
        for key, (w, x) in batch.items():
            held = model.setdefault(key, [0, 0])
            held[0] += w
            held[1] += x
            if held[0] == 0:
                held[1] = 0
        if rng.random() < 0.4:
            r.undo()
            model = before
            assert all(r.find(k) == s if s >= 0 else r.find(k) < 0 for k, s in slots_before.items())
        live = {k: v for k, v in model.items() if v[0] > 0}
        assert r.live == len(live)
        assert {k: v[:2] for k, v in content(r).items()} == {
            k: (v[0], (v[1] + 2**63) % 2**64 - 2**63) for k, v in live.items()
        }
        if words and subset != list(range(words)):
            groups: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
            for k in live:
                groups.setdefault(tuple(k[c] for c in subset), set()).add(k)
            wanted = [*groups, tuple(99 for _ in subset)]
            assert chains(r, subset, wanted) == {k: groups.get(k, set()) for k in wanted}


def test_compaction_keeps_content():
    r = HashRelation(2, Layout.of(["count"]), [[1]])
    n = 10_000
    keys = np.column_stack([np.arange(n), np.arange(n) % 7]).astype(np.int64)
    for w in (1, -1):
        r.begin_batch()
        part = keys if w == 1 else keys[: n - 100]
        r.add(part, np.full((len(part), 1), w, np.int64))
        r.sync_indexes()
    assert r.used == n
    r.begin_batch()
    assert r.used == r.live == 100
    assert len(content(r)) == 100
    assert len(chains(r, [1], [(3,)])[(3,)]) == sum(1 for i in range(n - 100, n) if i % 7 == 3)


def test_strings_and_undo():
    rng = random.Random(3)
    table, model = StringTable(), {}
    for _ in range(40):
        table.begin_batch()
        known = dict(model)
        values = [
            bytes(rng.choices(b"ab\0", k=rng.randrange(8))) * rng.choice([1, 1, 30]) for _ in range(rng.randrange(60))
        ]
        ids = table.intern_values(values)
        for v, i in zip(values, ids.tolist(), strict=True):
            assert model.setdefault(v, len(model)) == i
            assert table.value(i) == v
        offsets, data = table.decode(ids, np.ones(len(ids), np.bool_))
        assert [data[offsets[i] : offsets[i + 1]].tobytes() for i in range(len(ids))] == values
        if rng.random() < 0.5:
            table.undo()
            model = known
        assert len(table) == len(model)
    assert table.intern_values([b"never seen"], add=False).tolist() == [-1]
