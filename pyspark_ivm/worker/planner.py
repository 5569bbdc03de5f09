"""The planning worker: Spark's PythonPlannerRunner starts this module, sends one request, reads one answer.

After Spark's own preamble the JVM writes one UTF-8 string, the request as JSON, and reads one, the answer as JSON:
``{"ok": …}`` or ``{"error": {"condition": …, "parameters": …}}``. Whatever goes wrong is an answer, so the worker
stays reusable. Verbs: ``plan`` (docs/contracts.md B), ``ping``.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import sys
import traceback
from collections import OrderedDict
from typing import IO, Any

#: Answers kept by request: EXPLAIN, CREATE and the first refresh ask the same thing.
CACHED_ANSWERS = 32

_answers: OrderedDict[str, str] = OrderedDict()


def answer(request: str) -> str:
    """The answer to a request, both JSON texts; never raises."""
    key = hashlib.sha256(request.encode("utf-8")).hexdigest()
    if key in _answers:
        _answers.move_to_end(key)
        return _answers[key]
    try:
        decoded = json.loads(request)
        text = json.dumps(_run(decoded), ensure_ascii=False)
        if decoded["verb"] == "plan":
            _answers[key] = text
            if len(_answers) > CACHED_ANSWERS:
                _answers.popitem(last=False)
        return text
    except Exception:
        detail = traceback.format_exc()
        return json.dumps({"error": {"condition": "IVM_INTERNAL", "parameters": {"detail": detail}}})


def _run(request: dict[str, Any]) -> dict[str, Any]:
    verb = request["verb"]
    if verb == "plan":
        from pyspark_ivm.plan.planner import plan

        return plan(request["export"], request.get("options"))
    if verb == "ping":
        return {"ok": _versions()}
    raise ValueError(f"unknown verb {verb!r}")


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("numpy", "numba", "pyarrow", "pyspark"):
        try:
            found[name] = str(importlib.import_module(name).__version__)
        except ImportError:
            found[name] = None
    found["pyspark_ivm"] = _own_version()
    return found


def _own_version() -> str | None:
    import pyspark_ivm

    own = getattr(pyspark_ivm, "__version__", None)
    if own is None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            own = version("pyspark-ivm")
        except PackageNotFoundError:
            return None
    return str(own)


def _serve(infile: IO, outfile: IO) -> None:
    from pyspark.serializers import UTF8Deserializer, write_with_length

    write_with_length(answer(UTF8Deserializer().loads(infile)).encode("utf-8"), outfile)


def main(infile: IO, outfile: IO) -> None:
    try:
        from pyspark.sql.worker.utils import worker_run
    except ImportError:  # Spark < 4.2
        _run_by_hand(infile, outfile)
    else:
        worker_run(_serve, infile, outfile)


def _run_by_hand(infile: IO, outfile: IO) -> None:
    """What worker_run does, for the versions that have none: preamble, work, accumulators, end of stream."""
    from pyspark.accumulators import _accumulatorRegistry
    from pyspark.serializers import SpecialLengths, read_int, write_int
    from pyspark.util import handle_worker_exception
    from pyspark.worker_util import (
        check_python_version,
        send_accumulator_updates,
        setup_broadcasts,
        setup_memory_limits,
        setup_spark_files,
    )

    try:
        check_python_version(infile)
        setup_memory_limits(int(os.environ.get("PYSPARK_PLANNER_MEMORY_MB", "-1")))
        setup_spark_files(infile)
        setup_broadcasts(infile)
        _accumulatorRegistry.clear()
        _serve(infile, outfile)
    except BaseException as e:
        handle_worker_exception(e, outfile)
        sys.exit(-1)
    send_accumulator_updates(outfile)
    if read_int(infile) == SpecialLengths.END_OF_STREAM:
        write_int(SpecialLengths.END_OF_STREAM, outfile)
    else:
        write_int(SpecialLengths.END_OF_DATA_SECTION, outfile)
        sys.exit(-1)


if __name__ == "__main__":
    try:
        from pyspark.worker_util import get_sock_file_to_executor
    except ImportError:  # Spark 4.0
        from pyspark.util import local_connect_and_auth

        java_port = int(os.environ["PYTHON_WORKER_FACTORY_PORT"])
        auth_secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"]
        (sock_file, _) = local_connect_and_auth(java_port, auth_secret)
        from pyspark.serializers import write_int

        write_int(os.getpid(), sock_file)
        sock_file.flush()
        main(sock_file, sock_file)
    else:
        with get_sock_file_to_executor() as sock_file:
            main(sock_file, sock_file)
