package org.apache.spark.sql.ivm.execution

import scala.util.Try
import scala.util.control.NonFatal

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.adaptive.{AdaptiveSparkPlanExec, QueryStageExec}
import org.apache.spark.sql.execution.command.{DataWritingCommandExec, ExecutedCommandExec}
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec
import org.apache.spark.sql.execution.exchange.Exchange
import org.apache.spark.util.LazyTry

/** Law: every execution of a DataFrame that reads incremental views takes a pin of its own.
  *
  * Spark plans a DataFrame once and keeps the plan's RDD and its shuffle files: a second `collect()` would answer with the first one's rows.
  * This node stands at the root of such a plan; from the second execution on it runs the query planned anew. A plan inside another one
  * (a cached DataFrame, a subquery) is executed on that one's behalf and stays as it is.
  *
  * A read that meets a file which is gone or damaged is run once more, after the view was mended: the file may have been cleaned away
  * under a slow reader, or the state is built anew.
  */
case class RenewedReadExec(child: SparkPlan) extends UnaryExecNode {
  @transient private var executed = false

  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override def nodeName: String = "IncrementalViewRead"
  override protected def doCanonicalize(): SparkPlan = child.canonicalized
  override protected def withNewChildInternal(newChild: SparkPlan): RenewedReadExec = copy(child = newChild)

  /** The plan of this execution: our child the first time, the same query planned anew ever after. */
  private def current(): SparkPlan = synchronized {
    if (!executed) {
      executed = true
      child
    } else {
      own.fold(child)(renewed)
    }
  }

  /** The running query, if this is its root. */
  private def own: Option[QueryExecution] =
    Option(sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY))
      .flatMap(id => Option(SQLExecution.getQueryExecution(id.toLong)))
      .filter(_.executedPlan eq this)

  private def renewed(query: QueryExecution): SparkPlan = Dataset.ofRows(session, query.analyzed).queryExecution.executedPlan

  private def run[T](execute: SparkPlan => T): T =
    try execute(current())
    catch {
      case NonFatal(e) if StateDamage.in(e).isDefined && own.isDefined =>
        StateDamage.in(e).get.mend(session, Pins.viewsOf(own.get))
        execute(renewed(own.get))
      case NonFatal(e) => throw MissingPackage.in(e).getOrElse(e)
    }

  /** Spark calls this before each action on a DataFrame: the moment to forget the RDD of the last one. */
  override def resetMetrics(): Unit = {
    super.resetMetrics()
    if (synchronized(executed)) RenewedReadExec.rowsOf.foreach(_.set(this, LazyTry(doExecute())))
  }

  override protected def doExecute(): RDD[InternalRow] = current().execute()
  override def executeCollect(): Array[InternalRow] = run(_.executeCollect())
  override def executeCollectIterator(): (Long, Iterator[InternalRow]) = run(_.executeCollectIterator())
  override def executeToIterator(): Iterator[InternalRow] = current().executeToIterator()
  override def executeTake(n: Int): Array[InternalRow] = run(_.executeTake(n))
  override def executeTail(n: Int): Array[InternalRow] = run(_.executeTail(n))
}

object RenewedReadExec {

  /** Where a plan keeps its RDD. Private to Spark: without it, `collect` and `take` are renewed, what goes through the RDD (`toPandas`) is not. */
  private lazy val rowsOf = Try {
    val field = classOf[SparkPlan].getDeclaredField("executeRDD")
    field.setAccessible(true)
    field
  }.toOption
}

/** Puts [[RenewedReadExec]] at the root of a query that reads incremental views. */
object RenewReads extends ColumnarRule {
  override def postColumnarTransitions: Rule[SparkPlan] = AtRoot

  private object AtRoot extends Rule[SparkPlan] {
    override def apply(plan: SparkPlan): SparkPlan = plan match {
      case _: RenewedReadExec | _: Exchange | _: QueryStageExec => plan
      case _: ExecutedCommandExec | _: V2CommandExec | _: DataWritingCommandExec | _: CommandResultExec => plan
      case adaptive: AdaptiveSparkPlanExec =>
        if (!adaptive.isSubquery && reads(adaptive.inputPlan)) RenewedReadExec(plan) else plan
      case other => if (!other.supportsColumnar && reads(other)) RenewedReadExec(other) else other
    }

    /** A stage of an adaptive plan is no root. */
    private def reads(plan: SparkPlan): Boolean =
      !plan.exists(_.isInstanceOf[QueryStageExec]) &&
        plan.collectWithSubqueries { case scan: IncrementalViewScanExec => scan }.nonEmpty
  }
}
