"""GYO reduction: a hypergraph is acyclic iff removing ears until none is left removes everything.

An ear is an edge whose variables that others have too all lie in one other edge.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_ivm.plan.hypergraph import Variables


def cyclic_core(edges: Sequence[Variables]) -> tuple[int, ...]:
    """The positions of the edges that GYO cannot remove; () iff the hypergraph is acyclic."""
    left = dict(enumerate(edges))
    removed = True
    while removed and len(left) > 1:
        removed = False
        for i in list(left):
            others = [e for j, e in left.items() if j != i]
            shared = left[i] & frozenset().union(*others)
            if any(shared <= e for e in others):
                del left[i]
                removed = True
                break
    return () if len(left) <= 1 else tuple(left)


def is_acyclic(edges: Sequence[Variables]) -> bool:
    return not cyclic_core(edges)


def is_free_connex(edges: Sequence[Variables], output: Variables) -> bool:
    """Acyclic, and still acyclic with the output as one more edge (Bagan et al.; paper 1, definition 4.19)."""
    return is_acyclic(edges) and is_acyclic([*edges, output])
