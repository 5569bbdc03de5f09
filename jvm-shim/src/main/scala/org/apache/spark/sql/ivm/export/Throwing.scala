package org.apache.spark.sql.ivm.export

import scala.util.Try

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{AggregateFunction, Average, Sum}
import org.apache.spark.sql.types._

/** Whether evaluating an expression may raise. Unknown expressions may: the price is an error channel, never an answer. */
private[ivm] object Throwing {

  def apply(e: Expression): Boolean =
    if (e.foldable) Try(e.eval()).isFailure else !safe(e) || e.children.exists(apply)

  def containsPythonUDF(e: Expression): Boolean = e.exists(_.isInstanceOf[PythonUDF])

  def notTry(f: AggregateFunction): Boolean = f match {
    case s: Sum => EvalModes.of(s) != EvalMode.TRY
    case a: Average => a.evalMode != EvalMode.TRY
    case _ => true
  }

  private def exactDecimal(e: Expression): Boolean = e.dataType match {
    case d: DecimalType => d.precision < DecimalType.MAX_PRECISION
    case _ => false
  }

  private def floating(t: DataType): Boolean = t == DoubleType || t == FloatType

  /** The remainder by a whole number that is neither 0 nor −1 neither divides by zero nor overflows. */
  private def safeDivisor(e: Expression): Boolean = e.foldable && e.dataType.isInstanceOf[IntegralType] &&
    Try(Option(e.eval())).toOption.flatten.exists(v => v.toString != "0" && v.toString != "-1")

  private def safe(e: Expression): Boolean = e match {
    case _: Attribute | _: Literal | _: Alias => true
    case _: And | _: Or | _: Not | _: BinaryComparison | _: IsNull | _: IsNotNull | _: IsNaN => true
    case _: In | _: InSet | _: CaseWhen | _: If | _: Coalesce | _: NullIf | _: KnownNotNull => true
    case l: Like => l.right.foldable // a pattern that ends in its escape character raises
    case _: StartsWith | _: EndsWith | _: Contains => true
    case _: Upper | _: Lower | _: Length | _: Substring | _: StringTrim | _: StringTrimLeft | _: StringTrimRight => true
    case c: Concat => c.dataType == StringType || c.dataType == BinaryType
    case _: Year | _: Month | _: Quarter | _: DayOfMonth | _: DayOfWeek | _: DayOfYear | _: WeekOfYear => true
    case _: Hour | _: Minute | _: Second => true
    case a: BinaryArithmetic =>
      a match {
        case _: Add | _: Subtract | _: Multiply =>
          floating(a.dataType) || exactDecimal(a) || EvalModes.of(a) != EvalMode.ANSI
        case _: Divide | _: IntegralDivide | _: Remainder | _: Pmod =>
          EvalModes.of(a) != EvalMode.ANSI || (a.isInstanceOf[Remainder] && safeDivisor(a.right))
        case _: BitwiseAnd | _: BitwiseOr | _: BitwiseXor => true
        case _ => false
      }
    case m: UnaryMinus => floating(m.dataType) || m.dataType.isInstanceOf[DecimalType] || !m.failOnError
    case c: Cast => c.evalMode != EvalMode.ANSI || Cast.canUpCast(c.child.dataType, c.dataType)
    case _ => false
  }
}

/** The evaluation mode of an expression, whose accessor moved between Spark versions. */
private[ivm] object EvalModes {
  def of(e: Expression): EvalMode.Value = e match {
    case a: BinaryArithmetic => a.evalMode
    case a: Average => a.evalMode
    case s: Sum => reflect(s)
    case _ => EvalMode.ANSI
  }

  private def reflect(target: AnyRef): EvalMode.Value = {
    def call(on: AnyRef, name: String): Option[AnyRef] =
      on.getClass.getMethods.find(m => m.getName == name && m.getParameterCount == 0).map(_.invoke(on))
    val context = call(target, "evalContext").getOrElse(target)
    call(context, "evalMode").collect { case v: EvalMode.Value @unchecked => v }.getOrElse(EvalMode.ANSI)
  }
}

/** Expressions Spark calls deterministic because they are fixed within one query; across refreshes they are not. */
private[ivm] object TimeDependent {
  private val names =
    Set("CurrentDate", "CurrentTimestamp", "Now", "LocalTimestamp", "CurrentTime", "CurrentTimeZone", "CurrentBatchTimestamp")

  def apply(e: Expression): Boolean = e.exists {
    case s: SubqueryExpression => s.plan.exists(_.expressions.exists(apply)) || s.children.exists(apply)
    case x => names(x.getClass.getSimpleName)
  }
}
