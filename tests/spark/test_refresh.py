"""REFRESH says what it did, and DESIGN §11 says what that is: kinds, reasons, versions, counts, policies."""

from __future__ import annotations

import threading

import pytest

from tests.spark.conftest import SALES, Shop


def test_versions_and_counts(sales: Shop) -> None:
    (created,) = sales.history()
    assert (created.version, created.kind, created.reason) == (0, "full", "CREATED")
    row = sales.refresh()
    assert (row.view, row.version, row.kind, row.reason) == (f"spark_catalog.{sales.schema}.v", 0, "none", "NO_CHANGES")
    assert (row.rows_in, row.rows_changed) == (0, 0)
    assert len(sales.history()) == 1
    for insert, rows_in, rows_changed in (
        ("orders VALUES (20, 2, 1)", 1, 2),  # a group that is there: its old row goes, its new row comes
        ("orders VALUES (21, 77, 1)", 1, 0),  # joins nothing
        ("customers VALUES (77, 'west')", 1, 1),  # a new group
        ("orders VALUES (22, 2, 1), (23, 1, 1), (23, 1, 1)", 3, 4),
    ):
        sales.sql(f"INSERT INTO {insert}")
        row = sales.refresh()
        assert (row.kind, row.reason) == ("incremental", "CHANGES_APPLIED")
        assert (row.rows_in, row.rows_changed) == (rows_in, rows_changed), insert
    assert row.version == 4
    row = sales.refresh(full=True)
    assert (row.version, row.kind, row.reason, row.rows_changed) == (5, "full", "REQUESTED", None)
    assert row.rows_in == 5 + 9
    assert [(h.version, h.kind) for h in sales.history()] == [
        (0, "full"),
        *((i, "incremental") for i in (1, 2, 3, 4)),
        (5, "full"),
    ]
    sales.same(SALES)
    assert sales.version() == 5


def test_deleted_groups_and_having(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE t (k INT, x INT, w INT) USING parquet TBLPROPERTIES ('ivm.weightColumn' = 'w')",
        "INSERT INTO t VALUES (1, 10, 1), (2, 20, 2), (3, 5, 1)",
        "CREATE INCREMENTAL VIEW v AS SELECT k, sum(x) AS s FROM t GROUP BY k",
        "CREATE INCREMENTAL VIEW h AS SELECT k, sum(x) AS s FROM t GROUP BY k HAVING sum(x) > 8",
    )
    assert shop.rows("SELECT * FROM v") == [(1, 10), (2, 40), (3, 5)]
    shop.sql("INSERT INTO t VALUES (1, 10, -1)")
    row = shop.refresh()
    assert (row.kind, row.rows_in, row.rows_changed) == ("incremental", 1, 1)
    assert shop.refresh("h").rows_changed in (1, None)
    assert shop.rows("SELECT * FROM v") == [(2, 40), (3, 5)] and shop.rows("SELECT * FROM h") == [(2, 40)]
    shop.sql("INSERT INTO t VALUES (3, 5, 1), (3, 5, -1), (2, 20, 0)")
    row = shop.refresh()
    assert (row.version, row.kind, row.rows_in, row.rows_changed) == (2, "none", 0, 0)
    shop.sql("INSERT INTO t VALUES (3, 5, 1)")
    assert shop.refresh("h").rows_changed in (1, None)  # 5 is not there, 10 is
    assert shop.rows("SELECT * FROM h") == [(2, 40), (3, 10)]


def test_on_demand_suspend_resume_and_policies(sales: Shop) -> None:
    sales.sql("ALTER INCREMENTAL VIEW v REFRESH ON DEMAND", "INSERT INTO orders VALUES (20, 2, 50)")
    assert sales.rows("SELECT n FROM v WHERE region = 'south'") == [(1,)]
    assert sales.refreshed() == (1, "incremental", "CHANGES_APPLIED")
    assert sales.rows("SELECT n FROM v WHERE region = 'south'") == [(2,)]
    sales.sql("ALTER INCREMENTAL VIEW v REFRESH ON READ", "INSERT INTO orders VALUES (21, 2, 50)")
    assert sales.rows("SELECT n FROM v WHERE region = 'south'") == [(3,)]
    sales.sql("ALTER INCREMENTAL VIEW v SUSPEND", "INSERT INTO orders VALUES (22, 2, 50)")
    assert sales.rows("SELECT n FROM v WHERE region = 'south'") == [(3,)]
    assert sales.sql("SHOW INCREMENTAL VIEWS").collect()[0].state == "suspended"
    sales.refused("REFRESH INCREMENTAL VIEW v", "IVM_VIEW_SUSPENDED", "RESUME")
    sales.sql("ALTER INCREMENTAL VIEW v RESUME")
    assert sales.rows("SELECT n FROM v WHERE region = 'south'") == [(4,)]
    sales.sql("ALTER INCREMENTAL VIEW v REFRESH POLICY FULL", "INSERT INTO orders VALUES (23, 2, 50)")
    assert sales.refreshed()[1:] == ("full", "POLICY_FULL")
    assert sales.refreshed()[1:] == ("none", "NO_CHANGES")
    sales.sql("ALTER INCREMENTAL VIEW v REFRESH POLICY INCREMENTAL STRICT")
    sales.refused(
        "REFRESH INCREMENTAL VIEW v", "IVM_STRICT_FULL", "PLAN_CHANGED"
    )  # POLICY FULL keeps rows, the others an index
    sales.sql("ALTER INCREMENTAL VIEW v REFRESH POLICY INCREMENTAL")
    assert sales.refreshed()[1:] == ("full", "PLAN_CHANGED")  # built once
    sales.sql("ALTER INCREMENTAL VIEW v REFRESH POLICY INCREMENTAL STRICT", "INSERT INTO orders VALUES (24, 2, 50)")
    assert sales.refreshed()[1:] == ("incremental", "CHANGES_APPLIED")
    sales.same(SALES)


