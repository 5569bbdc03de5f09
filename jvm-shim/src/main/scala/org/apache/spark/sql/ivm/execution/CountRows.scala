package org.apache.spark.sql.ivm.execution

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.expressions.SortOrder
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.util.LongAccumulator

/** Passes rows on and counts them: `rows_in` of a source whose rows all count +1. */
case class CountRows(counter: LongAccumulator, child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: LogicalPlan): CountRows = copy(child = newChild)
}

case class CountRowsExec(counter: LongAccumulator, child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    val accumulator = counter
    child.execute().mapPartitionsInternal { rows =>
      new Iterator[InternalRow] {
        private var count = 0L
        override def hasNext: Boolean = {
          val more = rows.hasNext
          if (!more && count > 0) {
            accumulator.add(count)
            count = 0
          }
          more
        }
        override def next(): InternalRow = {
          count += 1
          rows.next()
        }
      }
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): CountRowsExec = copy(child = newChild)
}

/** How many rows the scans below a plan gave, after it has run: `rows_in` of a full refresh. */
class RowsRead {
  @volatile private var plan: Option[SparkPlan] = None

  def watch(executed: SparkPlan): Unit = plan = Some(executed)

  def total: Long = plan.toSeq.flatMap(_.collectWithSubqueries { case leaf if leaf.children.isEmpty => leaf })
    .flatMap(_.metrics.get("numOutputRows")).map(_.value).sum
}

/** Passes rows on; remembers the physical plan that makes them. */
case class WatchRead(read: RowsRead, child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: LogicalPlan): WatchRead = copy(child = newChild)
}

case class WatchReadExec(read: RowsRead, child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def doExecute(): RDD[InternalRow] = {
    read.watch(child)
    child.execute()
  }
  override protected def withNewChildInternal(newChild: SparkPlan): WatchReadExec = copy(child = newChild)
}
