"""Why a better strategy was not taken: typed values, one object for EXPLAIN, errors and DESCRIBE.

The sentences live in ``pyspark_ivm/conditions.json``, which the JVM side reads too.
"""

from __future__ import annotations

import json
import pkgutil
import re
from dataclasses import dataclass
from functools import cache
from typing import Any


@cache
def conditions() -> dict[str, dict[str, Any]]:
    return json.loads(pkgutil.get_data("pyspark_ivm", "conditions.json") or b"{}")


def _fill(text: str, parameters: dict[str, str]) -> str:
    return re.sub(r"<(\w+)>", lambda m: parameters.get(m[1], m[0]), text)


@dataclass(frozen=True)
class Reason:
    code: str
    parameters: tuple[tuple[str, str], ...] = ()
    block: str | None = None

    @property
    def sentence(self) -> str:
        return _fill(conditions()[self.code]["sentence"], dict(self.parameters))

    @property
    def way_out(self) -> str:
        return _fill(conditions()[self.code].get("wayOut") or "", dict(self.parameters))

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "parameters": dict(self.parameters),
            "sentence": self.sentence,
            "wayOut": self.way_out,
            "block": self.block,
        }


def reason(code: str, *, block: str | None = None, **parameters: object) -> Reason:
    if conditions()[code]["kind"] != "reason":
        raise ValueError(f"{code} is not a reason")
    return Reason(code, tuple(sorted((k, str(v)) for k, v in parameters.items())), block)


class NotIncremental(Exception):
    """The view, or this way of maintaining it, is out of reach; carries every reason found."""

    def __init__(self, *reasons: Reason):
        super().__init__("; ".join(f"{r.code}: {r.sentence}" for r in reasons))
        self.reasons = tuple(dict.fromkeys(reasons))
