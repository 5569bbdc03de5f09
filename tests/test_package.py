"""The package as such: layers, light import, one file of conditions, documents that agree with the code."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_ivm

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pyspark_ivm"
SHIM = ROOT / "jvm-shim" / "src" / "main"

#: DESIGN §1, from the top down. A module may import its own layer and those below it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("doctor",),
    ("api",),
    ("session", "screen"),
    ("worker",),
    ("refresh", "state"),
    ("strategies",),
    ("plan",),
    ("index",),
    ("errors", "_version", ""),
)
#: Kept free of Spark (and of each other's weight), so that they can be tested and reused without it.
FORBIDDEN = {"plan": {"pyspark", "numba"}, "index": {"pyspark", "pandas", "sqlglot"}, "strategies": {"pyspark"}}


def layer_of(module: str) -> int:
    """`module` below pyspark_ivm, dotted; "" is the package itself."""
    first = module.split(".")[0]
    for depth, names in enumerate(LAYERS):
        if first in names:
            return depth
    raise AssertionError(f"pyspark_ivm.{module} belongs to no layer: give it one in LAYERS")


def imports_of(file: Path, module: str) -> set[str]:
    """Absolute names of all modules that `file` imports, also inside functions; not those for type checkers alone."""
    tree = ast.parse(file.read_text("utf-8"))
    for_types: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for_types.update(inner for statement in node.body for inner in ast.walk(statement))
    found: set[str] = set()
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            # `from pyspark_ivm import x` imports the module x if there is one, else takes a name from the package.
            for alias in node.names:
                as_module = PACKAGE.parent.joinpath(*f"{base}.{alias.name}".split("."))
                is_module = as_module.is_dir() or as_module.with_suffix(".py").exists()
                found.add(f"{base}.{alias.name}" if is_module else base)
    return found


def modules() -> list[tuple[Path, str]]:
    named = []
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        named.append((file, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)))
    return named


@pytest.mark.parametrize(("file", "module"), modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_point_downwards(file: Path, module: str) -> None:
    own = layer_of(module.removeprefix("pyspark_ivm").lstrip("."))
    for name in imports_of(file, module):
        top, _, inner = name.partition(".")
        if top == "pyspark_ivm":
            assert layer_of(inner) >= own, f"{module} imports {name}, which stands above it"
        else:
            home = module.split(".")[1] if "." in module else ""
            assert top not in FORBIDDEN.get(home, set()), f"{module} imports {top}"


def test_import_is_light() -> None:
    """Spark imports every module called pyspark_* when it looks up an unknown data source."""
    heavy = ["numpy", "pyspark", "numba", "pandas", "pyarrow", "sqlglot", "json"]
    script = (
        "import sys; before = set(sys.modules); import pyspark_ivm;"
        "pyspark_ivm.EXTENSION, pyspark_ivm.__version__, dir(pyspark_ivm);"
        f"print(*[m for m in {heavy!r} if m in sys.modules and m not in before])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == []


def test_public_names() -> None:
    assert set(pyspark_ivm.__all__) <= set(dir(pyspark_ivm))
    for name in pyspark_ivm.__all__:
        assert getattr(pyspark_ivm, name) is not None
    with pytest.raises(AttributeError):
        _ = pyspark_ivm.nothing_of_this_name


# ---- conditions.json: one file for JVM and Python ----

CONDITIONS = json.loads((PACKAGE / "conditions.json").read_text("utf-8"))
#: Where a code may be used: string literals of the sources.
SOURCES = [*sorted(PACKAGE.rglob("*.py")), *sorted(SHIM.rglob("*.scala"))]
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
CODE = re.compile(r'"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)"')
STRINGS = {word for file in SOURCES for word in CODE.findall(COMMENT.sub("", file.read_text("utf-8")))}


def test_conditions_are_sorted_and_formed_alike() -> None:
    text = (PACKAGE / "conditions.json").read_text("utf-8")
    assert text == json.dumps(CONDITIONS, indent=2, sort_keys=False, ensure_ascii=False) + "\n"
    assert list(CONDITIONS) == sorted(CONDITIONS)
    for code, entry in CONDITIONS.items():
        assert entry["kind"] in ("error", "reason"), code
        assert (entry["kind"] == "error") == code.startswith("IVM_"), code
        assert ("sqlState" in entry) == (entry["kind"] == "error"), code
        assert re.fullmatch(r"[0-9A-Z]{5}", entry.get("sqlState", "00000")), code
        # A parameter (">") may be a sentence itself, and may begin one.
        assert re.fullmatch(r"([A-Z<]|pyspark).*[.>]", entry["sentence"]), code
        assert re.fullmatch(r"|[A-Z<].*[.>]", entry["wayOut"]), code
        # A way out may be empty where nothing needs one (NO_CHANGES), but it is there to be thought about.
        assert list(entry) == [k for k in ("kind", "sqlState", "sentence", "wayOut") if k in entry], code


@pytest.mark.parametrize("code", sorted(CONDITIONS))
def test_every_condition_is_used(code: str) -> None:
    assert code in STRINGS, f"{code} stands in conditions.json and nowhere in the sources"


def test_every_used_error_is_declared() -> None:
    # Reason codes have no prefix and cannot be told from other words; raising an undeclared one fails by itself.
    settings = {"IVM_DELTA_JARS"}
    used = {word for word in STRINGS if word.startswith("IVM_")} - settings
    assert used <= set(CONDITIONS), sorted(used - set(CONDITIONS))
    reasons = {word for word in STRINGS if re.match(r"(RESYNC|UNSUPPORTED)_", word)}
    assert reasons <= set(CONDITIONS), sorted(reasons - set(CONDITIONS))


def test_page_of_reasons_is_up_to_date() -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("reasons_tool", ROOT / "tools" / "reasons.py")
    assert spec and spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.PAGE.read_text("utf-8") == tool.page(), "run `make docs`"
    assert set(CONDITIONS) >= tool.OF_A_REFRESH | tool.NOT_THE_CHEAPEST


# ---- configure ----


def fresh_builder():  # type: ignore[no-untyped-def]
    from pyspark.sql import SparkSession

    return SparkSession.builder


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before the first session, whatever ran earlier in this process."""
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_session")
class TestConfigure:
    def test_appends_after_what_is_there(self) -> None:
        builder = fresh_builder().config("spark.sql.extensions", "a.Delta, b.Iceberg").config("spark.jars", "/x.jar")
        options = pyspark_ivm.configure(builder)._options
        assert options["spark.sql.extensions"] == f"a.Delta,b.Iceberg,{pyspark_ivm.EXTENSION}"
        assert options["spark.jars"] == f"/x.jar,{pyspark_ivm.jar_path()}"

    def test_twice_is_once(self) -> None:
        builder = pyspark_ivm.configure(fresh_builder())
        once = dict(builder._options)
        assert pyspark_ivm.configure(builder)._options == once

    def test_moves_ours_to_the_end(self) -> None:
        builder = fresh_builder().config("spark.sql.extensions", f"{pyspark_ivm.EXTENSION},a.Delta")
        assert pyspark_ivm.configure(builder)._options["spark.sql.extensions"] == f"a.Delta,{pyspark_ivm.EXTENSION}"

    def test_keeps_defaults_of_the_conf_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "spark-defaults.conf").write_text("# defaults\nspark.sql.extensions  a.Delta\nspark.jars=/d.jar\n")
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        options = pyspark_ivm.configure(fresh_builder())._options
        assert options["spark.sql.extensions"] == f"a.Delta,{pyspark_ivm.EXTENSION}"
        assert options["spark.jars"] == f"/d.jar,{pyspark_ivm.jar_path()}"

    def test_keeps_submit_arguments(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", '--jars /s.jar --conf "spark.sql.extensions=a.Delta" pyspark-shell')
        options = pyspark_ivm.configure(fresh_builder())._options
        assert options["spark.sql.extensions"] == f"a.Delta,{pyspark_ivm.EXTENSION}"
        assert options["spark.jars"] == f"/s.jar,{pyspark_ivm.jar_path()}"

    def test_connect_in_process_is_configured(self) -> None:
        assert "spark.jars" in pyspark_ivm.configure(fresh_builder().remote("local[2]"))._options

    def test_connect_server_is_left_alone(self) -> None:
        assert pyspark_ivm.configure(fresh_builder().remote("sc://host"))._options == {"spark.remote": "sc://host"}

    @pytest.mark.parametrize("version", ["3.5.4", "4.0.4", "4.4.0", "5.0.0"])
    def test_refuses_other_versions(self, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyspark.__version__", version)
        with pytest.raises(pyspark_ivm.IvmError, match=r"works with pyspark >=4.1,<4.4") as raised:
            pyspark_ivm.configure(fresh_builder())
        assert raised.value.condition == "IVM_SPARK_VERSION_UNSUPPORTED"

    @pytest.mark.parametrize("version", ["4.1.0", "4.2.0", "4.3.1.dev0"])
    def test_accepts_supported_versions(self, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyspark.__version__", version)
        pyspark_ivm.configure(fresh_builder())

    def test_says_that_the_jar_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyspark_ivm.session.__file__", str(tmp_path / "session.py"))
        with pytest.raises(pyspark_ivm.IvmError, match="make jar") as raised:
            pyspark_ivm.configure(fresh_builder())
        assert raised.value.condition == "IVM_JAR_MISSING"


# ---- doctor: how each failure reads (the checks that need no session) ----


class TestDoctor:
    """A file where a directory should be cannot be written to, not even by root."""

    def test_numba_cache_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from pyspark_ivm import doctor

        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        said = doctor.numba_cache()
        assert said.startswith(str(tmp_path)) and "not compiled yet: `pyspark-ivm warmup` does it" in said

    def test_numba_cache_not_writable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from pyspark_ivm import doctor

        (tmp_path / "file").touch()
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "cache"))
        with pytest.raises(doctor.Ailment, match="cannot write to") as raised:
            doctor.numba_cache()
        assert "NUMBA_CACHE_DIR" in raised.value.mend

    @pytest.mark.usefixtures("no_session")
    def test_state_location_not_writable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from pyspark_ivm import doctor

        (tmp_path / "file").touch()
        (tmp_path / "spark-defaults.conf").write_text(f"spark.sql.ivm.stateLocation {tmp_path}/file/state\n")
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        with pytest.raises(doctor.Ailment, match="cannot write to") as raised:
            doctor.state_location()
        assert "spark.sql.ivm.stateLocation" in raised.value.mend

    def test_jar_of_another_version(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import zipfile

        from pyspark_ivm import doctor

        with zipfile.ZipFile(tmp_path / "old.jar", "w") as file:
            file.writestr("META-INF/MANIFEST.MF", "Implementation-Version: 0.0.1\n")
        monkeypatch.setattr(doctor, "jar_path", lambda: str(tmp_path / "old.jar"))
        with pytest.raises(doctor.Ailment, match=r"built for 0\.0\.1, the package is"):
            doctor.jar()

    def test_broken_package_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from pyspark_ivm import doctor

        monkeypatch.setitem(sys.modules, "sqlglot", None)
        with pytest.raises(doctor.Ailment, match="missing sqlglot") as raised:
            doctor.packages()
        assert "pip install" in raised.value.mend

    def test_what_failed_is_said_and_the_rest_skipped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from pyspark_ivm import doctor

        def gone() -> str:
            raise pyspark_ivm.IvmError("IVM_JAR_MISSING", path="/nowhere")

        monkeypatch.setattr(doctor, "jar", gone)
        lines: list[str] = []
        assert not doctor.examine(lines.append)
        assert any(line.startswith("FAIL  jar") and "to mend it: Build it with `make jar`" in line for line in lines)
        assert lines[-1].startswith("skip  extension, workers")


@pytest.mark.parametrize(
    ("given", "quoted"),
    [
        ("v", "`v`"),
        ("shop.v", "`shop`.`v`"),
        ("spark_catalog.shop.v", "`spark_catalog`.`shop`.`v`"),
        ("`a.b`.v", "`a.b`.`v`"),
        ("daily sales", "`daily sales`"),
        ("`a``b`", "`a``b`"),
        ("shop.`x;y`", "`shop`.`x;y`"),
    ],
)
def test_names_are_quoted(given: str, quoted: str) -> None:
    from pyspark_ivm.api import quoted as quote

    assert quote(given) == quoted


@pytest.mark.parametrize("given", ["", ".", "a..b", "a.", "`a", "a`; DROP TABLE x; --`b"])
def test_what_is_no_name_is_refused(given: str) -> None:
    from pyspark_ivm.api import quoted as quote

    with pytest.raises(ValueError, match="not a view's name"):
        quote(given)


def test_pyproject_and_code_agree() -> None:
    import tomllib

    from pyspark_ivm.session import SUPPORTED

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"pyspark{SUPPORTED}" in project["dependencies"]


def test_example_is_the_readmes() -> None:
    """examples/quickstart.py is the README's example, word for word; tests/spark/test_ways_to_run.py runs it."""
    block = re.search(r"## Ten lines\n\n```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert block and block.group(1) == (ROOT / "examples" / "quickstart.py").read_text("utf-8")
