package org.apache.spark.sql.ivm.command

import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.ivm.{IvmException, Policy, RefreshReport, ViewDefinition}
import org.apache.spark.sql.ivm.catalog.ViewCatalog
import org.apache.spark.sql.types.{LongType, StringType}

/** REFRESH: one row that says what was done and why. */
case class RefreshIncrementalViewCommand(name: Seq[String], full: Boolean) extends IncrementalViewCommand {
  override val output: Seq[Attribute] = IncrementalViewCommand.columns(
    "view" -> StringType, "version" -> LongType, "kind" -> StringType, "reason" -> StringType,
    "rows_in" -> LongType, "rows_changed" -> LongType, "duration_ms" -> LongType)

  override def execute(spark: SparkSession): Seq[Row] = {
    val view = ViewCatalog.load(spark, name)
    if (view.suspended) throw new IvmException("IVM_VIEW_SUSPENDED", Map("view" -> view.qualifiedName))
    val report =
      try engine.refresh(spark, view, full)
      catch { case e: IvmException if RefreshIncrementalViewCommand.lost(e.condition) && (full || view.policy != Policy.Strict) => rebuilt(spark, view) }
    Seq(row(report))
  }

  /** The log of versions itself is damaged or gone: the view goes on in a new generation, its history begins anew. */
  private def rebuilt(spark: SparkSession, view: ViewDefinition): RefreshReport = {
    val next = view.copy(location = engine.locate(spark, view, fresh = true))
    Definitions.replace(spark, engine, view, next, "STATE_DAMAGED")
  }

  private def row(report: RefreshReport): Row =
    Row(report.view, report.version, report.kind, report.reason, report.rowsIn, report.rowsChanged.map(Long.box).orNull, report.durationMs)
}

private[ivm] object RefreshIncrementalViewCommand {
  /** Conditions of a log that no refresh can go on from. */
  private val lost = Set("IVM_STATE_DAMAGED", "IVM_STATE_MISSING")
}
