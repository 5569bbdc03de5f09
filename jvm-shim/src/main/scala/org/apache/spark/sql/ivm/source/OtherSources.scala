package org.apache.spark.sql.ivm.source

import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.TableCatalog
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, FileTable}

/** Law: the change of a constant is empty. VALUES, range(…), SELECT without FROM, a table at a fixed version. */
private[source] class ConstantSource(relation: LogicalPlan, override val table: String) extends ChangeSource {
  override val kind: String = "constant"
  override def tableId: String = table
  override def current(): Option[Token] = Some(Token("constant"))
  override def changes(from: Token, to: Token): Changes = Changes.None
  override def snapshot(at: Option[Token]): SignedRows = SignedRows(SourceRows.fresh(relation), None)
  override def estimatedRows: Option[Long] = relation.maxRows
}

/** Law: Δ = now − held. No history at all (JDBC, Hive serde, other connectors): always read whole, the engine subtracts. */
private[source] class ResyncSource(spark: SparkSession, relation: LogicalPlan, override val table: String)
    extends ChangeSource {
  override val kind: String = "resync"
  override def tableId: String = table
  override def current(): Option[Token] = None
  override def changes(from: Token, to: Token): Changes =
    Changes.Resync("RESYNC_NO_CHANGE_SOURCE", Map("table" -> table))
  override def estimatedRows: Option[Long] = None

  override def snapshot(at: Option[Token]): SignedRows = {
    val now = relation match {
      case r: DataSourceV2Relation => reload(r)
      case LogicalRelation(files: HadoopFsRelation, _, _, _, _) =>
        files.location.refresh()
        relation
      case other => other
    }
    val fresh = SourceRows.fresh(now)
    SourceRows.aligned(spark, table, fresh, relation.output)
  }

  /** A connector's table object may be pinned to the moment it was loaded: ask its catalog again. */
  private def reload(relation: DataSourceV2Relation): LogicalPlan = {
    relation.table match {
      case files: FileTable => files.fileIndex.refresh()
      case _ =>
    }
    (relation.catalog, relation.identifier) match {
      case (Some(catalog: TableCatalog), Some(identifier)) if relation.timeTravelSpec.isEmpty =>
        val loaded =
          try catalog.loadTable(identifier)
          catch {
            case _: NoSuchTableException | _: NoSuchNamespaceException =>
              throw SourceRows.missing(table, "it is not in the catalog any more")
          }
        DataSourceV2Relation.create(loaded, Some(catalog), Some(identifier), relation.options)
      case _ => relation
    }
  }
}
