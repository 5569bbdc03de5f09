package org.apache.spark.sql.ivm.execution

import scala.collection.concurrent.TrieMap
import scala.util.control.NonFatal

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.ivm.ViewDefinition

/** What this driver is doing to its views, and how the last attempt failed: the column `state` of SHOW. Other drivers have their own. */
private[execution] class Activity {
  private val running = TrieMap.empty[String, (ViewDefinition, String)]
  private val failures = TrieMap.empty[String, String]

  def during[T](definition: ViewDefinition, what: String)(work: => T): T = {
    val outer = running.put(definition.location, (definition, what))
    try {
      val done = work
      failures.remove(definition.location)
      done
    } catch {
      case e: Throwable =>
        failures(definition.location) = reason(e)
        throw e
    } finally outer.fold(running.remove(definition.location))(running.put(definition.location, _))
  }

  def of(definition: ViewDefinition): Option[String] =
    running.get(definition.location).map(_._2).orElse(failures.get(definition.location).map(r => s"failed: $r"))

  def building(schema: String): Seq[ViewDefinition] =
    running.values.collect { case (d, "building") if d.name.database.contains(schema) => d }.toSeq.sortBy(_.name.table)

  def forget(definition: ViewDefinition): Unit = failures.remove(definition.location)

  /** The error's condition, where it has one: its sentence is what the failed statement said. */
  private def reason(e: Throwable): String = e match {
    case t: SparkThrowable if t.getCondition != null => t.getCondition
    case NonFatal(other) => Option(other.getMessage).flatMap(_.linesIterator.nextOption()).getOrElse(other.getClass.getSimpleName)
    case other => other.getClass.getSimpleName
  }
}
