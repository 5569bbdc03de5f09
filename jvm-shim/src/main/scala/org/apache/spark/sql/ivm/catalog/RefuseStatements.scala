package org.apache.spark.sql.ivm.catalog

import org.apache.spark.sql.SaveMode
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.execution.command.{CreateTableLikeCommand, RunnableCommand}
import org.apache.spark.sql.execution.datasources.{CreateTable => CreateTableV1, LogicalRelation}
import org.apache.spark.sql.ivm.IvmException
import org.apache.spark.sql.ivm.command.IncrementalViewCommand

/** Statements that would change a view as if it were a table are refused with the statement to use instead.
  *
  * What is not known to be harmless is refused: a statement that a later Spark adds must not reach a view's entry unseen.
  */
private object Refusals {

  /** Commands that only look, or whose own error for a taken name is the right one. Class names of Spark's logical plans and commands. */
  private val Harmless: Set[String] = Set(
    "DescribeRelation", "DescribeRelationJsonCommand", "DescribeColumn", "DescribeTablePartition", "DescribeTableCommand",
    "DescribeColumnCommand", "ShowTableProperties", "ShowTablePropertiesCommand", "ShowColumns", "ShowColumnsCommand", "ShowCreateTable",
    "ShowCreateTableCommand", "ShowCreateTableAsSerdeCommand", "ShowPartitions", "ShowPartitionsCommand", "ShowTables", "ShowTablesCommand",
    "ShowTablesExtended", "ShowTablePartition", "RefreshTable", "RefreshTableCommand", "UncacheTable", "CreateTable", "CreateTableAsSelect",
    "CreateTableCommand", "CreateDataSourceTableCommand", "CreateDataSourceTableAsSelectCommand", "CreateView", "CreateViewCommand",
    "CreateMaterializedViewAsSelect", "CreateStreamingTable", "CreateStreamingTableAsSelect", "DropTempViewCommand")

  def isHarmless(command: LogicalPlan): Boolean = command.isInstanceOf[IncrementalViewCommand] || Harmless(command.nodeName) ||
    Harmless(command.getClass.getSimpleName)

  def refuse(view: TableIdentifier, statement: String): Nothing =
    throw new IvmException("IVM_STATEMENT_NOT_ALLOWED",
      Map("statement" -> statement, "view" -> view.unquotedString, "instead" -> instead(statement, view.unquotedString)))

  /** `AnalyzeTable` → `ANALYZE TABLE`. */
  def statementOf(command: LogicalPlan): String = command match {
    case insert: InsertIntoStatement => if (insert.overwrite) "INSERT OVERWRITE" else "INSERT"
    case _: DeleteFromTable => "DELETE"
    case _: UpdateTable => "UPDATE"
    case _: MergeIntoTable => "MERGE"
    case _: RepairTable => "MSCK REPAIR TABLE"
    case _: AppendData => "INSERT"
    case _: V2WriteCommand => "INSERT OVERWRITE"
    case other =>
      val name = other.getClass.getSimpleName.stripSuffix("Command").stripSuffix("Statement")
      val known = if (name == "SaveAsV1Table") "SaveAsTable" else name
      known.replaceAll("(?<=[a-z])(?=[A-Z])", " ").toUpperCase(java.util.Locale.ROOT)
  }

  private def instead(statement: String, view: String): String = statement.takeWhile(_ != ' ') match {
    case "DROP" => s"DROP INCREMENTAL VIEW $view"
    case "ALTER" | "COMMENT" | "RENAME" | "SET" | "UNSET" | "ADD" =>
      s"ALTER INCREMENTAL VIEW $view …, or CREATE OR REPLACE INCREMENTAL VIEW $view AS …"
    case "REPLACE" => s"CREATE OR REPLACE INCREMENTAL VIEW $view AS …"
    case "CACHE" => s"REFRESH INCREMENTAL VIEW $view: its rows are kept already (a DataFrame's cache() keeps a snapshot)"
    case "ANALYZE" => s"DESCRIBE EXTENDED INCREMENTAL VIEW $view"
    case "MSCK" | "REPAIR" | "RECOVER" => s"REFRESH INCREMENTAL VIEW $view [FULL]"
    case "CREATE" => s"CREATE TABLE … AS SELECT * FROM $view"
    case _ => s"the same statement on the tables of its query, and the view $view follows"
  }
}

