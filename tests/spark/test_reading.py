"""The view is a table to everyone who reads: DESIGN §3 "Reading"."""

from __future__ import annotations

import re
import threading

import pytest

from tests.spark.conftest import SALES, Shop, bag


def scans(frame) -> list[str]:
    """The lines of the executed plan that read views."""
    return re.findall(r"IncrementalViewScan .*", frame._jdf.queryExecution().executedPlan().toString())


def test_the_ways_to_read(sales: Shop) -> None:
    sales.same(SALES)
    sales.sql("INSERT INTO orders VALUES (14, 2, 100)")
    assert ("south", 101, 2) in [(r.region, int(r.total), r.n) for r in sales.spark.table("v").collect()]
    sales.sql("INSERT INTO orders VALUES (15, 3, 1)")
    sales.same(SALES, f"spark_catalog.{sales.schema}.v")
    assert sales.rows("SELECT c.c, v.n FROM customers c JOIN v ON c.region = v.region WHERE c.c = 2") == [(2, 2)]
    assert sales.rows("SELECT count(*) FROM customers WHERE region IN (SELECT region FROM v WHERE n > 2)") == [(2,)]
    assert sales.rows("SELECT (SELECT max(n) FROM v)") == [(3,)]
    assert sales.rows("WITH x AS (SELECT * FROM v) SELECT max(a.n + b.n) FROM x a CROSS JOIN x b") == [(6,)]
    assert sales.rows("SELECT n FROM v UNION ALL SELECT -n FROM v ORDER BY 1")[0] == (-1,)
    assert sales.spark.table("v").count() == 3
    assert sales.spark.table("v").toPandas()["n"].sum() == 6


def test_statements_that_read(sales: Shop) -> None:
    sales.sql("INSERT INTO orders VALUES (14, 2, 100)", "CREATE TABLE copy USING parquet AS SELECT * FROM v")
    sales.same(SALES, "copy")
    sales.sql("INSERT INTO orders VALUES (16, 3, 3)", "INSERT OVERWRITE copy SELECT * FROM v")
    sales.same(SALES, "copy")
    sales.sql("CREATE VIEW over AS SELECT region, n * 2 AS twice FROM v", "INSERT INTO orders VALUES (17, 2, 3)")
    assert sales.rows("SELECT twice FROM over WHERE region = 'south'") == [(6,)]
    sales.sql("CREATE OR REPLACE TEMP VIEW many AS SELECT region FROM v WHERE n >= 3")
    assert sales.rows("SELECT * FROM many") == [("north",), ("south",)]
    sales.sql("DROP VIEW many")
    assert ("v",) in [(r.tableName,) for r in sales.sql("SHOW TABLES").collect()]
    assert [r.col_name for r in sales.sql("DESCRIBE v").collect()][:3] == ["region", "total", "n"]
    assert sales.spark.catalog.tableExists("v")
    assert [c.name for c in sales.spark.catalog.listColumns("v")] == ["region", "total", "n"]


def test_two_views_in_one_query(sales: Shop) -> None:
    sales.sql("CREATE INCREMENTAL VIEW w AS SELECT c, count(*) AS n FROM orders GROUP BY c")
    sales.sql("INSERT INTO orders VALUES (14, 2, 100), (15, 4, 1)")
    joined = "SELECT region, sum(w.n) FROM customers c JOIN w ON c.c = w.c GROUP BY region"
    assert sales.rows(joined) == sales.rows("SELECT region, n FROM v")
    assert (sales.version("v"), sales.version("w")) == (1, 1)


