"""A partition's state in a worker. Law: state(lineage) = its checkpoint, then its change files in order.

Worker memory is a cache, always correct to lose. A state's identity is the path of the last file it absorbed (paths
hold attempt ids, so they are unique): a cached state rolls forward along the lineage it is given, undoes at most its
last batch, or is dropped.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pyspark_ivm.state import array_file
from pyspark_ivm.state.array_file import StateDamaged
from pyspark_ivm.strategies.yannakakis.block import BlockState, Delta, Refused
from pyspark_ivm.strategies.yannakakis.layout import BlockLayout

EMPTY = ""  # identity of the state before any file
#: a log shorter than this is replayed faster than a checkpoint is written
CHECKPOINT_MINIMUM = 1 << 20


@dataclass
class Held:
    """A state and where it stands. ``before``: its identities before the last batch, while that can be undone."""

    state: BlockState
    plan_hash: str
    identities: frozenset[str] = frozenset({EMPTY})
    before: frozenset[str] | None = None
    checkpoint_bytes: int = 0
    log_bytes: int = field(default=0)


def _cache_limit() -> int:
    if given := os.environ.get("PYSPARK_IVM_CACHE_BYTES"):
        return int(given)
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 1 << 30
    return max(1 << 28, memory // 4)


_cache: OrderedDict[tuple[str, int], Held] = OrderedDict()


def _take(directory: str, partition: int) -> Held | None:
    """Out of the cache while in use: what fails half-way is never found there again."""
    return _cache.pop((directory, partition), None)


def put_back(directory: str, partition: int, held: Held) -> None:
    _cache[(directory, partition)] = held
    total, limit = sum(h.state.bytes for h in _cache.values()), _cache_limit()
    while total > limit and len(_cache) > 1:
        _, dropped = _cache.popitem(last=False)
        total -= dropped.state.bytes


def clear_cache() -> None:
    _cache.clear()


def acquire(
    layout: BlockLayout, plan_hash: str, directory: str, partition: int, lineage: dict[str, Any] | None
) -> Held:
    """The state at the end of the lineage. Raises StateDamaged. Give it back with ``put_back``."""
    lineage = lineage or {}
    checkpoint, changes = lineage.get("checkpoint"), lineage.get("changes") or []
    path = [checkpoint["path"] if checkpoint else EMPTY, *(c["path"] for c in changes)]
    held = _take(directory, partition)
    at = None
    if held is not None and held.plan_hash == plan_hash:
        at = _position(held.identities, path)
        if at is None and held.before is not None and (at := _position(held.before, path)) is not None:
            held.state.undo()
            held.identities, held.before = held.before, None
    if at is None or held is None:
        held = Held(BlockState(layout), plan_hash)
        at = 0
        if checkpoint:
            _header, arrays = _read(directory, checkpoint, plan_hash)
            held.state.load(arrays)
            held.identities = frozenset({checkpoint["path"]})
    for change in changes[at:]:
        replay(held, directory, change)
    held.checkpoint_bytes = checkpoint["length"] if checkpoint else 0
    held.log_bytes = sum(c["length"] for c in changes)
    return held


def _position(identities: frozenset[str], path: list[str]) -> int | None:
    return next((i for i in range(len(path) - 1, -1, -1) if path[i] in identities), None)


def _read(directory: str, file: dict[str, Any], plan_hash: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return array_file.read(Path(directory) / file["path"], file["length"], file["checksum"], plan_hash)


def replay(held: Held, directory: str, change: dict[str, Any]) -> None:
    _, arrays = _read(directory, change, held.plan_hash)
    state = held.state
    state.begin_batch()
    offsets, data = arrays["strings.offsets"], arrays["strings.data"]
    known = len(state.strings)
    ids = state.strings.intern(offsets, data, np.ones(len(offsets) - 1, np.bool_))
    if not np.array_equal(ids, np.arange(known, known + len(ids))):
        raise StateDamaged(f"{change['path']}: its strings do not follow those before it")
    atoms = sorted(int(name[4:].split(".")[0]) for name in arrays if name.startswith("atom") and name.endswith(".keys"))
    try:
        state.apply({a: Delta(arrays[f"atom{a}.keys"], arrays[f"atom{a}.vecs"]) for a in atoms}, replay=True)
    except Refused as e:
        raise StateDamaged(f"{change['path']}: {e.detail}") from e
    held.before, held.identities = held.identities, frozenset({change["path"]})


def write_change(held: Held, directory: str, path: str, version: int, deltas: dict[int, Delta]) -> dict[str, Any]:
    """Write the batch just applied; it becomes the state's identity. Returns the summary's ``file``."""
    offsets, data = held.state.strings.added()
    arrays = {"strings.offsets": (offsets, len(offsets)), "strings.data": (data, len(data))}
    for atom, delta in deltas.items():
        arrays[f"atom{atom}.keys"] = (delta.keys, len(delta.keys))
        arrays[f"atom{atom}.vecs"] = (delta.vecs, len(delta.vecs))
    written = array_file.write(Path(directory) / path, "changes", held.plan_hash, arrays)
    held.before, held.identities = held.identities, frozenset({path})
    held.log_bytes += written["length"]
    return {"version": version, "path": path, **written, "rows": sum(map(len, deltas.values()))}


def write_checkpoint(held: Held, directory: str, path: str, version: int) -> dict[str, Any]:
    """Write the whole state; another name for where it stands. Returns the summary's ``checkpoint``."""
    written = array_file.write(Path(directory) / path, "checkpoint", held.plan_hash, held.state.arrays())
    held.identities |= {path}
    held.checkpoint_bytes, held.log_bytes = written["length"], 0
    return {"version": version, "path": path, **written}


def checkpoint_due(held: Held, ratio: float, minimum: int | None = None) -> bool:
    """The change log since the last checkpoint outgrew a share of it; a small log is never worth one."""
    return held.log_bytes > max(CHECKPOINT_MINIMUM if minimum is None else minimum, ratio * held.checkpoint_bytes)
