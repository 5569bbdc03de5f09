"""What a view's query means may change though its text does not: tables and views below it, columns, settings, temp objects."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import Shop, bag


def both(shop: Shop, view: str, query: str) -> None:
    """This session and a new one answer like the query."""
    other = shop.spark.newSession()
    other.sql(f"USE {shop.schema}")
    for spark in (shop.spark, other):
        assert bag(spark.table(view)) == bag(spark.sql(query))


GROUPED = "SELECT k, sum(x) AS s FROM b GROUP BY k"


@pytest.mark.parametrize("query", [GROUPED, "SELECT k, max(x) AS m FROM b GROUP BY k"])
def test_a_view_below_is_replaced(shop: Shop, query: str) -> None:
    shop.sql(
        "CREATE TABLE t (k INT, x INT) USING parquet",
        "INSERT INTO t VALUES (1, 1), (1, 4), (2, 6)",
        "CREATE VIEW b AS SELECT k, x FROM t WHERE x > 0",
        f"CREATE INCREMENTAL VIEW v AS {query}",
        "CREATE OR REPLACE VIEW b AS SELECT k, x FROM t WHERE x > 3",
    )
    both(shop, "v", query)
    assert shop.history()[-1].kind == "full"
    shop.sql("INSERT INTO t VALUES (1, 2), (1, 8)")
    both(shop, "v", query)


def test_a_sql_function_below_is_replaced(shop: Shop) -> None:
    query = "SELECT k, sum(twice(x)) AS s FROM t GROUP BY k"
    shop.sql(
        "CREATE TABLE t (k INT, x INT) USING parquet",
        "INSERT INTO t VALUES (1, 1), (1, 4)",
        "CREATE FUNCTION twice(n INT) RETURNS INT RETURN n * 2",
        f"CREATE INCREMENTAL VIEW v AS {query}",
        "CREATE OR REPLACE FUNCTION twice(n INT) RETURNS INT RETURN n * 20",
    )
    both(shop, "v", query)
    shop.sql("DROP INCREMENTAL VIEW v", "DROP FUNCTION twice")


def test_a_table_is_recreated_with_another_layout(shop: Shop) -> None:
    query = "SELECT k, sum(x) AS s FROM t GROUP BY k"
    shop.sql(
        "CREATE TABLE t (x INT, k INT) USING parquet",
        "INSERT INTO t VALUES (5, 1)",
        f"CREATE INCREMENTAL VIEW v AS {query}",
    )
    tables = ("parquet PARTITIONED BY (k)", "csv OPTIONS (sep '|')", "csv OPTIONS (sep ';')", "orc")
    for number, table in enumerate(tables):
        shop.sql(
            "DROP TABLE t",
            f"CREATE TABLE t (x INT, k INT) USING {table}",
            f"INSERT INTO t VALUES ({number}, 1), (8, 2)",
        )
        both(shop, "v", query)
        assert shop.history()[-1].kind == "incremental", table


def test_a_weight_column_is_named_later(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE t (k INT, w INT) USING parquet",
        "INSERT INTO t VALUES (1, 2), (1, 3)",
        "CREATE INCREMENTAL VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k",
        "ALTER TABLE t SET TBLPROPERTIES ('ivm.weightColumn' = 'w')",
    )
    other = shop.spark.newSession()
    other.sql(f"USE {shop.schema}")
    assert [tuple(r) for r in other.table("v").collect()] == shop.rows("SELECT * FROM v") == [(1, 5)]


@pytest.mark.delta
@pytest.mark.parametrize(
    ("table", "add"),
    [
        ("(a INT, part INT) USING parquet PARTITIONED BY (part)", "(b INT)"),
        ("(a INT, part INT) USING delta", "(b INT FIRST)"),
    ],
)
def test_star_means_what_it_meant(shop: Shop, table: str, add: str) -> None:
    shop.sql(
        f"CREATE TABLE t {table}",
        "INSERT INTO t (a, part) VALUES (1, 10), (2, 20)",
        "CREATE INCREMENTAL VIEW v AS SELECT * FROM t",
        f"ALTER TABLE t ADD COLUMNS {add}",
        "INSERT INTO t (a, part, b) VALUES (3, 30, 33)",
    )
    both(shop, "v", "SELECT a, part FROM t")
    assert (shop.history()[-1].kind, shop.history()[-1].reason) == ("incremental", "CHANGES_APPLIED")


@pytest.mark.delta
def test_columns_the_view_does_not_use_come_and_go(shop: Shop) -> None:
    query = "SELECT k, sum(x) AS s FROM t GROUP BY k"
    shop.sql(
        "CREATE TABLE t (k INT, x INT, y INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "INSERT INTO t VALUES (1, 5, 0)",
        f"CREATE INCREMENTAL VIEW v AS {query}",
        "ALTER TABLE t DROP COLUMN y",
        "INSERT INTO t VALUES (1, 6)",
    )
    both(shop, "v", query)
    assert shop.history()[-1].kind == "incremental"
    shop.sql("ALTER TABLE t DROP COLUMN x", "ALTER TABLE t ADD COLUMN x INT", "INSERT INTO t VALUES (1, 7)")
    both(shop, "v", query)
    shop.sql("ALTER TABLE t DROP COLUMN x")
    shop.refused("SELECT * FROM v", "IVM_SOURCE_SCHEMA_CHANGED")


@pytest.mark.delta
def test_not_null_is_taken_back(shop: Shop) -> None:
    query = "SELECT k, count(x) AS n, sum(x) AS s, avg(x) AS a FROM t GROUP BY k"
    shop.sql(
        "CREATE TABLE t (k INT, x INT NOT NULL) USING delta",
        "INSERT INTO t VALUES (1, 10)",
        f"CREATE INCREMENTAL VIEW v AS {query}",
        "CREATE INCREMENTAL VIEW w AS SELECT k, x FROM t",
        "ALTER TABLE t ALTER COLUMN x DROP NOT NULL",
        "INSERT INTO t VALUES (1, NULL), (2, NULL)",
    )
    both(shop, "v", query)
    both(shop, "w", "SELECT k, x FROM t")


def test_an_inferred_schema_that_no_longer_fits(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"k": 1, "x": 1}\n')
    query = f"SELECT k, sum(x) AS s FROM json.`{tmp_path}` GROUP BY k"
    shop.sql(f"CREATE INCREMENTAL VIEW v AS {query}")
    (tmp_path / "b.json").write_text('{"k": 1, "x": 2}\n')
    shop.same(query)
    (tmp_path / "c.json").write_text('{"k": 1, "x": 1.5}\n')
    shop.refused("SELECT * FROM v", "IVM_SOURCE_SCHEMA_CHANGED", "bigint", "double")


def test_settings_nobody_had_set(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE t (s STRING) USING parquet",
        "INSERT INTO t VALUES ('2020-1-5')",
        "CREATE INCREMENTAL VIEW v AS SELECT try_to_timestamp(s, 'yyyy-MM-dd') AS d FROM t",
    )
    other = shop.spark.newSession()
    other.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    assert other.table(f"{shop.schema}.v").collect() == shop.spark.table("v").collect()
    other.sql(f"INSERT INTO {shop.schema}.t VALUES ('2021-1-5')")
    assert other.table(f"{shop.schema}.v").collect() == shop.spark.table("v").collect() == [(None,), (None,)]


def test_temp_objects_made_later_are_none_of_its_business(sales: Shop) -> None:
    other = sales.spark.newSession()
    other.sql(f"USE {sales.schema}")
    other.sql("CREATE TEMP VIEW orders AS SELECT 1 AS nothing")
    assert bag(other.table("v")) == bag(sales.spark.table("v"))
    assert other.sql("REFRESH INCREMENTAL VIEW v").collect()[0].kind == "none"


def test_the_creators_schema_is_dropped(shop: Shop) -> None:
    schema = shop.schema
    shop.sql(
        "CREATE TABLE t (k INT) USING parquet",
        "INSERT INTO t VALUES (1)",
        f"CREATE DATABASE {schema}_gone",
        f"USE {schema}_gone",
        f"CREATE INCREMENTAL VIEW {schema}.v AS SELECT k FROM {schema}.t",
        f"USE {schema}",
        f"DROP DATABASE {schema}_gone",
    )
    both(shop, "v", "SELECT k FROM t")


@pytest.mark.parametrize("way", ["SUSPEND", "REFRESH ON DEMAND"])
def test_the_ways_out_when_a_table_is_gone(sales: Shop, way: str) -> None:
    expected = bag(sales.spark.table("v"))
    sales.sql("ALTER TABLE orders RENAME TO gone")
    sales.refused("SELECT * FROM v", "IVM_SOURCE_MISSING")
    sales.sql(f"ALTER INCREMENTAL VIEW v {way}")
    assert bag(sales.spark.table("v")) == expected
    other = sales.spark.newSession()
    assert bag(other.table(f"{sales.schema}.v")) == expected
    sales.sql(
        "ALTER TABLE gone RENAME TO orders",
        f"ALTER INCREMENTAL VIEW v {'RESUME' if way == 'SUSPEND' else 'REFRESH ON READ'}",
    )
    assert bag(sales.spark.table("v")) == expected


def test_two_sessions_create_it_at_once(shop: Shop) -> None:
    query = "SELECT k, count(*) AS n FROM t GROUP BY k"
    shop.sql("CREATE TABLE t (k INT) USING parquet", "INSERT INTO t VALUES (1)")
    for round_ in range(3):
        name = f"r{round_}"
        errors: list[Any] = []

        def create(name: str = name, errors: list[Any] = errors) -> None:
            try:
                session = shop.spark.newSession()
                session.sql(f"USE {shop.schema}")
                session.sql(f"CREATE INCREMENTAL VIEW IF NOT EXISTS {name} AS {query}")
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=create) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not errors
        shop.same(query, name)
        shop.sql("INSERT INTO t VALUES (1)")
        shop.same(query, name)


def test_a_failed_create_keeps_the_state_of_the_former_application(shop: Shop) -> None:
    query = "SELECT k, count(*) AS n FROM t GROUP BY k"
    shop.sql(
        "CREATE TABLE t (k INT, w INT) USING parquet TBLPROPERTIES ('ivm.weightColumn' = 'w')",
        "INSERT INTO t VALUES (1, 1)",
        f"CREATE INCREMENTAL VIEW v AS {query}",
        "INSERT INTO t VALUES (1, 1)",
    )
    assert shop.refresh().version == 1
    # As a new application finds it: the state is there, the entry is not.
    shop.spark._jsparkSession.sessionState().catalog().externalCatalog().dropTable(shop.schema, "v", True, False)
    shop.sql("INSERT INTO t VALUES (2, -1)")
    shop.refused(f"CREATE INCREMENTAL VIEW v AS {query}", "IVM_NEGATIVE_WEIGHT", "k = 2")
    shop.sql("INSERT INTO t VALUES (2, 2)", f"CREATE INCREMENTAL VIEW v AS {query}")
    assert shop.version() == 2 and shop.rows("SELECT * FROM v") == [(1, 2), (2, 1)]


def test_strict_never_falls_back(sales: Shop) -> None:
    sales.sql("ALTER INCREMENTAL VIEW v REFRESH POLICY FULL", "REFRESH INCREMENTAL VIEW v FULL")
    sales.sql("ALTER INCREMENTAL VIEW v REFRESH POLICY INCREMENTAL STRICT", "INSERT INTO orders VALUES (14, 2, 100)")
    sales.refused("REFRESH INCREMENTAL VIEW v", "IVM_STRICT_FULL", "PLAN_CHANGED")
    assert "Refused: [IVM_STRICT_FULL]" in sales.sql("EXPLAIN REFRESH INCREMENTAL VIEW v").collect()[0].plan
    assert sales.refresh(full=True).kind == "full"
    sales.sql("INSERT INTO orders VALUES (15, 2, 100)")
    assert sales.refresh().kind == "incremental"


def test_explain_refresh_fills_its_sentences(sales: Shop) -> None:
    sales.sql("INSERT OVERWRITE orders VALUES (1, 1, 1)")
    text = sales.sql("EXPLAIN REFRESH INCREMENTAL VIEW v").collect()[0].plan
    assert "Kind: incremental" in text and "RESYNC_FILES_VANISHED" in text and "<" not in text.split("Sources:")[0], (
        text
    )
    assert "Kind: full\nReason: REQUESTED" in sales.sql("EXPLAIN REFRESH INCREMENTAL VIEW v FULL").collect()[0].plan
    sales.sql("ALTER INCREMENTAL VIEW v SUSPEND")
    assert "Refused: [IVM_VIEW_SUSPENDED]" in sales.sql("EXPLAIN REFRESH INCREMENTAL VIEW v").collect()[0].plan


def test_only_our_statements_make_views(shop: Shop) -> None:
    shop.sql("CREATE TABLE t (k INT) USING parquet")
    for statement in ("CREATE TABLE foo (a INT) USING ivm", "CREATE TABLE foo USING ivm AS SELECT 1 AS a"):
        shop.refused(statement, "IVM_NOT_A_DATA_SOURCE")
    shop.sql("CREATE INCREMENTAL VIEW v AS SELECT k FROM t")
    shop.sql("CACHE TABLE c AS SELECT * FROM v", "UNCACHE TABLE c", "DROP VIEW c")
    assert {r.key for r in shop.sql("DESCRIBE FORMATTED INCREMENTAL VIEW v").collect()} >= {"location", "strategy"}


def test_ctes_have_scopes(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE wt (k INT, x INT, w INT) USING parquet TBLPROPERTIES ('ivm.weightColumn' = 'w')",
        "INSERT INTO wt VALUES (1, 5, 2)",
        "CREATE TABLE g (k INT) USING parquet",
        "INSERT INTO g VALUES (1)",
        "CREATE TEMP VIEW tv AS SELECT 1 AS k",
        "CREATE INCREMENTAL VIEW v1 AS WITH wt AS (SELECT * FROM wt) SELECT k, sum(x) AS s FROM wt GROUP BY k",
        "CREATE INCREMENTAL VIEW v2 AS WITH WT AS (SELECT k, 1 AS y FROM g) SELECT k, sum(y) AS s FROM wt GROUP BY k",
        "CREATE INCREMENTAL VIEW v3 AS WITH TV AS (SELECT k FROM g) SELECT k FROM tv",
    )
    assert (shop.rows("SELECT * FROM v1"), shop.rows("SELECT * FROM v2"), shop.rows("SELECT * FROM v3")) == (
        [(1, 10)],
        [(1, 1)],
        [(1,)],
    )
    shop.refused("CREATE INCREMENTAL VIEW v4 AS SELECT k FROM tv", "IVM_TEMP_VIEW")
    shop.sql("DROP VIEW tv")


def test_full_refreshes_count_what_they_read(shop: Shop) -> None:
    shop.sql("CREATE TABLE t (k INT, x INT) USING parquet", "INSERT INTO t VALUES (1, 1), (1, 2), (1, 3), (1, 4)")
    shop.sql("CREATE INCREMENTAL VIEW v AS SELECT k, max(x) AS m FROM t GROUP BY k")
    assert shop.history()[-1].rows_in == 4


def test_corners_of_the_wire(shop: Shop) -> None:
    """Very wide rows, collations, common throwing parts, time in a subquery, a constant below a union."""
    names = [f"c{i}" for i in range(140)]
    shop.sql(
        f"CREATE TABLE wide ({', '.join(f'{n} INT' for n in names)}) USING parquet",
        f"INSERT INTO wide VALUES ({', '.join('NULL' if i % 3 == 0 else str(i) for i in range(140))}), ({', '.join(map(str, range(140)))})",
        "CREATE INCREMENTAL VIEW w REFRESH POLICY INCREMENTAL AS SELECT * FROM wide",
        "CREATE INCREMENTAL VIEW d REFRESH POLICY INCREMENTAL AS SELECT DISTINCT * FROM wide",
        "INSERT INTO wide SELECT * FROM wide",
    )
    shop.same("SELECT * FROM wide", "w")
    shop.same("SELECT DISTINCT * FROM wide", "d")
    shop.sql(
        "CREATE TABLE tc (id INT, name STRING COLLATE UTF8_LCASE) USING parquet",
        "INSERT INTO tc VALUES (1, 'ABC'), (2, 'abc'), (3, 'x')",
        "CREATE INCREMENTAL VIEW lc AS SELECT id, name FROM tc",
    )
    for where in ("name = 'abc'", "name IN ('abc', 'zz')"):
        assert shop.rows(f"SELECT id FROM lc WHERE {where}") == [(1,), (2,)]
    shop.sql(
        "CREATE TABLE t1 (k INT, a INT, b INT) USING parquet",
        "CREATE TABLE t2 (k INT) USING parquet",
        "INSERT INTO t1 VALUES (1, 6, 2), (9, 1, 0)",
        "INSERT INTO t2 VALUES (1)",
        "CREATE INCREMENTAL VIEW e REFRESH POLICY INCREMENTAL AS SELECT t1.k, sum(a div b) AS x, sum(a div b + 1) AS y, "
        "sum((a div b) * 2) AS z FROM t1 JOIN t2 ON t1.k = t2.k GROUP BY t1.k",
    )
    assert shop.rows("SELECT * FROM e") == [(1, 3, 4, 6)]
    shop.sql("CREATE INCREMENTAL VIEW now AS SELECT k, (SELECT max(current_timestamp()) FROM t2) AS ts FROM t2")
    assert shop.rows("SELECT ts FROM now") != shop.rows("SELECT ts FROM now")
    shop.sql("CREATE INCREMENTAL VIEW u AS SELECT k FROM t2 UNION ALL SELECT 5")
    assert shop.rows("SELECT * FROM u") == [(1,), (5,)]
