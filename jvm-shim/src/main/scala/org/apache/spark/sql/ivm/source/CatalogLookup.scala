package org.apache.spark.sql.ivm.source

import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.classic.SparkSession

/** The catalog as it is now; the analyzed plan remembers how it was. */
private[source] object CatalogLookup {
  def now(spark: SparkSession, table: String, identifier: TableIdentifier): CatalogTable =
    try spark.sessionState.catalog.getTableMetadata(identifier)
    catch {
      case _: NoSuchTableException | _: NoSuchNamespaceException =>
        throw SourceRows.missing(table, "it is not in the catalog any more")
    }
}
