package org.apache.spark.sql.ivm.catalog

import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference, MetadataAttribute}
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.logical.{ExposesMetadataColumns, LeafNode, LogicalPlan, Statistics}
import org.apache.spark.sql.catalyst.util.truncatedString
import org.apache.spark.sql.types.LongType

/** A reference to an incremental view in an analyzed query. It names no version: the physical leaf decides at execution.
  *
  * @param token  unique for each analyzed reference and part of the canonical form: two queries over the view are never "the same plan",
  *               so Spark's cache cannot answer one of them with the rows that a cached DataFrame read earlier. A DataFrame
  *               derived from a cached one shares its analyzed plan, hence its token, and does use the cache.
  * @param version the metadata column `_ivm_version`: what the rows were read at. Not part of `*`; a column of that name hides it.
  */
case class IncrementalViewRelation(name: TableIdentifier, viewId: String, output: Seq[Attribute], token: Long, version: AttributeReference)
    extends LeafNode
    with MultiInstanceRelation
    with ExposesMetadataColumns {

  override def newInstance(): LogicalPlan = {
    val renewed = version.newInstance()
    copy(output = output.map(a => if (a.exprId == version.exprId) renewed else a.newInstance()), version = renewed)
  }

  override lazy val metadataOutput: Seq[Attribute] =
    if (output.exists(a => a.exprId != version.exprId && conf.resolver(a.name, IncrementalViewRelation.Version))) Nil else Seq(version)

  override def withMetadataColumns(): LogicalPlan = copy(output = output ++ metadataOutput.filterNot(outputSet.contains))

  override protected def doCanonicalize(): LogicalPlan =
    copy(output = output.map(QueryPlan.normalizeExpressions(_, output)), version = IncrementalViewRelation.NoVersion)

  override def computeStats(): Statistics = Statistics(sizeInBytes = conf.defaultSizeInBytes)

  override def nodeName: String = "IncrementalView"

  override def simpleString(maxFields: Int): String =
    s"$nodeName ${name.unquotedString} ${truncatedString(output, "[", ", ", "]", maxFields)}"
}

object IncrementalViewRelation {
  private val tokens = new AtomicLong

  def apply(name: TableIdentifier, viewId: String, output: Seq[Attribute]): IncrementalViewRelation =
    IncrementalViewRelation(name, viewId, output, tokens.incrementAndGet(), versionColumn)

  /** What all references to the view have in common. */
  def nameless(name: TableIdentifier, viewId: String): IncrementalViewRelation = IncrementalViewRelation(name, viewId, Nil, 0L, NoVersion)

  private val Version = "_ivm_version"
  private def versionColumn: AttributeReference = MetadataAttribute(Version, LongType, nullable = false).asInstanceOf[AttributeReference]
  private lazy val NoVersion = versionColumn
}
