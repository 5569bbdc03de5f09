"""Where compiled kernels live. Law: numba reads its cache directory when it is imported, so this module comes first.

site-packages may be read-only or a zip, so the kernels' machine code goes to a per-user directory. One process per host
compiles while the others wait at a file lock, then load.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import pkgutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

KERNEL_MODULES = ("limbs", "kernels", "chains", "vectors", "strings")


def _writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def _candidates() -> Iterator[Path]:
    if base := os.environ.get("XDG_CACHE_HOME"):
        yield Path(base)
    with contextlib.suppress(RuntimeError):
        yield Path.home() / ".cache"
    user = str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    yield Path(tempfile.gettempdir()) / f"pyspark-ivm-{user}"


@functools.cache
def _sources() -> str:
    """Digest of the kernels' source. numba compares each file alone, but kernels inline functions of other files."""
    digest = hashlib.sha256()
    for name in KERNEL_MODULES:
        digest.update(pkgutil.get_data("pyspark_ivm.index", f"{name}.py") or b"")
    return digest.hexdigest()[:12]


def directory() -> Path:
    """The kernel cache directory: $NUMBA_CACHE_DIR if set, else one keyed by all that machine code depends on."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    key = f"{_sources()}-{python}-numba{metadata.version('numba')}"
    for base in _candidates():
        if _writable(base / "pyspark-ivm" / key):
            return base / "pyspark-ivm" / key
    return Path(tempfile.mkdtemp(prefix="pyspark-ivm-"))


def prepare() -> Path:
    """Tell numba where its cache is; call before the first kernel is defined."""
    path = directory()
    os.environ["NUMBA_CACHE_DIR"] = str(path)
    if "numba" in sys.modules:
        import numba

        numba.config.CACHE_DIR = str(path)
    if not Path(__file__).exists():
        _cache_archived(path)
    return path


@functools.cache
def _cache_archived(path: Path) -> None:
    """numba caches nothing for sources inside a wheel, and for each place of a zip anew; Spark unpacks neither, and
    gives them another place in every application. The directory's name says which sources its content is of."""
    from numba.core import caching

    class Archived(caching._CacheLocator):
        def __init__(self, function: Any) -> None:
            self.line = str(function.__code__.co_firstlineno)

        @classmethod
        def from_function(cls, function: Any, file: str) -> Archived | None:
            return cls(function) if Path(file).parent == Path(__file__).parent else None

        def get_cache_path(self) -> str:
            return str(path)

        def get_source_stamp(self) -> str:
            return _sources()

        def get_disambiguator(self) -> str:
            return self.line

    caching.CacheImpl._locator_classes = [Archived, *caching.CacheImpl._locator_classes]


@contextlib.contextmanager
def _host_lock(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # no flock on this platform: several compilers are wasteful, not wrong
        yield
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle = open(path / "compile.lock", "w")  # noqa: SIM115  (closed by the `with` below)
    except OSError:
        yield
        return
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def warmup() -> Path:
    """Compile or load every kernel; returns the cache directory. Cheap when already loaded in this process."""
    names = [f"pyspark_ivm.index.{name}" for name in KERNEL_MODULES]
    path = prepare()
    if not all(name in sys.modules for name in names):
        import numba  # noqa: F401  (outside the lock: it is the slow import and needs none)

        with _host_lock(path):
            for name in names:
                importlib.import_module(name)
    return path
