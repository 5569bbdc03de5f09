package org.apache.spark.sql.ivm.execution

import scala.collection.mutable

import com.fasterxml.jackson.databind.node.ObjectNode

/** Where the time of one refresh goes, phase by phase; part of its record, so that anyone can ask the history why it was slow. */
private[execution] class Stopwatch {
  private val nanos = mutable.LinkedHashMap.empty[String, Long]

  def time[T](phase: String)(work: => T): T = {
    val start = System.nanoTime()
    try work
    finally add(phase, System.nanoTime() - start)
  }

  def add(phase: String, elapsed: Long): Unit = nanos(phase) = nanos.getOrElse(phase, 0L) + elapsed

  /** Milliseconds with one decimal. */
  def writeTo(node: ObjectNode): Unit = nanos.foreach { case (phase, n) => node.put(phase, math.round(n / 1e5) / 10.0) }
}
