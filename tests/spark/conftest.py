"""A schema of its own for each test of the real engine, and the few questions these tests ask."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.conftest import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


def bag(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple("NaN" if isinstance(v, float) and v != v else v for v in row) for row in frame.collect())


class Work(NamedTuple):
    """What a call gave and what it cost: Spark jobs, and rows these read from files."""

    result: Any
    jobs: int
    rows_read: int


class Shop:
    """Tables and views of one test: statements go in, answers come out."""

    def __init__(self, spark: SparkSession, schema: str) -> None:
        self.spark, self.schema = spark, schema

    def sql(self, *statements: str) -> DataFrame:
        for statement in statements[:-1]:
            self.spark.sql(statement)
        return self.spark.sql(statements[-1])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(r) for r in self.spark.sql(query).collect()), key=repr)

    def refresh(self, view: str = "v", full: bool = False) -> Row:
        return self.spark.sql(f"REFRESH INCREMENTAL VIEW {view}{' FULL' if full else ''}").collect()[0]

    def refreshed(self, view: str = "v") -> tuple[int, str, str]:
        row = self.refresh(view)
        return row.version, row.kind, row.reason

    def counted(self, call: Callable[[], Any]) -> Work:
        context, group = self.spark.sparkContext, f"counted {uuid.uuid4()}"
        context.setJobGroup(group, "counted")
        try:
            result = call()
        finally:
            context.setJobGroup("", "")
        scala = context._jsc.sc()
        scala.listenerBus().waitUntilEmpty()
        jobs = [scala.statusStore().job(i) for i in context.statusTracker().getJobIdsForGroup(group)]
        stages = {s for job in jobs for s in map(job.stageIds().apply, range(job.stageIds().size()))}
        return Work(result, len(jobs), sum(scala.statusStore().lastStageAttempt(s).inputRecords() for s in stages))

    def described(self, view: str = "v", extended: str = "") -> dict[str, str]:
        return {r.key: r.value for r in self.sql(f"DESCRIBE {extended} INCREMENTAL VIEW {view}").collect()}

    def history(self, view: str = "v") -> list[Row]:
        return sorted(self.sql(f"DESCRIBE HISTORY INCREMENTAL VIEW {view}").collect(), key=lambda r: r.version)

    def version(self, view: str = "v") -> int:
        return int(self.described(view)["version"])

    def same(self, query: str, view: str = "v") -> None:
        """The view answers like the query, as a bag."""
        assert bag(self.spark.table(view)) == bag(self.spark.sql(query))

    def plan(self, query: str) -> str:
        return self.sql(f"EXPLAIN {query}").collect()[0][0]

    def refused(self, statement: str, condition: str, *said: str) -> str:
        """The statement fails with the typed condition, and its text holds `said`."""
        from pyspark.errors import PySparkException

        with pytest.raises(PySparkException) as error:
            self.sql(statement).collect()
        assert error.value.getCondition() == condition, str(error.value)
        for text in said:
            assert text in str(error.value)
        return str(error.value)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that people install, jar inside."""
    place = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    return next(place.glob("*.whl"))


@pytest.fixture
def shop(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[Shop]:
    schema = "t_" + re.sub(r"\W+", "_", request.node.name)[:60].lower()
    spark.sql(f"CREATE DATABASE {schema}")
    spark.sql(f"USE {schema}")
    yield Shop(spark, schema)
    spark.catalog.clearCache()
    spark.sql(f"USE {schema}")
    for row in spark.sql("SHOW INCREMENTAL VIEWS").collect():
        spark.sql(f"DROP INCREMENTAL VIEW `{row.viewName}`")
    spark.sql("USE default")
    spark.sql(f"DROP DATABASE {schema} CASCADE")


@pytest.fixture
def sales(shop: Shop) -> Shop:
    """Two tables and one view over them: (region, total, n)."""
    shop.sql(
        "CREATE TABLE customers (c INT, region STRING) USING parquet",
        "INSERT INTO customers VALUES (1, 'north'), (2, 'south'), (3, 'north'), (4, NULL)",
        "CREATE TABLE orders (o INT, c INT, amount DECIMAL(9,2)) USING parquet",
        "INSERT INTO orders VALUES (10, 1, 5), (11, 1, 7.5), (12, 2, 1), (13, 4, 2)",
        f"CREATE INCREMENTAL VIEW v AS {SALES}",
    )
    return shop


SALES = "SELECT region, sum(amount) AS total, count(*) AS n FROM orders o JOIN customers c ON o.c = c.c GROUP BY region"
