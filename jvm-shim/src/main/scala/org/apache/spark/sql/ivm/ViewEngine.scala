package org.apache.spark.sql.ivm

import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.types.StructType

/** How a refresh may be done: DESIGN §3, `REFRESH POLICY`. */
sealed abstract class Policy(val text: String)
object Policy {
  case object Auto extends Policy("AUTO")
  case object Incremental extends Policy("INCREMENTAL")
  case object Strict extends Policy("INCREMENTAL STRICT")
  case object Full extends Policy("FULL")
  val all: Seq[Policy] = Seq(Auto, Incremental, Strict, Full)
  def apply(text: String): Policy = all.find(_.text == text).getOrElse(
    throw new IllegalArgumentException(s"unknown policy $text"))
}

/** What CREATE fixed and ALTER may change; stored as the catalog entry's properties (catalog/ViewCatalog).
  *
  * @param name      catalog, schema and table; the catalog is always the session catalog
  * @param viewId    unique for each CREATE; survives ALTER and RENAME
  * @param query     text of the defining query, names resolved against `catalogPath`
  * @param schema    the view's columns as a reader sees them (user's column names and comments applied)
  * @param columns   the query's own names of these columns: what `*` meant at CREATE, whatever the tables look like later
  * @param location  the state directory of this generation, an absolute path
  * @param settings  SQL settings frozen at CREATE (spark.sql.ansi.enabled, session.timeZone, caseSensitive, …)
  */
case class ViewDefinition(
    name: TableIdentifier,
    viewId: String,
    query: String,
    schema: StructType,
    columns: Seq[String],
    comment: Option[String],
    properties: Map[String, String],
    refreshOnRead: Boolean,
    policy: Policy,
    settings: Map[String, String],
    catalogPath: Seq[String],
    location: String,
    suspended: Boolean) {
  def qualifiedName: String = name.unquotedString

  /** What is maintained, without what only says when and how it is shown. */
  def maintained: ViewDefinition = copy(comment = None, properties = Map.empty, refreshOnRead = true, suspended = false)
}

/** The one row that REFRESH answers. `rowsChanged` None = NULL (deltas not enumerated). */
case class RefreshReport(
    view: String,
    version: Long,
    kind: String,
    reason: String,
    rowsIn: Long,
    rowsChanged: Option[Long],
    durationMs: Long)

/** One row of DESCRIBE HISTORY: (version, timestamp, kind, reason, rows_in, rows_changed, duration_ms, sources, estimates). */
case class HistoryRow(
    version: Long,
    timestampMs: Long,
    kind: String,
    reason: String,
    rowsIn: Long,
    rowsChanged: Option[Long],
    durationMs: Long,
    sources: String,
    estimates: String)

/** What DESCRIBE, SHOW and EXPLAIN of a read need to know; cheap: reads the newest commit, starts no job. */
case class ViewStatus(
    strategy: String,
    version: Long,
    lastKind: String,
    lastReason: String,
    lastMs: Long,
    lastTimestampMs: Long,
    stateBytes: Long,
    partitions: Int,
    state: String, // ready | building | refreshing | suspended | failed: <reason>
    sources: Seq[(String, String)], // table -> "<kind of change source> <version token>"
    extended: Seq[(String, String)]) // further (key, value) rows of DESCRIBE EXTENDED

/** The seam between statements (parser, command, catalog) and maintenance (export, execution, source, state).
  * All methods run on the driver. Errors are [[IvmException]]s.
  */
trait ViewEngine {

  /** Analyses `query` as the view's definition; refuses temp objects, current_user, row filters, unsupported statements. */
  def analyze(spark: SparkSession, query: String, settings: Map[String, String], catalogPath: Seq[String]): LogicalPlan

  /** Builds (or re-attaches to) the state under `definition.location` and commits version 0, with `reason`, unless re-attached. */
  def create(spark: SparkSession, definition: ViewDefinition, reason: String): RefreshReport

  /** The entry names the definition's state by now: what ended applications left of the view goes. */
  def settle(spark: SparkSession, definition: ViewDefinition): Unit

  /** There is a state at the definition's location, which `create` will attach to. */
  def hasState(definition: ViewDefinition): Boolean

  def refresh(spark: SparkSession, definition: ViewDefinition, full: Boolean): RefreshReport

  def status(spark: SparkSession, definition: ViewDefinition): ViewStatus

  /** Views of a schema that this driver is building and that have no entry yet. */
  def underConstruction(schema: String): Seq[ViewDefinition]

  def history(spark: SparkSession, definition: ViewDefinition): Seq[HistoryRow]

  /** The text of EXPLAIN CREATE: `mode` is simple, extended or formatted. Creates nothing. */
  def explainCreate(spark: SparkSession, definition: ViewDefinition, mode: String): String

  def explainRefresh(spark: SparkSession, definition: ViewDefinition, full: Boolean, mode: String): String

  /** Leaves a tombstone, then removes the state directory. */
  def drop(spark: SparkSession, definition: ViewDefinition): Unit

  /** The state directory for a definition whose location is not set: one that an ended application left for the same
    * definition (re-attached by `create`), else that of a new generation, not yet existing.
    *
    * @param fresh never re-attach: the old state is still in use
    */
  def locate(spark: SparkSession, definition: ViewDefinition, fresh: Boolean): String
}
