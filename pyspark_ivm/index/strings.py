"""String table: bytes ↔ dense id. Law: ids are given in order of arrival and never change; equal bytes have equal
ids."""

from __future__ import annotations

import builtins

from pyspark_ivm.index import cache

cache.prepare()

import numpy as np  # noqa: E402
from numba import njit, types  # noqa: E402

from pyspark_ivm.index.limbs import i64, u64, void, words1  # noqa: E402

USED, START = range(2)
_FIRST = 64
bytes1 = types.uint8[::1]
source1 = types.Array(types.uint8, 1, "C", readonly=True)  # Arrow buffers are read-only
slots1 = types.int32[::1]
flags1 = types.boolean[::1]


@njit(u64(source1, i64, i64), cache=True)
def hash_bytes(data, start, end):  # type: ignore[no-untyped-def]
    h = u64(0xCBF29CE484222325) ^ u64(end - start)
    for i in range(start, end):
        h = (h ^ u64(data[i])) * u64(0x100000001B3)
    h ^= h >> u64(29)
    h *= u64(0xFF51AFD7ED558CCD)
    return h ^ (h >> u64(32))


@njit(i64(words1, bytes1, slots1, source1, i64, i64), cache=True)
def find_bytes(offsets, data, table, source, start, end):  # type: ignore[no-untyped-def]
    """The id of source[start:end], or -1 - position of the free table entry."""
    mask = u64(table.shape[0] - 1)
    at = hash_bytes(source, start, end) & mask
    length = end - start
    while True:
        known = i64(table[at])
        if known < 0:
            return -1 - i64(at)
        begin = offsets[known]
        if offsets[known + 1] - begin == length:
            same = True
            for i in range(length):
                if data[begin + i] != source[start + i]:
                    same = False
                    break
            if same:
                return known
        at = (at + u64(1)) & mask


@njit(i64(words1, bytes1, slots1, words1, words1, source1, flags1, words1, i64, flags1), cache=True)
def intern_batch(offsets, data, table, meta, source_offsets, source, valid, out, start, add):  # type: ignore[no-untyped-def]
    """out[i] = id of the i-th string, 0 where NULL; new strings get the next ids if add[0], else -1.
    Returns the first i not done for want of room."""
    for i in range(start, out.shape[0]):
        if not valid[i]:
            out[i] = 0
            continue
        begin, end = source_offsets[i], source_offsets[i + 1]
        known = find_bytes(offsets, data, table, source, begin, end)
        if known < 0:
            if not add[0]:
                out[i] = -1
                continue
            used = meta[USED]
            if used + 1 >= offsets.shape[0] or 2 * used >= table.shape[0]:
                return i
            if offsets[used] + (end - begin) > data.shape[0]:
                return i
            table[-1 - known] = np.int32(used)
            at = offsets[used]
            for b in range(begin, end):
                data[at + b - begin] = source[b]
            offsets[used + 1] = at + end - begin
            meta[USED] = used + 1
            known = used
        out[i] = known
    return i64(out.shape[0])


@njit(void(words1, bytes1, slots1, i64), cache=True)
def rebuild_strings(offsets, data, table, used):  # type: ignore[no-untyped-def]
    mask = u64(table.shape[0] - 1)
    for known in range(used):
        at = hash_bytes(data, offsets[known], offsets[known + 1]) & mask
        while table[at] >= 0:
            at = (at + u64(1)) & mask
        table[at] = np.int32(known)


@njit(void(words1, bytes1, slots1, i64, i64), cache=True)
def forget_strings(offsets, data, table, first, used):  # type: ignore[no-untyped-def]
    """Newest first, as they went in last: see kernels.forget_last."""
    mask = u64(table.shape[0] - 1)
    for back in range(used - first):
        known = used - 1 - back
        at = hash_bytes(data, offsets[known], offsets[known + 1]) & mask
        while i64(table[at]) != known:
            at = (at + u64(1)) & mask
        table[at] = np.int32(-1)


@njit(i64(words1, words1, flags1, slots1), cache=True)
def decoded_offsets(offsets, ids, valid, out):  # type: ignore[no-untyped-def]
    """Arrow offsets of the strings; returns how many rows fit into 2^31 - 1 bytes."""
    total = i64(0)
    out[0] = 0
    for i in range(ids.shape[0]):
        if valid[i]:
            total += offsets[ids[i] + 1] - offsets[ids[i]]
        if total > 0x7FFFFFFF:
            return i64(i)
        out[i + 1] = np.int32(total)
    return i64(ids.shape[0])