def test_looking_at_it_never_refreshes(sales: Shop) -> None:
    sales.sql("INSERT INTO orders VALUES (14, 2, 100)")
    frame = sales.spark.table("v").where("n > 1")
    assert frame.columns == ["region", "total", "n"]
    assert frame.schema["total"].dataType.simpleString() == "decimal(19,2)"
    for mode in ("simple", "extended", "formatted", "cost", "codegen"):
        frame.explain(mode)
    plan = sales.plan("SELECT region FROM v WHERE n > 1 AND region = 'north'")
    sales.sql("DESCRIBE v").collect()
    sales.sql("SHOW CREATE INCREMENTAL VIEW v").collect()
    sales.sql("EXPLAIN REFRESH INCREMENTAL VIEW v").collect()
    sales.sql("EXPLAIN CODEGEN SELECT region FROM v WHERE n > 1").collect()
    assert sales.version() == 0 and len(sales.history()) == 1
    line = re.search(r"IncrementalViewScan .*", plan)
    assert line, plan
    for part in (f"{sales.schema}.v", "version: 0", "strategy: yannakakis", "columns: [region, n]", "= 'north'", "> 1"):
        assert part in line.group(), line.group()
    frame.collect()
    assert sales.version() == 1 and len(sales.history()) == 2


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize(
    "query", ["SELECT * FROM v", "SELECT n, count(*) FROM v GROUP BY n", "SELECT * FROM v ORDER BY n LIMIT 9"]
)
def test_the_same_dataframe_sees_new_data(sales: Shop, adaptive: str, query: str) -> None:
    sales.spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        frame = sales.sql(query)
        for order in range(3):
            assert bag(frame) == bag(sales.sql(query)), f"execution {order}"
            assert frame.toPandas().shape[0] == sales.sql(query).count(), f"toPandas {order}"
            sales.sql(f"INSERT INTO customers VALUES ({50 + order}, 'r{order}')")
            sales.sql(f"INSERT INTO orders VALUES ({order}, {50 + order}, 1), ({order}, {50 + order}, 1)")
            assert len(frame.toPandas()) == sales.sql(query).count()
    finally:
        sales.spark.conf.unset("spark.sql.adaptive.enabled")


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_one_execution_reads_one_version(sales: Shop, adaptive: str) -> None:
    """Another thread inserts and refreshes all the time; both halves of the query must agree."""
    stop = threading.Event()

    def disturb() -> None:
        session = sales.spark.newSession()
        n = 100
        while not stop.is_set():
            session.sql(f"INSERT INTO {sales.schema}.orders VALUES ({n}, 1, 1)")
            session.sql(f"REFRESH INCREMENTAL VIEW {sales.schema}.v").collect()
            n += 1

    sales.spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(4):
            query = "SELECT a.n - b.n, a.n - (SELECT n FROM v WHERE region = 'north') FROM v a JOIN v b ON a.region = b.region WHERE a.region = 'north'"
            assert sales.rows(query) == [(0, 0)]
    finally:
        stop.set()
        thread.join()
        sales.spark.conf.unset("spark.sql.adaptive.enabled")


def test_all_views_of_an_execution_are_pinned_at_once(sales: Shop) -> None:
    """v is read by the first stage, which takes its time; w, by the last one, must not see what came meanwhile."""
    from pyspark.sql.functions import udf

    @udf("bigint")
    def slowly(n: int) -> int:
        import time

        time.sleep(1.5)
        return n

    sales.spark.udf.register("slowly", slowly)
    sales.sql("CREATE INCREMENTAL VIEW w AS SELECT c, count(*) AS n FROM orders GROUP BY c")
    sales.sql("INSERT INTO orders VALUES (14, 2, 100)")
    schema = sales.schema

    def insert_when_pinned() -> None:
        session = sales.spark.newSession()
        while session.sql(f"DESCRIBE INCREMENTAL VIEW {schema}.v").where("key = 'version'").collect()[0].value == "0":
            pass
        session.sql(f"INSERT INTO {schema}.orders VALUES (15, 2, 1), (16, 2, 1)")

    thread = threading.Thread(target=insert_when_pinned)
    thread.start()
    query = (
        "SELECT /*+ BROADCAST(a) */ a.n, w.n FROM (SELECT region, slowly(n) AS n FROM v WHERE region = 'south') a "
        "CROSS JOIN w WHERE w.c = 2"
    )
    try:
        assert sales.rows(query) == [(2, 2)]
    finally:
        thread.join()
    assert sales.rows(query) == [(4, 4)]


