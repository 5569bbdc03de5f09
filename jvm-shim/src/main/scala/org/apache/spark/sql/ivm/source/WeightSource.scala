package org.apache.spark.sql.ivm.source

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Cast, Expression, GreaterThan, LessThan, Literal, Multiply, Or, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.catalyst.plans.logical.{Filter, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.ivm.IvmException
import org.apache.spark.sql.types.{ByteType, DataType, IntegerType, LongType, ShortType}

/** Law: weight(row) = w(row) × weight in the carrying table; the bag a weight table describes is Σ weights by row.
  *
  * The output keeps all columns of the relation, w included; who plans the view drops w.
  */
private[source] class WeightSource(
    spark: SparkSession, inner: ChangeSource, columns: Seq[Attribute], column: String)
    extends ChangeSource {

  private val same = SourceRows.resolver(spark)
  private val position = columns.indexWhere(a => same(a.name, column))
  if (position < 0) throw CheckedWeight.invalid(table, column, "there is no such column")
  columns(position).dataType match {
    case ByteType | ShortType | IntegerType | LongType =>
    case other => throw CheckedWeight.invalid(table, column, s"its type is ${other.simpleString}, not an integer type")
  }

  val weightColumn: Option[String] = Some(columns(position).name)

  override def kind: String = "weights"
  override def table: String = inner.table
  override def tableId: String = inner.tableId
  override def layout: String = s"${inner.layout} weight $column"
  override def current(): Option[Token] = inner.current()
  override def estimatedRows: Option[Long] = inner.estimatedRows
  override def snapshot(at: Option[Token]): SignedRows = weighted(inner.snapshot(at))
  override def changes(from: Token, to: Token): Changes = inner.changes(from, to) match {
    case Changes.Rows(rows, estimate) => Changes.Rows(weighted(rows), estimate)
    case Changes.Resync(code, parameters, touched) =>
      Changes.Resync(code, parameters, touched.map(t => t.copy(read = t.read.andThen(weighted))))
    case other => other
  }

  private def weighted(rows: SignedRows): SignedRows = {
    val own: Expression = CheckedWeight(Cast(rows.plan.output(position), LongType), table, column)
    val product = rows.weight.fold(own)(outer => Multiply(outer, own))
    val alias = Alias(product, SourceRows.WeightName)()
    val weight = alias.toAttribute
    val projected = Project(rows.plan.output.take(columns.size) :+ alias, rows.plan)
    val moves = Or(LessThan(weight, Literal(0L)), GreaterThan(weight, Literal(0L)))
    SignedRows(Filter(moves, projected), Some(weight))
  }
}

/** The value of a weight column; NULL is no weight and an error that names the table. */
case class CheckedWeight(child: Expression, table: String, column: String) extends UnaryExpression {
  override def dataType: DataType = LongType
  override def nullable: Boolean = false
  override def eval(input: InternalRow): Any = {
    val value = child.eval(input)
    if (value == null) throw CheckedWeight.nullWeight(table, column)
    value
  }
  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val value = child.genCode(ctx)
    val tableName = ctx.addReferenceObj("weightTable", table, "String")
    val columnName = ctx.addReferenceObj("weightColumn", column, "String")
    val error = CheckedWeight.getClass.getName + ".MODULE$.nullWeight"
    ev.copy(
      code = value.code + code"if (${value.isNull}) { throw $error($tableName, $columnName); }",
      isNull = FalseLiteral,
      value = value.value)
  }
  override protected def withNewChildInternal(newChild: Expression): CheckedWeight = copy(child = newChild)
}

object CheckedWeight {
  def invalid(table: String, column: String, detail: String): IvmException =
    new IvmException("IVM_WEIGHT_COLUMN_INVALID", Map("table" -> table, "column" -> column, "detail" -> detail))

  /** Unchecked for the Java compiler's sake: generated code may throw it anywhere. */
  def nullWeight(table: String, column: String): RuntimeException =
    new WeightError(invalid(table, column, "a row has NULL there"))
}

/** Carries the typed error out of generated code, which may not throw a checked exception. */
class WeightError(val error: IvmException) extends RuntimeException(error.getMessage, error)

object WeightError {
  /** The typed error inside whatever a failed job threw. */
  def in(failure: Throwable): Option[IvmException] =
    IvmException.causes(failure).collectFirst { case w: WeightError => w.error }
}
