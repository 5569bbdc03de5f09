package org.apache.spark.sql.ivm.command

import java.sql.Timestamp
import java.time.Instant

import scala.util.control.NonFatal

import org.apache.spark.sql.{AnalysisException, Row}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.util.{quoteIfNeeded, StringUtils}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.ivm.{IvmException, ViewDefinition, ViewStatus}
import org.apache.spark.sql.ivm.catalog.ViewCatalog
import org.apache.spark.sql.types.{LongType, StringType, TimestampType}

/** SHOW INCREMENTAL VIEWS: a view whose state cannot be read is listed with that as its state. */
case class ShowIncrementalViewsCommand(namespace: Option[Seq[String]], pattern: Option[String]) extends IncrementalViewCommand {
  override val output: Seq[Attribute] = IncrementalViewCommand.columns(
    "namespace" -> StringType, "viewName" -> StringType, "strategy" -> StringType, "policy" -> StringType, "refresh" -> StringType,
    "state" -> StringType, "version" -> LongType, "lastRefresh" -> TimestampType)

  override def execute(spark: SparkSession): Seq[Row] = {
    val schema = ViewCatalog.schema(spark, namespace.getOrElse(Nil))
    val like = pattern.getOrElse("*")
    val entries = ViewCatalog.entries(spark, schema, like)
    val coming = engine.underConstruction(schema).filter { view =>
      StringUtils.filterPattern(Seq(view.name.table), like).nonEmpty && !entries.exists(_.identifier.table == view.name.table)
    }
    coming.map(view => Row(schema, view.name.table, null, view.policy.text, Texts.refresh(view), "building", null, null)) ++ entries.map { entry =>
      failing(ViewCatalog.decode(entry)) match {
        case Left(failed) => Row(schema, entry.identifier.table, null, null, null, failed, null, null)
        case Right(view) =>
          val status = failing(engine.status(spark, view))
          Row(schema, view.name.table, status.map(_.strategy).getOrElse(null), view.policy.text, Texts.refresh(view),
            status.fold(identity, Texts.state(view, _)), status.map(s => Long.box(s.version)).getOrElse(null),
            status.map(s => Timestamp.from(Instant.ofEpochMilli(s.lastTimestampMs))).getOrElse(null))
      }
    }
  }

  private def failing[T](look: => T): Either[String, T] =
    try Right(look)
    catch {
      case e: IvmException => Left(s"failed: ${e.condition}")
      case NonFatal(e) => Left(s"failed: ${e.getMessage}")
    }
}

/** DESCRIBE [EXTENDED] INCREMENTAL VIEW: (key, value) rows. */
case class DescribeIncrementalViewCommand(name: Seq[String], extended: Boolean) extends IncrementalViewCommand {
  override val output: Seq[Attribute] = IncrementalViewCommand.columns("key" -> StringType, "value" -> StringType)

  override def execute(spark: SparkSession): Seq[Row] = {
    val entry = ViewCatalog.entry(spark, ViewCatalog.qualify(spark, name))
    val view = ViewCatalog.load(spark, entry.identifier)
    val status = engine.status(spark, view)
    val basic = Seq(
      "strategy" -> status.strategy,
      "policy" -> view.policy.text,
      "refresh" -> Texts.refresh(view),
      "version" -> status.version.toString,
      "last_refresh_kind" -> status.lastKind,
      "last_refresh_reason" -> status.lastReason,
      "last_refresh_ms" -> status.lastMs.toString,
      "state_bytes" -> status.stateBytes.toString,
      "partitions" -> status.partitions.toString) ++
      status.sources.map { case (table, token) => s"source.$table" -> token }
    val more = if (!extended) Nil else Seq(
      "name" -> view.qualifiedName,
      "view_id" -> view.viewId,
      "comment" -> view.comment.getOrElse(""),
      "owner" -> entry.owner,
      "created" -> Instant.ofEpochMilli(entry.createTime).toString,
      "state" -> Texts.state(view, status),
      "last_refresh" -> Instant.ofEpochMilli(status.lastTimestampMs).toString,
      "location" -> view.location,
      "query" -> view.query,
      "catalog_path" -> view.catalogPath.map(quoteIfNeeded).mkString(".")) ++
      view.schema.map(field => s"column.${field.name}" -> (field.dataType.simpleString + field.getComment().fold("")(c => s" -- $c"))) ++
      view.properties.toSeq.sorted.map { case (key, value) => s"property.$key" -> value } ++
      view.settings.toSeq.sorted.map { case (key, value) => s"setting.$key" -> value } ++
      status.extended
    (basic ++ more).map { case (key, value) => Row(key, value) }
  }
}

