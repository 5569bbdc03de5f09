"""Sessions that understand incremental views: ``configure`` a builder, ``check`` a running session.

Spark logs no more than a warning when an extension's jar is missing, and ignores static settings on a running session;
what can go wrong there is found here and said in words.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_ivm import EXTENSION
from pyspark_ivm.errors import IvmError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Builder = TypeVar("Builder", bound="SparkSession.Builder")

#: The supported range, in pip's notation and as (first, first that is too new). Kept in step with pyproject.toml.
SUPPORTED = ">=4.1,<4.4"
SUPPORTED_RANGE = ((4, 1), (4, 4))

#: Comma-separated settings to which `configure` appends. Whoever stands there already (Delta, Iceberg) stays in front:
#: the last extension is the outermost parser, and ours is the one that forwards the parameters of `spark.sql(q, args)`.
#: Careful with additions: Spark ignores an extension it cannot load, but a class named in
#: spark.sql.extendedExplainProviders that the jar lacks makes every statement fail.
APPENDED = {"spark.sql.extensions": EXTENSION}


def jar_path() -> str:
    """Where the jar is, as ``--jars`` and ``spark.jars`` want it."""
    jar = Path(__file__).with_name("jars") / "pyspark-ivm.jar"
    if not jar.exists():
        raise IvmError("IVM_JAR_MISSING", path=jar)
    return str(jar)


def quiet_log4j2() -> Path:
    """A logging configuration that keeps Spark's chatter off the screen; used by our own commands only."""
    return Path(__file__).with_name("quiet-log4j2.properties")


def require_supported_version() -> None:
    import pyspark

    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    first, too_new = SUPPORTED_RANGE
    if not found or not first <= (int(found.group(1)), int(found.group(2))) < too_new:
        raise IvmError("IVM_SPARK_VERSION_UNSUPPORTED", version=pyspark.__version__, supported=SUPPORTED)


def configure(builder: Builder) -> Builder:
    """Adds the jar and the extension to ``builder``, beside what it and Spark's defaults already name; returns it.

    Works for classic sessions and for Spark Connect in this process (``remote("local")``). A builder that points at a
    running Connect server (``sc://…``) is returned as it is: jar and extension belong to the server's own start.
    """
    require_supported_version()
    if _is_remote_server(builder):
        return builder
    jar = jar_path()
    _require_no_plain_session()
    _add_to_running_jvm(jar)
    builder.config("spark.jars", _append(_setting(builder, "spark.jars"), jar))
    for key, ours in APPENDED.items():
        builder.config(key, _append(_setting(builder, key), ours))
    return builder


def check(spark: SparkSession) -> None:
    """Raises IVM_JVM_SHIM_NOT_LOADED unless ``spark`` understands incremental views. SQL only: works on Connect too."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        spark.sql("SHOW INCREMENTAL VIEWS LIKE ''")  # no view has this name: nothing is looked at
    except ParseException as error:
        named = EXTENSION in (spark.conf.get("spark.sql.extensions", None) or "")
        cause = (
            "spark.sql.extensions names the extension, but its jar is not on the class path"
            if named
            else "spark.sql.extensions does not name the extension"
        )
        raise IvmError("IVM_JVM_SHIM_NOT_LOADED", cause=cause, extension=EXTENSION) from error
    except AnalysisException:
        return  # understood; the current catalog may have no views to show


def _append(existing: str | None, ours: str) -> str:
    """``existing`` without doubles, ``ours`` last."""
    names = [name.strip() for name in (existing or "").split(",")]
    return ",".join([*dict.fromkeys(name for name in names if name and name != ours), ours])


def _is_remote_server(builder: SparkSession.Builder) -> bool:
    url = builder._options.get("spark.remote", os.environ.get("SPARK_REMOTE", ""))
    return str(url).startswith("sc://")


def _require_no_plain_session() -> None:
    from pyspark import SparkContext

    running = SparkContext._active_spark_context
    if running is not None and EXTENSION not in (running.getConf().get("spark.sql.extensions") or ""):
        raise IvmError("IVM_SESSION_ALREADY_STARTED")


def _running_jvm() -> Any:
    """The JVM that the next session will live in, if there is one already: an earlier session's, or spark-submit's."""
    from pyspark import SparkContext

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()
    return SparkContext._jvm


def _add_to_running_jvm(jar: str) -> None:
    """``spark.jars`` reaches the class path only when the JVM starts. Into one that runs already the jar goes as
    spark-submit puts it there: through the class loader."""
    from pyspark import SparkContext

    jvm = _running_jvm()
    if jvm is None or SparkContext._active_spark_context is not None:
        return
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    url = jvm.java.io.File(jar).toURI().toURL()
    if url.toString() not in [known.toString() for known in loader.getURLs()]:
        loader.addURL(url)


def _setting(builder: SparkSession.Builder, key: str) -> str | None:
    """What ``key`` would be without us: the builder's own option, else Spark's default."""
    return str(builder._options[key]) if key in builder._options else default_setting(key)


def default_setting(key: str) -> str | None:
    """What a session that sets nothing itself would find under ``key``: from spark-submit, else from its defaults file."""
    from pyspark import SparkConf

    if _running_jvm() is not None:
        return SparkConf().get(key, None)
    submitted = dict(_submit_arguments(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))))
    if key in submitted:
        return submitted[key]
    return dict(_defaults_file()).get(key)


def _submit_arguments(arguments: list[str]) -> Iterator[tuple[str, str]]:
    for flag, value in pairwise(arguments):
        if flag in ("--conf", "-c") and "=" in value:
            name, _, text = value.partition("=")
            yield name, text.strip('"')
        elif flag == "--jars":
            yield "spark.jars", value


def _defaults_file() -> Iterable[tuple[str, str]]:
    """``spark-defaults.conf``, where spark-submit would look for it."""
    import pyspark

    home = os.environ.get("SPARK_HOME", str(Path(pyspark.__file__).parent))
    file = Path(os.environ.get("SPARK_CONF_DIR", str(Path(home) / "conf"))) / "spark-defaults.conf"
    if not file.is_file():
        return
    for line in file.read_text("utf-8").splitlines():
        found = re.match(r"\s*([^\s#!=:]+)\s*[\s=:]\s*(.*?)\s*$", line)
        if found:
            yield found.group(1), found.group(2)
