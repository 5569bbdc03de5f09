package org.apache.spark.sql.ivm.execution

import java.nio.charset.StandardCharsets.UTF_8

import scala.util.Try

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.expressions.Alias
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.ivm.{IvmException, Policy, ViewDefinition}
import org.apache.spark.sql.ivm.catalog.ViewCatalog
import org.apache.spark.sql.ivm.export.{ExportedPlan, PlanExport, SourceRef, TimeDependent}
import org.apache.spark.sql.ivm.source.{ChangeSources, Token}
import org.apache.spark.sql.ivm.state.{Commit, CommitLog, IvmConf}
import org.apache.spark.sql.types.DataType

/** A view as this session works with it: analysed, planned, its sources and its log at hand. Kept over refreshes.
  *
  * @param session the clone with the view's frozen settings, in which everything of the view runs
  */
class ViewRuntime(val spark: SparkSession, val definition: ViewDefinition) {
  import ViewRuntime._

  val session: SparkSession = ViewSession.of(spark, definition.settings, definition.catalogPath)
  lazy val log: CommitLog = CommitLogs.of(definition.location)

  def missing: IvmException =
    new IvmException("IVM_STATE_MISSING", Map("view" -> definition.qualifiedName, "location" -> definition.location))

  /** Held while a refresh of this driver runs; other drivers are met at the commit. */
  val lock = new Object

  /** Analysed before, at CREATE: what fails now is a table that went or changed. */
  private lazy val analysis: (LogicalPlan, Dependencies) =
    try withDependencies(typed(DefinitionAnalysis(session, definition.query, columns = definition.columns)))
    catch {
      case e: IvmException => throw e
      case e: AnalysisException if definition.location.nonEmpty =>
        val (condition, table) = Option(e.getCondition) match {
          case Some("TABLE_OR_VIEW_NOT_FOUND") =>
            ("IVM_SOURCE_MISSING", e.messageParameters.get("relationName").fold(definition.qualifiedName)(qualified))
          case _ => ("IVM_SOURCE_SCHEMA_CHANGED", s"below ${definition.qualifiedName}")
        }
        throw new IvmException(condition, Map("table" -> table, "detail" -> e.getSimpleMessage.takeWhile(_ != '\n')), Some(e))
    }

  /** A name of the query's text as it is meant in the query's schema. */
  private def qualified(name: String): String =
    Try(ViewCatalog.qualify(session, session.sessionState.sqlParser.parseMultipartIdentifier(name)).unquotedString).getOrElse(name)

  /** The view's columns keep their types: state and readers rely on them. */
  private def typed(analyzed: LogicalPlan): LogicalPlan = {
    analyzed.output.zip(definition.schema).foreach { case (now, column) =>
      if (!DataType.equalsIgnoreNullability(now.dataType.asNullable, column.dataType)) {
        throw new IvmException("IVM_SOURCE_SCHEMA_CHANGED", Map(
          "table" -> "the query's tables",
          "detail" -> s"column ${column.name} was ${column.dataType.simpleString} and is now ${now.dataType.simpleString}"))
      }
    }
    analyzed
  }

  private def withDependencies(plan: LogicalPlan): (LogicalPlan, Dependencies) = (plan, new Dependencies(session, plan))

  def analyzed: LogicalPlan = analysis._1

  /** Analysing the query again would give the same plan. */
  def isCurrent: Boolean = analysis._2.unchanged

  lazy val exported: ExportedPlan = session.withActive {
    PlanExport(PlanExport.normalize(analyzed), definition.settings, ChangeSources.of(session, _))
  }

  def sources: Seq[SourceRef] = exported.sources

  /** Partitions of a new state; an existing one keeps its number. */
  lazy val partitions: Int = (if (definition.location.isEmpty) None else log.latest().map(_.partitionCount))
    .orElse(IvmConf.statePartitions(spark)).getOrElse(1)

  /** The plan that this view is maintained by. A state keeps the plan it was built by as long as the query means the same:
    * a table that grew must not make another session choose another join tree and rebuild.
    */
  lazy val plan: MaintenancePlan = {
    val kept =
      if (definition.location.isEmpty || definition.policy == Policy.Full) None
      else log.latest().flatMap(c => PlanFile.read(log.directory, c.planHash, exported)).filterNot(_.isFull)
    kept.getOrElse(requested)
  }

  /** The plan a commit's state was built by, though the policy may ask for another by now. */
  def planOf(commit: Commit): Option[MaintenancePlan] =
    if (commit.planHash == plan.hash) Some(plan) else PlanFile.read(log.directory, commit.planHash, exported)

  def storePlan(): Unit = PlanFile.write(log.directory, plan, exported)

  private def requested: MaintenancePlan = {
    val request = mapper.createObjectNode()
    request.put("verb", "plan")
    request.set[ObjectNode]("export", mapper.readTree(exported.json))
    val options = request.putObject("options")
    options.put("policy", definition.policy.text)
    options.put("partitions", partitions)
    options.put("view", definition.qualifiedName)
    MaintenancePlan.parse(PythonCalls.plan(session, request))
  }

