package org.apache.spark.sql.ivm.catalog

import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.logical.{LeafNode, LogicalPlan, Statistics}
import org.apache.spark.sql.catalyst.util.truncatedString

/** A reference to an incremental view in an analyzed query. It names no version: the physical leaf decides at execution.
  *
  * @param token  unique for each analyzed reference and part of the canonical form: two queries over the view are never "the same plan",
  *               so Spark's cache cannot answer one of them with the rows that a cached DataFrame read earlier. A DataFrame
  *               derived from a cached one shares its analyzed plan, hence its token, and does use the cache.
  */
case class IncrementalViewRelation(name: TableIdentifier, viewId: String, output: Seq[Attribute], token: Long)
    extends LeafNode
    with MultiInstanceRelation {

  override def newInstance(): LogicalPlan = copy(output = output.map(_.newInstance()))

  override protected def doCanonicalize(): LogicalPlan =
    copy(output = output.map(QueryPlan.normalizeExpressions(_, output)))

  override def computeStats(): Statistics = Statistics(sizeInBytes = conf.defaultSizeInBytes)

  override def nodeName: String = "IncrementalView"

  override def simpleString(maxFields: Int): String =
    s"$nodeName ${name.unquotedString} ${truncatedString(output, "[", ", ", "]", maxFields)}"
}

object IncrementalViewRelation {
  private val tokens = new AtomicLong

  def apply(name: TableIdentifier, viewId: String, output: Seq[Attribute]): IncrementalViewRelation =
    IncrementalViewRelation(name, viewId, output, tokens.incrementAndGet())
}
