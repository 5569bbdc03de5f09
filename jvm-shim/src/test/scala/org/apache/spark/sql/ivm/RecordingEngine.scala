package org.apache.spark.sql.ivm

import java.util.{ArrayList => JavaList}

import scala.collection.mutable

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.{Dataset, SparkSession}

/** An engine that keeps no rows: it writes down what the statements ask of it, for tests/spark/statements/. */
class RecordingEngine extends ViewEngine {
  /** One line a call: `create spark_catalog.default.v /state/1`. */
  val calls = new JavaList[String]
  /** The method that fails when called next; empty: none. */
  @volatile var failing = ""

  private val versions = mutable.Map.empty[String, Vector[HistoryRow]]
  private var generations = 0

  def setFailing(method: String): Unit = failing = method
  def forget(): Unit = calls.clear()
  def locations: String = versions.keys.toSeq.sorted.mkString(",")

  private def called(method: String, words: String*): Unit = {
    calls.add((method +: words).mkString(" "))
    if (failing == method) {
      failing = ""
      throw new IllegalStateException(s"$method failed as asked")
    }
  }

  private def commit(definition: ViewDefinition, kind: String, reason: String): RefreshReport = {
    val history = versions.getOrElse(definition.location, Vector.empty)
    val version = history.length.toLong
    versions(definition.location) =
      history :+ HistoryRow(version, 1000L * version, kind, reason, 7, if (version == 0) None else Some(2), 5, "{}", "{}")
    RefreshReport(definition.qualifiedName, version, kind, reason, 7, if (version == 0) None else Some(2), 5)
  }

  override def analyze(spark: SparkSession, query: String, settings: Map[String, String], catalogPath: Seq[String]): LogicalPlan =
    Dataset.ofRows(spark, spark.sessionState.sqlParser.parseQuery(query)).queryExecution.analyzed

  override def create(spark: SparkSession, definition: ViewDefinition, reason: String): RefreshReport = {
    called("create", definition.qualifiedName, definition.location)
    commit(definition, "full", reason)
  }

  override def settle(spark: SparkSession, definition: ViewDefinition): Unit = called("settle", definition.qualifiedName, definition.location)

  override def hasState(definition: ViewDefinition): Boolean = versions.contains(definition.location)

  override def refresh(spark: SparkSession, definition: ViewDefinition, full: Boolean): RefreshReport = {
    called("refresh", definition.qualifiedName, full.toString)
    if (full) commit(definition, "full", "REQUESTED") else commit(definition, "incremental", "CHANGES_APPLIED")
  }

  override def status(spark: SparkSession, definition: ViewDefinition): ViewStatus = {
    called("status", definition.qualifiedName)
    val last = versions(definition.location).last
    ViewStatus("linear", last.version, last.kind, last.reason, last.durationMs, last.timestampMs, 64, 1, "ready",
      Seq("spark_catalog.default.t" -> "files 3"), Seq("pattern.t" -> "insert-only"))
  }

  override def underConstruction(schema: String): Seq[ViewDefinition] = Nil

  override def history(spark: SparkSession, definition: ViewDefinition): Seq[HistoryRow] = versions(definition.location)

  override def explainCreate(spark: SparkSession, definition: ViewDefinition, mode: String): String = {
    called("explainCreate", definition.qualifiedName, definition.policy.text, mode)
    s"Strategy: linear ($mode)"
  }

  override def explainRefresh(spark: SparkSession, definition: ViewDefinition, full: Boolean, mode: String): String = {
    called("explainRefresh", definition.qualifiedName, mode)
    s"Refresh: incremental ($mode)"
  }

  override def drop(spark: SparkSession, definition: ViewDefinition): Unit = {
    called("drop", definition.qualifiedName, definition.location)
    versions.remove(definition.location)
  }

  override def locate(spark: SparkSession, definition: ViewDefinition, fresh: Boolean): String = {
    generations += 1
    s"/recorded/${definition.qualifiedName}/g$generations"
  }
}
