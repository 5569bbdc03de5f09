package org.apache.spark.sql.ivm.execution

import java.util.{LinkedHashMap, Map => JMap}

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{QueryExecution, SQLExecution}
import org.apache.spark.sql.execution.command.ExplainCommand
import org.apache.spark.sql.ivm.catalog.{IncrementalViewRelation, ViewCatalog}

/** One version of one view, fixed for an execution: the logical plan that delivers it and the session to run it in. */
case class Pinned(version: Long, plan: LogicalPlan, session: SparkSession)

/** The pins of running executions.
  *
  * Law: one execution reads one version of each view. All views of the query are pinned when the first of its scans asks, so that neither the
  * stages of an adaptive plan nor its subqueries see what came in between; the next execution of the same DataFrame takes new pins.
  */
object Pins {

  /** Executions whose pins are remembered; one that has ended needs them no more, and no listener is paid for to say so. */
  private val Kept = 256

  /** The pins of one execution, each taken once; whoever asks meanwhile waits. A failure is not kept. */
  private class PinSet {
    private val pinned = mutable.Map.empty[String, Pinned]

    def of(spark: SparkSession, relation: IncrementalViewRelation, together: => Seq[IncrementalViewRelation]): Pinned = synchronized {
      if (!pinned.contains(relation.viewId)) {
        (relation +: together).distinctBy(_.viewId).filterNot(r => pinned.contains(r.viewId)).foreach { r =>
          pinned(r.viewId) = fresh(spark, r)
        }
      }
      pinned(relation.viewId)
    }
  }

  private val executions = new LinkedHashMap[String, PinSet](16, 0.75f, true) {
    override def removeEldestEntry(e: JMap.Entry[String, PinSet]): Boolean = size > Kept
  }

  def of(spark: SparkSession, relation: IncrementalViewRelation): Pinned = executionId(spark) match {
    case None => fresh(spark, relation)
    case Some(id) =>
      val set = executions.synchronized(executions.computeIfAbsent(key(spark, id), _ => new PinSet))
      set.of(spark, relation, query(id).toSeq.flatMap(viewsOf))
  }

  /** The execution takes its pins anew. */
  private[execution] def forget(spark: SparkSession): Unit =
    executionId(spark).foreach(id => executions.synchronized(executions.remove(key(spark, id))))

  private def key(spark: SparkSession, id: Long): String = s"${spark.sparkContext.applicationId} $id"

  private def fresh(spark: SparkSession, relation: IncrementalViewRelation): Pinned =
    Engine.instance.pin(spark, ViewCatalog.load(spark, relation.name))

  private def executionId(spark: SparkSession): Option[Long] =
    Option(spark.sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)).map(_.toLong)

  private def query(id: Long): Option[QueryExecution] = Option(SQLExecution.getQueryExecution(id))

  /** The views that the query will read: of the optimized plan, which has left out the branches that cannot matter. */
  private[execution] def viewsOf(query: QueryExecution): Seq[IncrementalViewRelation] =
    query.optimizedPlan.collectWithSubqueries { case view: IncrementalViewRelation => view }

  /** A query runs, other than one that explains a query. */
  def executing(spark: SparkSession): Boolean =
    executionId(spark).flatMap(query).exists(!_.logical.isInstanceOf[ExplainCommand])

  /** For EXPLAIN: the newest committed version; never refreshes. */
  def describe(spark: SparkSession, relation: IncrementalViewRelation): (String, String) =
    try {
      val status = Engine.instance.status(spark, ViewCatalog.load(spark, relation.name))
      (status.version.toString, status.strategy)
    } catch {
      case NonFatal(e) => ("unknown", e.getClass.getSimpleName)
    }
}
