"""Views over every kind of source: the answer is right, and the kind and reason say how it was got."""

from __future__ import annotations

import shutil
import threading

import pytest
from pyspark.errors import ArithmeticException

from tests.spark.conftest import Shop

QUERY = "SELECT k, count(*) AS n, sum(x) AS s FROM t GROUP BY k"


@pytest.mark.parametrize("form", ["parquet", "orc", "csv", "json"])
def test_tables_of_files(shop: Shop, form: str) -> None:
    shop.sql(
        f"CREATE TABLE t (k STRING, x DECIMAL(9,2), p INT) USING {form} PARTITIONED BY (p)",
        "INSERT INTO t VALUES ('a', 1, 1), ('b', 2.5, 2), (NULL, NULL, 2)",
        f"CREATE INCREMENTAL VIEW v AS {QUERY}",
        "INSERT INTO t VALUES ('a', 1, 1), ('c', 7, 3)",
    )
    assert shop.refreshed() == (1, "incremental", "CHANGES_APPLIED")
    shop.same(QUERY)
    shop.sql("INSERT OVERWRITE t PARTITION (p = 2) VALUES ('b', 100)")
    assert shop.refreshed() == (2, "incremental", "RESYNC_FILES_VANISHED")
    shop.same(QUERY)
    shop.sql("TRUNCATE TABLE t")
    assert shop.refreshed() == (3, "incremental", "RESYNC_FILES_VANISHED")
    assert shop.rows("SELECT * FROM v") == []
    shop.sql("INSERT INTO t VALUES ('z', 1, 1)")
    assert shop.refreshed() == (4, "incremental", "CHANGES_APPLIED")
    shop.same(QUERY)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_partition_is_overwritten(shop: Shop, mode: str) -> None:
    """Only the files of the touched partitions are read, and only their rows compared, where the view tells partitions apart."""
    by_day = "SELECT day, k, count(*) AS n, sum(x) AS s FROM t GROUP BY day, k"
    joined = "SELECT a.day, a.x, b.x AS y FROM t a JOIN t b ON a.day = b.day AND a.k = b.k AND a.kind = b.kind"
    shop.sql(
        "CREATE TABLE t (k INT, x INT, day DATE, kind STRING) USING parquet PARTITIONED BY (day, kind)",
        "INSERT INTO t SELECT /*+ COALESCE(1) */ int(id % 7), int(id), date_add(DATE'2024-01-01', int(id % 10)), "
        "if(id % 20 < 10, 'a b', NULL) FROM range(400)",
        f"CREATE INCREMENTAL VIEW v AS {by_day}",
        f"CREATE INCREMENTAL VIEW joined AS {joined}",
        f"CREATE INCREMENTAL VIEW blind AS {QUERY}",
    )

    def overwrite(rows: str, partition: str) -> None:
        if mode == "static":
            shop.sql(f"INSERT OVERWRITE t PARTITION ({partition}) {rows}")
        else:
            shop.sql("SET spark.sql.sources.partitionOverwriteMode=dynamic")
            columns = ", ".join(f"{p.split('=')[1]} AS c{i}" for i, p in enumerate(partition.split(",")))
            shop.sql(
                f"INSERT OVERWRITE t SELECT *, {columns} FROM ({rows})",
                "RESET spark.sql.sources.partitionOverwriteMode",
            )

    for rows, partition, by_view in (
        # A day has 40 rows, 20 of each kind; `joined` holds both columns (but no NULLs, which join nothing), `v` the day alone.
        (
            "VALUES (1, 1000), (1, 1001)",
            "day=DATE'2024-01-03', kind='a b'",
            {"v": ("incremental", 22), "joined": ("incremental", 2)},
        ),
        ("VALUES (1, 1000)", "day=DATE'2024-01-04', kind=NULL", {"v": ("incremental", 21), "joined": ("none", 1)}),
        ("VALUES (5, 5)", "day=DATE'2030-01-01', kind='new'", {"v": ("incremental", 1), "joined": ("incremental", 1)}),
    ):
        overwrite(rows, partition)
        for view, expected in by_view.items():
            work = shop.counted(lambda view=view: shop.refresh(view))
            assert (work.result.kind, work.rows_read) == expected, (view, partition)
            assert work.result.rows_in <= 20 + 2, (view, partition)
        shop.same(by_day)
        shop.same(joined, "joined")
        assert shop.counted(lambda: shop.refresh("blind")).rows_read >= (1 if "2030" in partition else 360)
        shop.same(QUERY, "blind")
    reasons = [h.reason for h in shop.history()[1:]]
    assert reasons == ["RESYNC_FILES_VANISHED", "RESYNC_FILES_VANISHED", "CHANGES_APPLIED"]
    shop.sql(
        "ALTER TABLE t DROP PARTITION (day=DATE'2024-01-05', kind='a b')",
        "INSERT INTO t VALUES (1, 1, DATE'2024-01-06', 'a b')",
    )
    work = shop.counted(shop.refresh)
    assert (work.rows_read, work.result.rows_in) == (20 + 41, 20 + 1)  # what is left of one day, and all of the other
    shop.same(by_day)
    shop.same(joined, "joined")


