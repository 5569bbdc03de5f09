"""A *world*: one table set on rotating source kinds, many views over it, seeded random batches, and the shadow rows.

Law under test: after every batch and refresh, read(view) == query(bag of every source), as Spark answers it.

The source tables live in schema ``<world>``, the truth in ``<world>_truth``: there each table is an ordinary view that
describes the bag of the source table. A query's text is the same on both sides; only the current schema differs.
All statements go through ``spark.sql`` and are logged, so the log *is* the reproduction of a failure.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import sqlglot
from sqlglot import exp

from .tables import TABLE_SETS, Row, Table

Kind = Literal["files", "rewrite", "weights", "delta-cdf", "delta-files"]
KINDS: tuple[Kind, ...] = ("weights", "delta-cdf", "files", "delta-files", "rewrite")
#: For the truth, whose queries are new each time and tiny: compiling and re-planning them would cost more than running.
QUICK_TRUTH = {"spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "false"}
NO_DELTA: tuple[Kind, ...] = ("weights", "files", "rewrite")


@dataclass(frozen=True)
class Query:
    """A query of the class, with what is expected of it.

    ``{scale}`` in ``sql`` is empty in the view; in the truth it adds, for each column of ``scales``, the sum of |x| that
    the tolerance of that double column refers to. ``expected``: acceptable strategies, the first is the aim.
    """

    name: str
    sql: str
    scales: dict[str, str] = field(default_factory=dict)
    expected: tuple[str, ...] = ("yannakakis",)
    ansi: bool = True
    may_raise: bool = False

    @property
    def view_sql(self) -> str:
        return self.sql.replace("{scale}", "")

    @property
    def truth_sql(self) -> str:
        columns = "".join(f", {expression} AS __scale_{column}" for column, expression in self.scales.items())
        return self.sql.replace("{scale}", columns)

    @property
    def tables(self) -> frozenset[str]:
        tree = sqlglot.parse_one(self.view_sql, dialect="spark")
        ctes = {cte.alias for cte in tree.find_all(exp.CTE)}
        return frozenset(t.name for t in tree.find_all(exp.Table)) - ctes


@dataclass
class Source:
    """One source table and, in ``rows``, the shadow of its bag: id -> (row, copies)."""

    table: Table
    kind: Kind
    rows: dict[int, tuple[Row, int]] = field(default_factory=dict)
    deleted: list[Row] = field(default_factory=list)  # candidates for delete-then-reinsert across batches
    next_id: int = 0
    late: bool = False  # starts empty

    def bag(self) -> Counter[str]:
        """Copies of each row: rows are identified by their SQL text, which tells NaN, -0.0 and NULL apart."""
        return Counter({self.table.literal(row): copies for row, copies in self.rows.values()})

    @property
    def count(self) -> int:
        return sum(copies for _, copies in self.rows.values())


@dataclass
class Batch:
    """What one batch did: net |weight| per table (0: touched, but nothing changed) and the tables that were resynced."""

    changed: dict[str, int] = field(default_factory=dict)
    resynced: set[str] = field(default_factory=set)


@dataclass
class View:
    query: Query
    name: str
    strategy: str = ""
    on_read: bool = False
    created_error: str = ""


def has_delta(spark: Any) -> bool:
    available = "io.delta" in (spark.conf.get("spark.sql.extensions", "") or "")
    if not available and os.environ.get("CI") == "true":
        raise RuntimeError("CI runs must have Delta: set IVM_DELTA_JARS so that the session loads it")
    return available


class World:
    def __init__(self, spark: Any, table_set: str, seed: int, *, partitions: int = 1, prefix: str = "oracle") -> None:
        self.spark, self.seed, self.partitions = spark, seed, partitions
        self.random = np.random.default_rng([seed, sorted(TABLE_SETS).index(table_set)])
        # The process id: a killed run leaves directories in the warehouse that a new table may not reuse.
        self.schema = f"{prefix}_{table_set}_{seed}_{os.getpid()}"
        self.truth = f"{self.schema}_truth"
        self.log: list[tuple[frozenset[str], str]] = []
        self.views: list[View] = []
        self.batches = 0
        kinds = KINDS if has_delta(spark) else NO_DELTA
        self.sources: dict[str, Source] = {}
        for position, table in enumerate(TABLE_SETS[table_set]):
            kind = kinds[(position + seed) % len(kinds)]
            if not table.delta and kind.startswith("delta"):
                kind = "weights" if kind == "delta-cdf" else "rewrite"
            self.sources[table.name] = Source(table, kind)

    # -- statements ---------------------------------------------------------------------------------------------

    def sql(self, text: str, *tables: str) -> Any:
        """Runs and logs a statement; ``tables`` are those it concerns (none: every reproduction needs it)."""
        self.log.append((frozenset(tables), text))
        return self.spark.sql(text)

    def reproduction(self, query: Query) -> str:
        """The statements that lead to here, without the tables and views that the query does not use."""
        wanted = [text for tables, text in self.log if tables <= query.tables | {query.name}]
        kinds = ", ".join(f"{t}: {self.sources[t].kind}" for t in sorted(query.tables))
        header = f"-- seed {self.seed}, {self.partitions} state partition(s), {kinds}\n"
        truth = f"USE {self.truth};\n-- the truth:\n{query.view_sql};"
        return header + ";\n".join(wanted) + ";\n" + truth

    # -- tables -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        for schema in (self.schema, self.truth):
            self.spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
            self.sql(f"CREATE SCHEMA {schema}")
        self.sql(f"SET spark.sql.ivm.statePartitions={self.partitions}")
        for key, value in QUICK_TRUTH.items():
            self.spark.sql(f"SET {key}={value}")
        self.sql(f"USE {self.schema}")
        for source in self.sources.values():
            self._create(source)
        return self

    def __exit__(self, *_: object) -> None:
        self.spark.sql("USE default")
        for view in self.views:
            if not view.created_error:
                self.spark.sql(f"DROP INCREMENTAL VIEW IF EXISTS {self.schema}.{view.name}")
        for schema in (self.truth, self.schema):
            self.spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        for key in ("spark.sql.ivm.statePartitions", *QUICK_TRUTH):
            self.spark.sql(f"RESET {key}")

    def _create(self, source: Source) -> None:
        table, name = source.table, f"{self.schema}.{source.table.name}"
        columns = ", ".join(table.column_names)
        if source.kind == "weights":
            self.sql(
                f"CREATE TABLE {name} ({table.declaration()}, w BIGINT) USING parquet "
                "TBLPROPERTIES ('ivm.weightColumn' = 'w')",
                table.name,
            )
            # The limit keeps Spark from filtering below the sum, where rows still are that others take back: such a
            # filter may raise for a row that is not in the bag.
            bag = (
                f"SELECT {columns} FROM (SELECT {columns}, sum(w) AS copies FROM {name} "
                f"GROUP BY {columns} HAVING sum(w) > 0 LIMIT 1000000) "
                "LATERAL VIEW explode(array_repeat(0, CAST(copies AS INT))) AS copy"
            )
        else:
            using = "delta" if source.kind.startswith("delta") else "parquet"
            feed = " TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')" if source.kind == "delta-cdf" else ""
            self.sql(f"CREATE TABLE {name} ({table.declaration()}) USING {using}{feed}", table.name)
            bag = f"SELECT * FROM {name}"
        self.sql(f"CREATE VIEW {self.truth}.{table.name} AS {bag}", table.name)
        # One table in eight starts empty and is filled by the first batch: right over no rows, and from the first on.
        source.late = self.random.random() < 0.125
        if not source.late:
            self._apply(source, inserts=self._fresh(source, table.initial_rows), deletes=[], updates=[])

    def _fresh(self, source: Source, number: int) -> list[tuple[Row, int]]:
        inserts = []
        for _ in range(number):
            row = source.table.random_row(source.next_id, self.random)
            source.next_id += 1
            inserts.append((row, 1 if self.random.random() < 0.85 else int(self.random.integers(2, 4))))
        return inserts

    # -- batches ------------------------------------------------------------------------------------------------

    def step(self) -> Batch:
        """One random batch over several tables; about one batch in eight touches nothing."""
        number, names = self.batches, list(self.sources)
        self.batches += 1
        batch = Batch()
        self.sql(f"-- batch {number}\nSELECT 1")
        if number % 8 == 3:
            return batch
        # Every table has its turn; the others join in at random.
        turn = {names[(number + k) % len(names)] for k in range(2)}
        for name, source in self.sources.items():
            if name in turn or source.late or self.random.random() < 0.3:
                before = source.bag()
                self._random_changes(source)
                after = source.bag()
                difference = +(after - before) + +(before - after)
                batch.changed[name] = difference.total()
                if source.kind == "rewrite" and before:  # an empty table has no files that could vanish
                    batch.resynced.add(name)
        return batch

    def _random_changes(self, source: Source) -> None:
        random = self.random
        inserts = self._fresh(source, source.table.initial_rows if source.late else int(random.integers(1, 6)))
        source.late = False
        known = sorted(source.rows)
        if known and random.random() < 0.5:  # one more copy of a row that is there
            inserts.append((source.rows[int(random.choice(known))][0], 1))
        deletes: list[int] = []
        updates: list[tuple[int, Row]] = []
        if source.kind != "files" and known:
            share = random.choice([0.05, 0.15, 0.6], p=[0.5, 0.4, 0.1])
            touched = [int(i) for i in random.permutation(known)[: max(2, int(share * len(known)))]]
            inserted = {row[0] for row, _ in inserts}
            touched = [i for i in touched if i not in inserted]
            updates = [(i, source.table.random_row(i, random)) for i in touched[:1]]
            deletes = touched[1:]
            if deletes and random.random() < 0.3:  # delete and reinsert within the batch: no net change
                inserts.append((source.rows[deletes[0]][0], source.rows[deletes[0]][1]))
            if source.deleted and random.random() < 0.4:  # and of an earlier batch
                back = source.deleted.pop()
                if back[0] not in source.rows:
                    inserts.append((back, 1))
        self._apply(source, inserts, deletes, updates)

    def _apply(
        self, source: Source, inserts: list[tuple[Row, int]], deletes: list[int], updates: list[tuple[int, Row]]
    ) -> None:
        table, name = source.table, f"{self.schema}.{source.table.name}"
        signed: list[tuple[Row, int]] = []
        for i, new in updates:
            old, copies = source.rows[i]
            source.rows[i] = (new, copies)
            signed += [(old, -copies), (new, copies)]
        for i in deletes:
            old, copies = source.rows.pop(i)
            source.deleted.append(old)
            signed.append((old, -copies))
        for row, copies in inserts:
            source.rows[row[0]] = (row, copies + source.rows.get(row[0], (row, 0))[1])
            signed.append((row, copies))
        if source.kind == "weights":
            values = ", ".join(f"{table.literal(row)[:-1]}, {weight}L)" for row, weight in signed)
            self.sql(f"INSERT INTO {name} VALUES {values}", table.name)
        elif source.kind == "rewrite":
            everything = [table.literal(row) for row, copies in source.rows.values() for _ in range(copies)]
            verb = (
                f"INSERT OVERWRITE {name} VALUES " + ", ".join(everything) if everything else f"TRUNCATE TABLE {name}"
            )
            self.sql(verb, table.name)
        else:
            for _, new in updates:
                columns = ", ".join(table.column_names)
                self.sql(
                    f"MERGE INTO {name} AS o USING (SELECT * FROM VALUES {table.literal(new)} AS n({columns})) AS n "
                    "ON o.id = n.id WHEN MATCHED THEN UPDATE SET *",
                    table.name,
                )
            if deletes:
                self.sql(f"DELETE FROM {name} WHERE id IN ({', '.join(map(str, deletes))})", table.name)
            if inserts:
                rows = ", ".join(table.literal(row) for row, copies in inserts for _ in range(copies))
                self.sql(f"INSERT INTO {name} VALUES {rows}", table.name)

    # -- views --------------------------------------------------------------------------------------------------

    def create_views(self, queries: list[Query], *, on_read: bool = False) -> None:
        """One view for each query; policies rotate. A refused CREATE is recorded, the other views go on."""
        for position, query in enumerate(queries):
            view = View(query, f"v_{query.name}", on_read=on_read)
            incremental_only = query.expected == ("yannakakis",) and (position + self.seed) % 2
            mode = "REFRESH ON READ" if on_read else "REFRESH ON DEMAND"
            policy = "REFRESH POLICY INCREMENTAL" if incremental_only else "REFRESH POLICY AUTO"
            self.sql(f"SET spark.sql.ansi.enabled={str(query.ansi).lower()}", query.name)
            try:
                self.sql(
                    f"CREATE INCREMENTAL VIEW {self.schema}.{view.name} {mode} {policy} AS {query.view_sql}", query.name
                )
                view.strategy = self.describe(view)["strategy"]
            except Exception as error:
                view.created_error = f"{type(error).__name__}: {str(error)[:600]}"
            finally:
                self.sql("SET spark.sql.ansi.enabled=true", query.name)
            self.views.append(view)

    def describe(self, view: View) -> dict[str, str]:
        rows = self.spark.sql(f"DESCRIBE INCREMENTAL VIEW {self.schema}.{view.name}").collect()
        return {row["key"]: row["value"] for row in rows}

    def refresh(self, view: View) -> dict[str, Any]:
        text = f"REFRESH INCREMENTAL VIEW {self.schema}.{view.name}"
        return self.sql(text, view.query.name).collect()[0].asDict()

    def kind_errors(self, view: View, batch: Batch, report: dict[str, Any]) -> list[str]:
        """What the refresh row says against what the batch did (DESIGN §11: kinds, counts)."""
        touched = view.query.tables & set(batch.changed)
        net = sum(batch.changed[t] for t in touched)
        resynced = touched & batch.resynced
        wrong = []
        if view.strategy == "full":
            allowed = {"full", "none"} if not net else {"full"}
        elif not touched:
            allowed = {"none"}
        elif not net or resynced == touched:
            # A resync sees what the view keeps of the table: a change of an unused column is none to it.
            allowed = {"none", "incremental"}
        else:
            allowed = {"incremental"}
        if report["kind"] not in allowed:
            wrong.append(f"kind {report['kind']} ({report['reason']}), expected {' or '.join(sorted(allowed))}")
        if not report["reason"]:
            wrong.append("reason is NULL or empty")
        if report["kind"] == "incremental" and not resynced and report["rows_in"] != net:
            wrong.append(f"rows_in {report['rows_in']}, the batch changed {net} rows")
        if report["kind"] == "incremental" and resynced and not str(report["reason"]).startswith("RESYNC_"):
            wrong.append(f"reason {report['reason']} for a rewritten table, expected RESYNC_…")
        return wrong
