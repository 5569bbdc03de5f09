"""As a user would: the README's example, spark-submit, the spark-sql shell, the wheel in a fresh environment, Connect."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import pyspark_ivm
from tests.conftest import ROOT
from tests.spark.ways import (
    APPLICATION,
    READ,
    REFRESH,
    STATEMENTS,
    as_arguments,
    assert_right,
    bare_environment,
    launch,
    packages_of,
    said,
    settings,
    tool,
)

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_readme_example(tmp_path: Path) -> None:
    done = launch([sys.executable, str(ROOT / "examples" / "quickstart.py")], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    shown = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in done.stdout.splitlines() if "|" in line
    ]
    assert ("7", "25.50") in shown and ("8", "42.00") in shown, done.stdout


@pytest.mark.slow
def test_spark_submit(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APPLICATION)
    assert_right(launch([tool("spark-submit"), *as_arguments(tmp_path), "app.py"], tmp_path))


@pytest.mark.slow
def test_spark_submit_of_an_application_that_configures_itself(tmp_path: Path) -> None:
    """No --jars: the JVM runs before `configure` is called, so the jar must reach its class loader another way."""
    application = APPLICATION.replace("SparkSession.builder.", "pyspark_ivm.configure(SparkSession.builder).")
    (tmp_path / "app.py").write_text("import pyspark_ivm\n" + application)
    pairs = [part for key, value in settings(tmp_path).items() for part in ("--conf", f"{key}={value}")]
    assert_right(launch([tool("spark-submit"), "--master", "local[2]", *pairs, "app.py"], tmp_path))


@pytest.mark.slow
def test_spark_sql_shell(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(";\n".join([*STATEMENTS, "-- a comment; with a semicolon\n" + REFRESH, READ]) + ";\n")
    assert_right(launch([tool("spark-sql"), *as_arguments(tmp_path), "-f", str(script)], tmp_path))


@pytest.mark.slow
def test_wheel_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """`pip install` of the wheel into an environment of its own; the big dependencies come from this one."""
    with zipfile.ZipFile(wheel) as file:
        assert {"pyspark_ivm/jars/pyspark-ivm.jar", "pyspark_ivm/conditions.json"} <= set(file.namelist())
    venv = tmp_path / "venv"
    python = bare_environment(venv)
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, timeout=120)

    (tmp_path / "app.py").write_text(
        "import pyspark_ivm\nprint('home', pyspark_ivm.__file__)\n"
        + APPLICATION.replace(
            "SparkSession.builder.", f"pyspark_ivm.configure(SparkSession.builder.config(map={settings(tmp_path)!r}))."
        )
    )
    done = launch([str(python), "app.py"], tmp_path, str(python), PYTHONPATH="")
    assert_right(done)
    assert f"home {packages_of(venv)}" in done.stdout, done.stdout
    command = subprocess.run([str(venv / "bin" / "pyspark-ivm"), "jar"], capture_output=True, text=True, check=True)
    assert Path(command.stdout.strip()).is_file()


@pytest.mark.slow
def test_connect_in_this_process(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    application = APPLICATION.replace(
        "SparkSession.builder.",
        f"pyspark_ivm.configure(SparkSession.builder.remote('local[2]').config(map={settings(tmp_path)!r})).",
    )
    (tmp_path / "app.py").write_text(
        "import pyspark_ivm\n"
        + application
        + "\nfrom pyspark_ivm import api\nprint(api.describe(spark, 'sums')['strategy'])\n"
    )
    assert_right(launch([sys.executable, "app.py"], tmp_path))


#: What a notebook does with a cell, as often as it likes; the output of the last expression is shown.
CELLS = f"""
import pyspark_ivm
from pyspark.sql import SparkSession
spark = pyspark_ivm.configure(SparkSession.builder.master("local[2]").config(map=SETTINGS)).getOrCreate()
for statement in {STATEMENTS!r}: spark.sql(statement)

spark.sql({REFRESH!r}).show()
spark.sql({READ!r}).toPandas()
try: spark.sql("CACHE TABLE sums")
except Exception as error: print(error.getCondition())

spark.sql("EXPLAIN REFRESH INCREMENTAL VIEW sums").show(truncate=False)
"""


@pytest.mark.slow
def test_notebook(run_python: Run, tmp_path: Path) -> None:
    """Spark's own logging as it comes: nothing of ours is written beside the cells' output, not even after an error."""
    plain = {key: value for key, value in settings(tmp_path).items() if "JavaOptions" not in key}
    done = run_python(
        f"""
from code import InteractiveConsole

console = InteractiveConsole({{"SETTINGS": {plain!r}}})
for line in {CELLS!r}.splitlines():
    console.push(line)
""",
        PYSPARK_DRIVER_PYTHON="jupyter",  # how `pyspark` is told to start one
    )
    assert_right(done)
    assert "IVM_STATEMENT_NOT_ALLOWED" in done.stdout, done.stdout
    assert not [line for line in done.stderr.splitlines() if "ivm" in line.lower() or "Traceback" in line], done.stderr


@pytest.mark.slow
def test_second_session_of_a_process(run_python: Run, tmp_path: Path) -> None:
    """A plain session first: refused while it runs, and after `stop()` the same JVM takes the extension."""
    done = run_python(
        f"""