def test_rows_that_raise_ask_for_the_whole_table(shop: Shop) -> None:
    """They are counted by table: after an overwrite of one partition only all partitions can say whether any is left."""
    query = "SELECT p, sum(x) AS s FROM t WHERE 10 / x > 1 GROUP BY p"
    shop.sql(
        "CREATE TABLE t (x INT, p INT) USING parquet PARTITIONED BY (p)",
        "INSERT INTO t VALUES (1, 1), (0, 2), (3, 3)",
        f"CREATE INCREMENTAL VIEW v AS {query}",
    )
    with pytest.raises(ArithmeticException):
        shop.rows("SELECT * FROM v")
    shop.sql("INSERT OVERWRITE t PARTITION (p = 1) VALUES (2)")
    with pytest.raises(ArithmeticException):
        shop.rows("SELECT * FROM v")
    shop.sql("INSERT OVERWRITE t PARTITION (p = 2) VALUES (4)")
    shop.same(query)
    shop.sql("INSERT OVERWRITE t PARTITION (p = 3) VALUES (0)")
    with pytest.raises(ArithmeticException):
        shop.rows("SELECT * FROM v")


FORMATS = ["parquet", pytest.param("delta", marks=pytest.mark.delta)]


@pytest.mark.parametrize("form", FORMATS)
def test_what_a_refresh_reads(shop: Shop, form: str) -> None:
    """Both atoms of a self-join see one reading of the table; nothing new starts no Spark job."""
    query = "SELECT a.k, count(*) AS n, sum(b.x) AS s FROM t a JOIN t b ON a.k = b.k GROUP BY a.k"
    shop.sql(
        f"CREATE TABLE t (k INT, x INT) USING {form}",
        "INSERT INTO t SELECT int(id % 5), int(id) FROM range(50)",
        f"CREATE INCREMENTAL VIEW v AS {query}",
        "INSERT INTO t VALUES (1, 100), (2, 100), (77, 1)",
    )
    work = shop.counted(shop.refresh)
    assert (work.result.kind, work.result.rows_in, work.rows_read) == ("incremental", 3, 3)
    work = shop.counted(shop.refresh)
    assert (work.result.kind, work.result.rows_in, work.jobs) == ("none", 0, 0)
    shop.same(query)


@pytest.mark.parametrize("form", FORMATS)
def test_inserts_during_refreshes(shop: Shop, form: str) -> None:
    """Neither lost nor doubled: every row is in exactly one version."""
    shop.sql(f"CREATE TABLE t (k INT, x INT) USING {form}", f"CREATE INCREMENTAL VIEW v AS {QUERY}")
    inserts = 12
    writer = threading.Thread(
        target=lambda: [
            shop.spark.sql(f"INSERT INTO {shop.schema}.t VALUES (1, {i}), (2, {i})") for i in range(inserts)
        ]
    )
    writer.start()
    while writer.is_alive():
        assert shop.refresh().kind in ("none", "incremental")
    writer.join()
    shop.refresh()
    history = shop.history()[1:]
    assert len(history) > 1 and all(h.reason in ("CHANGES_APPLIED", "NO_CHANGES") for h in history)
    assert sum(h.rows_in for h in history) == 2 * inserts
    assert shop.rows("SELECT * FROM v") == [(k, inserts, sum(range(inserts))) for k in (1, 2)]
    shop.same(QUERY)


