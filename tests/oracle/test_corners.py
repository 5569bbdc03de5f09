"""Corners that random data meets too seldom: errors that come and go, tables that become empty, groups that vanish.

Tables with a weight column and one that is rewritten: no Delta needed. Each statement of a story is followed by the same
check as in the oracle: the view answers, or raises, as Spark does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

#: The limit keeps Spark from filtering below the sum, where rows still are that others take back.
BAG = (
    "SELECT {columns} FROM (SELECT {columns}, sum(w) AS n FROM corners.{table} "
    "GROUP BY {columns} HAVING sum(w) > 0 LIMIT 1000000) "
    "LATERAL VIEW explode(array_repeat(0, CAST(n AS INT))) AS copy"
)


class Stage:
    """Tables a(k, v, t) and b(k, x) with weights, c(k, y) of files that are rewritten; the truth beside them."""

    def __init__(self, spark: Any, partitions: int) -> None:
        self.spark, self.views = spark, dict[str, str]()
        self.sql(f"SET spark.sql.ivm.statePartitions={partitions}")
        for schema in ("corners", "corners_truth"):
            self.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
            self.sql(f"CREATE SCHEMA {schema}")
        for table, columns in (("a", "k INT, v INT, t STRING"), ("b", "k INT, x INT")):
            self.sql(
                f"CREATE TABLE corners.{table} ({columns}, w BIGINT) USING parquet "
                "TBLPROPERTIES ('ivm.weightColumn' = 'w')"
            )
            names = ", ".join(c.split()[0] for c in columns.split(", "))
            self.sql(f"CREATE VIEW corners_truth.{table} AS {BAG.format(columns=names, table=table)}")
        self.sql("CREATE TABLE corners.c (k INT, y INT) USING parquet")
        self.sql("CREATE VIEW corners_truth.c AS SELECT * FROM corners.c")
        self.sql("INSERT INTO corners.a VALUES (1, 10, '1', 1), (2, 20, '2', 2), (NULL, 3, NULL, 1)")
        self.sql("INSERT INTO corners.b VALUES (1, 5, 1), (2, 6, 1), (3, 7, 1)")
        self.sql("INSERT INTO corners.c VALUES (1, 100), (2, 200), (2, 201)")

    def sql(self, text: str) -> list[Any]:
        return self.spark.sql(text).collect()

    def close(self) -> None:
        self.sql("USE default")
        for view in self.views:
            self.sql(f"DROP INCREMENTAL VIEW IF EXISTS corners.{view}")
        for schema in ("corners_truth", "corners"):
            self.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        self.sql("RESET spark.sql.ivm.statePartitions")

    def create(self, **queries: str) -> None:
        self.sql("USE corners")
        for name, query in queries.items():
            self.sql(f"CREATE INCREMENTAL VIEW corners.{name} REFRESH POLICY INCREMENTAL AS {query}")
            self.views[name] = query

    def answer(self, text: str, schema: str) -> Counter[Any] | str:
        self.sql(f"USE {schema}")
        try:
            return Counter(tuple(row) for row in self.sql(text))
        except Exception as error:
            get = getattr(error, "getCondition", None)
            return (get() if get else None) or type(error).__name__

    def check(self, *also: str) -> None:
        """``also``: reads of a view, with the view's name in braces, compared with the same read of its query."""
        for text in (*(f"SELECT * FROM {{{name}}}" for name in self.views), *also):
            view = text.format(**{name: f"corners.{name}" for name in self.views})
            truth = text.format(**{name: f"({query})" for name, query in self.views.items()})
            expected, found = self.answer(truth, "corners_truth"), self.answer(view, "corners")
            assert found == expected, f"{text}: {found} instead of {expected}"


@pytest.fixture(params=[1, 4], ids=["one partition", "four partitions"])
def stage(spark: Any, request: pytest.FixtureRequest) -> Iterator[Stage]:
    made = Stage(spark, request.param)
    yield made
    made.close()


ERRORS = {
    "in_sum": "SELECT a.k, sum(60 div (a.v - 50)) AS s, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k",
    "in_filter": "SELECT a.k, b.x FROM a JOIN b ON a.k = b.k WHERE 60 div (a.v - 50) < 100",
    "in_key": "SELECT a.v, b.x FROM a JOIN b ON CAST(a.t AS INT) = b.k",
}


@pytest.mark.slow
def test_errors_come_and_go(stage: Stage) -> None:
    stage.create(**ERRORS)
    stage.check()
    stage.sql("INSERT INTO corners.a VALUES (9, 50, '9', 1)")  # dead: raises in the filter, not in the sum
    stage.check()
    stage.sql("INSERT INTO corners.a VALUES (2, 50, 'x', 2)")  # live: raises everywhere
    stage.check()
    stage.sql("INSERT INTO corners.a VALUES (2, 50, 'x', -2)")
    stage.check()
    stage.sql("INSERT INTO corners.a VALUES (9, 50, '9', -1)")
    stage.check()


EMPTY = {
    "total": "SELECT count(*) AS n, sum(a.v) AS v, avg(c.y) AS y FROM a JOIN c ON a.k = c.k",
    "product": "SELECT count(*) AS n, sum(a.v * c.y) AS p FROM a JOIN c ON a.k = c.k",
    "ends": "SELECT a.t, c.y, count(*) AS n FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k GROUP BY a.t, c.y",
    "by_tag": "SELECT a.t, sum(c.y) AS y FROM a JOIN c ON a.k = c.k GROUP BY a.t",
    "listed": "SELECT a.t, c.y FROM a JOIN c ON a.k = c.k",
}

READS = (
    "SELECT y FROM {by_tag}",
    "SELECT count(*) FROM {by_tag}",
    "SELECT n FROM {ends}",
    "SELECT y FROM {ends} WHERE t = '2'",
    "SELECT t FROM {listed} WHERE y >= 200",
)


@pytest.mark.slow
def test_tables_become_empty_and_come_back(stage: Stage) -> None:
    stage.create(**EMPTY)
    steps: list[Callable[[], Any]] = [
        lambda: None,
        lambda: stage.sql("INSERT INTO corners.a VALUES (2, 20, '2', -1), (1, 11, '2', 1), (1, 0, '', 1)"),
        lambda: stage.sql("TRUNCATE TABLE corners.c"),
        lambda: stage.sql("INSERT OVERWRITE corners.c VALUES (2, 7), (1, 8), (1, 8)"),
        lambda: stage.sql("INSERT INTO corners.a SELECT k, v, t, -sum(w) FROM corners.a GROUP BY k, v, t"),
        lambda: stage.sql("INSERT INTO corners.a VALUES (1, 1, 'z', 3)"),
    ]
    for step in steps:
        step()
        stage.check(*READS)
