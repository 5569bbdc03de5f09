package org.apache.spark.sql.ivm.execution

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/** Asks for the next row before it gives one away.
  *
  * A LIMIT above stops asking after its last row. Python, which was told the limit, has no more rows then either, but a worker whose end was
  * never read is thrown away by Spark, and the state that it holds in memory with it.
  */
case class LookAheadExec(child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = child.execute().mapPartitionsInternal { rows =>
    new Iterator[InternalRow] {
      private var ahead: Option[InternalRow] = fetch()
      private def fetch(): Option[InternalRow] = if (rows.hasNext) Some(rows.next().copy()) else None
      override def hasNext: Boolean = ahead.isDefined
      override def next(): InternalRow = {
        val row = ahead.getOrElse(throw new NoSuchElementException)
        ahead = fetch()
        row
      }
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): LookAheadExec = copy(child = newChild)
}
