package org.apache.spark.sql.ivm.execution

import java.util.Collections

import scala.util.Try

import org.apache.spark.sql.catalyst.util.quoteIdentifier
import org.apache.spark.sql.classic.SparkSession

/** Sessions in which views are analysed and maintained: a clone of the user's with the settings frozen at CREATE.
  * Clones share the context, the catalog and the caches; they differ in settings and in the current namespace.
  */
object ViewSession {
  private case class Key(settings: Map[String, String], catalogPath: Seq[String])

  private val sessions = Collections.synchronizedMap(
    new java.util.WeakHashMap[SparkSession, scala.collection.concurrent.TrieMap[Key, SparkSession]]())

  /** Our jobs are small: adaptive planning costs more than it saves, and batches should be few. */
  private val own = Map(
    "spark.sql.adaptive.enabled" -> "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch" -> "65536",
    "spark.sql.optimizer.excludedRules" -> "",
    "spark.sql.codegen.wholeStage" -> "true",
    // A common part of two expressions would be computed before either, outside of what catches its error.
    "spark.sql.subexpressionElimination.enabled" -> "false")

  def of(spark: SparkSession, settings: Map[String, String], catalogPath: Seq[String]): SparkSession = {
    val clones = sessions.computeIfAbsent(spark, _ => scala.collection.concurrent.TrieMap.empty)
    clones.getOrElseUpdate(Key(settings, catalogPath), {
      val clone = spark.cloneSession()
      // Temp objects of the moment of cloning: they would hide tables and functions of the same name for ever.
      val catalog = clone.sessionState.catalog
      catalog.clearTempTables()
      catalog.listTemporaryFunctions().foreach(f => catalog.dropTempFunction(f.funcName, ignoreIfNotExists = true))
      val conf = clone.sessionState.conf
      // What this session has set and the creator's had not must not decide what the query means.
      FrozenSettings.of(conf).keys.filterNot(settings.contains).foreach(conf.unsetConf(_))
      // Only what differs: setting a deprecated key warns on the user's screen.
      (settings ++ own).foreach { case (k, v) => if (!Try(conf.getConfString(k)).toOption.contains(v)) conf.setConfString(k, v) }
      catalogPath.headOption.foreach { catalog =>
        if (clone.catalog.currentCatalog() != catalog) clone.catalog.setCurrentCatalog(catalog)
        // A schema that is gone by now gives no name its meaning; whoever relied on it fails by the name of the table.
        if (catalogPath.size > 1) Try(clone.catalog.setCurrentDatabase(catalogPath.tail.map(quoteIdentifier).mkString(".")))
      }
      clone
    })
  }
}
