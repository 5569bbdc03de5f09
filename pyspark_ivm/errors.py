"""Errors of the Python side: a condition of ``conditions.json`` with its parameters, worded as the JVM words it."""

from __future__ import annotations

import json
import pkgutil
from functools import cache


@cache
def conditions() -> dict[str, dict[str, str]]:
    """Error conditions and reason codes; the JVM side reads the same file from its jar."""
    text = pkgutil.get_data("pyspark_ivm", "conditions.json")  # the package may be a zip: a wheel in --py-files
    loaded: dict[str, dict[str, str]] = json.loads(text or b"{}")
    return loaded


def fill(text: str, parameters: dict[str, str]) -> str:
    for name, value in parameters.items():
        text = text.replace(f"<{name}>", value)
    return text


class IvmError(Exception):
    """An error that a caller can tell apart by ``condition`` rather than by its text."""

    def __init__(self, condition: str, **parameters: object) -> None:
        known = conditions()[condition]
        self.condition = condition
        self.parameters = {name: str(value) for name, value in parameters.items()}
        self.sentence = fill(known["sentence"], self.parameters)
        self.way_out = fill(known.get("wayOut", ""), self.parameters)
        self.sql_state = known.get("sqlState", "XX000")
        parts = [f"[{condition}] {self.sentence}", self.way_out, f"SQLSTATE: {self.sql_state}"]
        super().__init__(" ".join(part for part in parts if part))
