"""One of several drivers on the same view: random DML, refreshes and reads; writes down each read with the version it was made at.

python driver.py <directory> <seed> <operations>
"""

from __future__ import annotations

import fcntl
import json
import random
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import pyspark_ivm
from tests.conftest import base_settings, delta_settings

QUERY = "SELECT a.g, sum(a.x * b.y) AS s, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.g"


def start(root: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[1]").config(map={**base_settings(root), **delta_settings()})
    spark = pyspark_ivm.configure(builder.config("spark.driver.memory", "1g")).getOrCreate()
    for table in ("a", "b"):
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table} USING delta LOCATION '{root}/{table}'")
    return spark


def change(spark: SparkSession, rng: random.Random) -> None:
    key, value = rng.randrange(12), rng.randrange(100)
    spark.sql(
        rng.choice(
            [
                f"INSERT INTO a VALUES ({key}, 'g{key % 3}', {value}), ({key + 1}, 'g{key % 4}', {value})",
                f"INSERT INTO b VALUES ({key}, {value % 9})",
                f"UPDATE a SET x = {value} WHERE k = {key}",
                f"DELETE FROM {rng.choice('ab')} WHERE k = {key} AND {key} < 6",
                f"MERGE INTO a USING (SELECT {key} AS k) m ON a.k = m.k WHEN MATCHED THEN UPDATE SET x = x + 1 "
                f"WHEN NOT MATCHED THEN INSERT (k, g, x) VALUES ({key}, 'new', {value})",
            ]
        )
    )


def main() -> None:
    root, seed, operations = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    spark = start(root)
    spark.sql(f"CREATE INCREMENTAL VIEW IF NOT EXISTS v AS {QUERY}")
    print("READY", flush=True)
    for _ in range(operations):
        what = rng.choice(["change", "change", "refresh", "read", "read"])
        if what == "change":
            # Delta's commits are atomic between processes on object stores and HDFS, not on a local disk.
            with open(root / "lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                change(spark, rng)
        elif what == "refresh":
            report = spark.sql("REFRESH INCREMENTAL VIEW v").collect()[0]
            print("REFRESH " + json.dumps([report.version, report.kind, report.reason]), flush=True)
        else:
            rows = spark.sql("SELECT _ivm_version, g, s, n FROM v").collect()
            if rows:
                answer = sorted([r.g, r.s, r.n] for r in rows)
                print("READ " + json.dumps([sorted({r[0] for r in rows}), answer]), flush=True)
    [location] = spark.sql("DESCRIBE EXTENDED INCREMENTAL VIEW v").where("key = 'location'").collect()
    print("LOCATION " + json.dumps(location.value), flush=True)


if __name__ == "__main__":
    main()
