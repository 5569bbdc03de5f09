package org.apache.spark.sql.ivm.execution

import org.apache.arrow.vector.{BaseFixedWidthVector, BigIntVector, DateDayVector, Float8Vector, IntVector}

import org.apache.spark.{JobArtifactSet, TaskContext}
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, PythonSQLMetrics}
import org.apache.spark.sql.types.{DataType, Decimal, StructField, StructType}
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarArray, ColumnarBatch, ColumnarMap, ColumnVector}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** `child` (a list of tasks) through a Python function that gives Arrow batches: [[org.apache.spark.sql.catalyst.plans.logical.MapInArrow]]
  * for large outputs.
  */
case class Enumerate(function: PythonUDF, output: Seq[Attribute], child: LogicalPlan) extends UnaryNode {
  override def producedAttributes: AttributeSet = AttributeSet(output)
  override protected def withNewChildInternal(newChild: LogicalPlan): Enumerate = copy(child = newChild)
}

/** Hands Python's batches on as they are, so that whole-stage code reads the columns where Arrow put them. Spark's own operator makes
  * a row of each first.
  */
case class EnumerateExec(function: PythonUDF, output: Seq[Attribute], child: SparkPlan)
    extends UnaryExecNode with PythonSQLMetrics {
  override def producedAttributes: AttributeSet = AttributeSet(output)
  override def supportsColumnar: Boolean = true
  override def vectorTypes: Option[Seq[String]] = Some(output.map(_ => classOf[FlatVector].getName))

  override protected def doExecute(): RDD[InternalRow] =
    throw new IllegalStateException("Spark puts a ColumnarToRow above what gives columns")

  override protected def doExecuteColumnar(): RDD[ColumnarBatch] = {
    val read = ReadArrow(
      Seq((ChainedPythonFunctions(Seq(function.func)), function.resultId.id)), function.evalType,
      StructType(Array(StructField("struct", StructType(child.output.map(a => StructField(a.name, a.dataType, a.nullable)))))),
      output.map(_.dataType), conf.sessionLocalTimeZone, conf.arrowUseLargeVarTypes,
      ArrowPythonRunner.getPythonRunnerConfMap(conf), pythonMetrics, JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))
    child.execute().mapPartitionsInternal(read(_))
  }

  override protected def withNewChildInternal(newChild: SparkPlan): EnumerateExec = copy(child = newChild)
}

/** The task of an [[EnumerateExec]]. */
private case class ReadArrow(
    functions: Seq[(ChainedPythonFunctions, Long)], evalType: Int, input: StructType, types: Seq[DataType], timeZone: String,
    largeVarTypes: Boolean, runnerConf: Map[String, String], metrics: Map[String, SQLMetric], artifacts: Option[String]) {

  def apply(tasks: Iterator[InternalRow]): Iterator[ColumnarBatch] = {
    val context = TaskContext.get()
    val wrapped = tasks.map(InternalRow(_)) // Python takes a column of structs for a table
    runner.compute(Iterator(wrapped), context.partitionId(), context).map { batch =>
      val struct = batch.column(0).asInstanceOf[ArrowColumnVector]
      val columns = types.indices.map(i => new FlatVector(types(i), struct.getChild(i)): ColumnVector)
      new ColumnarBatch(columns.toArray, batch.numRows())
    }
  }

  /** Spark 4.1 takes one optional argument more (a profiler) than those after it. */
  private def runner: ArrowPythonRunner = {
    val made = classOf[ArrowPythonRunner].getConstructors.head
    val arguments = Seq[Object](
      functions, Int.box(evalType), Array(Array(0)), input, timeZone, Boolean.box(largeVarTypes), runnerConf, metrics, artifacts)
    made.newInstance(arguments.padTo(made.getParameterCount, None): _*).asInstanceOf[ArrowPythonRunner]
  }
}

/** A column of one Arrow batch, valid until the next one. Values of fixed width are read straight from Arrow's memory, without the checks
  * of its accessors; everything else is left to [[ArrowColumnVector]].
  */
final class FlatVector(kind: DataType, arrow: ArrowColumnVector) extends ColumnVector(kind) {
  private val nulls: Int = arrow.numNulls()
  private val (data, validity) = arrow.getValueVector match {
    case v @ (_: BigIntVector | _: IntVector | _: DateDayVector | _: Float8Vector) =>
      val fixed = v.asInstanceOf[BaseFixedWidthVector]
      (fixed.getDataBufferAddress, fixed.getValidityBufferAddress)
    case _ => (0L, 0L)
  }

  override def hasNull: Boolean = nulls > 0
  override def numNulls(): Int = nulls
  override def isNullAt(row: Int): Boolean = nulls > 0 && {
    if (validity == 0L) arrow.isNullAt(row) else (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0
  }
  override def getLong(row: Int): Long = Platform.getLong(null, data + (row.toLong << 3))
  override def getDouble(row: Int): Double = Platform.getDouble(null, data + (row.toLong << 3))
  override def getInt(row: Int): Int = Platform.getInt(null, data + (row.toLong << 2))
  override def getUTF8String(row: Int): UTF8String = arrow.getUTF8String(row)
  override def getBinary(row: Int): Array[Byte] = arrow.getBinary(row)

  // What the wire does not carry (`Wire.native`, `Wire.slotType`).
  override def getBoolean(row: Int): Boolean = arrow.getBoolean(row)
  override def getByte(row: Int): Byte = arrow.getByte(row)
  override def getShort(row: Int): Short = arrow.getShort(row)
  override def getFloat(row: Int): Float = arrow.getFloat(row)
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = arrow.getDecimal(row, precision, scale)
  override def getArray(row: Int): ColumnarArray = arrow.getArray(row)
  override def getMap(row: Int): ColumnarMap = arrow.getMap(row)
  override def getChild(ordinal: Int): ColumnVector = arrow.getChild(ordinal)

  /** The memory is Arrow's. */
  override def close(): Unit = ()
}