def test_path_table(shop: Shop, tmp_path) -> None:
    path = tmp_path / "ä#& x"
    shop.spark.sql("SELECT 1 AS k, 2 AS x").write.parquet(str(path))
    query = QUERY.replace(" t ", f" parquet.`{path}` ")
    shop.sql(f"CREATE INCREMENTAL VIEW v AS {query}")
    shop.same(query)
    shop.spark.sql("SELECT 1 AS k, 5 AS x").write.mode("append").parquet(str(path))
    assert shop.refreshed() == (1, "incremental", "CHANGES_APPLIED")
    assert shop.rows("SELECT * FROM v") == [(1, 2, 7)]
    shop.spark.sql("SELECT 3 AS k, 5 AS x").write.mode("overwrite").parquet(str(path))
    assert shop.refreshed()[1:] == ("incremental", "RESYNC_FILES_VANISHED")
    assert shop.rows("SELECT * FROM v") == [(3, 1, 5)]
    shutil.rmtree(path)
    shop.refused("REFRESH INCREMENTAL VIEW v", "IVM_SOURCE_MISSING")


def test_weight_table(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE t (k INT, w INT, x INT) USING parquet TBLPROPERTIES ('ivm.weightColumn' = 'w')",
        "INSERT INTO t VALUES (1, 2, 5), (2, 1, 7)",
        f"CREATE INCREMENTAL VIEW v AS {QUERY}",
        "CREATE INCREMENTAL VIEW everything AS SELECT * FROM t",
    )
    assert shop.spark.table("everything").columns == ["k", "x"]
    assert shop.rows("SELECT * FROM everything") == [(1, 5), (1, 5), (2, 7)]
    assert shop.rows("SELECT * FROM v") == [(1, 2, 10), (2, 1, 7)]
    shop.sql("INSERT INTO t VALUES (1, -1, 5), (3, 1, 1)")
    assert shop.rows("SELECT * FROM v") == [(1, 1, 5), (2, 1, 7), (3, 1, 1)]
    for query in ("SELECT w FROM t", "SELECT k FROM t WHERE w > 0", "SELECT k, sum(w) FROM t GROUP BY k"):
        text = shop_error(shop, f"CREATE INCREMENTAL VIEW bad AS {query}")
        assert "w" in text
    shop.sql("INSERT INTO t VALUES (777, -1, 5)")
    text = shop.refused("REFRESH INCREMENTAL VIEW v", "IVM_NEGATIVE_WEIGHT", "777")
    assert f"{shop.schema}.t" in text
    shop.sql("INSERT INTO t VALUES (777, 1, 5)")
    assert shop.refreshed()[1] == "none"
    shop.sql("INSERT INTO t VALUES (8, NULL, 5)")
    shop.refused("REFRESH INCREMENTAL VIEW v", "IVM_WEIGHT_COLUMN_INVALID", "NULL")
    shop.refused("SELECT * FROM v", "IVM_WEIGHT_COLUMN_INVALID", "NULL")


def shop_error(shop: Shop, statement: str) -> str:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as error:
        shop.sql(statement)
    assert error.value.getCondition() in ("IVM_WEIGHT_COLUMN_REFERENCED", "UNRESOLVED_COLUMN.WITH_SUGGESTION")
    return str(error.value)


def test_schema_of_a_source_moves(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE t (k INT, x INT, y INT) USING parquet",
        "INSERT INTO t VALUES (1, 1, 1)",
        f"CREATE INCREMENTAL VIEW v AS {QUERY}",
        "ALTER TABLE t ADD COLUMNS (more STRING)",
    )
    assert shop.refreshed() == (0, "none", "NO_CHANGES")
    shop.sql("INSERT INTO t VALUES (1, 2, 3, 'm')")
    assert shop.refreshed()[1:] == ("incremental", "CHANGES_APPLIED")
    shop.same(QUERY)
    shop.sql("DROP TABLE t")
    shop.refused("REFRESH INCREMENTAL VIEW v", "IVM_SOURCE_MISSING", f"{shop.schema}.t")
    shop.refused("SELECT * FROM v", "IVM_SOURCE_MISSING")
    shop.sql("CREATE TABLE t (k INT, x BIGINT, y INT) USING parquet")
    assert shop.refreshed()[1:] == ("full", "DEFINITION_CHANGED")  # the same text over other types is another query
    shop.sql("DROP TABLE t", "CREATE TABLE t (k INT, y INT) USING parquet")
    shop.refused("REFRESH INCREMENTAL VIEW v", "IVM_SOURCE_SCHEMA_CHANGED", "`x`")
    shop.sql("DROP TABLE t", "CREATE TABLE t (k STRING, x INT, y INT) USING parquet")
    shop.refused("REFRESH INCREMENTAL VIEW v", "IVM_SOURCE_SCHEMA_CHANGED", "column k was int and is now string")
    shop.sql("DROP TABLE t", "CREATE TABLE t (k INT, x BIGINT, y INT) USING parquet", "INSERT INTO t VALUES (4, 4, 4)")
    assert shop.refresh().kind == "incremental"
    shop.same(QUERY)


