"""The planning worker: requests in, answers out, never an exception; and light imports."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys

import pytest

from pyspark_ivm.worker import planner
from tests.plan.queries import QUERIES


def ask(**request: object) -> dict[str, dict[str, object]]:
    return json.loads(planner.answer(json.dumps(request)))


def test_plan_and_cache() -> None:
    planner._answers.clear()
    first = ask(verb="plan", export=QUERIES["segments"](), options={"policy": "AUTO", "partitions": 1})
    assert first["ok"]["strategy"] == "yannakakis" and len(planner._answers) == 1
    assert ask(verb="plan", export=QUERIES["segments"](), options={"policy": "AUTO", "partitions": 1}) == first
    for i in range(2 * planner.CACHED_ANSWERS):
        ask(verb="plan", export=QUERIES["single_table"](), options={"partitions": i + 1})
    assert len(planner._answers) == planner.CACHED_ANSWERS


def test_ping() -> None:
    versions = ask(verb="ping")["ok"]
    assert versions["python"] == sys.version.split()[0] and "numba" in versions and "pyspark_ivm" in versions


@pytest.mark.parametrize("request_text", ["{", "{}", '{"verb": "dance"}', '{"verb": "plan", "export": {}}'])
def test_any_failure_is_an_answer(request_text: str) -> None:
    error = json.loads(planner.answer(request_text))["error"]
    assert error["condition"] == "IVM_INTERNAL" and "Traceback" in error["parameters"]["detail"]


def _utf8(text: str) -> bytes:
    data = text.encode()
    return struct.pack("!i", len(data)) + data


@pytest.mark.parametrize("by_hand", [False, True])
def test_spark_protocol(by_hand: bool, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The preamble as PythonPlannerRunner writes it: version, files, broadcasts (and settings from 4.2 on)."""
    pytest.importorskip("pyspark")
    monkeypatch.setenv("SPARK_BUFFER_SIZE", "65536")
    preamble = (
        _utf8(f"{sys.version_info[0]}.{sys.version_info[1]}") + _utf8(str(tmp_path)) + struct.pack("!i", 0)
    )  # no Python files
    preamble += struct.pack("!?i", False, 0)  # no encrypted broadcasts, none at all
    if not by_hand:
        pytest.importorskip("pyspark.sql.worker.utils")
        preamble += struct.pack("!i", 0)  # no settings
    infile = io.BytesIO(preamble + _utf8('{"verb": "ping"}') + struct.pack("!i", -4))  # END_OF_STREAM
    outfile = io.BytesIO()
    (planner._run_by_hand if by_hand else planner.main)(infile, outfile)
    data = outfile.getvalue()
    (length,) = struct.unpack("!i", data[:4])
    assert "python" in json.loads(data[4 : 4 + length])["ok"]
    assert data[-4:] == struct.pack("!i", -4), "the worker can be used again"


def test_planning_imports_neither_pyspark_nor_numpy() -> None:
    code = (
        "import sys, json; from tests.plan.queries import QUERIES; from pyspark_ivm.worker.planner import answer\n"
        "answer(json.dumps({'verb': 'plan', 'export': QUERIES['segments']()}))\n"
        "print([m for m in ('pyspark', 'numpy', 'numba', 'pyarrow', 'pandas') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
