package org.apache.spark.sql.ivm.command

import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.ivm.{IvmException, RefreshReport}
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
    Seq(row(engine.refresh(spark, view, full)))
  }

  private def row(report: RefreshReport): Row =
    Row(report.view, report.version, report.kind, report.reason, report.rowsIn, report.rowsChanged.map(Long.box).orNull, report.durationMs)
}
