package org.apache.spark.sql.ivm.execution

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.ivm.export.{EvalModes, ExportedPlan}
import org.apache.spark.sql.types._

/** The analyzed query with the top block's node replaced by the block's output.
  * Law: everything above the block is the analyzed plan itself, so it means what Spark says it means.
  */
object ViewPlan {

  def apply(exported: ExportedPlan, block: BlockSpec, scan: BlockScan): LogicalPlan = {
    val node = exported.nodes(block.replaces)
    val delivered = node match {
      case a: Aggregate if block.mode == "aggregate" => finalise(exported, block, a, scan)
      case other => rows(exported, block, other, scan)
    }
    exported.analyzed.transformDown { case n if n eq node => delivered }
  }

  private def rows(exported: ExportedPlan, block: BlockSpec, node: LogicalPlan, scan: BlockScan): LogicalPlan = {
    val decoded = Decoded(exported, block, scan.outputAttributes)
    val columns = Project(decoded.columns, scan)
    val filtered = block.residual.map(exported.expressions(_)).reduceOption(And(_, _)).fold[LogicalPlan](columns)(Filter(_, columns))
    val have = filtered.outputSet
    val outputs: Seq[NamedExpression] = node.output.flatMap { a =>
      exported.definitions.get(a.exprId) match {
        case Some(d) if d.references.subsetOf(have) => Some(Alias(d, a.name)(exprId = a.exprId))
        case None if have.contains(a) => Some(a)
        case _ => None // nothing above needs it
      }
    }
    Project(outputs, filtered)
  }

  /** The function's own `evaluateExpression` over a buffer rebuilt from the channels. */
  private def finalise(exported: ExportedPlan, block: BlockSpec, node: Aggregate, scan: BlockScan): LogicalPlan = {
    val offsets = block.outputs.scanLeft(0)(_ + _.words)
    val delivered = block.outputs.zip(offsets).map { case (o, offset) =>
      val e = exported.expressions(o.expr)
      e.canonicalized -> Wire.decode(scan.outputAttributes.slice(offset, offset + o.words), e.dataType)
    }.toMap
    val groups = node.groupingExpressions.zip(exported.groupings(block.replaces)).map { case (written, inlined) =>
      written.canonicalized -> delivered.getOrElse(inlined.canonicalized, inlined)
    }.toMap
    val functions = block.aggregates.map { spec =>
      val e = exported.aggregates(spec.aggregate).expression
      e.canonicalized -> finalised(e, spec, scan)
    }.toMap
    Project(node.aggregateExpressions.map { named =>
      val body = named match {
        case Alias(child, _) => child
        case other => other
      }
      Alias(
        body.transformDown {
          case x if groups.contains(x.canonicalized) => groups(x.canonicalized)
          case x: AggregateExpression => functions(x.canonicalized)
        },
        named.name)(exprId = named.exprId, explicitMetadata = Some(named.metadata))
    }, scan)
  }

  private def finalised(e: AggregateExpression, spec: AggregateSpec, scan: BlockScan): Expression = {
    def count: Expression = scan.channels(spec.count.get).head
    def sum(t: DataType, ansi: Boolean): Expression = Wire.sum(terms(spec.sum, scan), t, ansi)
    e.aggregateFunction match {
      case _: Count => count
      case s: Sum =>
        val Seq(buffer, empty @ _*) = s.aggBufferAttributes: @unchecked
        val none = EqualTo(count, Literal(0L))
        val ansi = EvalModes.of(s) == EvalMode.ANSI
        val total = sum(buffer.dataType, ansi)
        val values = Map(buffer.exprId -> (if (empty.isEmpty) If(none, Literal(null, buffer.dataType), total) else total)) ++
          empty.map(_.exprId -> none)
        bind(s, values)
      case a: Average =>
        val Seq(buffer, n) = a.aggBufferAttributes: @unchecked
        bind(a, Map(buffer.exprId -> sum(buffer.dataType, EvalModes.of(a) == EvalMode.ANSI), n.exprId -> count))
      case other => throw new IllegalStateException(s"the planner took ${other.prettyName} for an aggregate it can keep")
    }
  }

  private def bind(f: DeclarativeAggregate, values: Map[ExprId, Expression]): Expression =
    f.evaluateExpression.transform { case a: Attribute if values.contains(a.exprId) => values(a.exprId) }

  /** The limbs of a sum of channels; one channel of coefficient 1 passes through. */
  private def terms(sum: Seq[(Int, BigInt)], scan: BlockScan): Seq[Expression] = sum match {
    case Seq((channel, k)) if k == 1 && scan.channels(channel).size > 1 || scan.channels(channel).head.dataType == DoubleType =>
      scan.channels(channel)
    case many => Wire.combine(many.map { case (c, k) => (scan.channels(c), k) })
  }
}
