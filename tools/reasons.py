"""Writes docs/reasons.md from pyspark_ivm/conditions.json: `make docs`. A test checks that it is up to date."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reasons.md"

#: What a refresh itself may answer, beside the resyncs; every other reason speaks about the query.
OF_A_REFRESH = {
    "CHANGES_APPLIED",
    "CREATED",
    "DEFINITION_CHANGED",
    "FLOAT_CANCELLATION",
    "NO_CHANGES",
    "PLAN_CHANGED",
    "POLICY_FULL",
    "REQUESTED",
    "SOURCES_CHANGED",
    "STATE_DAMAGED",
}
#: The view is incremental all the same, only at a higher price.
NOT_THE_CHEAPEST = {
    "ARGUMENT_NOT_FACTORED",
    "GROUP_SPANS_TABLES",
    "NOT_FREE_CONNEX",
    "NOT_Q_HIERARCHICAL",
    "RESIDUAL_PREDICATE",
}


def cell(text: str) -> str:
    """Parameters in italics: a bare `<name>` would vanish as an HTML tag."""
    return text.replace("|", "\\|").replace("<", "*").replace(">", "*") or "–"


def table(conditions: dict[str, dict[str, str]], *, errors: bool = False) -> list[str]:
    state, rule = (" SQLSTATE |", "---|") if errors else ("", "")
    lines = [f"| code |{state} what it says | the way out |", f"|---|{rule}---|---|"]
    for code, entry in conditions.items():
        number = f" {entry['sqlState']} |" if errors else ""
        lines.append(f"| `{code}` |{number} {cell(entry['sentence'])} | {cell(entry['wayOut'])} |")
    return lines


def page() -> str:
    known = json.loads((ROOT / "pyspark_ivm" / "conditions.json").read_text("utf-8"))
    errors = {code: entry for code, entry in known.items() if entry["kind"] == "error"}
    reasons = {code: entry for code, entry in known.items() if entry["kind"] == "reason"}
    refresh = {code: entry for code, entry in reasons.items() if code in OF_A_REFRESH}
    resync = {code: entry for code, entry in reasons.items() if code.startswith("RESYNC_")}
    tree = {code: entry for code, entry in reasons.items() if code in NOT_THE_CHEAPEST}
    query = {
        code: entry for code, entry in reasons.items() if not {code} & (refresh.keys() | resync.keys() | tree.keys())
    }
    return "\n".join(
        [
            "# Reasons and errors",
            "",
            "Written by `make docs` from `pyspark_ivm/conditions.json`, which the JVM and Python sides share. Words in *italics* are filled in.",
            "",
            "## Why a query is kept by `full`",
            "",
            "Under `REFRESH POLICY AUTO` such a view is rebuilt by every refresh that finds a change, and the code is that refresh's reason;",
            "under `INCREMENTAL` and `INCREMENTAL STRICT` CREATE is refused with it.",
            "",
            *table(query),
            "",
            "## Why an update costs more than it might",
            "",
            "The view is incremental all the same. `NOT_Q_HIERARCHICAL`: an update costs its matches. The others: the join is kept as rows in",
            "one block, whose changes a second block aggregates.",
            "",
            *table(tree),
            "",
            "## Why a table was read again (resync)",
            "",
            "Kind `incremental`: one table is read whole and compared with the state, everything above sees only the difference. `INCREMENTAL STRICT` refuses it.",
            "",
            *table(resync),
            "",
            "## What a refresh did",
            "",
            *table(refresh),
            "",
            "## Errors",
            "",
            *table(errors, errors=True),
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(PAGE.relative_to(ROOT), file=sys.stderr)
