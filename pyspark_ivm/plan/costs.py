"""The cost class of an update, read off the tree.

Law: an update touches one tuple of its leaf; a step to the parent touches one tuple for each if the key is all of the
parent's variables or is known to be unique in the parent's guard, else all that match (paper 1, theorem 4.15).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_ivm.plan.block import BlockPlan, Node
from pyspark_ivm.plan.join_tree import Statistics, is_unique


@dataclass(frozen=True)
class Cost:
    text: str  # O(1) or O(matches)
    node: int | None = None  # the first node on the way up where one tuple may touch many
    key: tuple[int, ...] = ()


def guard_leaf(plan: BlockPlan, node: Node) -> int:
    """The atom whose projections the node's tuples are."""
    while node.guard is not None:
        node = plan.nodes[node.guard]
    assert node.atom is not None
    return node.atom


def atom_cost(plan: BlockPlan, statistics: Statistics, atom: int) -> Cost:
    if plan.emits:
        return Cost("O(matches)")  # the deltas are enumerated
    parent = {c: n for n in plan.nodes for c in n.children}
    node = next(n for n in plan.nodes if n.atom == atom)
    while node.id in parent:
        above = parent[node.id]
        leaf = guard_leaf(plan, above)
        if len(node.key) < len(above.variables) and not is_unique(statistics, leaf, frozenset(node.key)):
            return Cost("O(matches)", above.id, node.key)
        node = above
    return Cost("O(1)")
