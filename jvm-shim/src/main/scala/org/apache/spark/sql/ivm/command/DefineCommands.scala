package org.apache.spark.sql.ivm.command

import java.util.UUID

import scala.util.Try
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.{AnalysisException, Row}
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.util.quoteIdentifier
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.ivm.{IvmException, Policy, RefreshReport, ViewDefinition, ViewEngine}
import org.apache.spark.sql.ivm.catalog.{IncrementalViewRelation, ViewCatalog}
import org.apache.spark.sql.ivm.execution.FrozenSettings
import org.apache.spark.sql.ivm.state.Faults
import org.apache.spark.sql.types.{MetadataBuilder, StructField, StructType}
import org.apache.spark.sql.util.SchemaUtils

/** CREATE: the state is built first and the entry written last; a failure leaves neither. */
case class CreateIncrementalViewCommand(
    name: Seq[String],
    columns: Seq[(String, Option[String])],
    comment: Option[String],
    properties: Map[String, String],
    refreshOnRead: Boolean,
    policy: Policy,
    query: String,
    ifNotExists: Boolean,
    replace: Boolean)
    extends IncrementalViewCommand {

  override def execute(spark: SparkSession): Seq[Row] = {
    val qualified = ViewCatalog.qualify(spark, name)
    val exists = ViewCatalog.exists(spark, qualified)
    if (exists && ifNotExists) Nil
    else if (exists && !replace) throw new TableAlreadyExistsException(qualified.nameParts)
    else {
      // An entry that is no incremental view is not ours to replace: `load` says so.
      val old = if (exists) Some(ViewCatalog.load(spark, qualified)) else None
      val described = definition(spark)
      val next = described.copy(location = engine.locate(spark, described, fresh = exists))
      old match {
        case Some(view) => Definitions.replace(spark, engine, view, next)
        case None => Definitions.create(spark, engine, next, ifNotExists)
      }
      Nil
    }
  }

  def definition(spark: SparkSession): ViewDefinition = {
    val qualified = ViewCatalog.qualify(spark, name)
    ViewCatalog.checkCreatable(spark, qualified)
    ViewCatalog.checkProperties(properties.keys)
    val settings = FrozenSettings.of(spark.sessionState.conf)
    val path = ViewCatalog.currentPath(spark)
    val analyzed = engine.analyze(spark, query, settings, path)
    Definitions.checkNotRecursive(spark, engine, qualified, analyzed)
    ViewDefinition(
      name = qualified,
      viewId = UUID.randomUUID.toString,
      query = query,
      schema = Definitions.schema(spark, qualified, analyzed, columns),
      columns = analyzed.output.map(_.name),
      comment = comment.orElse(properties.get("comment")),
      properties = properties - "comment",
      refreshOnRead = refreshOnRead,
      policy = policy,
      settings = settings,
      catalogPath = path,
      location = "",
      suspended = false)
  }
}

/** ALTER … AS query: a new generation is built beside the old one, then the entry is switched. As for Spark's views, columns get
  * the names of the new query and the settings of this session.
  */
case class AlterIncrementalViewAsCommand(name: Seq[String], query: String) extends IncrementalViewCommand {
  override def execute(spark: SparkSession): Seq[Row] = {
    val old = ViewCatalog.load(spark, name)
    val settings = FrozenSettings.of(spark.sessionState.conf)
    val path = ViewCatalog.currentPath(spark)
    val analyzed = engine.analyze(spark, query, settings, path)
    Definitions.checkNotRecursive(spark, engine, old.name, analyzed)
    val next = old.copy(
      query = query,
      schema = Definitions.schema(spark, old.name, analyzed, Nil),
      columns = analyzed.output.map(_.name),
      settings = settings,
      catalogPath = path)
    Definitions.replace(spark, engine, old, next.copy(location = engine.locate(spark, next, fresh = true)))
    Nil
  }
}

/** DROP: the entry goes first, so that nobody finds a view without its state. */
case class DropIncrementalViewCommand(name: Seq[String], ifExists: Boolean) extends IncrementalViewCommand {
  override def execute(spark: SparkSession): Seq[Row] = {
    val qualified = ViewCatalog.qualify(spark, name)
    if (!ifExists || ViewCatalog.exists(spark, qualified)) {
      // An entry that says too little goes all the same; where its state was, nobody knows.
      val view = Try(ViewCatalog.decode(ViewCatalog.entry(spark, qualified)))
      view.failed.foreach { case e: IvmException if e.condition == "IVM_CATALOG_ENTRY_DAMAGED" => case e => throw e }
      ViewCatalog.drop(spark, qualified)
      Faults.at("entry.dropped")
      view.foreach(engine.drop(spark, _))
    }
    Nil
  }
}

