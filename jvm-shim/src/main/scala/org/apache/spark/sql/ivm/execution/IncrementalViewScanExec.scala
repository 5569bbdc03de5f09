package org.apache.spark.sql.ivm.execution

import org.apache.spark.SparkThrowable
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.util.truncatedString
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.execution.{InputAdapter, LeafExecNode, ProjectExec, SparkPlan, SQLExecution, WholeStageCodegenExec}
import org.apache.spark.sql.execution.metric.SQLMetrics
import org.apache.spark.sql.ivm.catalog.IncrementalViewRelation

/** Reads an incremental view: refreshes it (ON READ) or looks up its version (ON DEMAND), once per execution, on the driver,
  * then enumerates the state at that version. Planning and EXPLAIN never get here.
  *
  * @param filters hints for the Python side; Spark checks them again above
  */
case class IncrementalViewScanExec(
    relation: IncrementalViewRelation,
    output: Seq[Attribute],
    filters: Seq[Expression],
    limit: Option[Int])
    extends LeafExecNode {

  override lazy val metrics = Map(
    "numOutputRows" -> SQLMetrics.createMetric(sparkContext, "number of output rows"),
    "viewVersion" -> SQLMetrics.createMetric(sparkContext, "view version"),
    "refreshTime" -> SQLMetrics.createTimingMetric(sparkContext, "time to pin the version"),
    "planTime" -> SQLMetrics.createTimingMetric(sparkContext, "time to plan the read"))

  /** EXPLAIN CODEGEN prepares too, to generate code; only an execution of the query itself pins. */
  override protected def doPrepare(): Unit = if (Pins.executing(session)) pin()

  private def pin(): Unit = {
    val start = System.nanoTime()
    val pinned = Pins.of(session, relation)
    longMetric("refreshTime").set((System.nanoTime() - start) / 1000000)
    longMetric("viewVersion").set(pinned.version)
    show("refreshTime", "viewVersion")
  }

  /** What the driver measures reaches Spark's UI only when it is sent there. */
  private def show(names: String*): Unit = SQLMetrics.postDriverMetricUpdates(
    sparkContext, sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY), names.map(longMetric))

  override protected def doExecute(): RDD[InternalRow] = {
    val pinned = Pins.of(session, relation)
    val view = pinned.plan
    val names = relation.output.zip(view.output :+ Literal(pinned.version)).map { case (a, c) => Alias(c, a.name)(exprId = a.exprId) }
    val all: LogicalPlan = Project(names, view)
    val filtered = filters.reduceOption(And(_, _)).fold(all)(Filter(_, all))
    val limited = limit.fold[LogicalPlan](Project(output, filtered))(n => LocalLimit(Literal(n), Project(output, filtered)))
    val start = System.nanoTime()
    val inner = pinned.session.withActive(Dataset.ofRows(pinned.session, limited).queryExecution.executedPlan)
    longMetric("planTime").set((System.nanoTime() - start) / 1000000)
    show("planTime")
    val rows = longMetric("numOutputRows")
    pinned.session.withActive(started(withoutRenames(inner))).mapPartitionsInternal { iterator =>
      iterator.map { row =>
        rows += 1
        row
      }
    }
  }

  /** Only the rows leave here, in the order of their columns: where a stage of code does nothing but rename, it would copy each of them. */
  private def withoutRenames(plan: SparkPlan): SparkPlan = plan match {
    case WholeStageCodegenExec(ProjectExec(list, InputAdapter(input))) if list.map(renamed) == input.output.map(a => Some(a.exprId)) =>
      withoutRenames(input)
    case other => other
  }

  private def renamed(e: NamedExpression): Option[ExprId] = e match {
    case Alias(a: Attribute, _) => Some(a.exprId)
    case a: Attribute => Some(a.exprId)
    case _ => None
  }

  /** An error in the rows of a broadcast comes wrapped by the waiting thread: the reader gets Spark's own. */
  private def started(inner: SparkPlan): RDD[InternalRow] =
    try inner.execute()
    catch { case e: java.util.concurrent.ExecutionException if e.getCause.isInstanceOf[SparkThrowable] => throw e.getCause }

  /** All reads of one execution share one pin, so two scans of the same columns are the same result. */
  override protected def doCanonicalize(): SparkPlan =
    copy(
      relation = IncrementalViewRelation.nameless(relation.name, relation.viewId),
      output = output.map(QueryPlan.normalizeExpressions(_, relation.output)),
      filters = filters.map(QueryPlan.normalizeExpressions(_, relation.output)))

  override def nodeName: String = "IncrementalViewScan"

  override def simpleString(maxFields: Int): String = {
    val (version, strategy) = Pins.describe(session, relation)
    s"$nodeName ${relation.name.unquotedString} version: $version, strategy: $strategy, " +
      s"columns: ${truncatedString(output.map(_.name), "[", ", ", "]", maxFields)}, " +
      s"pushed filters: ${truncatedString(filters.map(_.sql), "[", ", ", "]", maxFields)}" +
      limit.fold("")(n => s", limit: $n")
  }

  override def verboseStringWithOperatorId(): String =
    s"""$formattedNodeName
       |${simpleString(conf.maxToStringFields)}
       |""".stripMargin
}
