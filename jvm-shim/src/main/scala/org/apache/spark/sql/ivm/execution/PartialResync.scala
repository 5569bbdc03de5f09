package org.apache.spark.sql.ivm.execution

import java.util.Base64

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.expressions.{Attribute, Literal}
import org.apache.spark.sql.ivm.export.ExportedPlan
import org.apache.spark.sql.ivm.source.{SignedRows, TouchedPartitions}
import org.apache.spark.sql.types.{DataType, DoubleType, FloatType, StringType}

/** Law: Δ = rows of the touched partitions now − rows the state holds of them. Sound where every atom over the table has partition
  * columns among its keys, for then the state can tell whose rows it holds.
  *
  * @param columns positions in the table's columns
  * @param values  what the touched partitions have there
  * @param rows    what all partitions with such values hold now
  */
private[execution] case class PartialResync(exported: ExportedPlan, columns: Seq[Int], values: Seq[Seq[Any]], rows: SignedRows) {

  /** For Python: the atom's slots that hold the columns, and the values as the wire encodes them. */
  def write(input: BlockInputSpec, node: ObjectNode): Unit = {
    val table = exported.nodes(input.node.get).output
    val slots = node.putArray("slots")
    columns.foreach(c => slots.add(PartialResync.slot(exported, input, c).get))
    val rows = node.putArray("values")
    values.foreach { one =>
      val cells = rows.addArray()
      columns.zip(one).foreach { case (c, value) =>
        Wire.encode(Literal(value, table(c).dataType), "key", 0).eval() match {
          case null => cells.addNull()
          case word: Long => cells.add(word)
          case bytes => cells.add(Base64.getEncoder.encodeToString(bytes.asInstanceOf[Array[Byte]]))
        }
      }
    }
  }
}

private[execution] object PartialResync {

  /** None where some atom over the source carries none of its partition columns: the whole table must be compared. */
  def of(plan: MaintenancePlan, exported: ExportedPlan, source: String, touched: TouchedPartitions): Option[PartialResync] = {
    val inputs = plan.blocks.flatMap(_.inputs).filter(_.source.contains(source))
    val carried = touched.columns.indices.filter(c => inputs.forall(slot(exported, _, touched.columns(c)).isDefined))
    Option.when(inputs.nonEmpty && carried.nonEmpty)(PartialResync(
      exported, carried.map(touched.columns), touched.values.map(v => carried.map(v(_))).distinct, touched.read(carried)))
  }

  private def slot(exported: ExportedPlan, input: BlockInputSpec, column: Int): Option[Int] = {
    val attribute = exported.nodes(input.node.get).output(column)
    input.columns.find { c =>
      c.as == "key" && oneForOne(attribute.dataType) && (exported.expressions(c.expr) match {
        case a: Attribute => a.exprId == attribute.exprId
        case _ => false
      })
    }.map(_.slot)
  }

  /** Different values are different words: not so for 0.0 and −0.0, nor for texts that a collation calls equal. */
  private def oneForOne(t: DataType): Boolean = t match {
    case DoubleType | FloatType => false
    case s: StringType => s.isUTF8BinaryCollation
    case other => !Wire.isWide(other)
  }
}
