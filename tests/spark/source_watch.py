"""Drives one change source the way a refresh does, and checks its law after every step."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession

WEIGHT = "_ivm_weight"


def scala_option(jvm: Any, value: Any) -> Any:
    return jvm.scala.Option.apply(value)


def leaf(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed().collectLeaves().head()


def cell(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and value != value else value


def bag_of(frame: DataFrame) -> Counter:
    return Counter(tuple(cell(v) for v in row) for row in frame.collect())


class Watch:
    """A source and the last version seen. `step` takes the next one: held + changes must be the table now."""

    def __init__(self, spark: SparkSession, query: str, drop: tuple[int, ...] = ()) -> None:
        self.spark, self.query = spark, query
        relation = leaf(spark.sql(query))
        self.width = relation.output().size()
        self.source = spark._jvm.org.apache.spark.sql.ivm.source.ChangeSources.of(spark._jsparkSession, relation)
        self.token = self.current()
        self.held = self.signed(self.source.snapshot(scala_option(spark._jvm, self.token)))
        self.rows_read = 0

    @property
    def kind(self) -> str:
        return self.source.kind()

    def current(self) -> Any:
        found = self.source.current()
        return found.get() if found.isDefined() else None

    def signed(self, rows: Any) -> Counter:
        """The signed rows as a bag with weights; the plan must begin with the relation's columns."""
        jframe = self.spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self.spark._jsparkSession, rows.plan())
        frame = DataFrame(jframe, self.spark)
        names = frame.columns
        assert rows.weight().isDefined() == (WEIGHT in names)
        bag: Counter = Counter()
        self.rows_read = 0
        for row in frame.collect():
            weight = row[names.index(WEIGHT)] if WEIGHT in names else 1
            self.rows_read += 1
            bag[tuple(cell(v) for v in row[: self.width])] += weight
        return Counter({row: n for row, n in bag.items() if n})

    def changes(self) -> tuple[Any, Any]:
        now = self.current()
        return now, self.source.changes(self.token, now)

    def step(self) -> str:
        """One refresh. Returns `rows`, `none`, `unmoved`, or the resync code."""
        now = self.current()
        if now.text() == self.token.text():
            assert self.held == self.table(), "the token did not move but the table did"
            return "unmoved"
        changes = self.source.changes(self.token, now)
        name = changes.getClass().getSimpleName()
        if name == "Rows":
            delta = self.signed(changes.rows())
            total = self.held.copy()
            for row, n in delta.items():
                total[row] += n
            held = Counter({row: n for row, n in total.items() if n})
            outcome = "insert-only" if changes.rows().insertOnly() else "rows"
        elif name == "Resync":
            held = self.signed(self.source.snapshot(scala_option(self.spark._jvm, now)))
            outcome = changes.code()
        else:
            held, outcome = self.held, "none"
        assert held == self.table()
        assert held == self.signed(self.source.snapshot(scala_option(self.spark._jvm, now)))
        self.held, self.token = held, now
        return outcome

    def table(self) -> Counter:
        """The table as a fresh analysis reads it, in the columns the source was made for."""
        return bag_of(self.spark.sql(self.query).select(*[f"`{c}`" for c in self.names()]))

    def names(self) -> list[str]:
        frame = self.spark.sql(self.query)
        return frame.columns[: self.width]
