"""What docs/security.md promises of shared states."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

QUERY = "SELECT k, sum(x) AS s FROM t GROUP BY k"


@pytest.mark.parametrize("mode", [0o700, 0o2770])
def test_modes_follow_the_location(shop, tmp_path: Path, mode: int) -> None:
    """Whatever the umask; states of both strategies, files of drivers and workers."""
    location = tmp_path / "state"
    location.mkdir()
    location.chmod(mode)
    shop.spark.conf.set("spark.sql.ivm.stateLocation", str(location))
    try:
        shop.sql("CREATE TABLE t (k INT, x INT) USING parquet", "INSERT INTO t VALUES (1, 1)")
        shop.sql(f"CREATE INCREMENTAL VIEW v AS {QUERY}", "CREATE INCREMENTAL VIEW w AS SELECT max(x) AS m FROM t")
        shop.sql("INSERT INTO t VALUES (2, 2)")
        shop.same(QUERY)
        shop.same("SELECT max(x) AS m FROM t", view="w")
        seen = {"directory": set(), "file": set()}
        for path in location.rglob("*"):
            seen["directory" if path.is_dir() else "file"].add(stat.S_IMODE(os.stat(path).st_mode))
        assert {m & 0o777 for m in seen["directory"]} == {mode & 0o777}
        assert seen["file"] == {mode & 0o666}
    finally:
        shop.spark.conf.unset("spark.sql.ivm.stateLocation")


def test_names_are_never_statements(shop) -> None:
    """Names with quotes and statements in them: of tables, columns, properties and comments; views must be named as Spark allows."""
    shop.sql(
        "CREATE TABLE keep (k INT) USING parquet",
        "CREATE TABLE t (`a'b; DROP TABLE keep` INT, `x``y` INT) USING parquet",
    )
    shop.sql("INSERT INTO t VALUES (1, 2)")
    query = (
        "SELECT `a'b; DROP TABLE keep`, sum(`x``y`) AS `s'; DROP TABLE keep; --` FROM t GROUP BY `a'b; DROP TABLE keep`"
    )
    comment = "it''s; DROP TABLE keep"
    shop.sql(f"CREATE INCREMENTAL VIEW v COMMENT '{comment}' TBLPROPERTIES ('p''; DROP' = 'q''; DROP') AS {query}")
    shop.same(query)
    shop.sql("INSERT INTO t VALUES (1, 3)")
    assert shop.rows("SELECT `s'; DROP TABLE keep; --` FROM v WHERE `a'b; DROP TABLE keep` = 1") == [(5,)]
    shown = shop.sql("SHOW CREATE INCREMENTAL VIEW v").collect()[0][0]
    shop.sql("DROP INCREMENTAL VIEW v", shown)
    shop.same(query)
    with pytest.raises(Exception, match="INVALID_SCHEMA_OR_RELATION_NAME"):
        shop.sql(f"CREATE INCREMENTAL VIEW `a'b; DROP TABLE keep` AS {query}")
    assert shop.rows("SELECT * FROM keep") == []