/** Refuses by name, before Spark looks the names up: its own rules would fail first with texts about tables and views. */
case class RefuseStatementsByName(spark: SparkSession) extends Rule[LogicalPlan] {
  import Refusals._

  override def apply(plan: LogicalPlan): LogicalPlan = {
    plan.foreach { node =>
      refuseProvider(node)
      if (!isHarmless(node)) target(node).foreach { case (name, said) => check(node, name, said) }
    }
    plan
  }

  /** `CREATE TABLE … USING ivm`: an entry of that provider is a view, and only our statements make views. */
  private def refuseProvider(node: LogicalPlan): Unit = node.productIterator.foreach {
    case spec: TableSpecBase => checkProvider(spec.provider)
    case table: CatalogTable if node.isInstanceOf[CreateTableV1] => checkProvider(table.provider)
    case _ =>
  }

  private def checkProvider(provider: Option[String]): Unit =
    if (provider.exists(_.equalsIgnoreCase(IncrementalViewProvider.Name))) throw new IvmException("IVM_NOT_A_DATA_SOURCE")

  private def check(node: LogicalPlan, nameParts: Seq[String], said: Option[String]): Unit =
    if (!spark.sessionState.catalog.isTempView(nameParts)) {
      ViewCatalog.find(spark, nameParts).foreach(view => refuse(view.identifier, said.getOrElse(statementOf(node))))
    }

  /** The name a statement acts on, and what Spark calls the statement. Sources of rows are no targets. */
  private def target(node: LogicalPlan): Option[(Seq[String], Option[String])] = node match {
    case insert: InsertIntoStatement => named(insert.table)
    case write: V2WriteCommand => named(write.table)
    case delete: DeleteFromTable => named(delete.table)
    case update: UpdateTable => named(update.table)
    case merge: MergeIntoTable => named(merge.targetTable)
    case cache: CacheTable => named(cache.table)
    case _: CacheTableAsSelect => None // caches what it selects, under a name of its own
    case command: Command => command.children.headOption.flatMap(named)
    case _ => None
  }

  private def named(plan: LogicalPlan): Option[(Seq[String], Option[String])] = plan match {
    case relation: UnresolvedRelation => Some(relation.multipartIdentifier -> None)
    case table: UnresolvedTable => Some(table.multipartIdentifier -> Some(table.commandName))
    case view: UnresolvedView => Some(view.multipartIdentifier -> Some(view.commandName))
    case either: UnresolvedTableOrView => Some(either.multipartIdentifier -> Some(either.commandName))
    case UnresolvedIdentifier(nameParts, _) => Some(nameParts -> None)
    case alias: SubqueryAlias => named(alias.child)
    case _ => None
  }
}

/** Refuses what has no name to look up early: the DataFrame writer's commands, names given as `IDENTIFIER(…)`, and Spark's
  * version 1 commands.
  */
case class RefuseResolvedStatements(spark: SparkSession) extends Rule[LogicalPlan] {
  import Refusals._

  override def apply(plan: LogicalPlan): LogicalPlan = {
    plan.foreach {
      case insert: InsertIntoStatement => relation(insert.table).foreach(refuse(_, statementOf(insert)))
      case delete: DeleteFromTable => relation(delete.table).foreach(refuse(_, statementOf(delete)))
      case update: UpdateTable => relation(update.table).foreach(refuse(_, statementOf(update)))
      case merge: MergeIntoTable => relation(merge.targetTable).foreach(refuse(_, statementOf(merge)))
      case create: CreateTableV1 if writes(create) => names(create).foreach(refuse(_, "SAVE AS TABLE"))
      case like: CreateTableLikeCommand if like.provider.isEmpty => view(like.sourceTable).foreach(refuse(_, "CREATE TABLE LIKE"))
      case _: CreateTableLikeCommand =>
      case command: RunnableCommand if !isHarmless(command) && writes(command) => names(command).foreach(refuse(_, statementOf(command)))
      case _: RunnableCommand =>
      case command: Command if !isHarmless(command) =>
        command.children.headOption.flatMap(resolved).foreach(refuse(_, statementOf(command)))
      case _ =>
    }
    plan
  }

  private def resolved(child: LogicalPlan): Option[TableIdentifier] = (child match {
    case name: ResolvedIdentifier => ViewCatalog.find(spark, nameParts(name.catalog, name.identifier))
    case table: ResolvedTable => ViewCatalog.find(spark, nameParts(table.catalog, table.identifier))
    case _ => None
  }).map(_.identifier)

  private def nameParts(catalog: CatalogPlugin, name: Identifier): Seq[String] = catalog.name +: name.namespace.toSeq :+ name.name

  /** `saveAsTable` with the modes "ignore" and "errorifexists" leaves what exists alone. */
  private def writes(command: LogicalPlan): Boolean =
    !command.productIterator.exists(mode => mode == SaveMode.Ignore || mode == SaveMode.ErrorIfExists)

  private def relation(plan: LogicalPlan): Option[TableIdentifier] = plan match {
    case leaf: LogicalRelation if leaf.relation.isInstanceOf[IncrementalViewStub] => leaf.catalogTable.map(_.identifier)
    case leaf: IncrementalViewRelation => Some(leaf.name)
    case alias: SubqueryAlias => relation(alias.child)
    case _ => None
  }

  private def names(command: LogicalPlan): Option[TableIdentifier] = command.productIterator.collect {
    case name: TableIdentifier => name
    case table: CatalogTable => table.identifier
  }.flatMap(view).nextOption()

  private def view(name: TableIdentifier): Option[TableIdentifier] =
    if (spark.sessionState.catalog.isTempView(name)) None else ViewCatalog.find(spark, name.nameParts).map(_.identifier)
}
