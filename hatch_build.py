"""Wheel build hook: compiles the JVM shim into `pyspark_ivm/jars/`, so that `pip install .` gives a complete package."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: `make` sets it to 0 for the editable install: there the jar has a target of its own, which knows when it is stale.
BUILD_JAR = os.environ.get("PYSPARK_IVM_BUILD_JAR") != "0"


class JarBuildHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """pyspark for its jars: they hold the Scala compiler and all that the shim compiles against (400 MB: only if needed)."""
        return ["pyspark>=4.2,<4.3"] if BUILD_JAR else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not BUILD_JAR:
            return
        script = Path(self.root) / "jvm-shim" / "compile.py"
        spec = importlib.util.spec_from_file_location("ivm_compile", script)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["ivm_compile"] = module
        spec.loader.exec_module(module)
        module.compile_shim(Path(self.root) / "pyspark_ivm" / "jars" / "pyspark-ivm.jar")
