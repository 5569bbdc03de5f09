"""The query as a hypergraph: an edge is the set of variables of an atom."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Variables = frozenset[int]
Atoms = frozenset[int]


@dataclass(frozen=True)
class Hypergraph:
    edges: tuple[Variables, ...]  # by atom

    @property
    def atoms(self) -> Atoms:
        return frozenset(range(len(self.edges)))

    @property
    def variables(self) -> Variables:
        return frozenset().union(*self.edges)

    def atoms_of(self, variable: int) -> Atoms:
        return frozenset(a for a, e in enumerate(self.edges) if variable in e)

    def variables_of(self, atoms: Iterable[int]) -> Variables:
        return frozenset().union(*(self.edges[a] for a in atoms))

    def components(self, atoms: Atoms, separator: Variables) -> tuple[Atoms, ...]:
        """The parts into which `atoms` fall when the separator's variables are cut; by lowest atom."""
        left = sorted(atoms)
        found: list[Atoms] = []
        while left:
            part = {left.pop(0)}
            reach = set(self.edges[min(part)]) - separator
            grown = True
            while grown:
                grown = False
                for a in list(left):
                    if reach & self.edges[a]:
                        part.add(a)
                        left.remove(a)
                        reach |= self.edges[a] - separator
                        grown = True
            found.append(frozenset(part))
        return tuple(found)
