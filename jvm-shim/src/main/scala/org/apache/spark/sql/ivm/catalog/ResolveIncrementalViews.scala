package org.apache.spark.sql.ivm.catalog

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.LogicalRelation
import org.apache.spark.sql.ivm.IvmException

/** Stub relation of a catalog entry → [[IncrementalViewRelation]].
  *
  * The entry is read anew: Spark caches the stub's relation per session, and another session may have replaced the view since.
  * Nothing refers to the stub's attributes yet: this rule runs in the very pass in which Spark put the stub there.
  */
case class ResolveIncrementalViews(spark: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case relation: LogicalRelation if relation.relation.isInstanceOf[IncrementalViewStub] =>
      val table = relation.catalogTable.getOrElse(throw new IvmException("IVM_NOT_A_DATA_SOURCE"))
      val definition = ViewCatalog.load(spark, table.identifier)
      val output = if (relation.schema == definition.schema) relation.output else toAttributes(definition.schema)
      IncrementalViewRelation(definition.name, definition.viewId, output)
  }
}
