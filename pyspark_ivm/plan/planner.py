"""From the exported plan to the maintenance plan (docs/contracts.md A → B): the pipeline, in order."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pyspark_ivm.plan.blocks import Block, cut
from pyspark_ivm.plan.costs import atom_cost
from pyspark_ivm.plan.explain import Explained, explain_blocks, explain_full
from pyspark_ivm.plan.export import Export, read_export
from pyspark_ivm.plan.reasons import NotIncremental, Reason, reason
from pyspark_ivm.plan.shape import Shape, find_shape
from pyspark_ivm.plan.validate import validate

FORMAT = 1
POLICIES = ("AUTO", "INCREMENTAL", "INCREMENTAL STRICT", "FULL")


@dataclass
class Draft:
    """What the rules fill in, one after the other. A rule that cannot go on raises NotIncremental."""

    export: Export
    policy: str
    partitions: int
    shape: Shape | None = None
    blocks: tuple[Block, ...] = ()
    reasons: tuple[Reason, ...] = ()


def check_policy(draft: Draft) -> None:
    if draft.policy == "FULL":
        raise NotIncremental(reason("POLICY_FULL"))


def recognise(draft: Draft) -> None:
    draft.shape = find_shape(draft.export)


def cut_blocks(draft: Draft) -> None:
    assert draft.shape is not None
    draft.blocks = cut(draft.export, draft.shape, draft.partitions)


def check_blocks(draft: Draft) -> None:
    for b in draft.blocks:
        validate(b.plan)


def collect_reasons(draft: Draft) -> None:
    """Why updates are not all O(1), or why one block was not enough."""
    found = [r for b in draft.blocks for r in b.not_chosen]
    first = draft.blocks[0]
    costs = [atom_cost(first.plan, first.statistics, a.id).text for a in first.plan.atoms]
    if not found and set(costs) != {"O(1)"}:
        found.append(reason("NOT_Q_HIERARCHICAL", block=first.plan.id))
    draft.reasons = tuple(found)


#: The pipeline.
RULES = (check_policy, recognise, cut_blocks, check_blocks, collect_reasons)


def plan(export: dict[str, Any], options: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer to the verb ``plan``: ``{"ok": …}`` or ``{"error": …}``."""
    options = options or {}
    policy = str(options.get("policy") or "AUTO").upper()
    if policy not in POLICIES:
        raise ValueError(f"unknown policy {policy}")
    draft = Draft(read_export(export), policy, int(options.get("partitions") or 1))
    view = {"view": str(options["view"])} if options.get("view") else {}
    try:
        for rule in RULES:
            rule(draft)
    except NotIncremental as e:
        if policy.startswith("INCREMENTAL"):
            spelled = "; ".join(f"{r.code}: {r.sentence}" for r in e.reasons)
            return _error("IVM_NOT_INCREMENTAL", {**view, "reasons": spelled})
        return {"ok": _answer((), e.reasons, explain_full(draft.export, e.reasons))}
    if policy == "INCREMENTAL STRICT":
        unfit = sorted({s.table for s in draft.export.sources.values() if s.kind == "resync"})
        if unfit:
            return _error("IVM_STRICT_NEEDS_CHANGES", {**view, "tables": ", ".join(unfit)})
    return {"ok": _answer(draft.blocks, draft.reasons, explain_blocks(draft.export, draft.blocks, draft.reasons))}


def _error(condition: str, parameters: dict[str, str]) -> dict[str, Any]:
    return {"error": {"condition": condition, "parameters": parameters}}


def _answer(blocks: tuple[Block, ...], reasons: tuple[Reason, ...], explained: Explained) -> dict[str, Any]:
    spelled = [b.to_json() for b in blocks]
    canonical = json.dumps(spelled, sort_keys=True, separators=(",", ":"))
    return {
        "format": FORMAT,
        "strategy": "yannakakis" if blocks else "full",
        "hash": hashlib.sha256(canonical.encode()).hexdigest(),
        "reasons": [r.to_json() for r in reasons],
        "explain": explained.text,
        "explainExtended": explained.extended,
        "costs": explained.costs,
        "delay": explained.delay,
        "blocks": spelled,
    }
