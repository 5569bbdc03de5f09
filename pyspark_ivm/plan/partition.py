"""The variable by whose hash a block's state is partitioned: the one that replicates the fewest rows.

Law: a join decomposes by any one of its variables, σ_{h(v)=p} on the atoms that have v, all rows of those that lack it.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark_ivm.plan.block import BlockPlan


def partition(plan: BlockPlan, rows: tuple[int, ...], partitions: int) -> BlockPlan:
    """`rows`: by atom. One partition, or no variable at all (a global aggregate of one table): unpartitioned."""
    if partitions <= 1 or not plan.variables:
        return plan
    groups = {o.variable for o in plan.outputs}

    def partials(v: int) -> bool:
        return plan.mode == "aggregate" and v not in groups

    def replicated(v: int) -> int:
        return sum(max(rows[a.id], 1) for a in plan.atoms if v not in a.variables)

    best = min(range(len(plan.variables)), key=lambda v: (replicated(v), partials(v), v))
    return replace(plan, partition=best, partials=partials(best))
