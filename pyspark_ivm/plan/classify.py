"""The class of a query decides what is possible (paper 1, §4.6; Berkholz et al.).

q-hierarchical: O(1) updates, O(1) delay. free-connex: linear updates, O(1) delay. acyclic: by delta enumeration.
"""

from __future__ import annotations

from typing import Literal

from pyspark_ivm.plan.gyo import is_acyclic, is_free_connex
from pyspark_ivm.plan.hypergraph import Hypergraph, Variables

QueryClass = Literal["q-hierarchical", "free-connex", "acyclic", "cyclic"]


def classify(graph: Hypergraph, output: Variables) -> QueryClass:
    if not is_acyclic(graph.edges):
        return "cyclic"
    if not is_free_connex(graph.edges, output):
        return "acyclic"
    return "q-hierarchical" if is_q_hierarchical(graph, output) else "free-connex"


def is_q_hierarchical(graph: Hypergraph, output: Variables) -> bool:
    """For all x, y: at(x) and at(y) are nested or disjoint, and if at(x) ⊊ at(y) then x output implies y output."""
    at = {v: graph.atoms_of(v) for v in graph.variables}
    for x in at:
        for y in at:
            if at[x] & at[y] and not at[x] <= at[y] and not at[y] <= at[x]:
                return False
            if at[x] < at[y] and x in output and y not in output:
                return False
    return True
