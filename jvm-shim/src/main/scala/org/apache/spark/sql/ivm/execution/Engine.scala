package org.apache.spark.sql.ivm.execution

import java.nio.file.{Files, Path, Paths}
import java.util.{Collections, UUID, WeakHashMap}

import scala.collection.concurrent.TrieMap
import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.ivm._
import org.apache.spark.sql.ivm.catalog.ViewCatalog
import org.apache.spark.sql.ivm.source.WeightError
import org.apache.spark.sql.ivm.state.{CommitLog, IvmConf, LocalPath}

/** The maintenance side of the statements; see [[ViewEngine]]. */
class Engine extends ViewEngine {

  private val activity = new Activity
  private val runtimes = Collections.synchronizedMap(new WeakHashMap[SparkSession, TrieMap[String, ViewRuntime]]())

  /** @param current the catalog must still say of the tables and views below what it said when the query was analysed; a read at a
    *                version that is there already needs none of them
    */
  private def runtime(spark: SparkSession, definition: ViewDefinition, current: Boolean = true): ViewRuntime = {
    val views = runtimes.computeIfAbsent(spark, _ => TrieMap.empty)
    views.get(definition.location).filter(v => v.definition == definition.maintained && (!current || v.isCurrent)).getOrElse {
      val fresh = new ViewRuntime(spark, definition.maintained)
      // Where the query cannot be analysed any more, what is known of it stays: reads of a suspended view need no tables.
      if (current) fresh.analyzed
      views.put(definition.location, fresh)
      fresh
    }
  }

  /** Runs `work`; a source that turns out to look otherwise than at analysis (Delta keeps its schema in its own log) is analysed again, once. */
  private def analysed[T](spark: SparkSession, definition: ViewDefinition)(work: ViewRuntime => T): T =
    Engine.typed {
      try work(runtime(spark, definition))
      catch {
        case e: IvmException if e.condition == "IVM_SOURCE_SCHEMA_CHANGED" =>
          forget(spark, definition)
          work(runtime(spark, definition))
      }
    }

  private def forget(spark: SparkSession, definition: ViewDefinition): Unit =
    Option(runtimes.get(spark)).foreach(_.remove(definition.location))

  override def analyze(
      spark: SparkSession, query: String, settings: Map[String, String], catalogPath: Seq[String]): LogicalPlan =
    DefinitionAnalysis(ViewSession.of(spark, settings, catalogPath), query, askedIn = Some(spark))

  override def create(spark: SparkSession, definition: ViewDefinition, reason: String): RefreshReport = {
    val view = runtime(spark, definition)
    activity.during(definition, "building")(Engine.typed(view.lock.synchronized {
      val work = new Refresh(view)
      // A state that is there already fits (see `locate`): catch up with the sources instead of computing anew.
      if (view.log.latest().isDefined) work.refresh(full = false) else work.create(reason)
    }))
  }

  override def settle(spark: SparkSession, definition: ViewDefinition): Unit = {
    val own = Paths.get(definition.location)
    val view = runtime(spark, definition, current = false)
    generations(own.getParent).filter(_ != own).filterNot(inUse(spark, definition, _)).filterNot(mayBeInUse(view, _)).foreach { g =>
      CommitLogs.of(g.toString).drop()
    }
    dropped(own.getParent).foreach(CommitLogs.of(_).finishDrop(System.currentTimeMillis()))
  }

  override def refresh(spark: SparkSession, definition: ViewDefinition, full: Boolean): RefreshReport = {
    if (definition.suspended) throw new IvmException("IVM_VIEW_SUSPENDED", Map("view" -> definition.qualifiedName))
    activity.during(definition, "refreshing")(analysed(spark, definition) { view =>
      val report = view.lock.synchronized(new Refresh(view).refresh(full))
      cleanUp(spark, view, report)
      report
    })
  }

  /** After a read met a damaged file. One that the newest version does not need was cleaned away under the reader: nothing to mend.
    * What is needed is built anew where reads may refresh; elsewhere the error says how.
    */
  private[execution] def mend(spark: SparkSession, definition: ViewDefinition, damage: StateDamage): Unit = {
    val view = runtime(spark, definition)
    val needed = view.log.latest().exists { c =>
      view.log.lineageAt(c.version).all.exists(l => l.files.exists(f => damage.file.endsWith(s"/${l.block}/${f.path}")))
    }
    if (needed) {
      if (!definition.refreshOnRead || definition.suspended || definition.policy == Policy.Strict) throw damage.error
      Engine.typed(view.lock.synchronized(new Refresh(view).mend()))
    }
  }

