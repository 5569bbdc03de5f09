package org.apache.spark.sql.ivm

/** Spark's case classes whose number of fields depends on Spark's version: made and copied by what they have, not by what they had when
  * the shim was compiled. Fields that nobody names take their defaults.
  */
private[ivm] object CaseClasses {

  /** `companion(first…)`, all further fields by default. */
  def make[T](kind: Class[T], companion: AnyRef, first: Any*): T = {
    val constructor = kind.getConstructors.maxBy(_.getParameterCount)
    val others = (first.size + 1 to constructor.getParameterCount).map { i =>
      companion.getClass.getMethod("$lessinit$greater$default$" + i).invoke(companion)
    }
    constructor.newInstance((first.map(_.asInstanceOf[AnyRef]) ++ others): _*).asInstanceOf[T]
  }

  /** `instance.copy(changes…)`. */
  def copy[T <: Product](instance: T, changes: (String, Any)*): T = {
    val named = changes.toMap
    val values = instance.productElementNames.zip(instance.productIterator).map { case (name, value) => named.getOrElse(name, value) }
    val constructor = instance.getClass.getConstructors.maxBy(_.getParameterCount)
    constructor.newInstance(values.map(_.asInstanceOf[AnyRef]).toSeq: _*).asInstanceOf[T]
  }
}
