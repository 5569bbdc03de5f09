"""The tables of the oracle tests: three table sets, their columns, seeded random rows, and their SQL literals.

Rows with the same ``id`` are always identical copies, so a DELETE by id has one meaning on every kind of source and
bags with duplicates still occur in every query that reads them. Doubles carry NaN, infinities and -0.0; every column
but ``id`` carries NULLs unless a query's point needs it not to.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Row = tuple[Any, ...]
Draw = Callable[[np.random.Generator], Any]

NULL_SHARE = 0.12
EPOCH = dt.datetime(2024, 1, 1)


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    draw: Draw


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    initial_rows: int = 30
    delta: bool = True  # Delta has no interval types
    repair: Callable[[dict[str, Any]], None] | None = None  # ties columns of a row together

    @property
    def column_names(self) -> list[str]:
        return ["id", *(c.name for c in self.columns)]

    def declaration(self) -> str:
        return ", ".join(["id INT", *(f"{c.name} {c.type}" for c in self.columns)])

    def random_row(self, identity: int, random: np.random.Generator) -> Row:
        values = {c.name: c.draw(random) for c in self.columns}
        if self.repair:
            self.repair(values)
        return (identity, *values.values())

    def literal(self, row: Row) -> str:
        typed = [str(row[0]), *(sql_literal(v, c.type) for v, c in zip(row[1:], self.columns, strict=True))]
        return "(" + ", ".join(typed) + ")"


def sql_literal(value: Any, sql_type: str) -> str:
    """The value as Spark SQL text; every literal reads back as the same value of exactly that type."""
    if value is None:
        return f"CAST(NULL AS {sql_type})"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, dt.datetime):
        keyword = "TIMESTAMP_NTZ" if sql_type == "TIMESTAMP_NTZ" else "TIMESTAMP"
        return f"{keyword}'{value.isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE'{value.isoformat()}'"
    if sql_type.startswith("INTERVAL"):
        return f"CAST('{value}' AS {sql_type})"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"CAST('{value!r}' AS {sql_type})" if isinstance(value, float) else f"CAST('{value}' AS {sql_type})"


def nullable(draw: Draw, share: float = NULL_SHARE) -> Draw:
    return lambda random: None if random.random() < share else draw(random)


def integer(low: int, high: int) -> Draw:
    return lambda random: int(random.integers(low, high + 1))


def choice(*values: Any) -> Draw:
    return lambda random: values[int(random.integers(len(values)))]


def rarely(special: Draw, draw: Draw, share: float = 0.08) -> Draw:
    return lambda random: special(random) if random.random() < share else draw(random)


def money(low: float, high: float, scale: int) -> Draw:
    step = decimal.Decimal(1).scaleb(-scale)
    return lambda random: decimal.Decimal(repr(float(random.uniform(low, high)))).quantize(step)


def real(low: float, high: float) -> Draw:
    return lambda random: float(random.uniform(low, high))


def single(low: float, high: float) -> Draw:
    # Multiples of 1/64 are exact floats, so the literal reads back as itself.
    return lambda random: float(np.round(random.uniform(low, high) * 64) / 64)


def day(span: int) -> Draw:
    return lambda random: (EPOCH + dt.timedelta(days=int(random.integers(span)))).date()


def moment(span: int) -> Draw:
    return lambda random: (
        EPOCH + dt.timedelta(seconds=int(random.integers(span)), microseconds=int(random.integers(10**6)))
    )


SPECIAL_DOUBLES = choice(float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e15, 5e-324)
WORDS = choice("", "a", "b", "ä", "日本", "😀", " a", "A", "a'b\\c", "zz")

K = nullable(integer(0, 5))  # join keys: small domain, so that every row meets some partner


def _c(name: str, sql_type: str, draw: Draw) -> Column:
    return Column(name, sql_type, draw)


def _decimal_extreme(precision: int, scale: int) -> Draw:
    largest = decimal.Decimal(10**precision - 1).scaleb(-scale, decimal.Context(prec=60))
    return choice(largest, largest.copy_negate(), decimal.Decimal(0))  # unary minus would round to 28 digits


TYPES = (
    Table(
        "f",
        (
            _c("k1", "INT", K),
            _c("k2", "BIGINT", K),
            _c("ks", "STRING", nullable(choice("", "a", "ä", "日本"))),
            _c("i1", "TINYINT", nullable(rarely(choice(-128, 127), integer(-20, 20)))),
            _c("i2", "SMALLINT", nullable(rarely(choice(-32768, 32767), integer(-500, 500)))),
            _c("i4", "INT", nullable(rarely(choice(-(2**31), 2**31 - 1), integer(-1000, 1000)))),
            _c("i8", "BIGINT", nullable(rarely(choice(-(2**63), 2**63 - 1), integer(-(10**6), 10**6)))),
            _c("d9", "DECIMAL(9,2)", nullable(rarely(_decimal_extreme(9, 2), money(-1000, 1000, 2)))),
            _c("d18", "DECIMAL(18,4)", nullable(rarely(_decimal_extreme(18, 4), money(-1000, 1000, 4)))),
            _c("d30", "DECIMAL(30,6)", nullable(rarely(_decimal_extreme(30, 6), money(-1000, 1000, 6)))),
            _c("d38", "DECIMAL(38,10)", nullable(money(-1000, 1000, 10))),
            _c("fl", "FLOAT", nullable(rarely(choice(float("nan"), float("inf"), -0.0), single(-100, 100)))),
            _c("db", "DOUBLE", nullable(rarely(SPECIAL_DOUBLES, real(-1000, 1000)))),
            _c("s", "STRING", nullable(WORDS)),
            _c("b", "BINARY", nullable(choice(b"", b"\x00", b"\x00\xff", b"ab"))),
            _c("bo", "BOOLEAN", nullable(choice(True, False))),
            _c("d", "DATE", nullable(day(6))),
            _c("ts", "TIMESTAMP", nullable(moment(10**6))),
            _c("tn", "TIMESTAMP_NTZ", nullable(moment(10**6))),
        ),
        initial_rows=40,
    ),
    Table(
        "g",
        (
            _c("k1", "SMALLINT", K),
            _c("ks", "STRING", nullable(choice("", "a", "ä", "日本"))),
            _c("kdb", "DOUBLE", nullable(choice(0.0, -0.0, 1.5, float("nan"), float("inf")))),
            _c("d", "DATE", nullable(day(6))),
            _c("x", "INT", nullable(integer(-9, 9))),
            _c("r", "DECIMAL(9,2)", nullable(money(0, 10, 2))),
            _c("y", "DOUBLE", nullable(real(-10, 10))),
            _c("grp", "STRING", nullable(choice("p", "q", "", "ß"))),
            _c("num", "STRING", nullable(choice("1", "2", "30"))),
        ),
        initial_rows=14,
        repair=lambda row: row.update(num="not a number") if row["k1"] is None else None,
    ),
    Table(
        "h",
        (
            _c("k2", "INT", K),
            _c("b", "BINARY", nullable(choice(b"", b"\x00", b"\x00\xff", b"ab"))),
            _c("bo", "BOOLEAN", nullable(choice(True, False))),
            _c("wgt", "DECIMAL(18,4)", nullable(money(0, 100, 4))),
            _c("nm", "STRING", nullable(WORDS)),
            # Positive only: whether a sum overflows must not depend on the order in which Spark adds.
            _c("big", "BIGINT", nullable(rarely(choice(2**62, 2**62 + 5), integer(0, 1000), 0.1))),
            _c("huge", "DECIMAL(38,10)", nullable(rarely(choice(decimal.Decimal("6e27")), money(0, 1000, 10), 0.1))),
        ),
        initial_rows=16,
    ),
    Table(
        "iv",
        (
            _c("k1", "INT", K),
            _c("ym", "INTERVAL YEAR TO MONTH", nullable(choice("0-0", "1-2", "-3-4", "10-11"))),
            _c(
                "dy",
                "INTERVAL DAY TO SECOND",
                nullable(choice("0 00:00:00", "1 02:03:04.5", "-5 06:07:08", "9 00:00:01")),
            ),
            _c("tn", "TIMESTAMP_NTZ", nullable(moment(10))),
        ),
        initial_rows=12,
        delta=False,
    ),
)


def _dead_division(row: dict[str, Any]) -> None:
    # z is 0 exactly in rows whose key b never meets a partner.
    row["z"] = 0 if row["b"] is None or row["b"] < 0 else (row["z"] or 3)


N = nullable(integer(0, 7), 0.06)
GRAPH = (
    Table(
        "r",
        (
            _c("a", "INT", N),
            _c("b", "INT", nullable(rarely(choice(-1, -2), integer(0, 7)), 0.06)),
            _c("v", "INT", nullable(integer(-50, 50))),
            _c("z", "INT", integer(1, 4)),
            _c("x", "DECIMAL(9,2)", nullable(money(-100, 100, 2))),
        ),
        repair=_dead_division,
    ),
    Table(
        "s",
        (
            _c("b", "INT", N),
            _c("c", "BIGINT", N),
            _c("v", "INT", nullable(integer(0, 20))),
            _c("x", "DECIMAL(9,2)", nullable(money(0, 10, 2))),
            _c("tag", "STRING", nullable(choice("red", "green", "", "blau"))),
        ),
        initial_rows=24,
    ),
    Table(
        "t",
        (
            _c("c", "INT", N),
            _c("d", "SMALLINT", N),
            _c("v", "INT", nullable(integer(-5, 5))),
            _c("y", "DOUBLE", nullable(rarely(SPECIAL_DOUBLES, real(-5, 5), 0.04))),
        ),
        initial_rows=20,
    ),
    Table("u", (_c("d", "BIGINT", N), _c("e", "INT", N), _c("v", "BIGINT", nullable(integer(0, 9)))), initial_rows=16),
    Table(
        "edge",
        (_c("src", "INT", N), _c("dst", "INT", N), _c("cost", "DECIMAL(9,2)", nullable(money(0, 9, 2)))),
        initial_rows=20,
    ),
)

SHOP = (
    Table(
        "customer",
        (
            _c("ck", "INT", integer(0, 9)),
            _c("segment", "STRING", nullable(choice("AUTO", "HOME", "ß", ""))),
            _c("nk", "INT", nullable(integer(0, 4))),
            _c("bal", "DECIMAL(12,2)", nullable(money(-999, 9999, 2))),
        ),
        initial_rows=12,
    ),
    Table(
        "orders",
        (
            _c("ok", "BIGINT", nullable(integer(0, 24), 0.04)),
            _c("ck", "INT", nullable(integer(0, 11))),
            _c("odate", "DATE", nullable(day(12))),
            _c("prio", "STRING", nullable(choice("1-HIGH", "2-LOW"))),
            _c("total", "DECIMAL(12,2)", nullable(money(0, 5000, 2))),
        ),
        initial_rows=25,
    ),
    Table(
        "lineitem",
        (
            _c("ok", "BIGINT", nullable(integer(0, 24), 0.04)),
            _c("pk", "INT", nullable(integer(0, 7))),
            _c("nk", "INT", nullable(integer(0, 4))),
            _c("qty", "INT", nullable(integer(1, 50))),
            _c("price", "DECIMAL(12,2)", nullable(money(1, 900, 2))),
            _c("disc", "DECIMAL(4,2)", nullable(money(0, 0.1, 2))),
            _c("ship", "DATE", nullable(day(12))),
        ),
        initial_rows=50,
    ),
    Table(
        "part",
        (
            _c("pk", "INT", integer(0, 8)),
            _c("brand", "STRING", nullable(choice("B1", "B2", "B3"))),
            _c("cost", "DECIMAL(9,2)", nullable(money(1, 90, 2))),
            _c("size", "SMALLINT", nullable(integer(1, 9))),
        ),
        initial_rows=10,
    ),
    Table(
        "nation",
        (
            _c("nk", "INT", integer(0, 4)),
            _c("nname", "STRING", nullable(choice("FR", "DE", "日本"))),
            _c("rk", "INT", nullable(integer(0, 2))),
        ),
        initial_rows=6,
    ),
    Table(
        "region", (_c("rk", "INT", integer(0, 2)), _c("rname", "STRING", nullable(choice("EU", "AS")))), initial_rows=3
    ),
)

TABLE_SETS: dict[str, tuple[Table, ...]] = {"types": TYPES, "graph": GRAPH, "shop": SHOP}