  def partitionsOf(block: BlockSpec): Int = if (block.partitionVariable.isEmpty) 1 else partitions

  /** What the query means, whatever the tables' sizes: a state of another meaning is rebuilt. */
  lazy val meaning: String = PlanFile.meaning(exported)

  /** Its rows may differ though no source moved. */
  lazy val nonDeterministic: Boolean = plan.reasons.exists(_.code == "NON_DETERMINISTIC") || {
    var found = false
    exported.analyzed.foreachWithSubqueries(p => found ||= p.expressions.exists(e => !e.deterministic || TimeDependent(e)))
    found
  }

  lazy val definitionHash: String =
    CommitLog.sha256((definition.query +: definition.catalogPath).mkString("\u0000").getBytes(UTF_8))
  lazy val settingsHash: String =
    CommitLog.sha256(definition.settings.toSeq.sorted.mkString("\u0000").getBytes(UTF_8))

  /** The fixed part of a spec for Python: plan, directory and lineage of a block at a version. */
  def blockSpec(plan: MaintenancePlan, block: BlockSpec, commit: Option[Commit]): ObjectNode = {
    val spec = mapper.createObjectNode()
    spec.set[ObjectNode]("plan", block.plan)
    spec.put("planHash", plan.hash + block.id)
    spec.put("directory", log.directory.resolve(block.id).toString)
    val parts = spec.putObject("partitions")
    commit.foreach { c =>
      log.lineageAt(c.version).block(block.id).foreach { l =>
        parts.set[ObjectNode](l.partition.toString, mapper.readTree(l.toJson))
      }
    }
    spec
  }

  /** The query over the sources as they stand at the tokens, for full refreshes and for errors the query itself raises. */
  def recompute(tokens: Map[String, Option[Token]]): LogicalPlan = {
    val replaced = new java.util.IdentityHashMap[LogicalPlan, LogicalPlan]()
    sources.foreach { ref =>
      ref.relations.foreach { relation =>
        val rows = ref.source.snapshot(tokens.getOrElse(ref.id, None))
        if (rows.weight.isDefined) replaced.put(relation, Bags.expanded(rows, relation))
        else replaced.put(relation, Project(
          relation.output.zip(rows.plan.output).map { case (a, c) => Alias(c, a.name)(exprId = a.exprId) }, rows.plan))
      }
    }
    // Upwards: what stands for a constant contains the very leaf.
    exported.analyzed.transformUpWithSubqueries {
      case leaf if replaced.containsKey(leaf) => replaced.get(leaf)
    }
  }

  /** The view's rows at a commit, with the definition's column order. */
  def read(commit: Commit): LogicalPlan = session.withActive {
    if (commit.errors > 0) {
      // The query itself would raise: let it, in its own words, on the rows of this version.
      recompute(commit.sources.map(s => s.id -> s.token.map(Token(_, log.readManifest(s.manifest)))).toMap)
    } else if (commit.result.isDefined) {
      val path = log.directory.resolve(commit.result.get).toString
      session.read.schema(Results.schema(definition.schema)).parquet(path).queryExecution.analyzed
    } else {
      val (built, meant) = readable(commit)
      val block = built.top
      val count = partitionsOf(block)
      val types = block.outputs.flatMap(o => if (o.words == 1) Seq(Some(meant.expressions(o.expr).dataType)) else Seq.fill(o.words)(None))
      ViewPlan(meant, block, BlockScan.of(block, blockSpec(built, block, Some(commit)), count, splits(commit, block, count), types))
    }
  }

  /** The plan of a commit and the query that gives its outputs their meaning. Where a table is gone or looks otherwise, its schema of
    * then stands for it: the state holds all the rows that a read needs.
    */
  private def readable(commit: Commit): (MaintenancePlan, ExportedPlan) = {
    def otherPlan = new IvmException("IVM_STATE_OF_OTHER_PLAN", Map("view" -> definition.qualifiedName))
    try (planOf(commit).getOrElse(throw otherPlan), exported)
    catch {
      case e: IvmException if SourceLost(e.condition) =>
        val (built, schemas) = PlanFile.readAlone(log.directory, commit.planHash).getOrElse(throw e)
        val query = DefinitionAnalysis(session, definition.query, columns = definition.columns, stubs = schemas)
        (built, PlanExport(PlanExport.normalize(query), definition.settings, ChangeSources.of(session, _)))
    }
  }

  /** More tasks only where the state is large: a task costs more than enumerating a few megabytes. */
  private def splits(commit: Commit, block: BlockSpec, count: Int): Int =
    if (commit.stateBytes < LargeStateBytes || block.isGlobal) 1
    else math.max(1, session.sparkContext.defaultParallelism / count)
}

object ViewRuntime {
  private val mapper = new ObjectMapper()
  private val SourceLost = Set("IVM_SOURCE_MISSING", "IVM_SOURCE_SCHEMA_CHANGED")
  private val LargeStateBytes = 64L << 20
}