def test_strict_refuses_a_resync(sales: Shop) -> None:
    sales.sql(f"CREATE INCREMENTAL VIEW strict REFRESH POLICY INCREMENTAL STRICT AS {SALES}")
    sales.sql("INSERT OVERWRITE customers VALUES (1, 'north'), (2, 'east')")
    sales.refused("REFRESH INCREMENTAL VIEW strict", "IVM_STRICT_RESYNC", "RESYNC_FILES_VANISHED")
    sales.refused("SELECT * FROM strict", "IVM_STRICT_RESYNC")
    assert sales.refreshed()[1:] == ("incremental", "RESYNC_FILES_VANISHED")
    sales.same(SALES)


def test_auto_rebuilds_when_that_is_cheaper(shop: Shop) -> None:
    query = "SELECT k % 10 AS g, sum(k) AS s, count(*) AS n FROM t GROUP BY k % 10"
    shop.sql(
        "CREATE TABLE t (k BIGINT) USING parquet",
        "INSERT INTO t SELECT id FROM range(0, 10, 1, 1)",
        f"CREATE INCREMENTAL VIEW v AS {query}",
        f"CREATE INCREMENTAL VIEW w REFRESH POLICY INCREMENTAL AS {query}",
    )
    # Nearly the whole table, and by its bytes more than 10,000 rows, but it is not: never below that.
    shop.sql("INSERT INTO t SELECT id FROM range(0, 9999, 1, 1)")
    assert shop.refreshed() == (1, "incremental", "CHANGES_APPLIED")
    shop.sql("INSERT INTO t SELECT id FROM range(0, 40000, 1, 1)")
    forecast = shop.sql("EXPLAIN REFRESH INCREMENTAL VIEW v").collect()[0].plan
    assert "Kind: full" in forecast and "FULL_IS_CHEAPER: 40000 rows of about" in forecast, forecast
    assert shop.refreshed() == (2, "full", "FULL_IS_CHEAPER")
    assert '"changedRows":40000' in shop.history()[-1].estimates
    shop.same(query)
    assert shop.refreshed("w") == (1, "incremental", "CHANGES_APPLIED")
    shop.same(query, "w")
    shop.sql("INSERT INTO t SELECT id FROM range(0, 12000, 1, 1)")  # large, but small against the table
    assert shop.refreshed() == (3, "incremental", "CHANGES_APPLIED")
    shop.same(query)


def test_what_is_not_incremental_says_so(sales: Shop) -> None:
    query = "SELECT region, max(o) AS m FROM orders o LEFT JOIN customers c ON o.c = c.c GROUP BY region"
    for policy in ("INCREMENTAL", "INCREMENTAL STRICT"):
        sales.refused(f"CREATE INCREMENTAL VIEW f REFRESH POLICY {policy} AS {query}", "IVM_NOT_INCREMENTAL")
    sales.sql(f"CREATE INCREMENTAL VIEW f AS {query}")
    assert sales.described("f")["strategy"] == "full"
    sales.sql("INSERT INTO orders VALUES (30, 1, 1)")
    row = sales.refresh("f")
    assert row.kind == "full" and row.reason in ("OUTER_JOIN", "AGGREGATE_NOT_SUPPORTED")
    described = sales.described("f")
    assert (described["last_refresh_kind"], described["last_refresh_reason"]) == ("full", row.reason)
    assert (sales.history("f")[-1].kind, sales.history("f")[-1].reason) == ("full", row.reason)
    sales.same(query, "f")
    sales.refused("ALTER INCREMENTAL VIEW f REFRESH POLICY INCREMENTAL", "IVM_NOT_INCREMENTAL")
    assert sales.described("f")["policy"] == "AUTO"


