"""``pyspark-ivm doctor``: one line a check, ``ok`` or ``FAIL`` with the way to mend it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_ivm import __version__
from pyspark_ivm.errors import IvmError
from pyspark_ivm.session import SUPPORTED, configure, default_setting, jar_path, quiet_log4j2, require_supported_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17


class Ailment(Exception):
    """What is wrong, and how to mend it."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(what)
        self.mend = mend


def examine(say: Callable[[str], None]) -> bool:
    """Runs every check, in the order in which one needs the other; True if all passed."""
    healthy = True

    def run(name: str, check: Callable[[], str]) -> bool:
        nonlocal healthy
        try:
            say(f"ok    {name}: {check()}")
            return True
        except Ailment as ailment:
            say(f"FAIL  {name}: {ailment}\n      to mend it: {ailment.mend}")
        except IvmError as error:
            say(f"FAIL  {name}: {error.sentence}\n      to mend it: {error.way_out}")
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            say(f"FAIL  {name}: {lines[0]}\n      to mend it: this should not happen; please report it with this text")
        healthy = False
        return False

    basis = [run("Java", java), run("Python packages", packages), run("Spark version", spark_version), run("jar", jar)]
    run("numba cache", numba_cache)
    run("state location", state_location)
    if not all(basis):
        say("skip  extension, workers: they need what failed above")
        return False
    with tempfile.TemporaryDirectory(prefix="pyspark-ivm-doctor-") as scratch:
        try:
            with session(Path(scratch)) as spark:
                run("Python on workers", lambda: workers(spark))
                run("extension", lambda: extension(spark))
        except Exception as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            run(
                "Spark session",
                lambda: _ail(f"does not start: {first}", "run `pyspark` alone; Spark itself must start"),
            )
    return healthy


def _ail(what: str, mend: str) -> str:
    raise Ailment(what, mend)


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    how = "JAVA_HOME" if home else "PATH"
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    mend = f"install Java {OLDEST_JAVA} or newer and set JAVA_HOME to it"
    if not program:
        raise Ailment("none found, neither by JAVA_HOME nor on the PATH", mend)
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60).stderr
    except OSError as error:
        raise Ailment(f"{program} (from {how}) does not run: {error.strerror}", mend) from error
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', said)
    if not found or int(found.group(2)) < OLDEST_JAVA:
        raise Ailment(f"{found.group(1) if found else 'unknown'} from {how} is too old for Spark 4", mend)
    return f"{found.group(1)} ({program}, from {how})"


def packages() -> str:
    missing: list[str] = []
    broken: list[str] = []
    found = [f"Python {platform.python_version()}"]
    from importlib import import_module

    for name in ("pyspark", "numpy", "numba", "pyarrow", "pandas", "sqlglot"):
        try:
            import_module(name)
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
        except ImportError as error:
            (missing if error.name == name else broken).append(name)
    if missing or broken:
        what = "; ".join(
            f"{word} {', '.join(names)}" for word, names in (("missing", missing), ("broken", broken)) if names
        )
        raise Ailment(what, f"{sys.executable} -m pip install --upgrade pyspark-ivm")
    if metadata.version("pandas").startswith("3."):
        raise Ailment("pandas 3 is not supported by pyspark 4 yet", 'pip install "pandas>=2.2,<3"')
    return ", ".join(found)


def spark_version() -> str:
    require_supported_version()
    return f"pyspark {metadata.version('pyspark')} is in {SUPPORTED}"


def jar() -> str:
    path = jar_path()
    with zipfile.ZipFile(path) as file:
        manifest = file.read("META-INF/MANIFEST.MF").decode()
    fields = dict(line.split(": ", 1) for line in manifest.splitlines() if ": " in line)
    built = fields.get("Implementation-Version", "an unknown version")
    if built != __version__:
        raise Ailment(
            f"built for {built}, the package is {__version__}", "run `make jar`, or install the package again"
        )
    return f"{path} (compiled on Spark {fields.get('Spark-Version', 'unknown')})"


