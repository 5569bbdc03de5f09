"""Seeded random queries of the maintained class: 1–5 tables joined in a tree, filters, group keys, aggregates, HAVING.

``random_query(table_set, seed)`` is a pure function: a failing seed is its own reproduction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .harness import Query
from .queries import finite
from .tables import TABLE_SETS, Table

#: Columns that may be equated, by table set: each list is one domain of values.
DOMAINS: dict[str, list[list[str]]] = {
    "types": [
        ["f.k1", "g.k1", "iv.k1"],
        ["f.k2", "h.k2"],
        ["f.ks", "g.ks"],
        ["f.d", "g.d"],
        ["f.bo", "h.bo"],
        ["f.b", "h.b"],
    ],
    "graph": [["r.a", "edge.src", "edge.dst", "u.e"], ["r.b", "s.b"], ["s.c", "t.c"], ["t.d", "u.d"]],
    "shop": [
        ["customer.ck", "orders.ck"],
        ["orders.ok", "lineitem.ok"],
        ["lineitem.pk", "part.pk"],
        ["customer.nk", "nation.nk", "lineitem.nk"],
        ["nation.rk", "region.rk"],
    ],
}

#: Summed without overflow or order dependence. Products across tables only of decimals that stay within 38 digits.
DECIMALS = {
    "f": ["d9", "d18"],
    "g": ["r"],
    "h": ["wgt"],
    "r": ["x"],
    "s": ["x"],
    "edge": ["cost"],
    "customer": ["bal"],
    "orders": ["total"],
    "lineitem": ["price", "disc"],
    "part": ["cost"],
}
INTEGERS = {
    "f": ["i1", "i2", "i4"],
    "g": ["x"],
    "r": ["v"],
    "s": ["v"],
    "t": ["v"],
    "u": ["v"],
    "lineitem": ["qty"],
    "part": ["size"],
}
DOUBLES = {"f": ["db"], "g": ["y"], "t": ["y"]}
GROUPS = {
    "f": ["k1", "ks", "bo", "d", "s", "b"],
    "g": ["grp", "k1", "kdb"],
    "h": ["nm", "k2", "bo"],
    "iv": ["ym", "k1", "tn"],
    "r": ["a", "b"],
    "s": ["tag", "b", "c"],
    "t": ["c", "d"],
    "u": ["d", "e"],
    "edge": ["src", "dst"],
    "customer": ["segment", "ck", "nk"],
    "orders": ["prio", "odate", "ck"],
    "lineitem": ["ship", "pk"],
    "part": ["brand", "pk"],
    "nation": ["nname", "rk"],
    "region": ["rname"],
}

#: Expected rows of a join beyond which a random query is drawn again: the oracle's time is for many small cases.
LARGEST_JOIN = 4000.0


@dataclass
class _Occurrence:
    table: Table
    alias: str


def random_query(table_set: str, seed: int) -> Query:
    random = np.random.default_rng([seed, sorted(TABLE_SETS).index(table_set), 17])
    while True:
        query, rows = _draw(random, table_set, seed)
        if rows <= LARGEST_JOIN:
            return query


def _pick(random: np.random.Generator, values: list[str]) -> str:
    return values[int(random.integers(len(values)))]


def _draw(random: np.random.Generator, table_set: str, seed: int) -> tuple[Query, float]:
    tables = {t.name: t for t in TABLE_SETS[table_set]}
    wanted = int(random.choice([1, 2, 3, 4, 5], p=[0.2, 0.3, 0.25, 0.15, 0.1]))
    occurrences = [_Occurrence(tables[_pick(random, list(tables))], "q0")]
    conditions: list[str] = []
    rows = float(occurrences[0].table.initial_rows)
    while len(occurrences) < wanted:
        # A tree: each new table is equated with exactly one that is there, so the join is acyclic by construction.
        anchor = occurrences[int(random.integers(len(occurrences)))]
        edges = [
            (left, right)
            for domain in DOMAINS[table_set]
            for left in domain
            for right in domain
            if left.split(".")[0] == anchor.table.name and (left != right or random.random() < 0.15)
        ]
        if not edges:
            break
        left, right = edges[int(random.integers(len(edges)))]
        name, column = right.split(".")
        new = _Occurrence(tables[name], f"q{len(occurrences)}")
        conditions.append(f"{anchor.alias}.{left.split('.')[1]} = {new.alias}.{column}")
        occurrences.append(new)
        rows *= max(1.0, new.table.initial_rows / 7.0)
    filters = [f for o in occurrences if random.random() < 0.4 for f in [_filter(random, o)] if f]
    joined = _from(random, occurrences, conditions, filters)
    name = f"random_{table_set}_{seed}"
    if random.random() < 0.25:
        return _rows_query(random, name, occurrences, joined), rows
    return _aggregate_query(random, name, occurrences, joined), rows


def _columns(occurrences: list[_Occurrence], which: dict[str, list[str]]) -> list[str]:
    return [f"{o.alias}.{c}" for o in occurrences for c in which.get(o.table.name, [])]


def _filter(random: np.random.Generator, o: _Occurrence) -> str:
    options = [f"{o.alias}.{c} > 0" for c in INTEGERS.get(o.table.name, [])]
    options += [f"{o.alias}.{c} <= 50.5" for c in DECIMALS.get(o.table.name, [])]
    options += [f"{o.alias}.{c} IS NOT NULL" for c in GROUPS[o.table.name]]
    return _pick(random, options)


def _from(
    random: np.random.Generator, occurrences: list[_Occurrence], conditions: list[str], filters: list[str]
) -> str:
    names = [f"{o.table.name} AS {o.alias}" for o in occurrences]
    if random.random() < 0.5:
        where = " AND ".join(conditions + filters)
        return f"FROM {', '.join(names)}" + (f" WHERE {where}" if where else "")
    joins = "".join(f" JOIN {n} ON {c}" for n, c in zip(names[1:], conditions, strict=True))
    return f"FROM {names[0]}{joins}" + (f" WHERE {' AND '.join(filters)}" if filters else "")


def _rows_query(random: np.random.Generator, name: str, occurrences: list[_Occurrence], joined: str) -> Query:
    columns = _columns(occurrences, GROUPS) + _columns(occurrences, DECIMALS) + _columns(occurrences, INTEGERS)
    chosen = [c for c in columns if random.random() < 0.35] or columns[:1]
    return Query(name, f"SELECT {', '.join(f'{c} AS c{i}' for i, c in enumerate(chosen))} {joined}")


def _aggregate_query(random: np.random.Generator, name: str, occurrences: list[_Occurrence], joined: str) -> Query:
    groups = [c for c in _columns(occurrences, GROUPS) if random.random() < 0.3][:3]
    decimals, integers = _columns(occurrences, DECIMALS), _columns(occurrences, INTEGERS)
    doubles = _columns(occurrences, DOUBLES)
    aggregates, scales = ["count(*) AS n"], {}
    for number in range(int(random.integers(1, 4))):
        label = f"m{number}"
        shape = random.random()
        if shape < 0.35 and decimals:
            aggregates.append(f"{_pick(random, ['sum', 'avg'])}({_pick(random, decimals)}) AS {label}")
        elif shape < 0.55 and integers:
            aggregates.append(f"{_pick(random, ['sum', 'count'])}({_pick(random, integers)}) AS {label}")
        elif shape < 0.7 and len(decimals) > 1:
            operator = _pick(random, ["*", "+", "-"])
            aggregates.append(f"sum({_pick(random, decimals)} {operator} {_pick(random, decimals)}) AS {label}")
        elif shape < 0.8 and integers and decimals:
            aggregates.append(
                f"sum(CASE WHEN {_pick(random, integers)} > 3 THEN {_pick(random, decimals)} END) AS {label}"
            )
        elif shape < 0.9 and doubles:
            column = _pick(random, doubles)
            aggregates.append(f"sum({column}) AS {label}")
            scales[label] = finite(column)
        elif integers:
            aggregates.append(f"count(*) FILTER (WHERE {_pick(random, integers)} < 5) AS {label}")
    keys = [f"{c} AS k{i}" for i, c in enumerate(groups)]
    sql = f"SELECT {', '.join(keys + aggregates)}{{scale}} {joined}"
    if groups:
        sql += f" GROUP BY {', '.join(groups)}"
        if random.random() < 0.2:
            sql += " HAVING count(*) > 1"
    return Query(name, sql, scales=scales)