@njit(void(words1, bytes1, words1, flags1, slots1, bytes1), cache=True)
def decode_bytes(offsets, data, ids, valid, out_offsets, out):  # type: ignore[no-untyped-def]
    for i in range(ids.shape[0]):
        if valid[i]:
            begin = offsets[ids[i]]
            at = out_offsets[i]
            for b in range(offsets[ids[i] + 1] - begin):
                out[at + b] = data[begin + b]


def _grown(array: np.ndarray, size: int) -> np.ndarray:
    new = np.zeros(size, array.dtype)
    new[: len(array)] = array
    return new


class StringTable:
    def __init__(self) -> None:
        self.offsets = np.zeros(_FIRST + 1, np.int64)
        self.data = np.zeros(_FIRST * 16, np.uint8)
        self.table = np.full(2 * _FIRST, -1, np.int32)
        self.meta = np.zeros(2, np.int64)

    def __len__(self) -> int:
        return int(self.meta[USED])

    @property
    def bytes(self) -> int:
        return self.offsets.nbytes + self.data.nbytes + self.table.nbytes

    def intern(self, offsets: np.ndarray, data: np.ndarray, valid: np.ndarray, add: bool = True) -> np.ndarray:
        """Ids of strings given as in Arrow (offsets as int64). Without ``add`` an unknown string is -1."""
        out = np.empty(len(offsets) - 1, np.int64)
        flag = np.array([add])
        done = 0
        while True:
            done = intern_batch(self.offsets, self.data, self.table, self.meta, offsets, data, valid, out, done, flag)
            if done == len(out):
                return out
            used = len(self)
            if used + 1 >= len(self.offsets):
                self.offsets = _grown(self.offsets, 2 * len(self.offsets))
            if 2 * used >= len(self.table):
                self.table = np.full(2 * len(self.table), -1, np.int32)
                rebuild_strings(self.offsets, self.data, self.table, used)
            needed = int(self.offsets[used] + offsets[done + 1] - offsets[done])
            if needed > len(self.data):
                self.data = _grown(self.data, max(2 * len(self.data), needed))

    def intern_values(self, values: list[builtins.bytes], add: bool = True) -> np.ndarray:
        offsets = np.cumsum([0] + [len(v) for v in values]).astype(np.int64)
        return self.intern(offsets, np.frombuffer(b"".join(values), np.uint8), np.ones(len(values), np.bool_), add)

    def value(self, known: int) -> builtins.bytes:
        return self.data[int(self.offsets[known]) : int(self.offsets[known + 1])].tobytes()

    def decode(self, ids: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(int32 offsets, bytes) of an Arrow binary array; NULL rows are empty. At most 2^31 - 1 bytes a batch."""
        offsets = np.empty(len(ids) + 1, np.int32)
        if decoded_offsets(self.offsets, ids, valid, offsets) < len(ids):
            raise OverflowError("a batch of strings exceeds 2 GiB")
        out = np.empty(int(offsets[-1]), np.uint8)
        decode_bytes(self.offsets, self.data, ids, valid, offsets, out)
        return offsets, out

    def text(self, id_: int) -> str:
        """One string, to be shown: bytes that are no text are escaped."""
        begin, end = int(self.offsets[id_]), int(self.offsets[id_ + 1])
        return self.data[begin:end].tobytes().decode("utf-8", "backslashreplace")

    # -- batches -----------------------------------------------------------------------------------------------------
    def begin_batch(self) -> None:
        self.meta[START] = self.meta[USED]

    def undo(self) -> None:
        first = int(self.meta[START])
        forget_strings(self.offsets, self.data, self.table, first, len(self))
        self.meta[USED] = first

    def added(self) -> tuple[np.ndarray, np.ndarray]:
        """(offsets, data) of the strings new in this batch."""
        first, used = int(self.meta[START]), len(self)
        offsets = self.offsets[first : used + 1]
        return offsets - offsets[0], self.data[int(offsets[0]) : int(offsets[-1])]

    # -- checkpoints -------------------------------------------------------------------------------------------------
    def arrays(self, prefix: str) -> dict[str, tuple[np.ndarray, int]]:
        used = len(self)
        return {
            f"{prefix}.offsets": (self.offsets, used + 1),
            f"{prefix}.data": (self.data, int(self.offsets[used])),
            f"{prefix}.table": (self.table, len(self.table)),
            f"{prefix}.meta": (self.meta, len(self.meta)),
        }

    def load(self, prefix: str, arrays: dict[str, np.ndarray]) -> None:
        for name in ("offsets", "data", "table", "meta"):
            setattr(self, name, arrays[f"{prefix}.{name}"])
