"""The statements as functions. SQL text only: the same on classic sessions and on Spark Connect.

A view's name is given as in SQL: dots part catalog, schema and view, and a part with other characters stands in
backticks (```shop.`select` ```).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark_ivm.session import check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


def refresh(spark: SparkSession, view: str, *, full: bool = False) -> Row:
    """Refreshes now; one row: view, version, kind, reason, rows_in, rows_changed, duration_ms."""
    return _run(spark, f"REFRESH INCREMENTAL VIEW {quoted(view)}{' FULL' if full else ''}").collect()[0]


def describe(spark: SparkSession, view: str, *, extended: bool = False) -> dict[str, str | None]:
    """Strategy, policy, version, last refresh, sources … by key."""
    rows = _run(spark, f"DESCRIBE {'EXTENDED ' if extended else ''}INCREMENTAL VIEW {quoted(view)}").collect()
    return {row[0]: row[1] for row in rows}


def history(spark: SparkSession, view: str) -> DataFrame:
    """One row a refresh."""
    return _run(spark, f"DESCRIBE HISTORY INCREMENTAL VIEW {quoted(view)}")


def explain(spark: SparkSession, create_statement: str, *, extended: bool = False) -> str:
    """How ``CREATE INCREMENTAL VIEW …`` would be maintained, and why; creates nothing."""
    rows = _run(spark, f"EXPLAIN {'EXTENDED ' if extended else ''}{create_statement}").collect()
    return "\n".join(row[0] for row in rows)


def quoted(name: str) -> str:
    """``name`` with every part in backticks: a part is a quoted text or whatever stands between two dots."""
    parts = re.fullmatch(r"(`(?:[^`]|``)+`|[^`.]+)(\.(`(?:[^`]|``)+`|[^`.]+))*", name)
    if not parts:
        raise ValueError(f"not a view's name: {name!r}")
    found = re.findall(r"`(?:[^`]|``)+`|[^`.]+", name)
    return ".".join(part if part.startswith("`") else f"`{part.strip()}`" for part in found)


def _run(spark: SparkSession, statement: str) -> DataFrame:
    from pyspark.errors import ParseException

    try:
        return spark.sql(statement)
    except ParseException:
        check(spark)  # Without the extension Spark's parser complains of syntax: say what is really missing.
        raise
