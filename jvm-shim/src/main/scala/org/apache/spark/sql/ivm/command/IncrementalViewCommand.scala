package org.apache.spark.sql.ivm.command

import org.apache.spark.sql.{Row, SparkSession => AnySparkSession}
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.ivm.{ViewEngine, ViewEngines}
import org.apache.spark.sql.types.DataType

/** A statement about incremental views. Names are resolved when it runs, as Spark does for DDL. */
trait IncrementalViewCommand extends LeafRunnableCommand {
  final override def run(spark: AnySparkSession): Seq[Row] = execute(spark.asInstanceOf[SparkSession])

  def execute(spark: SparkSession): Seq[Row]

  protected def engine: ViewEngine = ViewEngines.engine
}

private[command] object IncrementalViewCommand {
  def columns(named: (String, DataType)*): Seq[Attribute] =
    named.map { case (name, dataType) => AttributeReference(name, dataType, nullable = true)() }
}
