package org.apache.spark.sql.ivm.execution

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.ivm.IvmException
import org.apache.spark.sql.ivm.catalog.{IncrementalViewRelation, ViewCatalog}

/** A file of a state that a worker found missing, cut or altered. It reaches the driver as the text of a failed task. */
private[execution] case class StateDamage(file: String, detail: String) {

  def error: IvmException = new IvmException("IVM_STATE_DAMAGED", Map("file" -> file, "detail" -> detail))

  /** Makes the views whose file it is readable again, or says why not. */
  def mend(spark: SparkSession, views: Seq[IncrementalViewRelation]): Unit = {
    val hurt = views.distinctBy(_.viewId).map(v => ViewCatalog.load(spark, v.name)).filter(d => file.startsWith(d.location + "/"))
    if (hurt.isEmpty) throw error
    hurt.foreach(Engine.instance.mend(spark, _, this))
    Pins.forget(spark)
  }
}

private[execution] object StateDamage {
  private val Said = """StateDamaged: (.+?): (.+)""".r.unanchored

  def in(failure: Throwable): Option[StateDamage] =
    IvmException.texts(failure).collectFirst { case Said(file, detail) => StateDamage(file, detail.trim) }
}