  /** The version that an execution reads, and the plan that delivers it. */
  def pin(spark: SparkSession, definition: ViewDefinition): Pinned = {
    if (definition.refreshOnRead && !definition.suspended) refresh(spark, definition, full = false)
    val view = runtime(spark, definition, current = false)
    val commit = view.log.latest().getOrElse(throw view.missing)
    Pinned(commit.version, view.read(commit), view.session)
  }

  override def hasState(definition: ViewDefinition): Boolean = Files.exists(Paths.get(definition.location))

  override def status(spark: SparkSession, definition: ViewDefinition): ViewStatus = {
    val commit = CommitLogs.of(definition.location).latest().getOrElse(
      throw new IvmException("IVM_STATE_MISSING", Map("view" -> definition.qualifiedName, "location" -> definition.location)))
    val report = commit.report
    ViewStatus(
      strategy = commit.strategy,
      version = commit.version,
      lastKind = report.kind,
      lastReason = report.reason,
      lastMs = report.durationMs,
      lastTimestampMs = report.timestampMs,
      stateBytes = commit.stateBytes,
      partitions = commit.partitionCount,
      state = if (definition.suspended) "suspended" else activity.of(definition).getOrElse("ready"),
      sources = commit.sources.map(s => s.table -> s"${s.kind} ${s.token.getOrElse("(no version)")}"),
      extended = Seq(
        "last_refresh_rows_in" -> report.rowsIn.toString,
        "last_refresh_rows_changed" -> report.rowsChanged.fold("NULL")(_.toString),
        "last_refresh_touched" -> Engine.touched(report.estimates),
        "live_errors" -> commit.errors.toString,
        "definition_hash" -> commit.definitionHash,
        "plan_hash" -> commit.planHash,
        "commit_hash" -> commit.hash))
  }

  override def underConstruction(schema: String): Seq[ViewDefinition] = activity.building(schema)

  override def history(spark: SparkSession, definition: ViewDefinition): Seq[HistoryRow] =
    CommitLogs.of(definition.location).history().map { c =>
      HistoryRow(c.version, c.report.timestampMs, c.report.kind, c.report.reason, c.report.rowsIn, c.report.rowsChanged,
        c.report.durationMs, c.sources.map(s => s"${s.table}: ${s.kind} ${s.token.getOrElse("(no version)")}").mkString("; "),
        c.report.estimates)
    }

  override def explainCreate(spark: SparkSession, definition: ViewDefinition, mode: String): String = {
    // Without its location: the plan that this policy and these tables would get, not the one that a state was built by.
    val plan = new ViewRuntime(spark, definition.copy(location = "")).plan
    s"Incremental view ${definition.qualifiedName}\n" + (if (mode == "simple") plan.explain else plan.explainExtended)
  }

  override def explainRefresh(spark: SparkSession, definition: ViewDefinition, full: Boolean, mode: String): String =
    analysed(spark, definition) { view =>
      val commit = view.log.latest()
      val forecast = new Refresh(view).forecast(full)
      // The planner's reasons name tables and expressions; the others bring their parameters.
      val sentence = view.plan.reasons.find(_.code == forecast.reason).fold(Conditions.sentence(forecast.reason, forecast.parameters))(_.sentence)
      val refused =
        if (definition.suspended) Some(new IvmException("IVM_VIEW_SUSPENDED", Map("view" -> definition.qualifiedName))) else forecast.refused
      val lines = forecast.sources.map { case (table, kind, what) => s"  $table ($kind): $what" }
      s"""Refresh of incremental view ${definition.qualifiedName} at version ${commit.fold("none")(_.version.toString)}
         |Kind: ${forecast.kind}
         |Reason: ${forecast.reason}: $sentence
         |${refused.fold("")(e => s"Refused: ${e.getMessage}\n")}Sources:
         |${lines.mkString("\n")}
         |""".stripMargin + (if (mode == "simple") view.plan.explain else view.plan.explainExtended)
    }

  override def drop(spark: SparkSession, definition: ViewDefinition): Unit = {
    forget(spark, definition)
    activity.forget(definition)
    CommitLogs.of(definition.location).drop()
  }

