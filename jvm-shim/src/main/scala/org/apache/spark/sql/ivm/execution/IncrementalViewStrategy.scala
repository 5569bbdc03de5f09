package org.apache.spark.sql.ivm.execution

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution._
import org.apache.spark.sql.ivm.catalog.IncrementalViewRelation

/** Plans reads of incremental views, and the leaves that such a read and a refresh are made of.
  * Filters go down as hints and stay above; a LIMIT goes down only where nothing filters.
  */
object IncrementalViewStrategy extends SparkStrategy {

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case ReturnAnswer(Limit(IntegerLiteral(n), LimitedView(projects, relation))) if n >= 0 =>
      CollectLimitExec(n, view(projects, Nil, relation, Some(n))) :: Nil
    case LocalLimit(IntegerLiteral(n), LimitedView(projects, relation)) if n >= 0 =>
      LocalLimitExec(n, view(projects, Nil, relation, Some(n))) :: Nil
    case PhysicalOperation(projects, filters, relation: IncrementalViewRelation) =>
      view(projects, filters, relation, None) :: Nil

    case LocalLimit(IntegerLiteral(n), PhysicalOperation(projects, Nil, scan: BlockScan)) if n >= 0 =>
      val used = AttributeSet(projects.flatMap(_.references))
      LocalLimitExec(n, LookAheadExec(planLater(Project(projects, BlockScan.plan(scan, used, Nil, Some(n)))))) :: Nil
    case PhysicalOperation(projects, filters, scan: BlockScan) =>
      val used = AttributeSet(projects.flatMap(_.references)) ++ AttributeSet(filters.flatMap(_.references))
      val read = BlockScan.plan(scan, used, filters, None)
      val filtered = filters.reduceOption(And(_, _)).fold(read)(Filter(_, read))
      planLater(Project(projects, filtered)) :: Nil

    case Enumerate(function, output, child) => EnumerateExec(function, output, planLater(child)) :: Nil
    case AtHome(homes, child) => AtHomeExec(homes, planLater(child)) :: Nil
    case CountRows(counter, child) => CountRowsExec(counter, planLater(child)) :: Nil
    case WatchRead(read, child) => WatchReadExec(read, planLater(child)) :: Nil
    case _ => Nil
  }

  private object LimitedView {
    def unapply(plan: LogicalPlan): Option[(Seq[NamedExpression], IncrementalViewRelation)] = plan match {
      case PhysicalOperation(projects, Nil, relation: IncrementalViewRelation) => Some((projects, relation))
      case _ => None
    }
  }

  private def view(
      projects: Seq[NamedExpression],
      filters: Seq[Expression],
      relation: IncrementalViewRelation,
      limit: Option[Int]): SparkPlan = {
    val used = AttributeSet(projects.flatMap(_.references)) ++ AttributeSet(filters.flatMap(_.references))
    val columns = relation.output.filter(used.contains)
    val hints = filters.filter(f => f.deterministic && !SubqueryExpression.hasSubquery(f) && f.references.nonEmpty)
    val scan = IncrementalViewScanExec(relation, columns, hints, limit)
    val filtered = filters.reduceOption(And(_, _)).fold[SparkPlan](scan)(FilterExec(_, scan))
    if (projects == columns) filtered else ProjectExec(projects, filtered)
  }
}