def test_non_deterministic_and_time(sales: Shop) -> None:
    for name, expression in (("r", "rand()"), ("d", "current_date()"), ("n", "now()"), ("u", "uuid()")):
        query = f"SELECT c, {expression} AS x FROM orders"
        sales.sql(f"CREATE INCREMENTAL VIEW {name} AS {query}")
        row = sales.refresh(name)
        assert (row.version, row.kind, row.reason) == (1, "full", "NON_DETERMINISTIC"), expression
        sales.refused(f"CREATE INCREMENTAL VIEW bad REFRESH POLICY INCREMENTAL AS {query}", "IVM_NOT_INCREMENTAL")
        assert len(sales.rows(f"SELECT c FROM {name}")) == 4


def test_create_forms(sales: Shop) -> None:
    sales.refused(f"CREATE INCREMENTAL VIEW v AS {SALES}", "TABLE_OR_VIEW_ALREADY_EXISTS")
    sales.sql("CREATE INCREMENTAL VIEW IF NOT EXISTS v AS SELECT 1")
    assert sales.spark.table("v").columns == ["region", "total", "n"]
    sales.sql(
        f"""CREATE OR REPLACE INCREMENTAL VIEW `spark_catalog`.{sales.schema}.`v`
        -- the columns, renamed
        (`where` COMMENT 'the region', sum, `how many`) COMMENT 'sales' TBLPROPERTIES ('owner' = 'me')
        REFRESH ON DEMAND REFRESH POLICY INCREMENTAL
        AS /* the query */ {SALES}"""
    )
    assert sales.spark.table("v").columns == ["where", "sum", "how many"]
    assert sorted(r.n for r in sales.sql("SELECT `how many` AS n FROM v WHERE `where` IS NOT NULL").collect()) == [1, 2]
    first = sales.sql("SHOW CREATE INCREMENTAL VIEW v").collect()[0][0]
    sales.sql("DROP INCREMENTAL VIEW v", first)
    assert sales.sql("SHOW CREATE INCREMENTAL VIEW v").collect()[0][0] == first
    sales.sql("ALTER INCREMENTAL VIEW v RENAME TO w", "INSERT INTO orders VALUES (40, 2, 9)")
    assert sales.refreshed("w") == (1, "incremental", "CHANGES_APPLIED")
    sales.sql("ALTER INCREMENTAL VIEW w AS SELECT c, count(*) AS n FROM orders GROUP BY c")
    assert sales.described("w")["version"] == "0"
    sales.same("SELECT c, count(*) FROM orders GROUP BY c", "w")
    sales.sql("DROP INCREMENTAL VIEW w", "DROP INCREMENTAL VIEW IF EXISTS w")
    sales.refused("DROP INCREMENTAL VIEW w", "TABLE_OR_VIEW_NOT_FOUND")


def test_variables_in_the_text(sales: Shop) -> None:
    sales.spark.conf.set("my.region", "north")
    try:
        sales.sql("CREATE INCREMENTAL VIEW one AS SELECT c FROM customers WHERE region = '${my.region}'")
    finally:
        sales.spark.conf.unset("my.region")
    assert sales.rows("SELECT * FROM one") == [(1,), (3,)]
    sales.sql("INSERT INTO customers VALUES (8, 'north')")
    assert sales.rows("SELECT * FROM one") == [(1,), (3,), (8,)]


def test_two_threads_refresh_at_once(sales: Shop) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        session = sales.spark.newSession()
        try:
            for i in range(3):
                # A table each: Spark's own INSERTs into one Parquet table stumble over each other.
                table, row = (("orders", f"{i}, 1, 1"), ("customers", f"{900 + i}, 'north'"))[number]
                session.sql(f"INSERT INTO {sales.schema}.{table} VALUES ({row})")
                session.sql(f"REFRESH INCREMENTAL VIEW {sales.schema}.v").collect()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    sales.same(SALES)
    versions = [h.version for h in sales.history()]
    assert versions == list(range(len(versions)))
    assert sum(h.rows_in for h in sales.history()[1:]) == 6


def test_errors_of_the_query_are_raised_at_read(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE t (k INT, a INT, b INT) USING parquet TBLPROPERTIES ('x' = 'y')",
        "INSERT INTO t VALUES (1, 4, 2)",
        "CREATE INCREMENTAL VIEW v AS SELECT k, sum(a div b) AS s FROM t GROUP BY k",
        "INSERT INTO t VALUES (1, 4, 0)",
    )
    assert shop.refresh().kind == "incremental"
    shop.refused("SELECT * FROM v", "DIVIDE_BY_ZERO")


@pytest.mark.delta
def test_delta_optimize_is_a_commit_without_change(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE t (k INT, x INT) USING delta",
        "INSERT INTO t VALUES (1, 1)",
        "INSERT INTO t VALUES (2, 2)",
        "CREATE INCREMENTAL VIEW v AS SELECT k, sum(x) AS s FROM t GROUP BY k",
        "OPTIMIZE t",
    )
    row = shop.refresh()
    assert (row.version, row.kind, row.reason, row.rows_in, row.rows_changed) == (1, "none", "NO_CHANGES", 0, 0)
    assert shop.refresh().version == 1
    assert len(shop.history()) == 2
    shop.same("SELECT k, sum(x) FROM t GROUP BY k")
