package org.apache.spark.sql.ivm.execution

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.{AliasIdentifier, FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.ivm.IvmException
import org.apache.spark.sql.ivm.export.Leaves

/** Analyses a defining query and refuses what shared state must not hold: temp objects, session-dependent
  * expressions, and plan nodes above a scan that a vendor may use as a row filter or mask.
  */
object DefinitionAnalysis {
  val WeightColumn = "ivm.weightColumn"

  def apply(spark: SparkSession, session: SparkSession, query: String): LogicalPlan = session.withActive {
    val parsed = session.sessionState.sqlParser.parsePlan(query)
    parsed match {
      case _: Command => throw new IvmException("IVM_NOT_A_QUERY", Map("statement" -> parsed.nodeName))
      case _ =>
    }
    refuseTempFunctions(spark, parsed)
    refuseTempViews(spark, parsed)
    refusePatterns(parsed)
    val analyzed = Dataset.ofRows(session, hideWeights(session, parsed)).queryExecution.analyzed
    analyzed.foreachWithSubqueries(refuse)
    checkWeights(analyzed)
    analyzed
  }

  private def refuseTempFunctions(spark: SparkSession, parsed: LogicalPlan): Unit = {
    val catalog = spark.sessionState.catalog
    parsed.foreachWithSubqueries(_.expressions.foreach(_.foreach {
      case f: UnresolvedFunction if f.nameParts.size == 1 &&
          catalog.isTemporaryFunction(FunctionIdentifier(f.nameParts.head)) =>
        throw new IvmException("IVM_TEMP_FUNCTION", Map("function" -> f.nameParts.head))
      case _ =>
    }))
  }

  /** By name and in the user's session: the session that analyses holds no temp views (see [[ViewSession]]). */
  private def refuseTempViews(spark: SparkSession, parsed: LogicalPlan): Unit = {
    def visit(plan: LogicalPlan, defined: Set[String]): Unit = plan.foreachWithSubqueries {
      case w: UnresolvedWith => w.cteRelations.foreach(d => visit(d._2.child, defined))
      case u: UnresolvedRelation if !(u.multipartIdentifier.size == 1 && defined(u.multipartIdentifier.head)) &&
          spark.sessionState.catalog.isTempView(u.multipartIdentifier) =>
        throw new IvmException("IVM_TEMP_VIEW", Map("view" -> u.multipartIdentifier.mkString(".")))
      case _ =>
    }
    visit(parsed, parsed.collectWithSubqueries { case w: UnresolvedWith => w.cteRelations.map(_._1) }.flatten.toSet)
  }

  /** Spark expands a path's pattern once, when the query is analysed: directories that match later would be missed. */
  private def refusePatterns(parsed: LogicalPlan): Unit = parsed.foreachWithSubqueries {
    case UnresolvedRelation(Seq(_, path), _, _) if path.contains("/") && path.exists("*?[]{}".contains(_)) =>
      throw new IvmException("IVM_PATH_PATTERN", Map("path" -> path))
    case w: UnresolvedWith => w.cteRelations.foreach(d => refusePatterns(d._2.child))
    case _ =>
  }

  private def refuse(plan: LogicalPlan): Unit = {
    plan match {
      case v: View if v.isTempView =>
        throw new IvmException("IVM_TEMP_VIEW", Map("view" -> v.desc.identifier.unquotedString))
      case p if p.isStreaming => throw new IvmException("IVM_STREAMING_SOURCE", Map("relation" -> p.nodeName))
      case p if p.getClass.getSimpleName == "IncrementalViewRelation" =>
        throw new IvmException("IVM_VIEW_OVER_VIEW", Map("view" -> p.simpleString(100)))
      case l: LeafNode if !Leaves.isRelation(l) && !l.isInstanceOf[CTERelationRef] =>
        throw new IvmException("IVM_UNKNOWN_RELATION", Map("node" -> l.nodeName))
      case _ =>
    }
    plan.expressions.foreach(_.foreach {
      case e if Set("CurrentUser", "SessionUser")(e.getClass.getSimpleName) =>
        throw new IvmException("IVM_SESSION_DEPENDENT", Map("expression" -> e.sql))
      case _ =>
    })
  }

  /** A weight table stands for the bag it describes: its weight column is not there to be named. */
  private def hideWeights(session: SparkSession, parsed: LogicalPlan): LogicalPlan = {
    val ctes = parsed.collectWithSubqueries { case w: UnresolvedWith => w.cteRelations.map(_._1) }.flatten.toSet
    def hide(plan: LogicalPlan): LogicalPlan = plan.transformUpWithSubqueries {
      case u: UnresolvedRelation if !(u.multipartIdentifier.size == 1 && ctes(u.multipartIdentifier.head)) =>
        weightOf(session, u.multipartIdentifier) match {
          case Some((name, columns)) =>
            SubqueryAlias(
              AliasIdentifier(u.multipartIdentifier.last, u.multipartIdentifier.init),
              Project(columns.filterNot(_.equalsIgnoreCase(name)).map(c => UnresolvedAttribute(Seq(c))), u))
          case None => u
        }
    }
    // Definitions of CTEs are not children: they are rewritten by hand.
    hide(parsed.transformUpWithSubqueries { case w: UnresolvedWith =>
      w.copy(cteRelations = w.cteRelations.map(d => d.copy(_2 = d._2.copy(child = hide(d._2.child)))))
    })
  }

  private def weightOf(session: SparkSession, parts: Seq[String]): Option[(String, Seq[String])] = {
    val catalog = session.sessionState.catalog
    val identifier = parts match {
      case Seq(t) => Some(TableIdentifier(t))
      case Seq(d, t) => Some(TableIdentifier(t, Some(d)))
      case Seq("spark_catalog", d, t) => Some(TableIdentifier(t, Some(d)))
      case _ => None
    }
    identifier.flatMap { id =>
      try {
        if (id.database.isEmpty && catalog.isTempView(id)) None
        else Some(catalog.getTableMetadata(id)).flatMap(t => t.properties.get(WeightColumn).map((_, t.schema.fieldNames.toSeq)))
      } catch { case _: AnalysisException => None } // not there: the analyzer says so, with the position
    }
  }

  /** Beyond the hiding Project nothing may use the weight (an ordinary view over the table could). */
  private def checkWeights(analyzed: LogicalPlan): Unit = {
    val weights = analyzed.collectWithSubqueries {
      case r: org.apache.spark.sql.execution.datasources.LogicalRelation =>
        for (t <- r.catalogTable.toSeq; w <- t.properties.get(WeightColumn).toSeq;
          a <- r.output if a.name.equalsIgnoreCase(w)) yield (a, t.identifier)
    }.flatten
    analyzed.foreachWithSubqueries { p =>
      if (!Leaves.isRelation(p)) {
        weights.find { case (a, _) => p.expressions.exists(_.references.contains(a)) }.foreach { case (a, t) =>
          throw new IvmException("IVM_WEIGHT_COLUMN_REFERENCED", Map("column" -> a.name, "table" -> t.unquotedString))
        }
      }
    }
  }
}
