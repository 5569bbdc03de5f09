"""view == truth, both ways, for many views at once.

One job compares count and sum of hashes over the exact columns of every view and of every recompute; a second fetches
the rows of those that have doubles, which are compared numerically within 1e-9 of the group's sum of |x|. EXCEPT ALL
both ways runs on a mismatch, to show the rows, and on one view a batch, so that the hashes are not trusted alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from .harness import Query, View, World

TOLERANCE = 1e-9
SHOWN_ROWS = 5


@dataclass
class Outcome:
    """Of one comparison. ``failure`` empty: equal. ``vacuous``: equal, but it proves nothing, and why."""

    view: View
    batch: int
    failure: str = ""
    vacuous: str = ""


@dataclass
class Summary:
    """Counts over everything compared; rendered as the table of RESULTS.md."""

    queries: set[str] = field(default_factory=set)
    batches: int = 0
    comparisons: int = 0
    vacuous: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    proven: set[str] = field(default_factory=set)  # queries with at least one comparison that proves something

    def add(self, outcome: Outcome, world: World) -> None:
        where = f"{world.schema}.{outcome.view.query.name}, batch {outcome.batch}"
        self.queries.add(outcome.view.query.name)
        self.comparisons += 1
        if outcome.failure:
            self.failures.append(f"{where}: {outcome.failure}")
        elif outcome.vacuous:
            self.vacuous.append(f"{where}: {outcome.vacuous}")
        else:
            self.proven.add(outcome.view.query.name)

    def merge(self, other: Summary) -> None:
        self.queries |= other.queries
        self.proven |= other.proven
        self.batches += other.batches
        self.comparisons += other.comparisons
        self.vacuous += other.vacuous
        self.failures += other.failures


@dataclass(frozen=True)
class _Side:
    exact: list[str]
    doubles: list[str]
    scales: list[str]

    @staticmethod
    def of(frame: Any) -> _Side:
        scales = [c for c, _ in frame.dtypes if c.startswith("__scale_")]
        doubles = [c for c, t in frame.dtypes if t in ("double", "float") and c not in scales]
        return _Side([c for c, _ in frame.dtypes if c not in scales and c not in doubles], doubles, scales)


def _quoted(column: str) -> str:
    return f"`{column}`"


def _hash_select(tag: str, columns: list[str], body: str) -> str:
    # isnull beside each column: xxhash64 skips NULLs, (NULL, 5) and (5, NULL) would collide.
    parts = ", ".join(f"isnull({_quoted(c)}), {_quoted(c)}" for c in columns) or "1"
    return (
        f"SELECT '{tag}' AS tag, count(*) AS n, coalesce(sum(CAST(xxhash64({parts}) AS DECIMAL(38,0))), 0) AS h "
        f"FROM ({body})"
    )


def _rows_select(tag: str, side: _Side, types: dict[str, str], body: str) -> str:
    exact = ", ".join(
        f"hex({_quoted(c)})" if types[c] == "binary" else f"CAST({_quoted(c)} AS STRING)" for c in side.exact
    )
    doubles = ", ".join(f"CAST({_quoted(c)} AS DOUBLE)" for c in side.doubles)
    scales = ", ".join(
        f"CAST({_quoted('__scale_' + c)} AS DOUBLE)" if f"__scale_{c}" in side.scales else "0D" for c in side.doubles
    )
    return f"SELECT '{tag}' AS tag, array({exact or 'NULL'}) AS exact, array({doubles}) AS doubles, array({scales}) AS scales FROM ({body})"


def _close(expected: float | None, actual: float | None, scale: float) -> bool:
    if expected is None or actual is None:
        return expected is actual
    if math.isnan(expected) or math.isnan(actual):
        return math.isnan(expected) and math.isnan(actual)
    if math.isinf(expected) or math.isinf(actual):
        return expected == actual
    return abs(expected - actual) <= TOLERANCE * max(abs(expected), scale)


def _order(value: float | None) -> tuple[int, float]:
    """NULL first, NaN last, and a total order between."""
    return (0, 0.0) if value is None else (2, 0.0) if math.isnan(value) else (1, value)


def numeric_difference(truth: list[Any], view: list[Any]) -> str:
    """Rows (exact, doubles, scales) matched on their exact columns; '' if all doubles agree within tolerance."""
    expected, actual = defaultdict(list), defaultdict(list)
    for rows, target in ((truth, expected), (view, actual)):
        for row in rows:
            target[tuple(row["exact"])].append(row)
    for key in expected.keys() | actual.keys():
        left, right = expected.get(key, []), actual.get(key, [])
        if len(left) != len(right):
            return f"{len(left)} rows expected, {len(right)} found for {key}"

        def by_values(row: Any) -> list[tuple[int, float]]:
            return [_order(v) for v in row["doubles"]]

        for e, a in zip(sorted(left, key=by_values), sorted(right, key=by_values), strict=True):
            for x, y, scale in zip(e["doubles"], a["doubles"], e["scales"], strict=True):
                if not _close(x, y, scale or 0.0):
                    return f"{x!r} expected, {y!r} found for {key} (sum of |x| {scale!r})"
    return ""


def _condition(error: Exception) -> str:
    get = getattr(error, "getCondition", None)
    return (get() if get else None) or type(error).__name__


class Comparison:
    """Compares the views of a world with the truth. The current schema is the truth's while it works."""

    def __init__(self, world: World) -> None:
        self.world, self.spark = world, world.spark
        self._sides: dict[str, tuple[_Side, dict[str, str]]] = {}

    def _side(self, query: Query) -> tuple[_Side, dict[str, str]]:
        if query.name not in self._sides:
            frame = self._truth_frame(query)
            self._sides[query.name] = (_Side.of(frame), dict(frame.dtypes))
        return self._sides[query.name]

    def _truth_frame(self, query: Query) -> Any:
        return self.spark.sql(f"SELECT * FROM ({query.truth_sql})")

    def _body(self, view: View, side: str) -> str:
        return f"SELECT * FROM {self.world.schema}.{view.name}" if side == "view" else view.query.truth_sql

    def run(self, views: list[View], batch: int) -> list[Outcome]:
        self.spark.sql(f"USE {self.world.truth}")
        try:
            self._check_shadow()
            raising = [v for v in views if v.query.may_raise]
            outcomes = [self._compare_raising(v, batch) for v in raising]
            quiet = [v for v in views if not v.query.may_raise]
            return outcomes + (self._compare_all(quiet, batch) if quiet else [])
        finally:
            self.spark.sql(f"USE {self.world.schema}")

    def _check_shadow(self) -> None:
        """The truth must describe the rows that the batches meant: guards the harness itself."""
        counts = " UNION ALL ".join(f"SELECT '{name}' AS t, count(*) AS n FROM {name}" for name in self.world.sources)
        found = {row["t"]: row["n"] for row in self.spark.sql(counts).collect()}
        meant = {name: source.count for name, source in self.world.sources.items()}
        assert found == meant, f"the tables hold {found}, the batches meant {meant}: the harness is wrong"

    def _under(self, ansi: bool, text: str) -> list[Any]:
        self.spark.sql(f"SET spark.sql.ansi.enabled={str(ansi).lower()}")
        try:
            return self.spark.sql(text).collect()
        finally:
            self.spark.sql("SET spark.sql.ansi.enabled=true")

    def _both(self, views: list[View], select: Any) -> dict[str, list[Any]]:
        """One job for all, but for the truths that need ANSI off (views are always read under the default)."""
        texts: dict[bool, list[str]] = {True: [], False: []}
        for view in views:
            texts[True].append(select(view, "view"))
            texts[view.query.ansi].append(select(view, "truth"))
        found: dict[str, list[Any]] = defaultdict(list)
        for ansi, selects in texts.items():
            if selects:
                for row in self._under(ansi, "\nUNION ALL ".join(selects)):
                    found[row["tag"]].append(row)
        return found

    def _compare_all(self, views: list[View], batch: int) -> list[Outcome]:
        hashes = self._both(
            views, lambda v, s: _hash_select(f"{s}:{v.name}", self._side(v.query)[0].exact, self._body(v, s))
        )
        numeric = [v for v in views if self._side(v.query)[0].doubles]
        rows = (
            self._both(
                numeric,
                lambda v, s: _rows_select(
                    f"{s}:{v.name}", self._select_side(v, s), self._side(v.query)[1], self._body(v, s)
                ),
            )
            if numeric
            else {}
        )
        outcomes = []
        for position, view in enumerate(views):
            [mine], [theirs] = hashes[f"view:{view.name}"], hashes[f"truth:{view.name}"]
            outcome = Outcome(view, batch)
            if (mine["n"], mine["h"]) != (theirs["n"], theirs["h"]):
                outcome.failure = f"{mine['n']} rows, truth has {theirs['n']}; {self._except_all(view)}"
            elif view in numeric:
                outcome.failure = numeric_difference(
                    rows.get(f"truth:{view.name}", []), rows.get(f"view:{view.name}", [])
                )
            elif position == batch % len(views):
                outcome.failure = self._except_all(view) or self._except_all(view, only=batch % 7)
            if not outcome.failure:
                outcome.vacuous = self._vacuous(view, mine["n"])
            outcomes.append(outcome)
        return outcomes

    def _select_side(self, view: View, side: str) -> _Side:
        own, _ = self._side(view.query)
        return own if side == "truth" else _Side(own.exact, own.doubles, [])

    @staticmethod
    def _vacuous(view: View, rows: int) -> str:
        if view.strategy not in view.query.expected:
            return f"strategy {view.strategy}, expected {view.query.expected[0]}"
        if view.strategy == "full" != view.query.expected[0]:
            return "kept by full refreshes"
        return "" if rows else "both sides are empty"

    def _except_all(self, view: View, only: int | None = None) -> str:
        """'' or the rows that one side has and the other lacks; exact columns, or one of them alone (pruned reads)."""
        exact = self._side(view.query)[0].exact
        if only is not None:
            exact = exact[only % len(exact) :][:1] if exact else []
        columns = ", ".join(map(_quoted, exact)) or "1"
        sides = {s: f"SELECT {columns} FROM ({self._body(view, s)})" for s in ("view", "truth")}
        shown = []
        for more, less in (("view", "truth"), ("truth", "view")):
            text = f"({sides[more]}) EXCEPT ALL ({sides[less]})"
            # Shown as strings: Python has no value for every SQL type (year-month intervals).
            shown_columns = ", ".join(f"CAST({c} AS STRING)" for c in columns.split(", "))
            rows = self._under(view.query.ansi, f"SELECT {shown_columns} FROM ({text}) LIMIT {SHOWN_ROWS}")
            if rows:
                shown.append(f"only in {more}: {[tuple(r) for r in rows]}")
        return "; ".join(shown)

    def _compare_raising(self, view: View, batch: int) -> Outcome:
        """Either both answer alike, or both raise: the view with Spark's condition, or one of the extension's own."""
        outcome = Outcome(view, batch)
        raised: dict[str, str] = {}
        for side, ansi in (("truth", view.query.ansi), ("view", True)):
            # A count alone would let Spark prune the throwing expression: collect.
            try:
                self._under(ansi, self._body(view, side))
            except Exception as error:
                raised[side] = _condition(error)
        if not raised:
            return self._compare_all([view], batch)[0]
        if len(raised) == 1:
            [(side, condition)] = raised.items()
            if any(self.world.sources[t].count == 0 for t in view.query.tables):
                # Whether Spark looks at the other side of a join with an empty table is its physical plan's choice.
                outcome.vacuous = f"only the {side} raises {condition}, over an empty table"
                return outcome
            outcome.failure = f"only the {side} raises {condition}"
        elif raised["view"] != raised["truth"] and not raised["view"].startswith("IVM_"):
            outcome.failure = f"the view raises {raised['view']}, the truth {raised['truth']}"
        else:
            outcome.vacuous = self._vacuous(view, 1)
        return outcome
