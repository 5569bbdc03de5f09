package org.apache.spark.sql.ivm.execution

import java.math.{BigDecimal => JBigDecimal, BigInteger}

import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.types.Decimal
import org.apache.spark.unsafe.types.UTF8String

/** The static functions behind [[Wire]]: a value's words and back. Called from generated code. */
object WireFunctions {
  def word(v: Boolean): Long = if (v) 1L else 0L
  def word(v: Byte): Long = v.toLong
  def word(v: Short): Long = v.toLong
  def word(v: Int): Long = v.toLong
  def word(v: Long): Long = v
  def word(v: Decimal): Long = v.toUnscaledLong

  /** Equal keys have equal bits: one NaN, and -0.0 is 0.0 (as Spark's own grouping and joins have it). */
  def keyBits(v: Double): Long = java.lang.Double.doubleToLongBits(if (v == 0.0d) 0.0d else v)
  def keyBits(v: Float): Long = java.lang.Float.floatToIntBits(if (v == 0.0f) 0.0f else v).toLong
  def rawBits(v: Double): Long = java.lang.Double.doubleToRawLongBits(v)
  def rawBits(v: Float): Long = java.lang.Float.floatToRawIntBits(v).toLong

  def low(v: Decimal): Long = v.toJavaBigDecimal.unscaledValue.longValue
  def high(v: Decimal): Long = v.toJavaBigDecimal.unscaledValue.shiftRight(64).longValue

  def bytes(v: UTF8String): Array[Byte] = v.getBytes

  def toBoolean(w: Long): Boolean = w != 0
  def toByte(w: Long): Byte = w.toByte
  def toShort(w: Long): Short = w.toShort
  def toInt(w: Long): Int = w.toInt
  def toLong(w: Long): Long = w
  def toDouble(w: Long): Double = java.lang.Double.longBitsToDouble(w)
  def toFloat(w: Long): Float = java.lang.Float.intBitsToFloat(w.toInt)
  def toDecimal(w: Long, precision: Int, scale: Int): Decimal = Decimal.createUnsafe(w, precision, scale)
  def toWideDecimal(low: Long, high: Long, precision: Int, scale: Int): Decimal =
    Decimal(new scala.math.BigDecimal(new JBigDecimal(integer(low, high), scale)), precision, scale)
  def toString(b: Array[Byte]): UTF8String = UTF8String.fromBytes(b)

  private val Limb = BigInteger.ONE.shiftLeft(64)

  private def unsigned(w: Long): BigInteger = {
    val b = BigInteger.valueOf(w)
    if (w < 0) b.add(Limb) else b
  }

  private def integer(low: Long, high: Long): BigInteger =
    if ((low >> 63) == high) BigInteger.valueOf(low) else BigInteger.valueOf(high).shiftLeft(64).add(unsigned(low))

  /** A sum as limbs (little endian, two's complement) as a long. Out of range: Spark's own error, or wrapped. */
  def sumLong(low: Long, high: Long, ansi: Boolean): Long = {
    if ((low >> 63) != high && ansi) {
      throw QueryExecutionErrors.arithmeticOverflowError("long overflow", "try_add")
    }
    low
  }

  def sumLong(low: Long, middle: Long, high: Long, ansi: Boolean): Long = {
    if (((low >> 63) != middle || (middle >> 63) != high) && ansi) {
      throw QueryExecutionErrors.arithmeticOverflowError("long overflow", "try_add")
    }
    low
  }

  /** Limb `i` of Σ k·channel; `terms` is (low, middle, high)*, absent limbs NULL; `coefficients` the k, comma-separated. */
  def limbOfSum(i: Int, coefficients: UTF8String, terms: ArrayData): Long = {
    var total = BigInteger.ZERO
    coefficients.toString.split(',').zipWithIndex.foreach { case (k, n) =>
      val t = 3 * n
      val low = terms.getLong(t)
      val value =
        if (terms.isNullAt(t + 1)) BigInteger.valueOf(low)
        else if (terms.isNullAt(t + 2)) integer(low, terms.getLong(t + 1))
        else integer(low, terms.getLong(t + 1), terms.getLong(t + 2))
      total = total.add(value.multiply(new BigInteger(k)))
    }
    total.shiftRight(64 * i).longValue
  }

  def sumDouble(low: Long, high: Long): Double = integer(low, high).doubleValue
  def sumDouble(low: Long, middle: Long, high: Long): Double = integer(low, middle, high).doubleValue

  private def integer(low: Long, middle: Long, high: Long): BigInteger =
    BigInteger.valueOf(high).shiftLeft(128).add(unsigned(middle).shiftLeft(64)).add(unsigned(low))

  /** NULL where the sum does not fit the precision: the buffer's own sign of an overflow. */
  def sumDecimal(low: Long, high: Long, precision: Int, scale: Int): Decimal = decimal(integer(low, high), precision, scale)
  def sumDecimal(low: Long, middle: Long, high: Long, precision: Int, scale: Int): Decimal =
    decimal(integer(low, middle, high), precision, scale)

  private def decimal(unscaled: BigInteger, precision: Int, scale: Int): Decimal = {
    val d = new JBigDecimal(unscaled, scale)
    if (d.precision > precision && d.precision - d.scale > precision - scale) null
    else Decimal(new scala.math.BigDecimal(d), math.max(precision, d.precision).min(38), scale) match {
      case x if x.changePrecision(precision, scale) => x
      case _ => null
    }
  }
}