def test_exchanges_are_reused(sales: Shop) -> None:
    sales.spark.conf.set("spark.sql.adaptive.enabled", "false")
    sales.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        half = "SELECT n, sum(total) AS s FROM v GROUP BY n"
        frame = sales.sql(f"SELECT * FROM ({half}) a JOIN ({half}) b ON a.s = b.s")
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert "ReusedExchange" in plan, plan
        assert frame.count() == 2
    finally:
        sales.spark.conf.unset("spark.sql.adaptive.enabled")
        sales.spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_columns_filters_and_limit_go_down(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE t (k INT, s STRING, d DATE, x BIGINT) USING parquet",
        "INSERT INTO t SELECT int(id), concat('s', id % 50), date_add(DATE'2024-01-01', int(id % 100)), id FROM range(1000)",
        "CREATE INCREMENTAL VIEW v AS SELECT k, s, d, sum(x) AS total, count(*) AS n FROM t GROUP BY k, s, d",
    )
    cases = {
        "SELECT k FROM v": (1000, "columns: [k]"),
        "SELECT k, total FROM v WHERE k = 17": (1, "= 17"),
        "SELECT k FROM v WHERE s = 's7'": (20, "= 's7'"),
        "SELECT total FROM v WHERE k >= 10 AND k < 15": (5, ">= 10"),
        "SELECT total FROM v WHERE k BETWEEN 3 AND 4": (2, "<= 4"),
        "SELECT total FROM v WHERE k IN (1, 2, 3, 5000)": (3, "IN (1, 2, 3, 5000)"),
        "SELECT total FROM v WHERE s IN ('s1', 's2')": (40, "IN ("),
        "SELECT total FROM v WHERE d = DATE'2024-01-05'": (10, "2024-01-05"),
        "SELECT total FROM v WHERE total = 999": (1, "= 999"),
        "SELECT total FROM v LIMIT 3": (3, "limit: 3"),
    }
    for query, (expected, said) in cases.items():
        frame = shop.sql(query)
        assert len(frame.collect()) == expected, query
        (line,) = scans(frame)
        assert said in line, line
        assert produced(shop, frame) == expected, query
    assert len(shop.sql("SELECT k FROM v WHERE k > 3 LIMIT 5").collect()) == 5
    assert shop.rows("SELECT count(*) FROM v WHERE total IS NULL") == [(0,)]


def produced(shop: Shop, frame) -> int:
    """numOutputRows of the one scan of an executed plan."""
    plan = frame._jdf.queryExecution().executedPlan()
    found = []

    def visit(node) -> None:
        if node.nodeName() == "IncrementalViewScan":
            found.append(node.metrics().apply("numOutputRows").value())
        for i in range(node.children().size()):
            visit(node.children().apply(i))

    visit(plan)
    assert len(found) == 1, plan.toString()
    return found[0]


def test_a_cached_dataframe_is_a_snapshot_of_itself_only(sales: Shop) -> None:
    cached = sales.spark.table("v").cache()
    assert cached.count() == 3
    sales.sql("INSERT INTO customers VALUES (9, 'west')", "INSERT INTO orders VALUES (20, 9, 1)")
    assert cached.count() == 3
    assert cached.where("n > 0").count() == 3
    assert sales.spark.table("v").count() == 4
    assert sales.rows("SELECT count(*) FROM v") == [(4,)]
    cached.unpersist()
    assert cached.count() == 4


def test_the_version_that_was_read(shop) -> None:
    """`_ivm_version` is there for who asks, and no part of `*`."""
    shop.sql("CREATE TABLE t (k INT, x INT) USING parquet", "INSERT INTO t VALUES (1, 1)")
    shop.sql("CREATE INCREMENTAL VIEW v AS SELECT k, sum(x) AS s FROM t GROUP BY k")
    assert shop.rows("SELECT *, _ivm_version FROM v") == [(1, 1, 0)]
    shop.sql("INSERT INTO t VALUES (2, 2)")
    assert shop.rows("SELECT _ivm_version AS n, k FROM v WHERE k = 2") == [(1, 2)]
    assert shop.rows(
        "SELECT max(a._ivm_version), count(*) FROM v a JOIN v b ON a.k = b.k AND a._ivm_version = b._ivm_version"
    ) == [(1, 2)]
    assert shop.rows("SELECT _ivm_version FROM v WHERE _ivm_version = 0") == []
    assert shop.spark.table("v").columns == ["k", "s"]
    shop.sql("CREATE INCREMENTAL VIEW w AS SELECT k AS _ivm_version, x FROM t")
    assert shop.rows("SELECT _ivm_version, x FROM w") == [(1, 1), (2, 2)]
