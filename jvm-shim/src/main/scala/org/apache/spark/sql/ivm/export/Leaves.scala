package org.apache.spark.sql.ivm.export

import org.apache.spark.sql.catalyst.catalog.HiveTableRelation
import org.apache.spark.sql.catalyst.plans.logical.{LocalRelation, LogicalPlan, OneRowRelation, Range}
import org.apache.spark.sql.execution.datasources.LogicalRelation
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/** Which leaves of an analyzed plan are base tables. */
private[ivm] object Leaves {
  def isRelation(plan: LogicalPlan): Boolean = plan match {
    case _: LogicalRelation | _: DataSourceV2Relation | _: HiveTableRelation => true
    case other => isConstant(other)
  }

  def isConstant(plan: LogicalPlan): Boolean = plan match {
    case _: LocalRelation | _: Range | _: OneRowRelation => true
    case _ => false
  }
}
