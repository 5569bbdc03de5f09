package org.apache.spark.sql.ivm.execution

import scala.collection.mutable

import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.scheduler.ExecutorCacheTaskLocation
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Literal, Murmur3Hash, Pmod, SortOrder}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/** Every partition of a state has a home: the executor whose workers hold it in memory. It keeps it as long as that executor lives and
  * has no more than its share. A preference only: a task that runs elsewhere loads the state from its files.
  */
private[execution] object Homes {
  private val homes = mutable.HashMap.empty[(String, Int), ExecutorCacheTaskLocation]

  /** By task, where a shuffle takes the partitions of the block in `directory` to `tasks` tasks; nothing in a local session. */
  def ofTasks(sc: SparkContext, directory: String, tasks: Int): Seq[String] = if (sc.isLocal) Nil else synchronized {
    val manager = sc.env.blockManager
    val alive = manager.master.getPeers(manager.blockManagerId)
      .map(e => ExecutorCacheTaskLocation(e.host, e.executorId)).sortBy(_.executorId)
    if (alive.isEmpty) Nil
    else {
      val share = math.ceil(tasks.toDouble / alive.size)
      val taken = mutable.HashMap.from(alive.map(_ -> 0))
      val homeless = (0 until tasks).filterNot { i =>
        val kept = homes.get((directory, i)).filter(taken.get(_).exists(_ < share))
        kept.foreach(taken(_) += 1)
        kept.isDefined
      }
      homeless.foreach { i =>
        val next = alive.minBy(e => (taken(e), homes.values.count(_ == e)))
        taken(next) += 1
        homes((directory, i)) = next
      }
      (0 until tasks).map(i => homes((directory, i)).toString)
    }
  }

  /** The partitions with their homes, those of one executor together: who lists them has them dealt out to tasks in order. */
  def ofPartitions(sc: SparkContext, directory: String, partitions: Int): Seq[(Int, String)] = {
    val tasks = ofTasks(sc, directory, partitions)
    (0 until partitions).map(p => p -> tasks.lift(taskOf(p, partitions)).getOrElse("")).sortBy(_._2)
  }

  /** Where Spark's shuffle takes the rows of a partition. */
  private def taskOf(partition: Int, partitions: Int): Int =
    Pmod(new Murmur3Hash(Seq(Literal(partition))), Literal(partitions)).eval().asInstanceOf[Int]
}

/** Passes rows on, and says where they are best worked on.
  * @param homes of pieces of the child's rows, dealt out in order to its tasks; empty: anywhere
  */
case class AtHome(homes: Seq[String], child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: LogicalPlan): AtHome = copy(child = newChild)
}

object AtHome {
  def of(homes: Seq[String], child: LogicalPlan): LogicalPlan = if (homes.forall(_.isEmpty)) child else AtHome(homes, child)
}

case class AtHomeExec(homes: Seq[String], child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def doExecute(): RDD[InternalRow] = new AtHomeRDD(child.execute(), homes)
  override protected def withNewChildInternal(newChild: SparkPlan): AtHomeExec = copy(child = newChild)
}

private class AtHomeRDD(rows: RDD[InternalRow], @transient private val homes: Seq[String]) extends RDD[InternalRow](rows) {
  override protected def getPartitions: Array[Partition] = rows.partitions
  override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] = rows.iterator(split, context)
  override protected def getPreferredLocations(split: Partition): Seq[String] =
    homes.lift((split.index.toLong * homes.size / rows.getNumPartitions).toInt).filter(_.nonEmpty).toSeq
}
