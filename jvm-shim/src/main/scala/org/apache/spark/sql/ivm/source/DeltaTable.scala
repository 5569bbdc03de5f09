package org.apache.spark.sql.ivm.source

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.expressions.AttributeReference
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.{DataFrame, SparkSession}
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.Utils

/** What Delta's metadata says about a table at one version. */
private[source] case class DeltaMetadata(id: String, configuration: Map[String, String], schema: StructType) {
  def changeFeed: Boolean = configuration.get("delta.enableChangeDataFeed").exists(_.equalsIgnoreCase("true"))
  def columnMapping: Boolean = configuration.get("delta.columnMapping.mode").exists(!_.equalsIgnoreCase("none"))
}

/** A Delta table in the analyzed plan.
  * @param files   the V1 relation, whose file format and schemas read single files; None for a V2 relation
  * @param pinned  time travel in the query: the table never moves
  */
private[source] case class DeltaTable(
    path: Path,
    identifier: Option[TableIdentifier],
    output: Seq[AttributeReference],
    files: Option[HadoopFsRelation],
    relation: LogicalPlan,
    metadataAtAnalysis: DeltaMetadata,
    pinned: Boolean) {
  def configuration: Map[String, String] = metadataAtAnalysis.configuration
}

/** Recognises Delta's relations and reaches Delta's own classes by reflection: the shim compiles without Delta. */
private[source] object DeltaTable {

  def unapply(plan: LogicalPlan): Option[DeltaTable] = plan match {
    case r @ LogicalRelation(files: HadoopFsRelation, output, catalogTable, _, _) if isLogIndex(files) =>
      val index = files.location
      Some(DeltaTable(
        files.location.rootPaths.head, catalogTable.map(_.identifier), output, Some(files), r,
        metadataOf(call(index, "metadata")), call(index, "isTimeTravelQuery").asInstanceOf[Boolean]))
    case r: DataSourceV2Relation if isDeltaV2(r) =>
      val table = r.table
      val entry = call(table, "catalogTable").asInstanceOf[Option[org.apache.spark.sql.catalyst.catalog.CatalogTable]]
      Some(DeltaTable(
        call(table, "path").asInstanceOf[Path], entry.map(_.identifier), r.output, None, r,
        metadataOf(call(call(table, "initialSnapshot"), "metadata")),
        call(table, "timeTravelOpt").asInstanceOf[Option[_]].isDefined))
    case _ => None
  }

  private def isLogIndex(files: HadoopFsRelation): Boolean =
    files.location.getClass.getName.startsWith("org.apache.spark.sql.delta.files.TahoeLogFileIndex")

  private def isDeltaV2(relation: DataSourceV2Relation): Boolean =
    relation.table.getClass.getName == "org.apache.spark.sql.delta.catalog.DeltaTableV2"

  /** ``delta.`/path` `` has an identifier too, but no catalog entry. */
  def isPath(relation: DataSourceV2Relation): Boolean =
    isDeltaV2(relation) && call(relation.table, "catalogTable").asInstanceOf[Option[_]].isEmpty

  // ---- Delta's own classes -----------------------------------------------------------------------------------------

  private def call(target: AnyRef, method: String): AnyRef =
    invoke(target, target.getClass.getMethods.find(m => m.getName == method && m.getParameterCount == 0).getOrElse(
      throw new NoSuchMethodException(s"${target.getClass.getName}.$method")))

  private def invoke(target: AnyRef, method: java.lang.reflect.Method, arguments: AnyRef*): AnyRef =
    try method.invoke(target, arguments: _*)
    catch { case e: java.lang.reflect.InvocationTargetException => throw e.getCause }

  /** Calls a Scala method whose parameters after `arguments` have defaults. */
  private def callWithDefaults(target: AnyRef, name: String, arguments: AnyRef*): AnyRef = {
    val defaults = target.getClass.getMethods.filter(_.getName.startsWith(name + "$default$"))
    val arity = (arguments.size +: defaults.map(_.getName.split('$').last.toInt).toSeq).max
    val method = target.getClass.getMethods.find(m => m.getName == name && m.getParameterCount == arity).getOrElse(
      throw new NoSuchMethodException(s"${target.getClass.getName}.$name/$arity"))
    val rest = (arguments.size + 1 to arity).map(i => call(target, s"$name$$default$$$i"))
    invoke(target, method, arguments ++ rest: _*)
  }

  private def module(name: String): AnyRef =
    Utils.classForName[AnyRef](s"org.apache.spark.sql.delta.$name$$").getField("MODULE$").get(null)

  private def log(spark: SparkSession, path: Path): AnyRef = {
    val companion = module("DeltaLog")
    val method = companion.getClass.getMethod(
      "forTable", classOf[org.apache.spark.sql.SparkSession], classOf[Path])
    invoke(companion, method, spark, path)
  }

  private def metadataOf(metadata: AnyRef): DeltaMetadata = DeltaMetadata(
    call(metadata, "id").asInstanceOf[String],
    call(metadata, "configuration").asInstanceOf[Map[String, String]],
    call(metadata, "schema").asInstanceOf[StructType])

  /** The newest version and its metadata through Delta's own log; used when nothing is known yet. */
  def newest(spark: SparkSession, path: Path): (Long, DeltaMetadata) = {
    val snapshot = callWithDefaults(log(spark, path), "update")
    (call(snapshot, "version").asInstanceOf[Long], metadataOf(call(snapshot, "metadata")))
  }

  /** Forgets Delta's cached log, whose snapshot may be of a table that is not there any more. */
  def forget(spark: SparkSession, path: Path): Unit = {
    val companion = module("DeltaLog")
    val method = companion.getClass.getMethod(
      "invalidateCache", classOf[org.apache.spark.sql.SparkSession], classOf[Path])
    invoke(companion, method, spark, path)
  }

  private def parsed(action: String): AnyRef = {
    val companion = module("actions.Action")
    invoke(companion, companion.getClass.getMethod("fromJson", classOf[String]), action)
  }

  private def logAt(spark: SparkSession, path: Path, version: Long): (AnyRef, AnyRef) = {
    val deltaLog = log(spark, path)
    callWithDefaults(deltaLog, "update")
    (deltaLog, callWithDefaults(deltaLog, "getSnapshotAt", Long.box(version)))
  }

  /** The rows of `add` actions (JSON lines) as Delta reads them: deletion vectors and column mapping applied. */
  def rows(spark: SparkSession, path: Path, version: Long, actions: Seq[String]): DataFrame = {
    val (deltaLog, snapshot) = logAt(spark, path, version)
    callWithDefaults(deltaLog, "createDataFrame", snapshot, actions.map(parsed)).asInstanceOf[DataFrame]
  }

  /** The rows on which two deletion vectors of one file differ, as Delta's change reader finds them; `_change_type` tells them apart.
    * @param files `remove` (as it was) and `add` (as it is) of each file, by its path
    */
  def remarked(spark: SparkSession, path: Path, version: Long, files: Map[String, (String, String)]): Seq[DataFrame] = {
    val (deltaLog, snapshot) = logAt(spark, path, version)
    val key = module("commands.cdc.CDCReader$FilePathWithTableVersion")
    val keyed = files.map { case (name, actions) => callWithDefaults(key, "apply", name, None, Long.box(version), null) -> actions }
    callWithDefaults(
      module("commands.cdc.CDCReader"), "processDeletionVectorActions",
      keyed.map { case (k, (_, now)) => k -> parsed(now) }, keyed.map { case (k, (before, _)) => k -> parsed(before) },
      Map.empty, deltaLog, snapshot, Boolean.box(false), spark).asInstanceOf[Seq[DataFrame]]
  }

  /** Where the deletion vector of an action lies, if not in the action itself. */
  def vectorFile(path: Path, action: String): Option[Path] =
    Option(call(parsed(action), "deletionVector")).filter(call(_, "isOnDisk").asInstanceOf[Boolean]).map { vector =>
      invoke(vector, vector.getClass.getMethod("absolutePath", classOf[Path]), path).asInstanceOf[Path]
    }
}
