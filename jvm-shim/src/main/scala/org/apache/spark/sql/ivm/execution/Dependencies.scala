package org.apache.spark.sql.ivm.execution

import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.catalyst.catalog.{CatalogTable, HiveTableRelation}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, View}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.LogicalRelation
import org.apache.spark.sql.ivm.source.ChangeSources

/** What the catalog said, when a query was analysed, of every table and view below it. As long as it says the same, analysing again would
  * give the same plan. Rows and locations are the change sources' business.
  */
private[execution] class Dependencies(spark: SparkSession, analyzed: LogicalPlan) {

  private val entries: Map[TableIdentifier, CatalogTable] = analyzed.collectWithSubqueries {
    case v: View => Seq(v.desc)
    case r: LogicalRelation => r.catalogTable.toSeq
    case r: HiveTableRelation => Seq(r.tableMeta)
  }.flatten.map(t => t.identifier -> t).toMap

  private val meanings: Map[TableIdentifier, Any] = entries.keys.map(id => id -> now(id)).toMap

  /** SQL functions are inlined, and their entries are not kept in the plan: whoever uses one is analysed every time. */
  private val usesFunctions: Boolean = analyzed.collectWithSubqueries {
    case p if p.nodeName.startsWith("SQLFunction") || p.expressions.exists(_.exists(_.getClass.getSimpleName.startsWith("SQLScalarFunction"))) => p
  }.nonEmpty

  def unchanged: Boolean = !usesFunctions && meanings.forall { case (id, then) => now(id) == then }

  private def now(id: TableIdentifier): Option[Any] =
    try Some(meaning(spark.sessionState.catalog.getTableMetadata(id)))
    catch { case _: NoSuchTableException | _: NoSuchNamespaceException => None }

  /** What decides how the entry's rows are read: not its statistics, owner, times or other properties. */
  private def meaning(table: CatalogTable): Any = (
    table.tableType, table.provider, table.schema, table.partitionColumnNames, table.storage.properties, table.storage.serde,
    table.viewText, table.properties.filter { case (k, _) => k.startsWith("view.") || k == ChangeSources.WeightProperty })
}
