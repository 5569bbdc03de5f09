package org.apache.spark.sql.ivm

import org.apache.spark.sql.{SparkSession => AnySparkSession, SparkSessionExtensions}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.ivm.catalog.{RefuseResolvedStatements, RefuseStatementsByName, ResolveIncrementalViews}
import org.apache.spark.sql.ivm.execution.{IncrementalViewStrategy, RenewReads}
import org.apache.spark.sql.ivm.parser.IncrementalViewParser

/** What `spark.sql.extensions=org.apache.spark.sql.ivm.IncrementalViewExtensions` adds to a session. In the order in which Spark runs it:
  *
  *  1. parser: [[IncrementalViewParser]] takes the statements of incremental views, by their leading keywords, and passes on
  *     all others untouched.
  *  1. analyzer, batch "Hints", before names are looked up: [[RefuseStatementsByName]] refuses INSERT, DROP TABLE,
  *     ALTER TABLE … on a view.
  *  1. analyzer, batch "Resolution", after Spark's own rules in each pass:
  *     [[RefuseResolvedStatements]] refuses the same where the name appears only now (DataFrame writer, `IDENTIFIER(…)`), then
  *     [[ResolveIncrementalViews]] puts the view's leaf where `FindDataSourceTable` put the stub of the provider `ivm`.
  *  1. planner, before Spark's own strategies: [[IncrementalViewStrategy]] plans the view's leaf as [[execution.IncrementalViewScanExec]].
  *  1. planner, after columnar transitions: [[RenewReads]] puts [[execution.RenewedReadExec]] at the root of a query that reads a view.
  *
  * Builders touch no session state: Spark calls them while the session is being built.
  */
class IncrementalViewExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    SupportedSpark.check(org.apache.spark.SPARK_VERSION)

    // parser
    extensions.injectParser { case (_, parser) => IncrementalViewParser(parser) }

    // analyzer
    extensions.injectHintResolutionRule(spark => RefuseStatementsByName(classic(spark)))
    extensions.injectResolutionRule(spark => RefuseResolvedStatements(classic(spark)))
    extensions.injectResolutionRule(spark => ResolveIncrementalViews(classic(spark)))

    // planner
    extensions.injectPlannerStrategy(_ => IncrementalViewStrategy)
    extensions.injectColumnar(_ => RenewReads)
  }

  private def classic(spark: AnySparkSession): SparkSession = spark.asInstanceOf[SparkSession]
}

/** The versions that one jar serves; pyspark_ivm/session.py says the same for Python. */
private[ivm] object SupportedSpark {
  private val Minors = Set("4.1", "4.2", "4.3")

  def check(version: String): Unit =
    if (!Minors(version.split('.').take(2).mkString("."))) {
      throw new IvmException("IVM_SPARK_VERSION_UNSUPPORTED", Map("version" -> version, "supported" -> ">=4.1,<4.4"))
    }
}
