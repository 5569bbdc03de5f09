package org.apache.spark.sql.ivm.source

import org.apache.spark.sql.catalyst.analysis.{MultiInstanceRelation, Resolver}
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Expression, Literal, NamedExpression}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project, Union}
import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.ivm.IvmException
import org.apache.spark.sql.types.{DataType, StructType}

/** Small pieces that every source uses to shape its rows. */
private[source] object SourceRows {

  val WeightName = "_ivm_weight"

  /** Columnar files hold about as many bytes a row as the row has in memory, give or take a factor of a few. */
  def bytesOf(columns: Seq[Attribute]): Long = math.max(1, columns.map(_.dataType.defaultSize).sum).toLong

  def resolver(spark: SparkSession): Resolver = spark.sessionState.conf.resolver

  /** The same leaf with attributes of its own, so that two readings of one table can meet in a plan. */
  def fresh(plan: LogicalPlan): LogicalPlan = plan match {
    case relation: MultiInstanceRelation => relation.newInstance()
    case other => other
  }

  /** `plan` cut and ordered to the relation's columns (by name), followed by the weight, if there is one. */
  def aligned(
      spark: SparkSession, table: String, plan: LogicalPlan, columns: Seq[Attribute],
      weight: Option[Expression] = None): SignedRows = {
    val same = resolver(spark)
    val picked = columns.map { column =>
      val found = plan.output.find(a => same(a.name, column.name)).getOrElse(
        throw schemaChanged(table, s"column ${column.name} is gone"))
      checkType(table, column, found.dataType)
      found
    }
    weight match {
      case Some(expression) =>
        val alias = Alias(expression, WeightName)()
        SignedRows(Project(picked :+ alias, plan), Some(alias.toAttribute))
      case None if picked == plan.output => SignedRows(plan, None)
      case None => SignedRows(Project(picked, plan), None)
    }
  }

  /** Q(a) + Q(b): the rows of all parts; parts without a weight count +1 when another part has one. */
  def union(columns: Int, parts: Seq[SignedRows]): SignedRows = parts match {
    case Seq(one) => one
    case several if several.forall(_.insertOnly) => SignedRows(Union(several.map(_.plan)), None)
    case several =>
      val weighted = several.map { part =>
        val cells: Seq[NamedExpression] = part.plan.output.take(columns)
        Project(cells :+ part.weight.getOrElse(Alias(Literal(1L), WeightName)()), part.plan)
      }
      val plan = Union(weighted)
      SignedRows(plan, Some(plan.output(columns)))
  }

  /** The view's columns must still be there with their types; columns added since are none of its business. */
  def checkSchema(spark: SparkSession, table: String, columns: Seq[Attribute], now: StructType): Unit = {
    val same = resolver(spark)
    val fields = CharVarcharUtils.replaceCharVarcharWithStringInSchema(now)
    columns.foreach { column =>
      fields.find(f => same(f.name, column.name)) match {
        case Some(field) => checkType(table, column, field.dataType)
        case None => throw schemaChanged(table, s"column ${column.name} is gone")
      }
    }
  }

  private def checkType(table: String, column: Attribute, now: DataType): Unit =
    if (!DataType.equalsIgnoreCaseAndNullability(column.dataType, now)) {
      throw schemaChanged(
        table, s"column ${column.name} was ${column.dataType.simpleString} and is now ${now.simpleString}")
    }

  def schemaChanged(table: String, detail: String): IvmException =
    new IvmException("IVM_SOURCE_SCHEMA_CHANGED", Map("table" -> table, "detail" -> detail))

  def missing(table: String, detail: String): IvmException =
    new IvmException("IVM_SOURCE_MISSING", Map("table" -> table, "detail" -> detail))
}
