"""Incremental views for Spark SQL: ``CREATE INCREMENTAL VIEW v AS SELECT …``, then query ``v`` like a table.

Spark imports every top-level module named ``pyspark_*`` by itself: this module imports nothing heavy and never fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_ivm._version import __version__

if TYPE_CHECKING:
    from pyspark_ivm.errors import IvmError
    from pyspark_ivm.session import check, configure, jar_path

#: The class to name in ``spark.sql.extensions``.
EXTENSION = "org.apache.spark.sql.ivm.IncrementalViewExtensions"

#: Public name -> module that defines it, imported at first use.
_HOMES = {"check": "session", "configure": "session", "jar_path": "session", "IvmError": "errors"}

__all__ = ["EXTENSION", "IvmError", "__version__", "check", "configure", "jar_path"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
