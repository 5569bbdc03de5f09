package org.apache.spark.sql.ivm.catalog

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{Row, SQLContext}
import org.apache.spark.sql.ivm.IvmException
import org.apache.spark.sql.sources.{BaseRelation, DataSourceRegister, RelationProvider, SchemaRelationProvider, TableScan}
import org.apache.spark.sql.types.StructType

/** The provider `ivm` of the views' catalog entries. Spark's `FindDataSourceTable` loads it before any injected rule runs; the relation it
  * gives only marks the place, and [[ResolveIncrementalViews]] puts the real leaf there.
  */
class IncrementalViewProvider extends DataSourceRegister with RelationProvider with SchemaRelationProvider {
  override def shortName(): String = IncrementalViewProvider.Name

  override def createRelation(context: SQLContext, options: Map[String, String], schema: StructType): BaseRelation =
    IncrementalViewStub(context, schema)

  /** `spark.read.format("ivm")` and `CREATE TABLE … USING ivm`: there is no view behind them. */
  override def createRelation(context: SQLContext, options: Map[String, String]): BaseRelation =
    throw new IvmException("IVM_NOT_A_DATA_SOURCE")
}

object IncrementalViewProvider {
  val Name = "ivm"
}

/** Holds no version (Spark caches it). Reading it means that the jar is on the class path but the extension is not loaded. */
case class IncrementalViewStub(@transient sqlContext: SQLContext, schema: StructType) extends BaseRelation with TableScan {
  override def buildScan(): RDD[Row] = throw new IvmException(
    "IVM_EXTENSION_NOT_LOADED",
    Map("extension" -> "org.apache.spark.sql.ivm.IncrementalViewExtensions"))
}