import pyspark_ivm
from pyspark.sql import SparkSession

plain = SparkSession.builder.master("local[2]").config(map={settings(tmp_path)!r}).getOrCreate()
from pyspark_ivm import api
for attempt in (lambda: pyspark_ivm.configure(SparkSession.builder), lambda: api.describe(plain, "v")):
    try:
        attempt()
    except pyspark_ivm.IvmError as error:
        print("refused", error.condition)
plain.stop()
builder = SparkSession.builder.master("local[2]").config(map={settings(tmp_path)!r})
pyspark_ivm.configure(builder).getOrCreate()
{APPLICATION}
"""
    )
    assert_right(done)
    assert "refused IVM_SESSION_ALREADY_STARTED\nrefused IVM_JVM_SHIM_NOT_LOADED\n" in done.stdout


@pytest.mark.slow
def test_pythons_without_the_package(tmp_path: Path) -> None:
    """A view that is there already, then workers and at last the driver's planner run by a Python that lacks it."""
    bare, ours = (bare_environment(tmp_path / name, "--without-pip") for name in ("bare", "ours"))
    (packages_of(tmp_path / "ours") / "tree.pth").write_text(str(ROOT))
    (tmp_path / "app.py").write_text(
        f"""
import pyspark_ivm
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

VIEW = {STATEMENTS[2]!r}


def run(workers, driver, *statements):
    conf = {{**{settings(tmp_path)!r}, "spark.pyspark.python": workers, "spark.pyspark.driver.python": driver}}
    spark = pyspark_ivm.configure(SparkSession.builder.master("local[2]").config(map=conf)).getOrCreate()
    for statement in statements:
        try:
            print("rows", len(spark.sql(statement).collect()))
        except PySparkException as error:
            print(error.getCondition(), error)
    spark.stop()


PATH = {str(tmp_path / "base")!r}
TABLE = f"CREATE TABLE base (k INT, x BIGINT) USING parquet LOCATION '{{PATH}}'"
bare, ours = {str(bare)!r}, {str(ours)!r}
run(ours, ours, TABLE, "INSERT INTO base VALUES (1, 10), (2, 20)", VIEW)
run(bare, ours, TABLE, VIEW, "SELECT * FROM sums")
run(bare, bare, TABLE, "EXPLAIN " + VIEW.replace("sums", "others"))
"""
    )
    done = launch([str(ours), "app.py"], tmp_path, str(ours), PYTHONPATH="")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["rows"] * 5 + [
        "IVM_PACKAGE_MISSING",
        "rows",
        "IVM_PACKAGE_MISSING",
    ], said(done)
    assert f"The Python of the executors ({bare}) cannot load pyspark_ivm: ModuleNotFoundError" in lines[5]
    assert f"The Python of the driver ({bare}) cannot load pyspark_ivm: ModuleNotFoundError" in lines[7]


def test_extension_named_but_jar_missing(run_python: Run, tmp_path: Path) -> None:
    """Spark logs a warning and goes on; we do not."""
    conf = {"spark.sql.extensions": pyspark_ivm.EXTENSION, **settings(tmp_path)}
    done = run_python(
        f"""
import pyspark_ivm
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config(map={conf!r}).getOrCreate()
try:
    pyspark_ivm.check(spark)
except pyspark_ivm.IvmError as error:
    print(error)
"""
    )
    assert "[IVM_JVM_SHIM_NOT_LOADED]" in done.stdout and "its jar is not on the class path" in done.stdout, done.stderr


@pytest.mark.slow
def test_doctor(tmp_path: Path) -> None:
    done = launch([sys.executable, "-m", "pyspark_ivm.cli", "doctor"], tmp_path)
    assert done.returncode == 0, done.stdout
    assert all(line.startswith("ok ") for line in done.stdout.splitlines()), done.stdout
    assert done.stderr == ""


def test_doctor_says_how_to_mend(tmp_path: Path) -> None:
    done = launch([sys.executable, "-m", "pyspark_ivm.cli", "doctor"], tmp_path, JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "FAIL  Java" in done.stdout and "install Java 17" in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("form", ["--parquet", pytest.param("", marks=pytest.mark.delta)])
def test_demo(form: str, tmp_path: Path) -> None:
    small = ["--rows", "20000", "--rounds", "3", "--plot", str(tmp_path / "demo.png")]
    done = launch([sys.executable, str(ROOT / "examples" / "shop_demo.py"), *small, *filter(None, [form])], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("equal: yes") == 3 and "equal: NO" not in done.stdout
    assert done.stdout.count(" incremental ") == 3, done.stdout
    assert "Strategy: yannakakis" in done.stdout and done.stderr == ""
    assert (tmp_path / "demo.png").stat().st_size > 0