  override def locate(spark: SparkSession, definition: ViewDefinition, fresh: Boolean): String = {
    val directory = viewDirectory(spark, definition)
    val attachable = if (fresh) None else generations(directory).find(fits(spark, definition, _))
    attachable.getOrElse(directory.resolve(s"g${UUID.randomUUID.toString.take(8)}")).toString
  }

  private def viewDirectory(spark: SparkSession, definition: ViewDefinition): Path =
    Paths.get(IvmConf.stateLocation(spark)).resolve(definition.name.nameParts.map(Engine.fileName).mkString("."))

  private def generations(directory: Path): Seq[Path] = allGenerations(directory).filterNot(isDropped)

  private def dropped(directory: Path): Seq[String] = allGenerations(directory).filter(isDropped).map(_.toString)

  private def allGenerations(directory: Path): Seq[Path] =
    LocalPath.names(directory).filter(_.startsWith("g")).sorted.map(directory.resolve).filter(Files.isDirectory(_))

  private def isDropped(generation: Path): Boolean = Files.exists(generation.resolve(CommitLog.Tombstone))

  /** The same definition under the same settings, and no entry of the catalog that lives on it (a view renamed away). */
  private def fits(spark: SparkSession, definition: ViewDefinition, generation: Path): Boolean = {
    val view = new ViewRuntime(spark, definition.copy(location = generation.toString))
    try view.log.latest().exists { c =>
      c.definitionHash == view.definitionHash && c.settingsHash == view.settingsHash && !inUse(spark, definition, generation)
    } catch { case e: IvmException if e.condition.startsWith("IVM_STATE_") => false } // damaged: rebuilt beside it
  }

  private def inUse(spark: SparkSession, definition: ViewDefinition, generation: Path): Boolean =
    definition.name.database.exists(ViewCatalog.list(spark, _, "*").exists(_.location == generation.toString))

  /** A generation that this catalog does not name, but another application may be at work on: one that is being built, or one that
    * was just built for the same definition. All others are what ended applications left.
    */
  private def mayBeInUse(view: ViewRuntime, generation: Path): Boolean = {
    def young(millis: Long): Boolean = System.currentTimeMillis() - millis < Engine.AtWorkMs
    try CommitLogs.of(generation.toString).latest() match {
      case None => young(Files.getLastModifiedTime(generation).toMillis)
      case Some(c) => c.definitionHash == view.definitionHash && c.settingsHash == view.settingsHash && young(c.report.timestampMs)
    } catch { case e: IvmException if e.condition.startsWith("IVM_STATE_") => false }
  }

  /** Cheap when nothing is due: looks at a number in memory. */
  private def cleanUp(spark: SparkSession, view: ViewRuntime, report: RefreshReport): Unit =
    if (report.version > 0 && report.kind != "none" && report.version % Engine.CleanUpInterval == 0) {
      try view.log.cleanUp(System.currentTimeMillis(), IvmConf.retention(spark))
      catch { case NonFatal(_) => () } // the next one takes what this one left
    }
}

object Engine {
  private val CleanUpInterval = 20L

  /** How long a generation without an entry may belong to somebody at work. */
  private val AtWorkMs = 3600L * 1000

  lazy val instance: Engine = ViewEngines.engine.asInstanceOf[Engine]

  /** A name as a file name: letters, digits, `_` and `-` stand, anything else becomes its code. */
  def fileName(part: String): String = part.flatMap {
    case c if c.isLetterOrDigit && c < 128 || c == '_' || c == '-' => c.toString
    case c => f"%%${c.toInt}%04x"
  }

  /** Errors of ours that a task raised arrive wrapped in Spark's. */
  private def typed[T](work: => T): T =
    try work
    catch { case NonFatal(e) => throw WeightError.in(e).orElse(MissingPackage.in(e)).getOrElse(e) }

  private def touched(estimates: String): String =
    """"touched":\s*(\d+)""".r.findFirstMatchIn(estimates).fold("")(_.group(1))
}

/** One log object per directory, shared by all sessions of the driver, so that its caches are warm. */
object CommitLogs {
  private val logs = TrieMap.empty[String, CommitLog]
  def of(location: String): CommitLog = logs.getOrElseUpdate(location, CommitLog(location))

  /** Looks at the directory anew, as another driver would. */
  def forget(location: String): Unit = logs.remove(location)
}