def numba_cache() -> str:
    from importlib.util import find_spec

    from pyspark_ivm.index import cache

    if find_spec("numba") is None:
        raise Ailment("numba is missing", f"{sys.executable} -m pip install --upgrade pyspark-ivm")
    place = cache.directory()
    said = _writable(place, "set NUMBA_CACHE_DIR to a directory you may write to")
    compiled = any(place.rglob("*.nbc"))
    return f"{said}; kernels {'are compiled' if compiled else 'are not compiled yet: `pyspark-ivm warmup` does it'}"


def state_location() -> str:
    warehouse = default_setting("spark.sql.warehouse.dir") or "spark-warehouse"
    place = default_setting("spark.sql.ivm.stateLocation") or f"{warehouse.rstrip('/')}/_ivm"
    place = re.sub(r"^file:/+", "/", place)
    if "://" in place:
        raise Ailment(
            f"{place} is not on a POSIX file system, where a view's state must be",
            "set spark.sql.ivm.stateLocation to a directory of a local or mounted file system",
        )
    return _writable(Path(place), "set spark.sql.ivm.stateLocation to a directory you may write to")


def _writable(place: Path, mend: str) -> str:
    """Tries to write where the directory is or will be; leaves nothing behind."""
    at = place.absolute()
    while not at.exists():
        at = at.parent
    try:
        with tempfile.TemporaryFile(dir=at) as file:
            file.write(b"x")
    except OSError as error:
        raise Ailment(f"cannot write to {place}: {error.strerror}", mend) from error
    return f"{place} is writable"


@contextmanager
def session(scratch: Path) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from pyspark_ivm.screen import jvm_output_to

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.ivm.stateLocation": str(scratch / "state"),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet_log4j2().as_uri()}",
    }
    with jvm_output_to(scratch / "jvm.log"):
        builder = SparkSession.builder.master("local[2]").appName("pyspark-ivm doctor")
        spark = configure(builder.config(map=settings)).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def workers(spark: SparkSession) -> str:
    """Runs on a worker: the driver's sys.path does not reach it, so an import there is a check of its own."""

    def seen(_: object) -> Iterator[tuple[str, str]]:
        try:
            import pyspark_ivm

            yield sys.executable, pyspark_ivm.__version__
        except ImportError:
            yield sys.executable, ""

    python, version = spark.sparkContext.parallelize([0], 1).mapPartitions(seen).collect()[0]
    if version != __version__:
        what = f"{python} sees pyspark-ivm {version}" if version else f"{python} does not see the package"
        raise Ailment(
            what, f"set PYSPARK_PYTHON to {sys.executable}, or install pyspark-ivm for the workers' Python too"
        )
    return f"{python} sees pyspark-ivm {version}"


def extension(spark: SparkSession) -> str:
    """Create, change, read: the whole way once."""
    from pyspark_ivm import api
    from pyspark_ivm.session import check

    check(spark)
    spark.sql("CREATE TABLE doctor_base (k INT, x BIGINT) USING parquet")
    spark.sql("INSERT INTO doctor_base VALUES (1, 10), (2, 20)")
    spark.sql("CREATE INCREMENTAL VIEW doctor_view AS SELECT k, SUM(x) AS s FROM doctor_base GROUP BY k")
    spark.sql("INSERT INTO doctor_base VALUES (1, 5)")
    answer = sorted(tuple(row) for row in spark.table("doctor_view").collect())
    if answer != [(1, 15), (2, 20)]:
        raise Ailment(f"a view answered {answer}, not [(1, 15), (2, 20)]", "this is a defect; please report it")
    kind = api.describe(spark, "doctor_view")["last_refresh_kind"]
    spark.sql("DROP INCREMENTAL VIEW doctor_view")
    if kind != "incremental":
        raise Ailment(f"the refresh was {kind}, not incremental", "this is a defect; please report it")
    return "loaded; created, changed and read a view"
