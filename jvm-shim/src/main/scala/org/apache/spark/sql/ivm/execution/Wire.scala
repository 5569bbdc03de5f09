package org.apache.spark.sql.ivm.execution

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke
import org.apache.spark.sql.types._

/** How a value of a Spark type crosses to Python and back: docs/contracts.md, section B.
  * Law: decode(encode(v)) = v for every value of a supported type (keys: up to SQL equality).
  */
object Wire {
  private val functions = WireFunctions.getClass

  private def call(result: DataType, name: String, arguments: Seq[Expression], mayReturnNull: Boolean = false): Expression =
    StaticInvoke(functions, result, name, arguments, propagateNull = true, returnNullable = mayReturnNull)

  def isWide(t: DataType): Boolean = t match {
    case d: DecimalType => d.precision > Decimal.MAX_LONG_DIGITS
    case _ => false
  }

  /** The expression of one wire slot. `as`: key (compared), carry (only delivered), value (summed) or present. */
  def encode(e: Expression, as: String, part: Int): Expression = e.dataType match {
    case _ if as == "present" => If(IsNull(e), Literal(null, LongType), Literal(1L))
    case DoubleType if as == "value" => e
    case FloatType if as == "value" => Cast(e, DoubleType)
    case DoubleType | FloatType => call(LongType, if (as == "carry") "rawBits" else "keyBits", Seq(e))
    case _: StringType => call(BinaryType, "bytes", Seq(e))
    case BinaryType => e
    case d if isWide(d) => call(LongType, if (part == 0) "low" else "high", Seq(e))
    case _ => call(LongType, "word", Seq(e))
  }

  def slotType(kind: String): DataType = kind match {
    case "word" => LongType
    case "double" => DoubleType
    case "bytes" => BinaryType
  }

  /** Types whose Arrow arrays Python makes of its words at no cost: such a column needs no decoding here. The name is Python's. */
  def native(t: DataType): Option[String] = t match {
    case LongType => Some("bigint")
    case IntegerType => Some("int")
    case DateType => Some("date")
    case DoubleType => Some("double")
    case s: StringType if s.isUTF8BinaryCollation => Some("string")
    case _ => None
  }

  /** The value of a Spark type from its words (or bytes), or from the value itself. */
  def decode(parts: Seq[Expression], t: DataType): Expression = t match {
    case _ if parts.size == 1 && parts.head.dataType == t => parts.head
    case BooleanType => call(t, "toBoolean", parts)
    case ByteType => call(t, "toByte", parts)
    case ShortType => call(t, "toShort", parts)
    case IntegerType | DateType | _: YearMonthIntervalType => call(t, "toInt", parts)
    case DoubleType => call(t, "toDouble", parts)
    case FloatType => call(t, "toFloat", parts)
    case _: StringType => call(t, "toString", parts)
    case BinaryType => parts.head
    case d: DecimalType =>
      val arguments = parts ++ Seq(Literal(d.precision), Literal(d.scale))
      call(d, if (isWide(d)) "toWideDecimal" else "toDecimal", arguments)
    case _ => call(t, "toLong", parts) // bigint, timestamps, day-time interval, time: the internal long
  }

  /** Three limbs of Σ coefficient · channel. */
  def combine(terms: Seq[(Seq[Expression], BigInt)]): Seq[Expression] = {
    val flat = terms.flatMap { case (limbs, k) =>
      val extended = limbs match {
        case Seq(l) => Seq(l, Literal(null, LongType), Literal(null, LongType))
        case Seq(l, h) => Seq(l, h, Literal(null, LongType))
        case three => three
      }
      extended
    }
    val coefficients = Literal(terms.map(_._2.toString).mkString(","))
    (0 until 3).map(i => StaticInvoke(functions, LongType, "limbOfSum",
      Seq(Literal(i), coefficients, CreateArray(flat)), propagateNull = false, returnNullable = false))
  }

  /** A finalised sum of limbs as the aggregate buffer's type. */
  def sum(limbs: Seq[Expression], t: DataType, ansi: Boolean): Expression = t match {
    case DoubleType => if (limbs.head.dataType == DoubleType) limbs.head else call(t, "sumDouble", limbs)
    case d: DecimalType => call(d, "sumDecimal", limbs ++ Seq(Literal(d.precision), Literal(d.scale)), mayReturnNull = true)
    case _ => decode(Seq(call(LongType, "sumLong", limbs :+ Literal(ansi))), t)
  }
}
