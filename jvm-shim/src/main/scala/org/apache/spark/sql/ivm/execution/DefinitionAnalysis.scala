package org.apache.spark.sql.ivm.execution

import scala.util.Try

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.{AliasIdentifier, FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.connector.catalog.CatalogManager
import org.apache.spark.sql.ivm.IvmException
import org.apache.spark.sql.ivm.catalog.{IncrementalViewRelation, ViewCatalog}
import org.apache.spark.sql.ivm.export.Leaves
import org.apache.spark.sql.types.StructType

/** Analyses a defining query and refuses what shared state must not hold: temp objects, session-dependent
  * expressions, and plan nodes above a scan that a vendor may use as a row filter or mask.
  */
object DefinitionAnalysis {
  val WeightColumn = "ivm.weightColumn"

  /** @param askedIn the session in which a person defines the view: its temp objects are refused. None: defined long ago; temp objects
    *                made since are none of its business, `session` holds none
    * @param stubs   schemas that stand for tables which are gone, by qualified name: enough to read a state, which needs no rows of them
    * @param columns the names that the query's columns had at CREATE; Nil at CREATE itself
    */
  def apply(
      session: SparkSession,
      query: String,
      askedIn: Option[SparkSession] = None,
      columns: Seq[String] = Nil,
      stubs: Map[String, StructType] = Map.empty): LogicalPlan = session.withActive {
    forgetCaches(session)
    val parsed = withStubs(session, session.sessionState.sqlParser.parsePlan(query), stubs)
    parsed match {
      case _: Command => throw new IvmException("IVM_NOT_A_QUERY", Map("statement" -> parsed.nodeName))
      case _ =>
    }
    askedIn.foreach { spark =>
      refuseTempFunctions(spark, parsed)
      refuseTempViews(spark, parsed)
    }
    refusePatterns(parsed)
    val analyzed = Dataset.ofRows(session, hideWeights(session, parsed)).queryExecution.analyzed
    analyzed.foreachWithSubqueries(refuse)
    checkWeights(analyzed)
    if (columns.isEmpty) analyzed else frozen(session, analyzed, columns)
  }

  /** The session keeps relations and functions that it once looked up; statements of other sessions do not reach them. */
  private def forgetCaches(session: SparkSession): Unit = {
    session.sessionState.catalog.invalidateAllCachedTables()
    Seq(session.sessionState.functionRegistry, session.sessionState.tableFunctionRegistry).foreach { registry =>
      registry.listFunction().filter(_.catalog.contains(CatalogManager.SESSION_CATALOG_NAME)).foreach(registry.dropFunction(_))
    }
  }

  /** The query's columns as they were named at CREATE: a table that got columns since must not shift what `*` stands for.
    * As in Spark's views the n-th of several columns of one name is the n-th.
    */
  private def frozen(session: SparkSession, analyzed: LogicalPlan, columns: Seq[String]): LogicalPlan = {
    val same = session.sessionState.conf.resolver
    val picked = columns.zipWithIndex.map { case (name, i) =>
      val before = columns.take(i).count(same(_, name))
      analyzed.output.filter(a => same(a.name, name)).drop(before).headOption.getOrElse(
        throw new IvmException("IVM_SOURCE_SCHEMA_CHANGED", Map("table" -> "the query's tables", "detail" -> s"column $name is gone")))
    }
    if (picked == analyzed.output) analyzed
    else analyzed match {
      case Project(list, child) => Project(picked.map(a => list.find(_.exprId == a.exprId).get), child)
      case other => Project(picked, other)
    }
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

  /** Rewrites the names that a query looks up in the catalog: all relations but those that a CTE in scope defines. The body of a CTE sees
    * those before it, and itself only where the WITH is recursive.
    */
  private def rewriteNames(session: SparkSession, plan: LogicalPlan)(rewrite: UnresolvedRelation => LogicalPlan): LogicalPlan = {
    val same = session.sessionState.conf.resolver
    def visit(plan: LogicalPlan, ctes: Seq[String]): LogicalPlan = plan match {
      case w: UnresolvedWith =>
        var known = ctes
        val bodies = w.cteRelations.map { d =>
          val body = visit(d._2.child, if (w.allowRecursion) known :+ d._1 else known)
          known = known :+ d._1
          d.copy(_2 = d._2.copy(child = body))
        }
        w.copy(child = visit(w.child, known), cteRelations = bodies)
      case u: UnresolvedRelation =>
        if (u.multipartIdentifier.size == 1 && ctes.exists(same(_, u.multipartIdentifier.head))) u else rewrite(u)
      case other =>
        other.mapChildren(visit(_, ctes)).transformExpressionsDownWithPruning(_ => true) {
          case s: SubqueryExpression => s.withNewPlan(visit(s.plan, ctes))
        }
    }
    visit(plan, Nil)
  }

  private def withStubs(session: SparkSession, parsed: LogicalPlan, stubs: Map[String, StructType]): LogicalPlan =
    if (stubs.isEmpty) parsed
    else rewriteNames(session, parsed) { u =>
      Try(ViewCatalog.qualify(session, u.multipartIdentifier)).toOption.flatMap(n => stubs.get(n.unquotedString)).fold[LogicalPlan](u) { schema =>
        SubqueryAlias(
          AliasIdentifier(u.multipartIdentifier.last, u.multipartIdentifier.init), LocalRelation(DataTypeUtils.toAttributes(schema)))
      }
    }

  /** By name and in the user's session: the session that analyses holds no temp views (see [[ViewSession]]). */
  private def refuseTempViews(spark: SparkSession, parsed: LogicalPlan): Unit =
    rewriteNames(spark, parsed) { u =>
      if (spark.sessionState.catalog.isTempView(u.multipartIdentifier)) {
        throw new IvmException("IVM_TEMP_VIEW", Map("view" -> u.multipartIdentifier.mkString(".")))
      }
      u
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
      case v: IncrementalViewRelation =>
        throw new IvmException("IVM_VIEW_OVER_VIEW", Map("view" -> v.name.unquotedString))
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
  private def hideWeights(session: SparkSession, parsed: LogicalPlan): LogicalPlan =
    rewriteNames(session, parsed) { u =>
      weightOf(session, u.multipartIdentifier).fold[LogicalPlan](u) { case (name, columns) =>
        SubqueryAlias(
          AliasIdentifier(u.multipartIdentifier.last, u.multipartIdentifier.init),
          Project(columns.filterNot(_.equalsIgnoreCase(name)).map(c => UnresolvedAttribute(Seq(c))), u))
      }
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
