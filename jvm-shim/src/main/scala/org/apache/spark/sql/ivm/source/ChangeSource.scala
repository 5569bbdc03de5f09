package org.apache.spark.sql.ivm.source

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** A point in a source's history, as stored in a commit.
  * @param text     compared for equality: same text = nothing moved
  * @param payload  what `changes` needs later (JSON; a file source's list of files, …); may be large, stored in a manifest
  */
case class Token(text: String, payload: String = "")

/** Rows with weights. `plan.output` starts with the relation's columns, in order and with the relation's types
  * (fresh attributes); `weight` is a non-null bigint attribute of the plan, None = every row counts +1.
  */
case class SignedRows(plan: LogicalPlan, weight: Option[Attribute]) {
  def insertOnly: Boolean = weight.isEmpty
}

sealed trait Changes
object Changes {
  /** @param estimate roughly how many rows, where that costs nothing to tell */
  case class Rows(rows: SignedRows, estimate: Option[Long]) extends Changes
  /** The token moved, but no row did (OPTIMIZE): a commit of kind `none`. */
  case object None extends Changes
  /** The history between the tokens cannot be had: re-read the table and subtract. `code` is a RESYNC_… condition.
    * @param touched where that is all of the table that moved
    */
  case class Resync(
      code: String, parameters: Map[String, String] = Map.empty, touched: Option[TouchedPartitions] = scala.None) extends Changes
}

/** The partitions of a table outside of which nothing moved.
  * @param columns the partition columns, by their positions in the relation's output
  * @param values  of each touched partition, as Spark holds them internally
  * @param read    all rows of the partitions that agree with a touched one in some of `columns`, given by their places there
  */
case class TouchedPartitions(columns: Seq[Int], values: Seq[Seq[Any]], read: Seq[Int] => SignedRows)

/** One base table of a view. Pins are taken first (`current`), then rows are read at exactly that pin. */
trait ChangeSource {
  /** Kind for EXPLAIN and DESCRIBE: `files`, `delta-cdf`, `delta-files`, `weights`, `view`, `constant`, `resync`. */
  def kind: String
  /** Display name, `spark_catalog.default.t` or ``parquet.`/path` ``. */
  def table: String
  /** Identity of the table (Delta's table id, or location): another id under the same name is a resync. */
  def tableId: String
  /** How the table's bytes become rows (format, options, partition columns): another layout of the same location is a resync. */
  def layout: String = ""
  /** The current token; one small listing, never a log replay or a scan. None: the source has no versions. */
  def current(): Option[Token]
  /** Changes in (from, to]. */
  def changes(from: Token, to: Token): Changes
  /** All rows at the token (None: now). */
  def snapshot(at: Option[Token]): SignedRows
  /** Rough number of rows, for the cost model. */
  def estimatedRows: Option[Long]
}