/** DESCRIBE HISTORY: one row a refresh, newest first. */
case class DescribeIncrementalViewHistoryCommand(name: Seq[String]) extends IncrementalViewCommand {
  override val output: Seq[Attribute] = IncrementalViewCommand.columns(
    "version" -> LongType, "timestamp" -> TimestampType, "kind" -> StringType, "reason" -> StringType, "rows_in" -> LongType,
    "rows_changed" -> LongType, "duration_ms" -> LongType, "sources" -> StringType, "estimates" -> StringType)

  override def execute(spark: SparkSession): Seq[Row] =
    engine.history(spark, ViewCatalog.load(spark, name)).sortBy(-_.version).map { h =>
      Row(h.version, Timestamp.from(Instant.ofEpochMilli(h.timestampMs)), h.kind, h.reason, h.rowsIn,
        h.rowsChanged.map(Long.box).orNull, h.durationMs, h.sources, h.estimates)
    }
}

/** SHOW CREATE INCREMENTAL VIEW: a statement that makes the same view again. */
case class ShowCreateIncrementalViewCommand(name: Seq[String]) extends IncrementalViewCommand {
  override val output: Seq[Attribute] = IncrementalViewCommand.columns("createtab_stmt" -> StringType)

  override def execute(spark: SparkSession): Seq[Row] = Seq(Row(Texts.create(ViewCatalog.load(spark, name))))
}

/** EXPLAIN CREATE | REFRESH INCREMENTAL VIEW: changes nothing. */
case class ExplainIncrementalViewCommand(explained: LogicalPlan, mode: String) extends IncrementalViewCommand {
  override val output: Seq[Attribute] = IncrementalViewCommand.columns("plan" -> StringType)

  /** The engine has three modes; Spark's COST and CODEGEN ask for detail. */
  private def engineMode: String = if (mode == "cost" || mode == "codegen") "extended" else mode

  override def execute(spark: SparkSession): Seq[Row] = {
    val text = explained match {
      case create: CreateIncrementalViewCommand => engine.explainCreate(spark, create.definition(spark), engineMode)
      case refresh: RefreshIncrementalViewCommand => 
        engine.explainRefresh(spark, ViewCatalog.load(spark, refresh.name), refresh.full, engineMode)
      case other => throw new AnalysisException(errorClass = "INTERNAL_ERROR", messageParameters = Map("message" -> other.nodeName))
    }
    Seq(Row(text))
  }
}

private object Texts {
  def refresh(view: ViewDefinition): String = if (view.refreshOnRead) "ON READ" else "ON DEMAND"

  def state(view: ViewDefinition, status: ViewStatus): String = if (view.suspended) "suspended" else status.state

  def create(view: ViewDefinition): String = {
    val columns = view.schema.map(field => quoteIfNeeded(field.name) + field.getComment().fold("")(c => s" COMMENT ${literal(c)}"))
    val properties = view.properties.toSeq.sorted.map { case (key, value) => s"${literal(key)} = ${literal(value)}" }
    val lines = Seq(s"CREATE INCREMENTAL VIEW ${view.name.nameParts.map(quoteIfNeeded).mkString(".")} ${listed(columns)}") ++
      view.comment.map(comment => s"COMMENT ${literal(comment)}") ++
      (if (properties.isEmpty) None else Some(s"TBLPROPERTIES ${listed(properties)}")) ++
      Seq(s"REFRESH ${refresh(view)}", s"REFRESH POLICY ${view.policy.text}", s"AS ${view.query}")
    lines.mkString("\n")
  }

  private def listed(items: Seq[String]): String = items.mkString("(\n  ", ",\n  ", ")")

  /** A string as this session's parser reads it back. */
  private def literal(text: String): String =
    if (SQLConf.get.escapedStringLiterals) s"'${text.replace("'", "\\'")}'"
    else s"'${text.replace("\\", "\\\\").replace("'", "\\'")}'"
}
