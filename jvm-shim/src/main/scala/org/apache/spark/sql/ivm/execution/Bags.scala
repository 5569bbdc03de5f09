package org.apache.spark.sql.ivm.execution

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{AggregateExpression, Complete, Sum}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.ivm.source.{ChangeSources, SignedRows}

/** Rows with weights as the bag they describe. */
private object Bags {

  /** Each distinct row repeated as often as the sum of its weights; the weight column itself, which nothing uses, reads NULL. */
  def expanded(rows: SignedRows, relation: LogicalPlan): LogicalPlan = {
    val hidden = ChangeSources.weightColumn(relation)
    val pairs = relation.output.zip(rows.plan.output)
    val (weights, kept) = pairs.partition { case (a, _) => hidden.exists(_.equalsIgnoreCase(a.name)) }
    val total = Alias(AggregateExpression(Sum(rows.weight.get), Complete, isDistinct = false), "total")()
    val columns = kept.map(_._2)
    val grouped = Aggregate(columns, columns :+ total, rows.plan)
    val copies = kept.map { case (a, _) => a }
    val repeated = Generate(
      ReplicateRows(total.toAttribute +: columns), columns.indices :+ columns.size, outer = false, None, copies, grouped)
    Project(relation.output.map { a =>
      if (weights.exists(_._1.exprId == a.exprId)) Alias(Literal(null, a.dataType), a.name)(exprId = a.exprId) else a
    }, repeated)
  }
}

/** The result of a view kept by strategy `full`: Parquet files with neutral column names. */
private object Results {
  import org.apache.spark.sql.types.{StructField, StructType}

  def schema(view: StructType): StructType =
    StructType(view.zipWithIndex.map { case (f, i) => StructField(s"c$i", f.dataType, nullable = true) })

  def renamed(plan: LogicalPlan): LogicalPlan =
    Project(plan.output.zipWithIndex.map { case (a, i) => Alias(a, s"c$i")() }, plan)
}
