package org.apache.spark.sql.ivm.catalog

import scala.util.Try

import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.catalyst.catalog.{CatalogStorageFormat, CatalogTable, CatalogTableType}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{CatalogManager, CatalogV2Util, LookupCatalog}
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.execution.datasources.DataSource
import org.apache.spark.sql.ivm.{CaseClasses, IvmException, ViewDefinition}

/** The views' entries in Spark's session catalog: a table of provider `ivm`, its definition in the properties.
  *
  * The entry is an EXTERNAL table at the state's location: no way of dropping it that passes us by (DROP DATABASE … CASCADE, a session
  * without the extension) deletes files that a reader of another driver may still need.
  */
object ViewCatalog {

  def isIncrementalView(table: CatalogTable): Boolean = table.provider.exists(_.equalsIgnoreCase(IncrementalViewProvider.Name))

  /** The qualified name a person's words stand for; only the session catalog keeps views. */
  def qualify(spark: SparkSession, nameParts: Seq[String]): TableIdentifier =
    inSessionCatalog(spark, nameParts).getOrElse(
      throw new IvmException("IVM_CATALOG_NOT_SUPPORTED", Map("name" -> nameParts.mkString("."))))

  /** The schema that SHOW lists: of the session catalog, like every view. */
  def schema(spark: SparkSession, namespace: Seq[String]): String = {
    // Any table name does: only its schema is looked at.
    inSessionCatalog(spark, namespace :+ "v").flatMap(_.database).getOrElse(
      throw new IvmException("IVM_NAMESPACE_NOT_SUPPORTED", Map(
        "namespace" -> (if (namespace.isEmpty) currentPath(spark) else namespace).mkString("."))))
  }

  /** The entry of a name if it is an incremental view; None for anything else, whatever it is. */
  def find(spark: SparkSession, nameParts: Seq[String]): Option[CatalogTable] =
    inSessionCatalog(spark, nameParts).flatMap(existing(spark, _)).filter(isIncrementalView)

  def exists(spark: SparkSession, name: TableIdentifier): Boolean = existing(spark, name).isDefined

  def entry(spark: SparkSession, name: TableIdentifier): CatalogTable = {
    val table = existing(spark, name).getOrElse(throw new NoSuchTableException(name.nameParts))
    if (!isIncrementalView(table)) {
      throw new IvmException("IVM_NOT_INCREMENTAL_VIEW", Map("name" -> name.unquotedString))
    }
    table
  }

  def load(spark: SparkSession, name: TableIdentifier): ViewDefinition = decode(entry(spark, name))

  def decode(entry: CatalogTable): ViewDefinition = ViewProperties.decode(entry)

  def load(spark: SparkSession, nameParts: Seq[String]): ViewDefinition = load(spark, qualify(spark, nameParts))

  /** The views of a schema, sorted by name. */
  def list(spark: SparkSession, schema: String, pattern: String): Seq[ViewDefinition] =
    entries(spark, schema, pattern).flatMap(t => Try(ViewProperties.decode(t)).toOption)

  /** The entries of a schema that are views, sorted by name, also those that cannot be decoded. */
  def entries(spark: SparkSession, schema: String, pattern: String): Seq[CatalogTable] = {
    val catalog = spark.sessionState.catalog
    if (!catalog.databaseExists(schema)) {
      throw new NoSuchNamespaceException(Seq(CatalogManager.SESSION_CATALOG_NAME, schema))
    }
    val names = catalog.listTables(schema, pattern, includeLocalTempViews = false)
    catalog.getTablesByName(names).filter(isIncrementalView).sortBy(_.identifier.table)
  }

  /** Fails with Spark's error if the name was taken meanwhile. */
  def create(spark: SparkSession, definition: ViewDefinition): Unit =
    spark.sessionState.catalog.createTable(
      CaseClasses.copy(
        CaseClasses.make(
          classOf[CatalogTable], CatalogTable, definition.name, CatalogTableType.EXTERNAL, storage(definition), definition.schema),
        "provider" -> Some(IncrementalViewProvider.Name),
        "comment" -> definition.comment,
        "properties" -> ViewProperties.encode(definition)),
      ignoreIfExists = false)