private[command] object Definitions extends Logging {

  /** The view's columns: named by the column list, else by the query; all nullable, of metadata only comments. */
  def schema(spark: SparkSession, name: TableIdentifier, query: LogicalPlan, columns: Seq[(String, Option[String])]): StructType = {
    val output = query.output
    if (columns.nonEmpty && columns.length != output.length) {
      // Spark's own error of CREATE VIEW; how Spark makes it differs between its versions.
      val which = if (columns.length > output.length) "NOT_ENOUGH_DATA_COLUMNS" else "TOO_MANY_DATA_COLUMNS"
      throw new AnalysisException(
        errorClass = s"CREATE_VIEW_COLUMN_ARITY_MISMATCH.$which",
        messageParameters = Map(
          "viewName" -> name.nameParts.map(quoteIdentifier).mkString("."),
          "viewColumns" -> columns.map(c => quoteIdentifier(c._1)).mkString(", "),
          "dataColumns" -> output.map(c => quoteIdentifier(c.name)).mkString(", ")))
    }
    val named: Seq[(String, Option[String])] =
      if (columns.nonEmpty) columns
      else query.schema.map(field => field.name -> field.getComment())
    SchemaUtils.checkColumnNameDuplication(named.map(_._1), spark.sessionState.conf.resolver)
    StructType(query.schema.zip(named).map { case (field, (column, comment)) =>
      val metadata = comment.fold(new MetadataBuilder)(text => new MetadataBuilder().putString("comment", text)).build()
      StructField(column, field.dataType, nullable = true, metadata)
    }).asNullable
  }

  /** A view must not read itself, directly or through other incremental views (ordinary views are expanded in the plan). */
  def checkNotRecursive(spark: SparkSession, engine: ViewEngine, name: TableIdentifier, query: LogicalPlan): Unit = {
    def visit(plan: LogicalPlan, path: Seq[TableIdentifier]): Unit =
      plan.collectWithSubqueries { case view: IncrementalViewRelation => view.name }.distinct.foreach { read =>
        if (read == name) {
          val cycle = (path :+ name).map(_.unquotedString).mkString(" → ")
          throw new IvmException("IVM_RECURSIVE_VIEW", Map("view" -> name.unquotedString, "cycle" -> cycle))
        }
        // The views between were checked when they were made: they hold no other cycle.
        val below = ViewCatalog.load(spark, read)
        visit(engine.analyze(spark, below.query, below.settings, below.catalogPath), path :+ read)
      }
    if (ViewCatalog.exists(spark, name)) visit(query, Seq(name))
  }

  def create(spark: SparkSession, engine: ViewEngine, next: ViewDefinition, ifNotExists: Boolean): Unit =
    try {
      build(spark, engine, next, "CREATED")(ViewCatalog.create(spark, next))
      afterwards(s"settle the state of ${next.qualifiedName}")(engine.settle(spark, next))
    } catch {
      case e: TableAlreadyExistsException => if (!ifNotExists) throw e // another session was faster
    }

  /** Builds the state beside the old one, switches the entry to it, and only then lets the old one go. */
  def replace(
      spark: SparkSession, engine: ViewEngine, old: ViewDefinition, next: ViewDefinition, reason: String = "CREATED"): RefreshReport = {
    val report = build(spark, engine, next, reason)(ViewCatalog.alter(spark, next))
    afterwards(s"remove the former state of ${old.qualifiedName} at ${old.location}")(engine.drop(spark, old))
    afterwards(s"settle the state of ${next.qualifiedName}")(engine.settle(spark, next))
    report
  }

  /** The statement has taken effect; what is left behind is garbage, not an error. */
  private def afterwards(task: String)(work: => Unit): Unit =
    try work
    catch { case NonFatal(e) => logWarning(s"could not $task", e) }

  /** A failure removes what this statement built; a state that was there before, left by an ended application, stays. */
  private def build(spark: SparkSession, engine: ViewEngine, next: ViewDefinition, reason: String)(register: => Unit): RefreshReport = {
    val attached = engine.hasState(next)
    try {
      val report = engine.create(spark, next, reason)
      Faults.at("entry.begin")
      register
      Faults.at("entry.written")
      report
    } catch {
      case e: Throwable =>
        if (!attached) {
          try engine.drop(spark, next)
          catch { case NonFatal(f) => e.addSuppressed(f) }
        }
        throw e
    }
  }
}
