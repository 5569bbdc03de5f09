"""What the benchmarks share: session, generated tables cached on disk, timing, and their sections of RESULTS.md.

The data is a function of the row number alone (order i belongs to customer i // 10, line item i to order i // 4), so the
tables of a smaller size are prefixes of a larger one, and the same changes meet the same partners at every size.
"""

from __future__ import annotations

import glob
import os
import pathlib
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

RESULTS = pathlib.Path(__file__).parent / "RESULTS.md"
#: Generated data, tables and state: a few gigabytes at 10^7 rows, kept for the next run.
DIRECTORY = pathlib.Path(__file__).parent.parent / ".tools" / "bench"
SCHEMA = "ivm_bench"
ORDERS_A_CUSTOMER = 10
LINES_AN_ORDER = 4
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")

HEADER = """# Benchmark results

Each section is written by the script it names (`make bench`, or the command in the section) between its markers; numbers
are medians of one run on one machine, milliseconds unless said otherwise. Trust ratios and counts across machines, not times.
"""


def delta_jars() -> list[str]:
    """Jars named by IVM_DELTA_JARS: a directory, or paths separated by commas."""
    value = os.environ.get("IVM_DELTA_JARS", "")
    if os.path.isdir(value):
        return sorted(glob.glob(os.path.join(value, "*.jar")))
    return [jar for jar in value.split(",") if jar]


def session(directory: pathlib.Path, *, cores: str = "*", memory: str = "3g") -> Any:
    from pyspark.sql import SparkSession

    import pyspark_ivm

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what the driver runs
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("pyspark-ivm benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", memory)
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        # Delta's 50 by default cost seconds a statement on a small machine, for the refresh and for the recompute alike.
        .config("spark.databricks.delta.snapshotPartitions", "1")
    )
    if delta_jars():
        builder = (
            builder.config("spark.jars", ",".join(delta_jars()))
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        )
    return pyspark_ivm.configure(builder).getOrCreate()


def base_queries(rows: int) -> dict[str, str]:
    """customer, orders and lineitem as Spark queries; ``rows`` is the number of line items."""
    orders = max(1, rows // LINES_AN_ORDER)
    customers = max(1, orders // ORDERS_A_CUSTOMER)
    names = ", ".join(f"'{s}'" for s in SEGMENTS)
    return {
        "customer": f"SELECT CAST(id AS INT) AS ck, element_at(array({names}), CAST(pmod(xxhash64(id), {len(SEGMENTS)}) AS INT) + 1) "
        f"AS segment, CAST(pmod(xxhash64(id, 1), 25) AS INT) AS nation FROM range({customers})",
        "orders": f"SELECT id AS ok, CAST(id DIV {ORDERS_A_CUSTOMER} AS INT) AS ck, date_add(DATE'2024-01-01', "
        f"CAST(pmod(xxhash64(id), 365) AS INT)) AS odate FROM range({orders})",
        "lineitem": "SELECT id AS lid, id DIV 4 AS ok, CAST(pmod(xxhash64(id), 50) AS INT) + 1 AS qty, "
        "CAST(pmod(xxhash64(id, 1), 90000) / 100 + 1 AS DECIMAL(12,2)) AS price, "
        f"CAST(pmod(xxhash64(id, 2), 11) / 100 AS DECIMAL(4,2)) AS disc FROM range({rows})",
    }


def base_directory(spark: Any, directory: pathlib.Path, rows: int) -> pathlib.Path:
    """The base tables as Parquet, generated once for each size."""
    base = directory / "base" / str(rows)
    for name, query in base_queries(rows).items():
        target = base / name
        if not (target / "_SUCCESS").exists():
            spark.sql(query).coalesce(max(1, min(8, rows // 1_000_000))).write.mode("overwrite").parquet(str(target))
    return base


def create_tables(spark: Any, directory: pathlib.Path, rows: int, kind: str) -> None:
    """Fresh tables in the benchmark's schema; the cached base is copied, because the benchmark changes its tables."""
    base = base_directory(spark, directory, rows)
    drop_schema(spark)
    # What a killed run left: the in-memory catalog has forgotten it, and Delta refuses a directory in use.
    shutil.rmtree(directory / "warehouse" / f"{SCHEMA}.db", ignore_errors=True)
    spark.sql(f"CREATE SCHEMA {SCHEMA}")
    for name in base_queries(rows):
        if kind == "parquet":
            location = directory / "tables" / name
            shutil.rmtree(location, ignore_errors=True)
            shutil.copytree(base / name, location)
            columns = ", ".join(f"{c} {t}" for c, t in spark.read.parquet(str(location)).dtypes)
            spark.sql(f"CREATE TABLE {SCHEMA}.{name} ({columns}) USING parquet LOCATION '{location}'")
        else:
            # Deletion vectors: else every delete rewrites files, and the change's own cost hides the refresh's.
            spark.sql(
                f"CREATE TABLE {SCHEMA}.{name} USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', "
                f"'delta.enableDeletionVectors' = 'true') AS SELECT * FROM parquet.`{base / name}`"
            )


def drop_schema(spark: Any) -> None:
    spark.sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def milliseconds(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    answer = action()
    return (time.perf_counter() - start) * 1000, answer


def median(values: list[float]) -> float:
    return statistics.median(values)


def machine(spark: Any) -> str:
    return f"Spark {spark.version}, {host()}"


def host() -> str:
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {gib:.0f} GiB, "
        f"{platform.system()} {platform.machine()}"
    )


def power(rows: int) -> str:
    text = f"{rows:,}"
    exponent = len(str(rows)) - 1
    return f"10^{exponent}" if rows == 10**exponent and rows >= 10**5 else text


def write_section(name: str, text: str) -> None:
    """Replaces this script's section of RESULTS.md, leaving the others as they are."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    section = f"{begin}\n{text.strip()}\n{end}\n"
    old = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else HEADER
    if begin in old and end in old:
        before, rest = old.split(begin, 1)
        new = before + section + rest.split(end, 1)[1].removeprefix("\n")
    else:
        new = old.rstrip("\n") + "\n\n" + section
    RESULTS.write_text(new, encoding="utf-8")