  /** Switches the entry to `definition` (same name): the properties, written last, decide. */
  def alter(spark: SparkSession, definition: ViewDefinition): Unit = {
    val catalog = spark.sessionState.catalog
    val old = entry(spark, definition.name)
    if (old.schema != definition.schema) {
      // The external catalog: the session catalog's own method refuses to drop columns.
      catalog.externalCatalog.alterTableSchema(definition.name.database.get, definition.name.table, definition.schema)
    }
    catalog.alterTable(
      CaseClasses.copy(
        old,
        "storage" -> storage(definition),
        "schema" -> definition.schema,
        "comment" -> definition.comment,
        "properties" -> ViewProperties.encode(definition)))
    catalog.refreshTable(definition.name)
  }

  def rename(spark: SparkSession, from: TableIdentifier, to: TableIdentifier): Unit = {
    entry(spark, from)
    spark.sessionState.catalog.refreshTable(from)
    spark.sessionState.catalog.renameTable(from, to)
  }

  def drop(spark: SparkSession, name: TableIdentifier): Unit = {
    spark.sessionState.catalog.refreshTable(name)
    spark.sessionState.catalog.dropTable(name, ignoreIfNotExists = true, purge = false)
  }

  /** Catalog and schema that unqualified names in a query mean now. */
  def currentPath(spark: SparkSession): Seq[String] = {
    // Through the public catalog: the catalog manager is a class in one version of Spark and a trait in the next.
    val schema = spark.catalog.currentDatabase // empty for a catalog without a default namespace
    spark.catalog.currentCatalog() +: (if (schema.isEmpty) Nil else spark.sessionState.sqlParser.parseMultipartIdentifier(schema))
  }

  /** What the catalog would refuse after the state is built is refused before. */
  def checkCreatable(spark: SparkSession, name: TableIdentifier): Unit = {
    if (!spark.sessionState.catalog.databaseExists(name.database.get)) {
      throw new NoSuchNamespaceException(Seq(CatalogManager.SESSION_CATALOG_NAME, name.database.get))
    }
    if (!name.table.matches("\\w+")) throw QueryCompilationErrors.invalidNameForTableOrDatabaseError(name.table)
  }

  /** A key of the user's TBLPROPERTIES must not be one of ours. */
  def checkProperties(keys: Iterable[String]): Unit =
    keys.find(ViewProperties.isOurs).foreach { key =>
      throw new IvmException("IVM_PROPERTY_RESERVED", Map("property" -> key))
    }

  private def storage(definition: ViewDefinition): CatalogStorageFormat =
    // Not by `copy`: Spark 4.2 added a field to the class.
    DataSource.buildStorageFormatFromOptions(Map("path" -> definition.location))

  private def existing(spark: SparkSession, name: TableIdentifier): Option[CatalogTable] =
    try Some(spark.sessionState.catalog.getTableMetadata(name))
    catch { case _: NoSuchTableException | _: NoSuchNamespaceException => None }

  private def inSessionCatalog(spark: SparkSession, nameParts: Seq[String]): Option[TableIdentifier] = {
    val lookup = new Lookup(spark.sessionState.catalogManager)
    nameParts match {
      case lookup.CatalogAndIdentifier(catalog, name) if CatalogV2Util.isSessionCatalog(catalog) && name.namespace.length == 1 =>
        val table = TableIdentifier(name.name, Some(name.namespace.head), Some(CatalogManager.SESSION_CATALOG_NAME))
        Some(spark.sessionState.catalog.qualifyIdentifier(table))
      case _ => None
    }
  }

  private final class Lookup(override val catalogManager: CatalogManager) extends LookupCatalog
}
