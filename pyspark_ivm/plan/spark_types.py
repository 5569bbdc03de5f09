"""What the planner must know of Spark's types: how they travel, how they compare, which integers they can hold.

Types are Spark's ``simpleString``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pyspark_ivm.plan.block import SlotKind

#: Decimals up to this precision are one int64 word on the wire, wider ones two.
WORD_DECIMAL_PRECISION = 18
MAX_DECIMAL_PRECISION = 38

_INTEGER_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
#: Decimal digits that hold every value of an integer type (Spark's DecimalType.forType).
_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_WORDS = {"boolean", "date", "timestamp", "timestamp_ntz", "timestamp_ltz", *_INTEGER_BITS}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)$")


class Decimal(NamedTuple):
    precision: int
    scale: int


def decimal(type_: str) -> Decimal | None:
    m = _DECIMAL.match(type_)
    return Decimal(int(m[1]), int(m[2])) if m else None


def is_integer(type_: str) -> bool:
    return type_ in _INTEGER_BITS


def integer_bound(type_: str) -> int:
    """The largest absolute value of an integer type."""
    return 1 << _INTEGER_BITS[type_]


def integer_digits(type_: str) -> int:
    return _INTEGER_DIGITS[type_]


def is_float(type_: str) -> bool:
    return type_ in ("float", "double")


def is_summable(type_: str) -> bool:
    return is_integer(type_) or is_float(type_) or decimal(type_) is not None


def key_columns(type_: str) -> tuple[SlotKind, ...] | None:
    """The wire columns of a value that joins, groups or is carried; None if the wire does not carry the type."""
    d = decimal(type_)
    if d is not None:
        return ("word",) if d.precision <= WORD_DECIMAL_PRECISION else ("word", "word")
    if type_ in _WORDS or is_float(type_) or type_.startswith(("interval ", "time(")) or type_ == "time":
        return ("word",)
    if type_ in ("string", "binary") or type_.startswith(("string collate ", "char(", "varchar(")):
        return ("bytes",)
    return None


def compares_by_bytes(type_: str) -> bool:
    """Equal values have equal wire columns: false for collated strings and for types the wire does not carry."""
    return key_columns(type_) is not None and not type_.startswith("string collate ")


def value_columns(type_: str) -> tuple[SlotKind, ...]:
    """The wire columns of an aggregate's input."""
    if is_float(type_):
        return ("double",)
    columns = key_columns(type_)
    assert columns is not None, type_
    return columns
