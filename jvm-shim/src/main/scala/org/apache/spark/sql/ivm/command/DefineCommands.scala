package org.apache.spark.sql.ivm.command

import java.util.UUID

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.{CapturesConfig, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.ivm.{IvmException, Policy, ViewDefinition, ViewEngine}
import org.apache.spark.sql.ivm.catalog.{IncrementalViewRelation, ViewCatalog}
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
    val settings = Definitions.settings(spark)
    val path = ViewCatalog.currentPath(spark)
    val analyzed = engine.analyze(spark, query, settings, path)
    Definitions.checkNotRecursive(spark, engine, qualified, analyzed)
    ViewDefinition(
      name = qualified,
      viewId = UUID.randomUUID.toString,
      query = query,
      schema = Definitions.schema(spark, qualified, analyzed, columns),
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
    val settings = Definitions.settings(spark)
    val path = ViewCatalog.currentPath(spark)
    val analyzed = engine.analyze(spark, query, settings, path)
    Definitions.checkNotRecursive(spark, engine, old.name, analyzed)
    val next = old.copy(
      query = query,
      schema = Definitions.schema(spark, old.name, analyzed, Nil),
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
      val view = ViewCatalog.load(spark, qualified)
      ViewCatalog.drop(spark, qualified)
      engine.drop(spark, view)
    }
    Nil
  }
}

private[command] object Definitions extends CapturesConfig with Logging {

  /** Settings that Spark stores with its persistent views, those that decide meaning even where they were never set. */
  def settings(spark: SparkSession): Map[String, String] = {
    val conf = spark.sessionState.conf
    val always = Seq(SQLConf.ANSI_ENABLED, SQLConf.SESSION_LOCAL_TIMEZONE, SQLConf.CASE_SENSITIVE,
      SQLConf.DECIMAL_OPERATIONS_ALLOW_PREC_LOSS, SQLConf.MAP_KEY_DEDUP_POLICY, SQLConf.LEGACY_SIZE_OF_NULL,
      SQLConf.GROUP_BY_ORDINAL, SQLConf.ORDER_BY_ORDINAL, SQLConf.ESCAPED_STRING_LITERALS, SQLConf.DOUBLE_QUOTED_IDENTIFIERS)
    sqlConfigsToProps(conf, "").filter { case (key, _) => !key.startsWith("spark.sql.ivm.") } ++
      always.map(entry => entry.key -> conf.getConfString(entry.key, entry.defaultValueString))
  }

  /** The view's columns: named by the column list, else by the query; all nullable, of metadata only comments. */
  def schema(spark: SparkSession, name: TableIdentifier, query: LogicalPlan, columns: Seq[(String, Option[String])]): StructType = {
    val output = query.output
    if (columns.length > output.length && columns.nonEmpty) {
      throw QueryCompilationErrors.cannotCreateViewNotEnoughColumnsError(name.nameParts, columns.map(_._1), query)
    } else if (columns.nonEmpty && columns.length < output.length) {
      throw QueryCompilationErrors.cannotCreateViewTooManyColumnsError(name.nameParts, columns.map(_._1), query)
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
      build(spark, engine, next)(ViewCatalog.create(spark, next))
    } catch {
      case e: TableAlreadyExistsException => if (!ifNotExists) throw e // another session was faster
    }

  def replace(spark: SparkSession, engine: ViewEngine, old: ViewDefinition, next: ViewDefinition): Unit = {
    build(spark, engine, next)(ViewCatalog.alter(spark, next))
    // The statement has taken effect; what is left behind is garbage, not an error.
    try engine.drop(spark, old)
    catch { case NonFatal(e) => logWarning(s"could not remove the former state of ${old.qualifiedName} at ${old.location}", e) }
  }

  private def build(spark: SparkSession, engine: ViewEngine, next: ViewDefinition)(register: => Unit): Unit =
    try {
      engine.create(spark, next)
      register
    } catch {
      case e: Throwable =>
        try engine.drop(spark, next)
        catch { case NonFatal(f) => e.addSuppressed(f) }
        throw e
    }
}
