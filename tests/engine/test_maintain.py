"""The life of a state: lineage, cache, undo, checkpoints, damage, resync, counting, hints."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest

from pyspark_ivm.state import array_file, store
from pyspark_ivm.worker import functions

from . import blocks


def driver(make, path, rows=40, seed=1, **more):
    d = blocks.Driver(make(), path, **more)
    rng = random.Random(seed)
    d.maintain(blocks.random_changes(d, rng, rows, 4))
    return d, rng


@pytest.mark.parametrize("make", blocks.ALL, ids=lambda f: f.__name__)
def test_lost_commit_is_undone(make, tmp_path):
    d, rng = driver(make, tmp_path)
    for _ in range(4):
        lost = blocks.random_changes(d, rng, 15, 4)
        assert d.maintain(lost, commit=False)[0]["status"] == "ok"
        held = store._cache[(str(tmp_path), 0)]
        undone = []
        original = held.state.undo
        held.state.undo = lambda o=original, u=undone: (u.append(1), o())  # type: ignore[method-assign]
        d.maintain(blocks.random_changes(d, rng, 15, 4))
        del held.state.undo
        assert undone, "the cached state was dropped rather than undone"
        d.check()
        store.clear_cache()
        d.check()  # the files alone say the same


@pytest.mark.parametrize("make", blocks.ALL, ids=lambda f: f.__name__)
def test_checkpoints_and_replay(make, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "CHECKPOINT_MINIMUM", 1)
    d, rng = driver(make, tmp_path, ratio=0.01)
    versions = [json.loads(json.dumps(d.lineage))]
    for _ in range(6):
        d.maintain(blocks.random_changes(d, rng, 10, 4))
        store.clear_cache()
        d.check()
        versions.append(json.loads(json.dumps(d.lineage)))
    assert d.lineage["0"]["checkpoint"] is not None
    old = blocks.Driver(d.plan, tmp_path, lineage=versions[2])
    old.hash = d.hash
    first = sorted(map(repr, old.read()))
    store.clear_cache()
    assert sorted(map(repr, old.read())) == first  # a slow reader's version, from cache and from files
    d.check()


def test_roll_forward_does_not_reload(tmp_path, monkeypatch):
    d, rng = driver(blocks.q3, tmp_path)
    stale = store._cache.copy()
    for _ in range(3):
        d.maintain(blocks.random_changes(d, rng, 10, 4))
    # another worker, three versions behind: give it a state of its own at the first version
    store.clear_cache()
    first = blocks.Driver(
        d.plan, tmp_path, lineage={"0": {"checkpoint": None, "changes": d.lineage["0"]["changes"][:1]}}
    )
    first.hash = d.hash
    first.read()
    read = []
    original = array_file.read
    monkeypatch.setattr(array_file, "read", lambda path, *a: (read.append(path.name), original(path, *a))[1])
    d.check()
    assert len(read) == 3, read
    assert stale


@pytest.mark.parametrize("kind", ["flip", "cut", "missing", "format", "plan"])
def test_damage_is_reported(kind, tmp_path):
    d, rng = driver(blocks.q3, tmp_path)
    file = tmp_path / d.lineage["0"]["changes"][0]["path"]
    data = bytearray(file.read_bytes())
    if kind == "flip":
        data[-200] ^= 1 if data[-200] else 255
        at = max(i for i, b in enumerate(data) if b)
        data[at] ^= 64
        file.write_bytes(data)
    elif kind == "cut":
        file.write_bytes(data[:-64])
    elif kind == "missing":
        file.unlink()
    elif kind == "format":
        array_file.FORMAT, now = 0, array_file.FORMAT
    else:
        d.hash += "x"
    store.clear_cache()
    try:
        summary = d.maintain(blocks.random_changes(d, rng, 5, 4))[0]
        assert (summary["status"], summary["reason"]) == ("failed", "STATE_DAMAGED"), summary
        with pytest.raises(array_file.StateDamaged):
            d.read()
    finally:
        if kind == "format":
            array_file.FORMAT = now


def test_negative_multiplicity_is_refused(tmp_path):
    d, rng = driver(blocks.q3, tmp_path)
    summary = d.maintain([(0, (77, None, b"nowhere", None, 0), -1), (1, (3, 3, None, None, 0), 1)])[0]
    assert (summary["status"], summary["reason"]) == ("failed", "NEGATIVE_MULTIPLICITY")
    d.check()
    d.maintain(blocks.random_changes(d, rng, 5, 4))
    store.clear_cache()
    d.check()


def test_float_cancellation_is_refused(tmp_path):
    d = blocks.Driver(blocks.single(), tmp_path)
    big, small = (b"x", 1, 1e20, 0), (b"x", 1, 1e-3, 0)
    d.maintain([(0, big, 1), (0, small, 1)])
    summary = d.maintain([(0, big, -1)])[0]
    assert (summary["status"], summary["reason"]) == ("failed", "FLOAT_CANCELLATION")
    d.check()
    # the same where the sum that is left is exactly 0 in 106 bits, and wrong
    tiny = (b"y", 1, 1e-60, 0)
    d.maintain([(0, (b"y", 1, 1e20, 0), 1), (0, tiny, 1)])
    assert d.maintain([(0, (b"y", 1, 1e20, 0), -1)])[0]["reason"] == "FLOAT_CANCELLATION"


@pytest.mark.parametrize("rest", [None, 0.0, -0.0, float("nan"), float("inf")])
def test_last_value_may_go(rest, tmp_path):
    """Without values left the sum is exactly 0, whatever was lost on the way: no cancellation to report."""
    d = blocks.Driver(blocks.single(), tmp_path)
    values = [0.1, 1e20, -3e-5, 7.7, 1e300, -1e300]
    d.maintain([(0, (b"x", 1, v, 0), 1) for v in [rest, *values]])
    assert d.maintain([(0, (b"x", 1, v, 0), -1) for v in values])[0]["status"] == "ok"
    d.check()
    (row,) = d.read()
    assert rest is None or rest != 0 or row[-1] == 0
    assert d.maintain([(0, (b"x", 1, 2.5, 0), 1)])[0]["status"] == "ok"  # and no trace of the large ones stays
    assert d.maintain([(0, (b"x", 1, 1e-6, 0), 1), (0, (b"x", 1, 2.5, 0), -1)])[0]["status"] == "ok"


@pytest.mark.parametrize("make", blocks.ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("partitions", [1, 3])
def test_resync(make, partitions, tmp_path):
    plan = make()
    d, rng = driver(make, tmp_path, partitions=partitions if plan.partition is not None else 1)
    for _ in range(3):
        source = rng.choice([a.source for a in plan.atoms])
        atoms = [a.id for a in plan.atoms if a.source == source]
        target = Counter(d.bags[atoms[0]])
        for a, row, w in blocks.random_changes(d, rng, 15, 4):
            if a == atoms[0]:
                target[row] += w
        whole = [(a, row, w) for row, w in target.items() if w for a in atoms]
        wake = [(p, -1, 0, None) for p in range(d.partitions)]
        summaries = d.maintain(whole, resync=atoms, extra=wake)
        assert len(summaries) == d.partitions
        d.check()
    again = [(a, row, w) for row, w in d.bags[atoms[0]].items() if w for a in atoms]
    for s in d.maintain(again, resync=atoms, extra=wake):
        assert s["file"] is None and s["rowsIn"].get(source, 0) == 0 and s["touched"] == 0
    d.check()


@pytest.mark.parametrize("make", blocks.ALL, ids=lambda f: f.__name__)
def test_resync_of_some_partitions(make, tmp_path):
    """The batch is what the touched partitions hold now; what the state holds of the others stays."""
    plan = make()
    d, rng = driver(make, tmp_path)
    keys = {a.id: {s for slots in a.slots for s in slots} for a in plan.atoms}
    for source in sorted({a.source for a in plan.atoms}):
        atoms = [a.id for a in plan.atoms if a.source == source]
        for slot in sorted(set.intersection(*(keys[a] for a in atoms))):
            rows = Counter({row: w for row, w in d.bags[atoms[0]].items() if w})
            values = sorted({row[slot] for row in rows}, key=repr)
            touched = [
                *rng.sample(values, len(values) // 2),
                b"never seen" if plan.wire[slot] == "bytes" else 987654321,
            ]
            rest = Counter({row: w for row, w in rows.items() if row[slot] not in touched})
            now = {row: w + rng.randrange(2) for row, w in rows.items() if row[slot] in touched and rng.random() < 0.7}
            sent = [[base64.b64encode(v).decode() if isinstance(v, bytes) else v] for v in touched]
            within = {a: {"slots": [slot], "values": sent} for a in atoms}
            batch = [(a, row, w) for row, w in now.items() for a in atoms]
            (s,) = d.maintain(batch, resync=atoms, within=within, extra=[(0, -1, 0, None)])
            for a in atoms:
                d.bags[a].update(rest)
            assert s["status"] == "ok"
            d.check()
            assert s["rowsIn"].get(source, 0) <= sum(w for row, w in rows.items() if row[slot] in touched) + len(now)


def test_counts(tmp_path):
    d = blocks.Driver(blocks.path_rows(), tmp_path)
    e = (1, 2, None, 0)
    # the self-join's rows count once; a row that failed every filter counts too; what cancels does not
    s = d.maintain(
        [(0, e, 2), (1, e, 2), (0, (5, 5, None, 0), 1), (0, (5, 5, None, 0), -1)], extra=[(0, -2, 1, 99), (0, -3, 3, 7)]
    )[0]
    assert s["rowsIn"] == {"s0": 3, "s1": 3}
    d = blocks.Driver(blocks.single(), tmp_path / "1")
    a, b = (b"a", 1, 2.0, 0), (b"b", 1, 2.0, 1)
    assert d.maintain([(0, a, 1), (0, b, 1)])[0]["rowsChanged"] == 2
    s = d.maintain([(0, a, 1), (0, b, -1)])[0]
    assert (s["rowsChanged"], s["rowsIn"], s["liveErrors"], s["liveRows"]) == (3, {"s0": 2}, 0, 1)
    assert d.maintain([(0, b, 1)])[0]["liveErrors"] == 1
    d = blocks.Driver(blocks.total(), tmp_path / "2")
    assert d.read() == [(0, 0, 0, 0)]
    assert d.maintain([(0, (1, 5, 0), 1)])[0]["rowsChanged"] == 0
    assert d.maintain([(1, (1, 5, 0), 1)])[0]["rowsChanged"] == 2


def test_passes_summaries_on_and_nothing_for_nothing(tmp_path):
    import pyarrow as pa

    d = blocks.Driver(blocks.q3(), tmp_path)
    assert list(functions.maintain(d.spec(), iter([]))) == []
    whole = d.wire([(0, (1, None, b"x", None, 0), 1)], size=0)[0]
    batch = pa.RecordBatch.from_arrays([*whole.columns, pa.nulls(1, pa.string())], names=[*whole.schema.names, "s"])
    carried = pa.RecordBatch.from_arrays(
        [
            pa.array([v], f.type)
            for v, f in zip([0, -1, 1, None, 0, None, None, None, None, "hello"], batch.schema, strict=True)
        ],
        schema=batch.schema,
    )
    out = [s for b in functions.maintain(d.spec(version=1), iter([carried, batch])) for s in b.column("s").to_pylist()]
    assert out[0] == "hello" and json.loads(out[1])["status"] == "ok" and len(out) == 2


def test_hints_and_limit(tmp_path):
    d, _ = driver(blocks.star_rows, tmp_path, rows=120)
    everything = d.read()
    assert everything
    assert len(d.read(limit=3)) == 3
    tests = [
        ({"output": 0, "op": "=", "value": 1}, lambda r: r[0] == 1),
        ({"output": 0, "op": ">", "value": 0}, lambda r: r[0] > 0),
        ({"output": 4, "op": "<=", "value": 1}, lambda r: r[4] is not None and r[4] <= 1),
        ({"output": 2, "op": "=", "value": base64.b64encode(b"yy").decode()}, lambda r: r[2] == b"yy"),
        ({"output": 1, "op": "in", "values": [0, 2]}, lambda r: r[1] in (0, 2)),
    ]
    for hint, holds in tests:
        assert Counter(d.read(filters=[hint])) == Counter(filter(holds, everything)), hint
    assert Counter(d.read(outputs=[4, 0])) == Counter((r[4], r[0]) for r in everything)
    assert len(d.read(outputs=[])) in (0, len(everything))


def test_work_does_not_depend_on_size(tmp_path):
    def touched(customers):
        d = blocks.Driver(blocks.q3(), tmp_path / str(customers))
        rows = []
        for c in range(customers):
            rows += [
                (0, (c, None, b"seg%d" % (c % 5), None, 0), 1),
                (1, (c, c, None, None, 0), 1),
                (2, (None, c, None, 7, 0), 1),
            ]
        d.maintain(rows, build=True, size=0)
        change = [(2, (None, k, None, 9, 0), 1) for k in range(50)] + [
            (0, (3, None, b"seg9", None, 0), 1),
            (1, (60, 2, None, None, 0), 1),
        ]
        return d.maintain(change)[0]["touched"]

    assert touched(400) == touched(40_000) > 0


def test_import_is_light():
    code = "import sys, pyspark_ivm.worker.functions; print([m for m in ('numpy', 'numba', 'pyarrow', 'pyspark') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_partials_are_merged_by_all_group_columns_whatever_is_read(tmp_path):
    d, _ = driver(blocks.q3, tmp_path, rows=120, partitions=3)
    rows = d.read()
    assert len(rows) > 1
    assert Counter(d.read(outputs=[])) == Counter(r[1:] for r in rows)


def test_rows_that_raise_before_they_join_are_counted_for_their_source(tmp_path):
    """Two raise, one of them is deleted again; they reach no atom and count in rows_in like any row."""
    d = blocks.Driver(blocks.q3(), tmp_path)
    width = len(d.plan.wire)

    def wire(*rows):
        p, atom, w, h, e = zip(*((0, -2, w, h, e) for w, h, e in rows), strict=True)
        columns = [
            pa.array(p, pa.int32()),
            pa.array(atom, pa.int32()),
            pa.array(w, pa.int64()),
            pa.array(h, pa.int64()),
        ]
        nothing = [pa.nulls(len(rows), pa.binary() if k == "bytes" else pa.int64()) for k in d.plan.wire]
        names = ["p", "atom", "w", "h", "e", *(f"x{i}" for i in range(width))]
        return pa.RecordBatch.from_arrays([*columns, pa.array(e, pa.int32()), *nothing], names=names)

    def run(*rows):
        spec = d.spec(version=1, attempt="a", build=False, resync=[], sources={"s0": [0], "s1": [1], "s2": [2]})
        [batch] = functions.maintain(spec, iter([wire(*rows)]))
        return json.loads(batch.column(0)[0].as_py())

    summary = run((1, 7, 1), (2, 8, 1), (-1, 7, 1), (1, 9, 0))
    assert summary["raised"] == {"s0": 2}
    assert summary["rowsIn"] == {"s0": 3}
    assert run((-2, 8, 1))["raised"] == {"s0": -2}
