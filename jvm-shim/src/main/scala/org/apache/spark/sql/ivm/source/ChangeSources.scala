package org.apache.spark.sql.ivm.source

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.catalog.HiveTableRelation
import org.apache.spark.sql.catalyst.plans.logical.{LocalRelation, LogicalPlan, OneRowRelation, Range}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.{CatalogFileIndex, HadoopFsRelation, InMemoryFileIndex, LogicalRelation}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.sources.DataSourceRegister

/** Which kind of change source a leaf of the analyzed plan is. */
object ChangeSources {

  /** Table property that names the weight column of an append-only table which carries changes. */
  val WeightProperty = "ivm.weightColumn"

  def of(spark: SparkSession, relation: LogicalPlan): ChangeSource = {
    val source = plain(spark, relation)
    weightColumn(relation).fold(source)(new WeightSource(spark, source, relation.output, _))
  }

  private def plain(spark: SparkSession, relation: LogicalPlan): ChangeSource = relation match {
    case _: LocalRelation => new ConstantSource(relation, "(values)")
    case _: Range => new ConstantSource(relation, "(range)")
    case _: OneRowRelation => new ConstantSource(relation, "(one row)")
    case DeltaTable(delta) if delta.pinned => new ConstantSource(relation, displayName(relation))
    case DeltaTable(delta) => new DeltaSource(spark, delta, displayName(relation))
    case r @ LogicalRelation(files: HadoopFsRelation, _, _, _, _) if listed(files) =>
      new FileSource(spark, r, files, displayName(relation))
    case _ => new ResyncSource(spark, relation, displayName(relation))
  }

  /** Spark's own two indexes list directories; any other (a streaming sink's log, a connector's) knows better than we. */
  private def listed(files: HadoopFsRelation): Boolean =
    files.location.getClass == classOf[InMemoryFileIndex] || files.location.getClass == classOf[CatalogFileIndex]

  /** The weight column of the relation's table, if it declares one. */
  def weightColumn(relation: LogicalPlan): Option[String] = {
    val properties = relation match {
      case r: LogicalRelation => r.catalogTable.fold(Map.empty[String, String])(_.properties)
      case r: HiveTableRelation => r.tableMeta.properties
      case _ => Map.empty[String, String]
    }
    properties.get(WeightProperty).orElse(DeltaTable.unapply(relation).flatMap(_.configuration.get(WeightProperty)))
  }

  /** `spark_catalog.default.t`, or the format and path of a table without a name. */
  def displayName(relation: LogicalPlan): String = relation match {
    case r: LogicalRelation if r.catalogTable.isDefined => qualified(r.catalogTable.get.identifier)
    case r: HiveTableRelation => qualified(r.tableMeta.identifier)
    case r: DataSourceV2Relation if r.identifier.isDefined && !DeltaTable.isPath(r) =>
      val identifier = r.identifier.get
      (r.catalog.map(_.name).toSeq ++ identifier.namespace :+ identifier.name).mkString(".")
    case DeltaTable(delta) => s"delta.`${display(delta.path)}`"
    case LogicalRelation(files: HadoopFsRelation, _, _, _, _) =>
      val format = files.fileFormat match {
        case named: DataSourceRegister => named.shortName()
        case other => other.getClass.getSimpleName
      }
      s"$format.`${files.location.rootPaths.map(display).mkString(",")}`"
    case r: LogicalRelation => r.relation.toString
    case r: DataSourceV2Relation => r.table.name
    case other => other.nodeName
  }

  private def qualified(identifier: TableIdentifier): String =
    (identifier.catalog.getOrElse("spark_catalog") +: identifier.database.toSeq :+ identifier.table).mkString(".")

  private def display(path: Path): String = {
    val scheme = path.toUri.getScheme
    if (scheme == null || scheme == "file") path.toUri.getPath else path.toString
  }
}
