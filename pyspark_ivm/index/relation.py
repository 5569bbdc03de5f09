"""Hash relation: a map from key tuple (int64 words) to vector (channels), with secondary indexes and an exact undo.

Law: a tuple is live iff channel 0 > 0; a tuple whose channel 0 becomes 0 is all zero (dead). Dead tuples keep their
slot, so that undo gives every tuple its own slot back, until more than half of the slots are dead and a batch begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyspark_ivm.index import chains
from pyspark_ivm.index import kernels as k
from pyspark_ivm.index.limbs import FLOAT_WORDS, KINDS

CHUNK = 1 << 16  # tuples a pass handles at a time: bounds memory, long enough to hide the call
_FIRST = 16
_COMPACT_MINIMUM = 4096  # slots; below this, dead tuples cost nothing worth a rebuild
FIRST_FACTOR, DIRECT, WITH_OLD, SCALAR = 1, 2, 4, 8  # flags of ``multiply_into``
_NO_SLOTS = np.zeros(0, np.int32)
_NO_LINKS = np.zeros((0, chains.LINK_WORDS), np.int32)
_identity = np.arange(1024, dtype=np.int32)


def identity(n: int) -> np.ndarray:
    """0 … n-1 as slots; do not write to it."""
    global _identity
    if n > len(_identity):
        _identity = np.arange(max(n, 2 * len(_identity)), dtype=np.int32)
    return _identity[:n]


def picked(slots: np.ndarray, picks: np.ndarray) -> np.ndarray:
    """slots[picks]"""
    out = np.empty(len(picks), np.int32)
    k.pick(slots, picks, out)
    return out


@dataclass(frozen=True)
class Layout:
    """Where the channels of a vector are."""

    kinds: np.ndarray
    offsets: np.ndarray
    words: int

    @staticmethod
    def of(kinds: Sequence[str]) -> Layout:
        widths = {"count": 1, "int2": 2, "int3": 3, "float": FLOAT_WORDS}
        offsets = np.cumsum([0] + [widths[kind] for kind in kinds]).astype(np.int64)
        return Layout(np.array([KINDS[kind] for kind in kinds], np.int64), offsets[:-1].copy(), int(offsets[-1]))


def _table_size(tuples: int) -> int:
    """A power of two with room for so many: at most half full, and one entry short of that (see ``kernels.table_entry``)."""
    size = 2 * _FIRST
    while size // 2 - 1 < tuples:
        size *= 2
    return size


def _grown(array: np.ndarray, rows: int) -> np.ndarray:
    """A copy with room for ``rows``; fresh memory is left to the operating system to zero when touched."""
    new = np.zeros((rows, *array.shape[1:]), array.dtype)
    new[: len(array)] = array
    return new


class SecondaryIndex:
    """Bucket chains over a subset of the key words. Law: a chain holds exactly the live tuples with its sub-key."""

    ARRAYS = ("meta", "table", "buckets", "links")

    def __init__(self, columns: Sequence[int] | np.ndarray, capacity: int) -> None:
        self.columns = np.array(columns, np.int64)
        self.meta = np.zeros(3, np.int64)
        self.table = np.full(_FIRST * 2, -1, np.int32)
        self.buckets = np.zeros((_FIRST, 2), np.int32)
        self.links = np.zeros((capacity, chains.LINK_WORDS), np.int32)

    def resize(self, capacity: int) -> None:
        self.links = _grown(self.links, capacity)

    def assign(self, rows: np.ndarray, meta: np.ndarray) -> None:
        while not chains.index_assign(rows, meta, self.columns, self.meta, self.table, self.buckets, self.links):
            used = int(self.meta[chains.BUCKETS])
            self.buckets = _grown(self.buckets, 2 * max(used, _FIRST))
            self.table = np.full(max(2 * len(self.table), _table_size(used)), -1, np.int32)
            # buckets re-enter in order, by the key of their representative
            shown = np.ascontiguousarray(rows[self.buckets[:used, chains.REP]])
            k.rebuild_table(shown, self.table, 0, used, self.columns)

    def forget(self, rows: np.ndarray) -> None:
        """Take out the buckets that came since the start of the batch."""
        start, now = int(self.meta[chains.BUCKETS_START]), int(self.meta[chains.BUCKETS])
        shown = np.ascontiguousarray(self.buckets[:now, chains.REP])
        k.forget_last(rows, self.columns, self.table, shown, start, now)
        self.meta[chains.BUCKETS] = start


class HashRelation:
    def __init__(self, key_words: int, layout: Layout, indexes: Sequence[Sequence[int]] = ()) -> None:
        self.key_words = key_words
        self.layout = layout
        self.columns = np.arange(key_words, dtype=np.int64)
        self.meta = np.zeros(k.META_WORDS, np.int64)
        self.meta[k.KEY_WORDS] = key_words
        self.rows = np.zeros((_FIRST, key_words + layout.words + 1), np.int64)
        self.table = np.full(_FIRST * 2, -1, np.int32)
        self.jslot = np.zeros(_FIRST, np.int32)
        self.jold = np.zeros((_FIRST, layout.words), np.int64)
        self.indexes = [SecondaryIndex(columns, _FIRST) for columns in indexes]
        self._seen = _NO_SLOTS
        self._epoch = 0

    # -- sizes -------------------------------------------------------------------------------------------------------
    @property
    def used(self) -> int:
        return int(self.meta[k.USED])

    @property
    def keys(self) -> np.ndarray:
        """A view, not contiguous."""
        return self.rows[:, : self.key_words]

    @property
    def vecs(self) -> np.ndarray:
        """A view, not contiguous."""
        return self.rows[:, self.key_words : -1]

    @property
    def live(self) -> int:
        return int(self.meta[k.LIVE])

    @property
    def bytes(self) -> int:
        arrays: list[np.ndarray] = [self.rows, self.table, self.jslot, self.jold]
        for index in self.indexes:
            arrays += [getattr(index, name) for name in SecondaryIndex.ARRAYS]
        return sum(a.nbytes for a in arrays)

    def _grow(self) -> None:
        """Double what is full. Called when a kernel stopped."""
        used = self.used
        if used >= len(self.rows):
            if used >= 1 << 30:
                raise OverflowError("a hash relation holds at most 2^30 tuples; use more state partitions")
            self._resize(2 * max(used, _FIRST))
        if used >= len(self.table) // 2 - 1:
            self._rehash(2 * len(self.table))
        if int(self.meta[k.JOURNALED]) >= len(self.jslot):
            self.jslot, self.jold = _grown(self.jslot, 2 * len(self.jslot)), _grown(self.jold, 2 * len(self.jslot))

    def _resize(self, capacity: int) -> None:
        self.rows = _grown(self.rows, capacity)
        for index in self.indexes:
            index.resize(capacity)

    def _rehash(self, size: int) -> None:
        self.table = np.full(size, -1, np.int32)
        k.rebuild_table(self.rows, self.table, 0, self.used, self.columns)

    def reserve(self, rows: int) -> None:
        """Room for so many tuples in all, when it is known beforehand; at least twice the old, so that it adds up to little."""
        if rows > len(self.rows):
            self._resize(max(rows, 2 * len(self.rows)))
        if (size := _table_size(rows)) > len(self.table):
            self._rehash(size)

    # -- batches and steps -------------------------------------------------------------------------------------------
    def begin_batch(self, journaling: bool = True) -> None:
        """The batch before is settled: forget its undo."""
        meta = self.meta
        meta[k.NEGATIVE] = 0
        if meta[k.USED] > _COMPACT_MINIMUM and 2 * meta[k.LIVE] < meta[k.USED]:
            self._compact()
        meta[k.STEP] = meta[k.JOURNALED] = 0
        meta[k.START] = meta[k.USED]
        meta[k.JOURNALING] = 1 if journaling else 0
        if len(self.jslot) > CHUNK:
            self.jslot, self.jold = self.jslot[:_FIRST].copy(), self.jold[:_FIRST].copy()
        for index in self.indexes:
            index.meta[chains.BUCKETS_START] = index.meta[chains.BUCKETS]

    def begin_step(self) -> None:
        """From here on "old" means now. Undo still goes back to the start of the batch."""
        self.meta[k.STEP] = self.meta[k.JOURNALED]

    def touched(self) -> np.ndarray:
        """The slots that the current step changed, each once."""
        return self.jslot[int(self.meta[k.STEP]) : int(self.meta[k.JOURNALED])]

    def touched_old(self) -> np.ndarray:
        """Their words before the step."""
        return self.jold[int(self.meta[k.STEP]) : int(self.meta[k.JOURNALED])]

    def undo(self) -> None:
        """Back to the start of the batch: the same tuples, words and slots."""
        meta = self.meta
        k.undo_words(self.rows, meta, self.jslot, self.jold)
        slots = self.jslot[: int(meta[k.JOURNALED])]
        first, used = int(meta[k.START]), self.used
        for index in self.indexes:
            index.assign(self.rows, meta)
            chains.index_sync(self.rows, self.key_words, slots, index.buckets, index.links)
            index.forget(self.rows)
            index.meta[chains.ASSIGNED] = min(first, int(index.meta[chains.ASSIGNED]))
        k.forget_last(self.rows, self.columns, self.table, _NO_SLOTS, first, used)
        meta[k.USED] = first
        meta[k.STEP] = meta[k.JOURNALED] = 0
        meta[k.NEGATIVE] = 0

    def _compact(self) -> None:
        alive = self.live_slots()
        capacity = max(_FIRST, len(alive) + len(alive) // 2)
        rows = np.zeros((capacity, self.rows.shape[1]), np.int64)
        rows[: len(alive)] = self.rows[alive]
        self.rows = rows
        self.meta[k.USED] = len(alive)
        self._rehash(_table_size(capacity))
        self._seen = _NO_SLOTS
        self.indexes = [SecondaryIndex(index.columns, capacity) for index in self.indexes]
        self.sync_indexes(identity(len(alive)))

    # -- writing -----------------------------------------------------------------------------------------------------
    def upsert(
        self, source: np.ndarray, rows: np.ndarray, columns: np.ndarray, new: np.ndarray, old: np.ndarray, mode: int
    ) -> None:
        """See ``kernels.upsert``. Indexes follow with ``sync_indexes``, once a step."""
        done, total = 0, len(rows)
        while done < total:
            done = k.upsert(
                self.rows, self.table, self.meta, self.jslot, self.jold, self.layout.kinds, self.layout.offsets,
                source, rows, columns, new, old, done, mode,
            )  # fmt: skip
            if done < total:
                self._grow()

    def add(self, keys: np.ndarray, vectors: np.ndarray, signed: bool = False) -> None:
        """Add vectors to the tuples with these keys; ``signed``: into a bag without liveness (see ``settle``)."""
        if signed and len(vectors) > _FIRST:
            self.reserve(self.used + len(vectors))
        self.upsert(keys, identity(len(vectors)), self.columns, vectors, vectors, 3 if signed else 1)

    def settle(self) -> None:
        """A signed bag becomes a relation."""
        k.settle(self.rows, self.meta, self.layout.kinds, self.layout.offsets)

    def sync_indexes(self, slots: np.ndarray | None = None) -> None:
        """Bring the chains up to date with the slots changed (default: by the current step)."""
        if self.indexes:
            slots = self.touched() if slots is None else slots
            for index in self.indexes:
                index.assign(self.rows, self.meta)
                chains.index_sync(self.rows, self.key_words, slots, index.buckets, index.links)

    # -- reading -----------------------------------------------------------------------------------------------------
    def find(self, key: Sequence[int]) -> int:
        """The slot of a key, or a negative number."""
        row = np.array(key, np.int64).reshape(1, self.key_words)
        return int(k.find(self.rows, self.table, row, 0, self.columns))

    def live_slots(self, first: int = 0, last: int | None = None) -> np.ndarray:
        last = self.used if last is None else last
        out = np.empty(max(0, last - first), np.int32)
        return out[: k.live_slots(self.rows, self.key_words, first, last, out)]

    def multiply_into(
        self, source: np.ndarray, rows: np.ndarray, columns: np.ndarray, channel: np.ndarray, layout: Layout,
        new: np.ndarray, old: np.ndarray, flags: int,
    ) -> None:  # fmt: skip
        """See ``kernels.multiply_child``: this relation is the child."""
        if layout.words == 1 and not flags & WITH_OLD and channel[0] == 0:
            k.multiply_counts(source, rows, columns, self.rows, self.table, self.meta, new, flags)
            return
        k.multiply_child(
            source, rows, columns, self.rows, self.table, self.meta, self.jslot, self.jold,
            self.layout.kinds, self.layout.offsets, channel, layout.kinds, layout.offsets, new, old, flags,
        )  # fmt: skip

    def index_on(self, columns: Sequence[int]) -> int:
        """Position of the secondary index on exactly these key words, -1 if the primary table serves (all words)."""
        if sorted(columns) == list(range(self.key_words)):
            return -1
        for position, index in enumerate(self.indexes):
            if index.columns.tolist() == list(columns):
                return position
        raise KeyError(f"no index on words {list(columns)}")

    def expand(self, source: np.ndarray, rows: np.ndarray, columns: np.ndarray, index: int, state: np.ndarray,
               out_row: np.ndarray, out_slot: np.ndarray) -> int:  # fmt: skip
        """See ``chains.expand``: this relation is probed, by its primary key (index -1) or a secondary index."""
        if index < 0:
            return chains.expand(source, rows, columns, self.rows, self.table, self.meta, self.columns, self.table,
                                 _NO_LINKS, _NO_LINKS, 1, state, out_row, out_slot)  # fmt: skip
        i = self.indexes[index]
        return chains.expand(source, rows, columns, self.rows, self.table, self.meta, i.columns, i.table,
                             i.buckets, i.links, 0, state, out_row, out_slot)  # fmt: skip

    def differences(self, first: int, out: np.ndarray) -> None:
        """What the current step did to the tuples ``touched()[first:]``, as many as ``out`` holds."""
        k.differences(self.rows, self.meta, self.jslot, self.jold, self.layout.kinds, self.layout.offsets,
                      int(self.meta[k.STEP]) + first, out)  # fmt: skip

    def unseen(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """The union of sets of this relation's slots."""
        if len(self._seen) < len(self.rows):
            self._seen = np.zeros(len(self.rows), np.int32)
            self._epoch = 0
        self._epoch += 1
        out = np.empty(sum(map(len, parts)), np.int32)
        filled = 0
        for part in parts:
            filled = k.add_unseen(part, self._seen, self._epoch, out, filled)
        return out[:filled]

    # -- checkpoints -------------------------------------------------------------------------------------------------
    def arrays(self, prefix: str) -> dict[str, tuple[np.ndarray, int]]:
        """Name → (array, rows in use): the relation is its bytes. The journal is not part of a checkpoint."""
        used = self.used
        out: dict[str, tuple[np.ndarray, int]] = {
            f"{prefix}.rows": (self.rows, used),
            f"{prefix}.table": (self.table, len(self.table)),
            f"{prefix}.meta": (self.meta, len(self.meta)),
        }
        for position, index in enumerate(self.indexes):
            for name in SecondaryIndex.ARRAYS:
                array = getattr(index, name)
                rows = len(array)
                if name == "buckets":
                    rows = int(index.meta[chains.BUCKETS])
                elif name == "links":
                    rows = used
                out[f"{prefix}.i{position}.{name}"] = (array, rows)
        return out

    def load(self, prefix: str, arrays: dict[str, np.ndarray]) -> None:
        """Take over arrays written by ``arrays``; they must be writable (copy-on-write maps are)."""
        self.rows = arrays[f"{prefix}.rows"]
        self.table, self.meta = arrays[f"{prefix}.table"], arrays[f"{prefix}.meta"]
        self.meta[k.STEP] = self.meta[k.JOURNALED] = 0
        self.meta[k.START] = self.meta[k.USED]
        for position, index in enumerate(self.indexes):
            for name in SecondaryIndex.ARRAYS:
                setattr(index, name, arrays[f"{prefix}.i{position}.{name}"])
