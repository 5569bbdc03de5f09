"""Array files (``.ivm``): a JSON header and raw little-endian arrays, 64-byte aligned, so that reading is mapping.

    magic (8) · header length (8) · header JSON · zeros to 64 · arrays, each aligned to 64

An array is stored with its capacity but only its rows in use are written (the rest is a hole), so a mapped relation
has room to grow in place. The header holds each array's checksum and the file's checksum is the header's: one number
vouches for all. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pyspark_ivm.index import vectors
from pyspark_ivm.state import faults

MAGIC = b"PSPKIVM\n"
FORMAT = 3
_ALIGN = 64
_BUFFER = 1 << 16  # a small change is one write
_DTYPES = {"int64": np.int64, "int32": np.int32, "uint8": np.uint8}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
assert sys.byteorder == "little", "array files are little-endian and mapped as they are"


class StateDamaged(Exception):
    """A state file is missing, cut, altered, or of another plan or a newer format."""


def checksum_bytes(data: np.ndarray) -> int:
    flat = data.reshape(-1).view(np.uint8)
    whole = len(flat) // 8 * 8
    tail = int.from_bytes(flat[whole:].tobytes(), "little")
    return int(vectors.checksum(flat[:whole].view(np.uint64), np.uint64(tail ^ len(flat))))


def _aligned(n: int) -> int:
    return -(-n // _ALIGN) * _ALIGN


def _fsync_directory(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _like_parent(path: str, mask: int) -> None:
    """New directories and files are for whom the directory above them is for: ``LocalPath.createDirectories`` of the shim."""
    with contextlib.suppress(OSError):
        os.chmod(path, stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) & mask)


def _make_directories(path: str) -> None:
    if not os.path.isdir(path):
        _make_directories(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
            _like_parent(path, 0o7777)


def write(
    path: Path,
    kind: str,
    plan_hash: str,
    arrays: dict[str, tuple[np.ndarray, int]],
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write atomically; returns {"length", "checksum"}. ``arrays``: name → (array, rows in use)."""
    entries: list[dict[str, Any]] = []
    at = 0
    for name, (array, used) in arrays.items():
        entries.append({
            "name": name, "dtype": _NAMES[array.dtype], "shape": list(array.shape), "used": used, "offset": at,
            "checksum": f"{checksum_bytes(np.ascontiguousarray(array[:used])):016x}",
        })  # fmt: skip
        at += _aligned(array.nbytes)
    header = json.dumps(
        {"format": FORMAT, "kind": kind, "plan": plan_hash, "arrays": entries, **(extra or {})}
    ).encode()
    base = _aligned(16 + len(header))
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.{os.getpid()}.tmp")
    try:
        file = open(temporary, "wb", buffering=_BUFFER)  # noqa: SIM115  (closed by the `with` below)
    except FileNotFoundError:
        _make_directories(directory)
        file = open(temporary, "wb", buffering=_BUFFER)  # noqa: SIM115
    try:
        with file:
            faults.at("file.begin")
            _like_parent(temporary, 0o666)
            end = file.write(MAGIC + len(header).to_bytes(8, "little") + header)
            for entry, (array, used) in zip(entries, arrays.values(), strict=True):
                part = np.ascontiguousarray(array[:used])
                if part.nbytes:
                    gap = base + entry["offset"] - end
                    if gap > _ALIGN:  # a hole: room to grow
                        file.seek(gap, os.SEEK_CUR)
                    else:
                        file.write(bytes(gap))
                    end += gap + file.write(part.data.cast("B"))
            file.flush()
            faults.at("file.half")
            if end < base + at:
                file.truncate(base + at)
            os.fsync(file.fileno())
        faults.at("file.written")
        os.replace(temporary, path)
        faults.at("file.renamed")
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _fsync_directory(directory)
    return {"length": base + at, "checksum": f"{checksum_bytes(np.frombuffer(header, np.uint8)):016x}"}


def read(path: Path, length: int, checksum: str, plan_hash: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(header, arrays): verified, mapped copy-on-write. Raises StateDamaged."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != length or size < 16:
                raise StateDamaged(f"{path}: {size} bytes, expected {length}")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as e:
        raise StateDamaged(f"{path}: {e.strerror}") from e
    if mapped[:8] != MAGIC:
        raise StateDamaged(f"{path}: not an array file")
    header_length = int.from_bytes(mapped[8:16], "little")
    text = mapped[16 : 16 + header_length]
    if f"{checksum_bytes(np.frombuffer(text, np.uint8)):016x}" != checksum:
        raise StateDamaged(f"{path}: the checksum of the header differs")
    header = json.loads(text)
    if header["format"] != FORMAT:
        raise StateDamaged(f"{path}: format {header['format']} is not the one this version reads ({FORMAT})")
    if header["plan"] != plan_hash:
        raise StateDamaged(f"{path}: written for another plan")
    base = _aligned(16 + header_length)
    arrays = {}
    for entry in header["arrays"]:
        shape, dtype = entry["shape"], _DTYPES[entry["dtype"]]
        count = int(np.prod(shape))
        if count:
            array = np.frombuffer(mapped, dtype, count, base + entry["offset"]).reshape(shape)
        else:
            array = np.zeros(shape, dtype)
        if f"{checksum_bytes(array[: entry['used']]):016x}" != entry["checksum"]:
            raise StateDamaged(f"{path}: the checksum of {entry['name']} differs")
        arrays[entry["name"]] = array
    return header, arrays
