"""Change sources: after every scripted change, held rows + signed rows of the source = the table, as bags."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.conftest import require_delta
from tests.spark.source_watch import Watch, bag_of, leaf


@pytest.fixture
def table(spark, request):
    """A name for one table, dropped afterwards."""
    name = "src_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:60].lower()
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def kind_of(spark, query: str):
    return spark._jvm.org.apache.spark.sql.ivm.source.ChangeSources.of(spark._jsparkSession, leaf(spark.sql(query)))


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "orc", "csv", "json"])
def test_appends_are_read_from_the_new_files_only(spark, table, form):
    spark.sql(f"CREATE TABLE {table} (id INT, name STRING, price DECIMAL(9,2)) USING {form}")
    spark.sql(f"INSERT INTO {table} SELECT id, concat('n', id), id * 1.5 FROM range(100)")
    watch = Watch(spark, f"SELECT * FROM {table}")
    assert watch.kind == "files"
    assert watch.source.table() == f"spark_catalog.default.{table}"
    assert watch.step() == "unmoved"
    spark.sql(f"INSERT INTO {table} VALUES (1, 'one', 1.25), (1, 'one', 1.25), (NULL, NULL, NULL)")
    _, changes = watch.changes()
    assert sum(watch.signed(changes.rows()).values()) == 3 == watch.rows_read
    assert watch.step() == "insert-only"
    spark.sql(f"INSERT INTO {table} VALUES (2, 'two', 2)")
    spark.sql(f"INSERT INTO {table} VALUES (3, 'three', 3)")
    assert watch.step() == "insert-only"
    assert watch.step() == "unmoved"


def test_text_table_by_path(spark, tmp_path):
    directory = tmp_path / "lines"
    directory.mkdir()
    (directory / "a.txt").write_text("x\ny\n")
    watch = Watch(spark, f"SELECT * FROM text.`{directory}`")
    assert watch.source.table() == f"text.`{directory}`"
    (directory / "_hidden.txt").write_text("no\n")
    (directory / ".hidden").write_text("no\n")
    (directory / "empty.txt").write_text("")
    assert watch.step() == "unmoved"
    (directory / "b.txt").write_text("x\n")
    assert watch.step() == "insert-only"


@pytest.mark.parametrize("name", ["plain", "with space", "a=b", "per%20cent", 'it\'s "quoted"', "#&x"])
def test_paths_with_special_characters(spark, tmp_path, name):
    path = tmp_path / name
    location = str(path).replace("'", "\\'")
    table = "src_special"
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    spark.sql(f"CREATE TABLE {table} (id BIGINT, v STRING) USING parquet LOCATION '{location}'")
    spark.sql(f"INSERT INTO {table} SELECT id, concat('v', id) FROM range(3)")
    try:
        watch = Watch(spark, f"SELECT * FROM {table}")
        assert len(watch.held) == 3
        spark.sql(f"INSERT INTO {table} VALUES (7, 'seven')")
        assert watch.step() == "insert-only"
    finally:
        spark.sql(f"DROP TABLE {table}")


def test_overwrite_vanish_and_rewrite_are_resyncs(spark, table, tmp_path):
    spark.sql(f"CREATE TABLE {table} (id INT) USING parquet LOCATION '{tmp_path}/t'")
    spark.sql(f"INSERT INTO {table} VALUES (1), (2)")
    watch = Watch(spark, f"SELECT * FROM {table}")
    spark.sql(f"INSERT OVERWRITE {table} VALUES (1), (5)")
    assert watch.step() == "RESYNC_FILES_VANISHED"
    spark.sql(f"INSERT INTO {table} VALUES (6)")
    assert watch.step() == "insert-only"
    files = sorted((tmp_path / "t").glob("*.parquet"))
    shutil.copy(files[0], tmp_path / "t" / "copy.parquet")
    spark.sql(
        f"REFRESH TABLE {table}"
    )  # for the comparison: Spark has listed the directory before, the source looks anew
    assert watch.step() == "insert-only"
    spark.range(40, 60).selectExpr("int(id) id").coalesce(1).write.parquet(str(tmp_path / "other"))
    shutil.copy(next((tmp_path / "other").glob("*.parquet")), tmp_path / "t" / "copy.parquet")
    spark.sql(f"REFRESH TABLE {table}")
    assert watch.step() == "RESYNC_FILES_REWRITTEN"
    for crc in (tmp_path / "t").glob("*.crc"):
        crc.unlink()


@pytest.mark.parametrize("where", ["catalog", "path"])
def test_partitioned(spark, table, tmp_path, where):
    columns = "id INT, v DOUBLE, day DATE, `kind of` STRING"
    rows = "(1, 1.5, DATE'2024-01-01', 'a b'), (2, 2.5, DATE'2024-01-02', 'x=1/%'), (3, NULL, NULL, NULL)"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING parquet PARTITIONED BY (day, `kind of`) LOCATION '{tmp_path}/p'")
    spark.sql(f"INSERT INTO {table} VALUES {rows}")
    query = f"SELECT * FROM {table}" if where == "catalog" else f"SELECT * FROM parquet.`{tmp_path}/p`"
    watch = Watch(spark, query)
    assert watch.kind == "files"
    assert watch.step() == "unmoved"
    spark.sql(f"INSERT INTO {table} VALUES (4, 0.0, DATE'2024-01-01', 'a b'), (5, 1.0, DATE'2025-05-05', 'new')")
    assert watch.step() == "insert-only"
    spark.sql(f"ALTER TABLE {table} DROP PARTITION (day=DATE'2024-01-02', `kind of`='x=1/%')")
    shutil.rmtree(tmp_path / "p" / "day=2024-01-02", ignore_errors=True)
    assert watch.step() == "RESYNC_FILES_VANISHED"


def test_partition_filters_reach_the_given_files(spark, table):
    spark.sql(f"CREATE TABLE {table} (id INT, p INT) USING parquet PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)")
    source = kind_of(spark, f"SELECT * FROM {table}")
    rows = source.snapshot(source.current())
    from pyspark.sql import DataFrame

    frame = DataFrame(spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, rows.plan()), spark)
    assert sorted(map(tuple, frame.where("p >= 2 AND id < 3").collect())) == [(2, 2)]
    assert frame.where("p = 7").count() == 0


def test_partition_with_a_location_of_its_own(spark, table, tmp_path):
    spark.sql(f"CREATE TABLE {table} (id INT, p INT) USING parquet PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO {table} VALUES (1, 1)")
    watch = Watch(spark, f"SELECT * FROM {table}")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (p=2) LOCATION '{tmp_path}/far away'")
    assert watch.step() == "unmoved"
    spark.sql(f"INSERT INTO {table} PARTITION (p=2) VALUES (20), (21)")
    assert watch.step() == "insert-only"
    assert watch.held[(20, 2)] == 1


def test_missing_table_and_changed_schema_are_typed_errors(spark, table, tmp_path):
    spark.sql(f"CREATE TABLE {table} (id INT, v STRING) USING parquet")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    watch = Watch(spark, f"SELECT * FROM {table}")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (extra INT)")
    spark.sql(f"INSERT INTO {table} VALUES (2, 'b', 9)")
    assert watch.step() == "insert-only"
    spark.sql(f"DROP TABLE {table}")
    with pytest.raises((Py4JJavaError, PySparkException), match="IVM_SOURCE_MISSING"):
        watch.current()
    spark.sql(f"CREATE TABLE {table} (id BIGINT, v STRING) USING parquet")
    with pytest.raises((Py4JJavaError, PySparkException), match=r"IVM_SOURCE_SCHEMA_CHANGED.*column id was int"):
        watch.current()
    spark.sql(f"DROP TABLE {table}")
    path = tmp_path / "gone"
    spark.range(3).write.parquet(str(path))
    gone = Watch(spark, f"SELECT * FROM parquet.`{path}`")
    shutil.rmtree(path)
    with pytest.raises((Py4JJavaError, PySparkException), match="IVM_SOURCE_MISSING"):
        gone.current()


def test_recreated_table_resyncs(spark, table):
    spark.sql(f"CREATE TABLE {table} (id INT) USING parquet")
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    watch = Watch(spark, f"SELECT * FROM {table}")
    spark.sql(f"DROP TABLE {table}")
    spark.sql(f"CREATE TABLE {table} (id INT) USING parquet")
    spark.sql(f"INSERT INTO {table} VALUES (1), (2)")
    assert watch.step() == "RESYNC_FILES_VANISHED"


def test_reading_changes_starts_no_listing_job(spark, table):
    spark.sql(f"CREATE TABLE {table} (id INT, p INT) USING parquet PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO {table} SELECT int(id), int(id % 40) FROM range(40)")
    watch = Watch(spark, f"SELECT * FROM {table}")
    spark.sql(f"INSERT INTO {table} VALUES (100, 1)")
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("no-listing", "changes")
    _, changes = watch.changes()
    changes.rows().plan().stats()
    assert list(tracker.getJobIdsForGroup("no-listing")) == []
    spark.sparkContext.setJobGroup("", "")


# ---- weights, constants, resync ------------------------------------------------------------------------------------------


def test_weight_column(spark, table):
    spark.sql(
        f"CREATE TABLE {table} (id INT, w TINYINT, v STRING) USING parquet TBLPROPERTIES ('ivm.weightColumn' = 'W')"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1, 1, 'a'), (2, 3, 'b'), (3, 0, 'c')")
    source = kind_of(spark, f"SELECT * FROM {table}")
    assert source.kind() == "weights" and source.weightColumn().get() == "w"
    watch = Watch(spark, f"SELECT * FROM {table}")
    assert watch.held == {(1, 1, "a"): 1, (2, 3, "b"): 3}
    spark.sql(f"INSERT INTO {table} VALUES (1, -1, 'a'), (2, -2, 'b')")
    _, changes = watch.changes()
    assert watch.signed(changes.rows()) == {(1, -1, "a"): -1, (2, -2, "b"): -2}
    spark.sql(f"INSERT INTO {table} VALUES (1, NULL, 'a')")
    _, changes = watch.changes()
    with pytest.raises((Py4JJavaError, PySparkException), match="IVM_WEIGHT_COLUMN_INVALID"):
        watch.signed(changes.rows())


@pytest.mark.parametrize(("column", "message"), [("v", "its type is string"), ("nope", "no such column")])
def test_weight_column_of_a_wrong_kind(spark, table, column, message):
    spark.sql(f"CREATE TABLE {table} (id INT, v STRING) USING parquet TBLPROPERTIES ('ivm.weightColumn' = '{column}')")
    with pytest.raises((Py4JJavaError, PySparkException), match=f"IVM_WEIGHT_COLUMN_INVALID.*{message}"):
        kind_of(spark, f"SELECT * FROM {table}")


@pytest.mark.parametrize("query", ["SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(x, y)", "SELECT * FROM range(5)"])
def test_constants_never_change(spark, query):
    watch = Watch(spark, query)
    assert watch.kind == "constant"
    assert watch.held == bag_of(spark.sql(query))
    assert watch.step() == "unmoved"


def test_a_table_without_changes_is_resynced(spark, tmp_path):
    url = f"jdbc:derby:memory:ivm_{tmp_path.name};create=true"
    spark.sql("SELECT 1 AS id, 'a' AS v").write.format("jdbc").options(
        url=url, dbtable="t", driver="org.apache.derby.jdbc.EmbeddedDriver"
    ).save()
    frame = (
        spark.read.format("jdbc").options(url=url, dbtable="t", driver="org.apache.derby.jdbc.EmbeddedDriver").load()
    )
    frame.createOrReplaceTempView("src_jdbc")
    watch_source = kind_of(spark, "SELECT * FROM src_jdbc")
    assert watch_source.kind() == "resync"
    assert watch_source.current().isEmpty()
    token = spark._jvm.org.apache.spark.sql.ivm.source.Token("", "")
    assert watch_source.changes(token, token).code() == "RESYNC_NO_CHANGE_SOURCE"
    spark.catalog.dropTempView("src_jdbc")


# ---- Delta ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def delta(spark, table):
    require_delta()
    return table


FEED = {"cdf": "'delta.enableChangeDataFeed' = 'true'", "files": "'delta.enableChangeDataFeed' = 'false'"}
VECTORS = {"rewrite": "'delta.enableDeletionVectors' = 'false'", "vectors": "'delta.enableDeletionVectors' = 'true'"}


@pytest.mark.parametrize(
    ("feed", "vectors", "mapping"),
    [
        ("cdf", "rewrite", "none"),
        ("files", "rewrite", "none"),
        ("cdf", "vectors", "none"),
        ("files", "vectors", "name"),
        ("cdf", "rewrite", "name"),
    ],
)
def test_delta_script(spark, delta, feed, vectors, mapping):
    properties = f"{FEED[feed]}, {VECTORS[vectors]}, 'delta.columnMapping.mode' = '{mapping}'"
    spark.sql(
        f"CREATE TABLE {delta} (id INT, v STRING, amount DECIMAL(9,2), p STRING) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ({properties})"
    )
    spark.sql(f"INSERT INTO {delta} SELECT int(id), concat('v', id % 7), id * 0.5, concat('p ', id % 3) FROM range(60)")
    watch = Watch(spark, f"SELECT * FROM {delta}")
    assert watch.kind == ("delta-cdf" if feed == "cdf" else "delta-files")
    assert watch.step() == "unmoved"
    spark.sql(f"INSERT INTO {delta} VALUES (100, 'new', 1, 'p 1'), (101, NULL, NULL, NULL), (102, 'q', 2, 'x=%/y')")
    assert watch.step() == "insert-only"
    spark.sql(f"DELETE FROM {delta} WHERE id % 10 = 3")
    assert watch.step() == "rows"
    spark.sql(f"UPDATE {delta} SET amount = amount + 1, v = 'up' WHERE id < 9")
    assert watch.step() == "rows"
    spark.sql(
        f"MERGE INTO {delta} t USING (SELECT * FROM VALUES (1, 'm'), (2, 'm'), (500, 'i') AS s(id, v)) s ON t.id = s.id "
        "WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT (id, v, amount, p) VALUES (s.id, s.v, 0, 'p 0')"
    )
    spark.sql(f"INSERT INTO {delta} VALUES (600, 'z', 3, 'p 2')")
    assert watch.step() == "rows"
    spark.sql(f"OPTIMIZE {delta}")
    assert watch.step() == "none"
    spark.sql(f"DELETE FROM {delta} WHERE p = 'p 1'")
    assert watch.step() == "rows"
    spark.sql(f"INSERT OVERWRITE {delta} SELECT * FROM {delta} WHERE id < 20")
    assert watch.step() == "rows"
    spark.sql(f"RESTORE TABLE {delta} TO VERSION AS OF 3")
    assert watch.step() == "rows"
    assert watch.step() == "unmoved"


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_deletion_vectors_give_only_the_rows_that_moved(spark, delta, mapping):
    properties = f"{FEED['files']}, {VECTORS['vectors']}, 'delta.columnMapping.mode' = '{mapping}'"
    spark.sql(f"CREATE TABLE {delta} (id INT, v STRING) USING delta TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO {delta} SELECT /*+ COALESCE(1) */ int(id), concat('v', id) FROM range(1000)")
    watch = Watch(spark, f"SELECT * FROM {delta}")
    for statements, rows in (
        (["DELETE FROM {t} WHERE id IN (3, 500, 999)"], 3),
        (["DELETE FROM {t} WHERE id IN (4, 501)"], 2),  # another vector in place of the first
        (["UPDATE {t} SET v = 'up' WHERE id = 7"], 2),
        (["RESTORE TABLE {t} TO VERSION AS OF 2"], 4),  # back under the first vector
        (["DELETE FROM {t} WHERE id = 8", "INSERT INTO {t} VALUES (8, 'again')", "DELETE FROM {t} WHERE id = 9"], 3),
        (["RESTORE TABLE {t} TO VERSION AS OF 1"], 6),  # no vector at all
    ):
        for statement in statements:
            spark.sql(statement.format(t=delta))
        _, changes = watch.changes()
        watch.signed(changes.rows())
        assert watch.rows_read == rows, statements
        assert watch.step() == "rows"


def test_deletion_vectors_that_were_vacuumed(spark, delta):
    retention = "'delta.deletedFileRetentionDuration' = 'interval 0 hours'"
    spark.sql(f"CREATE TABLE {delta} (id INT) USING delta TBLPROPERTIES ({VECTORS['vectors']}, {retention})")
    spark.sql(f"INSERT INTO {delta} SELECT /*+ COALESCE(1) */ int(id) FROM range(1000)")
    spark.sql(f"DELETE FROM {delta} WHERE id = 4")
    watch = Watch(spark, f"SELECT * FROM {delta}")
    spark.sql(f"DELETE FROM {delta} WHERE id = 5")
    vacuum(spark, delta)
    assert watch.step() == "RESYNC_HISTORY_LOST"


def vacuum(spark, table):
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM {table} RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")


def test_a_column_named_like_those_of_the_change_feed(spark, delta):
    spark.sql(f"CREATE TABLE {delta} (id INT, _change_type STRING) USING delta TBLPROPERTIES ({VECTORS['vectors']})")
    spark.sql(f"INSERT INTO {delta} SELECT /*+ COALESCE(1) */ int(id), 'insert' FROM range(100)")
    watch = Watch(spark, f"SELECT * FROM {delta}")
    spark.sql(f"DELETE FROM {delta} WHERE id = 4")
    assert watch.step() == "rows"


def test_delta_feed_enabled_late_uses_the_files(spark, delta):
    spark.sql(f"CREATE TABLE {delta} (id INT, v INT) USING delta TBLPROPERTIES ({VECTORS['rewrite']})")
    spark.sql(f"INSERT INTO {delta} VALUES (1, 1), (2, 2)")
    watch = Watch(spark, f"SELECT * FROM {delta}")
    spark.sql(f"UPDATE {delta} SET v = 9 WHERE id = 1")
    spark.sql(f"ALTER TABLE {delta} SET TBLPROPERTIES ({FEED['cdf']})")
    spark.sql(f"DELETE FROM {delta} WHERE id = 2")
    assert watch.step() == "rows"
    assert watch.kind == "delta-cdf"
    spark.sql(f"UPDATE {delta} SET v = 10")
    assert watch.step() == "rows"


def test_delta_table_recreated_and_dropped(spark, delta):
    create = f"CREATE TABLE {delta} (id INT) USING delta"
    spark.sql(create)
    spark.sql(f"INSERT INTO {delta} VALUES (1)")
    watch = Watch(spark, f"SELECT * FROM {delta}")
    first = watch.source.tableId()
    spark.sql(f"DROP TABLE {delta}")
    with pytest.raises((Py4JJavaError, PySparkException), match="IVM_SOURCE_MISSING"):
        watch.current()
    spark.sql(create)
    spark.sql(f"INSERT INTO {delta} VALUES (2), (3)")
    assert watch.step() == "RESYNC_TABLE_RECREATED"
    assert watch.source.tableId() != first
    spark.sql(f"INSERT INTO {delta} VALUES (4)")
    assert watch.step() == "insert-only"


def test_delta_vacuumed_history(spark, delta):
    spark.sql(
        f"CREATE TABLE {delta} (id INT) USING delta TBLPROPERTIES ({FEED['cdf']}, {VECTORS['rewrite']}, "
        "'delta.deletedFileRetentionDuration' = 'interval 0 hours')"
    )
    spark.sql(f"INSERT INTO {delta} SELECT int(id) FROM range(10)")
    watch = Watch(spark, f"SELECT * FROM {delta}")
    spark.sql(f"DELETE FROM {delta} WHERE id = 4")
    vacuum(spark, delta)
    assert watch.step() == "RESYNC_HISTORY_LOST"


def test_delta_log_cleaned(spark, delta, tmp_path):
    spark.sql(f"CREATE TABLE {delta} (id INT) USING delta LOCATION '{tmp_path}/d t'")
    watch = Watch(spark, f"SELECT * FROM {delta}")
    for i in range(12):
        spark.sql(f"INSERT INTO {delta} VALUES ({i})")
    for i in range(9):
        Path(tmp_path / "d t" / "_delta_log" / f"{i:020d}.json").unlink()
        (tmp_path / "d t" / "_delta_log" / f".{i:020d}.json.crc").unlink(missing_ok=True)
    assert watch.step() == "RESYNC_HISTORY_LOST"


def test_delta_schema(spark, delta):
    spark.sql(
        f"CREATE TABLE {delta} (id INT, v STRING) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO {delta} VALUES (1, 'a')")
    watch = Watch(spark, f"SELECT * FROM {delta}")
    spark.sql(f"ALTER TABLE {delta} ADD COLUMNS (extra INT)")
    assert watch.step() == "none"
    spark.sql(f"INSERT INTO {delta} VALUES (2, 'b', 3)")
    assert watch.step() == "insert-only"
    spark.sql(f"ALTER TABLE {delta} DROP COLUMN v")
    with pytest.raises((Py4JJavaError, PySparkException), match=r"IVM_SOURCE_SCHEMA_CHANGED.*column v is gone"):
        watch.current()


def test_delta_by_path_and_weight_table(spark, delta, tmp_path):
    spark.sql(
        f"CREATE TABLE {delta} (id INT, w BIGINT) USING delta LOCATION '{tmp_path}/it=s %20 odd' "
        "TBLPROPERTIES ('ivm.weightColumn' = 'w', 'delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO {delta} VALUES (1, 2)")
    source = kind_of(spark, f"SELECT * FROM delta.`{tmp_path}/it=s %20 odd`")
    assert source.kind() == "weights"
    assert source.table() == f"delta.`{tmp_path}/it=s %20 odd`"
    watch = Watch(spark, f"SELECT * FROM {delta}")
    assert watch.held == {(1, 2): 2}
    spark.sql(f"INSERT INTO {delta} VALUES (1, -1)")
    _, changes = watch.changes()
    assert watch.signed(changes.rows()) == {(1, -1): -1}


def test_delta_time_travel_is_constant(spark, delta):
    spark.sql(f"CREATE TABLE {delta} (id INT) USING delta")
    spark.sql(f"INSERT INTO {delta} VALUES (1)")
    watch = Watch(spark, f"SELECT * FROM {delta} VERSION AS OF 1")
    assert watch.kind == "constant"
    spark.sql(f"INSERT INTO {delta} VALUES (2)")
    assert watch.step() == "unmoved"


def test_delta_looking_for_news_starts_no_job(spark, delta):
    spark.sql(f"CREATE TABLE {delta} (id INT) USING delta TBLPROPERTIES ({FEED['cdf']}, {VECTORS['rewrite']})")
    spark.sql(f"INSERT INTO {delta} SELECT int(id) FROM range(10)")
    watch = Watch(spark, f"SELECT * FROM {delta}")
    spark.sql(f"DELETE FROM {delta} WHERE id = 1")
    spark.sparkContext.setJobGroup("no-replay", "changes")
    _, changes = watch.changes()
    assert changes.rows().plan() is not None
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("no-replay")) == []
    spark.sparkContext.setJobGroup("", "")