def test_source_without_versions(shop: Shop, tmp_path) -> None:
    options = f"url 'jdbc:derby:memory:ivm_{shop.schema};create=true', driver 'org.apache.derby.jdbc.EmbeddedDriver'"
    shop.spark.sql("SELECT 1 AS k, 2 AS x").write.format("jdbc").options(
        url=f"jdbc:derby:memory:ivm_{shop.schema};create=true",
        dbtable="base",
        driver="org.apache.derby.jdbc.EmbeddedDriver",
    ).save()
    shop.sql(f"CREATE TABLE t USING jdbc OPTIONS ({options}, dbtable 'base')")
    shop.refused(
        f"CREATE INCREMENTAL VIEW v REFRESH POLICY INCREMENTAL STRICT AS {QUERY}", "IVM_STRICT_NEEDS_CHANGES", ".t"
    )
    shop.sql(f"CREATE INCREMENTAL VIEW v AS {QUERY}")
    assert shop.refreshed() == (0, "none", "NO_CHANGES")
    shop.sql("INSERT INTO t VALUES (1, 3), (9, 9)")
    row = shop.refresh()
    assert (row.version, row.kind, row.reason) == (1, "incremental", "RESYNC_NO_CHANGE_SOURCE")
    assert (row.rows_in, row.rows_changed) == (2, 3)
    assert shop.rows("SELECT * FROM v") == [(1, 2, 5), (9, 1, 9)]
    assert shop.described()[f"source.spark_catalog.{shop.schema}.t"].startswith("resync")


@pytest.mark.delta
@pytest.mark.parametrize("feed", ["true", "false"])
def test_delta(shop: Shop, feed: str) -> None:
    shop.sql(
        f"CREATE TABLE t (k INT, x INT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = '{feed}')",
        "INSERT INTO t SELECT int(id % 5), int(id) FROM range(20)",
        f"CREATE INCREMENTAL VIEW v REFRESH POLICY INCREMENTAL STRICT AS {QUERY}",
    )
    kind = "delta-cdf" if feed == "true" else "delta-files"
    assert shop.described()[f"source.spark_catalog.{shop.schema}.t"].startswith(kind)
    for statement, rows_in in (
        ("UPDATE t SET x = x + 1 WHERE x = 7", 2),
        ("DELETE FROM t WHERE k = 3", 4),
        ("MERGE INTO t USING (SELECT 100 AS x) s ON t.x = s.x WHEN NOT MATCHED THEN INSERT (k, x) VALUES (9, 100)", 1),
        ("RESTORE TABLE t TO VERSION AS OF 1", 7),
    ):
        shop.sql(statement)
        row = shop.refresh()
        assert (row.kind, row.reason, row.rows_in) == ("incremental", "CHANGES_APPLIED", rows_in), statement
        shop.same(QUERY)
    shop.sql("DROP TABLE t", "CREATE TABLE t (k INT, x INT) USING delta", "INSERT INTO t VALUES (1, 1)")
    shop.refused("REFRESH INCREMENTAL VIEW v", "IVM_STRICT_RESYNC", "RESYNC_TABLE_RECREATED")
    shop.sql("ALTER INCREMENTAL VIEW v REFRESH POLICY AUTO")
    assert shop.refreshed()[1:] == ("incremental", "RESYNC_TABLE_RECREATED")
    shop.same(QUERY)
