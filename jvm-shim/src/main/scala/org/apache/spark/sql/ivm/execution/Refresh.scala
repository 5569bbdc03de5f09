package org.apache.spark.sql.ivm.execution

import java.nio.charset.StandardCharsets.UTF_8
import java.util.UUID

import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration.Duration
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.ivm.{Conditions, IvmException, Policy, RefreshReport}
import org.apache.spark.sql.ivm.export.SourceRef
import org.apache.spark.sql.ivm.source.{Changes, SignedRows, Token}
import org.apache.spark.sql.ivm.state._

/** One refresh: pin all source versions → one Spark job → one commit. DESIGN §8.
  *
  * Law: state(n+1) = state(n) + changes of every source in (token(n), token(n+1)]; or, for `full`, the query over token(n+1).
  * Nothing is visible before the commit; a lost race starts again from the winner.
  */
class Refresh(runtime: ViewRuntime) {
  import Refresh._
  import RefreshJob.{Failure, JobResult}

  private val log = runtime.log
  private val plan = runtime.plan
  private val policy = runtime.definition.policy
  private val watch = new Stopwatch
  private val runJob = new RefreshJob(runtime, watch)

  /** Every source at the point this refresh takes it to. */
  private case class Pin(ref: SourceRef, token: Option[Token], record: Option[SourceRecord]) {
    def moved: Boolean = token.isEmpty || !record.flatMap(_.token).contains(token.get.text)
    val location: String = ref.source.tableId
    val schemaHash: String = CommitLog.sha256((ref.columns :+ ref.source.layout).mkString("\n").getBytes(UTF_8))
    /** Another table under the same name, or the same files read another way. */
    def recreated: Boolean = record.exists(r => r.tableId != location || r.schemaHash != schemaHash)

    private var writing: Option[Future[Option[String]]] = None

    /** Starts to store the token's payload while the job runs; it is named by its content, so a refresh that fails harms nothing. */
    def storeMeanwhile(): Unit =
      if (moved) writing = token.map(t => Future(log.writeManifest(t.payload))(ExecutionContext.global))

    /** Where the payload is stored. An unmoved source keeps its manifest: nothing is written for it. */
    def manifest: Option[String] =
      if (!moved) record.flatMap(_.manifest)
      else writing.fold(token.flatMap(t => log.writeManifest(t.payload)))(Await.result(_, Duration.Inf))
  }

  private def pins(base: Option[Commit]): Seq[Pin] = {
    val sources = watch.time("analysis")(runtime.sources) // once a session, unless the definition changed
    watch.time("source versions")(sources.map { ref =>
      Pin(ref, ref.source.current(), base.flatMap(_.sources.find(_.id == ref.id)))
    })
  }

  def create(reason: String): RefreshReport = run(_ => Some(Full(reason, forced = true)))

  def refresh(full: Boolean): RefreshReport = run { base =>
    if (base.isEmpty) throw runtime.missing
    wanted(full)(base)
  }

  /** A file of the state is damaged: everything is built anew. */
  def mend(): RefreshReport = run(_ => Some(Full("STATE_DAMAGED", forced = true)))

  private def wanted(full: Boolean)(base: Option[Commit]): Option[Full] = {
    val unfit = base.flatMap(rebuildReason)
    if (full) Some(Full("REQUESTED", forced = true))
    else if (policy == Policy.Full) Some(Full("POLICY_FULL", forced = unfit.isDefined || runtime.nonDeterministic))
    else if (plan.isFull) {
      Some(Full(plan.reasons.headOption.fold("NOT_INCREMENTAL")(_.code), forced = unfit.isDefined || runtime.nonDeterministic))
    } else unfit.map(Full(_, forced = true))
  }

  /** A state that no longer fits the plan is rebuilt, and says so. */
  private def rebuildReason(base: Commit): Option[String] =
    if (base.planHash != plan.hash) Some("PLAN_CHANGED")
    else if (base.settingsHash != runtime.settingsHash || base.definitionHash != runtime.definitionHash ||
      base.meaningHash != runtime.meaning) Some("DEFINITION_CHANGED")
    else if (base.sources.map(_.id) != runtime.sources.map(_.id)) Some("SOURCES_CHANGED")
    else None

  /** @param wantFull why the state must be rebuilt; None: apply changes */
  private def run(wantFull: Option[Commit] => Option[Full]): RefreshReport = runtime.session.withActive {
    val start = System.nanoTime()
    var attempt = 1
    var result: Option[RefreshReport] = None
    while (result.isEmpty) {
      val base = watch.time("newest commit")(log.latest())
      result = once(base, wantFull(base), start)
      attempt += 1
      if (result.isEmpty && attempt > MaxAttempts) {
        throw new IvmException("IVM_COMMIT_CONTENTION",
          Map("view" -> runtime.definition.qualifiedName, "attempts" -> MaxAttempts.toString))
      }
    }
    result.get
  }

  /** None: another writer won; start again from its version. */
  private def once(base: Option[Commit], wantFull: Option[Full], start: Long): Option[RefreshReport] = {
    val pinned = pins(base)
    (base, wantFull) match {
      case (None, full) => rebuild(base, pinned, full.fold("CREATED")(_.reason), start)
      case (Some(b), Some(Full(reason, forced))) =>
        refuseFull(reason).foreach(throw _)
        if (!forced && !pinned.exists(p => p.moved || p.recreated)) Some(unmoved(b, start))
        else rebuild(base, pinned, reason, start)
      case (Some(b), None) =>
        val moved = pinned.filter(p => p.moved || p.recreated)
        if (moved.isEmpty) Some(unmoved(b, start)) else incremental(b, pinned, moved, start)
    }
  }

  /** STRICT never falls back: only who asks for it by name gets a full refresh. */
  private def refuseFull(reason: String): Option[IvmException] =
    if (policy != Policy.Strict || reason == "REQUESTED" || reason == "CREATED") None
    else Some(new IvmException("IVM_STRICT_FULL", Map(
      "view" -> runtime.definition.qualifiedName, "code" -> reason, "detail" -> Conditions.sentence(reason))))

  private def refuseResync(changes: Seq[(Pin, Changes)]): Option[IvmException] =
    if (policy != Policy.Strict) None
    else changes.collectFirst { case (p, r: Changes.Resync) =>
      new IvmException("IVM_STRICT_RESYNC", Map(
        "view" -> runtime.definition.qualifiedName, "table" -> p.ref.source.table, "code" -> r.code,
        "reason" -> Conditions.sentence(r.code, r.parameters)))
    }

  private def unmoved(base: Commit, start: Long): RefreshReport =
    RefreshReport(runtime.definition.qualifiedName, base.version, "none", "NO_CHANGES", 0L, Some(0L), elapsed(start))

  /** What a refresh would do now, without doing it: EXPLAIN REFRESH. Reads listings and logs, and counts a large change; applies nothing. */
  def forecast(full: Boolean): Forecast = runtime.session.withActive {
    val base = log.latest()
    val pinned = pins(base)
    val moved = pinned.filter(p => p.moved || p.recreated)
    val changes = if (base.isEmpty) Nil else changesOf(moved)
    val sources = pinned.map { p =>
      val what = changes.find(_._1 eq p).map(_._2) match {
        case Some(Changes.Resync(code, parameters, _)) => s"will be re-read and compared ($code: ${Conditions.sentence(code, parameters)})"
        case Some(_) => s"moved to ${p.token.fold("(no version)")(_.text)}"
        case None => "not moved"
      }
      (p.ref.source.table, p.ref.source.kind, what)
    }
    def cost(c: Option[RefreshCost]): Map[String, String] = c.fold(Map.empty[String, String])(_.parameters)
    def told(kind: String, reason: String, parameters: Map[String, String] = Map.empty, refused: Option[IvmException] = None): Forecast =
      Forecast(kind, reason, parameters, sources, refused)
    wanted(full)(base) match {
      case Some(Full(code, forced)) if forced || moved.nonEmpty => told("full", code, refused = refuseFull(code))
      case _ if moved.isEmpty || changes.forall(_._2 == Changes.None) => told("none", "NO_CHANGES")
      case _ => changes.collectFirst { case (_, r: Changes.Resync) => r } match {
        case Some(r) => told("incremental", r.code, r.parameters, refuseResync(changes))
        case None => weigh(changes) match {
          case Some(c) if c.rebuild => told("full", LargeChange, cost(Some(c)))
          case c => told("incremental", "CHANGES_APPLIED", cost(c))
        }
      }
    }
  }

  // ---- incremental ---------------------------------------------------------------------------------------------------

  private def incremental(base: Commit, pinned: Seq[Pin], moved: Seq[Pin], start: Long): Option[RefreshReport] = {
    val changes = changesOf(moved)
    weigh(changes) match {
      case Some(cost) if cost.rebuild => rebuild(Some(base), pinned, LargeChange, start, Some(cost))
      case cost => apply(base, pinned, changes, start, cost)
    }
  }

  private def changesOf(moved: Seq[Pin]): Seq[(Pin, Changes)] = watch.time("changes")(
    moved.map { p =>
      val change =
        if (p.recreated) Changes.Resync("RESYNC_TABLE_RECREATED", Map("table" -> p.ref.source.table))
        else (for (to <- p.token; record <- p.record; from <- record.token)
          yield p.ref.source.changes(Token(from, log.readManifest(record.manifest)), to))
          .getOrElse(Changes.Resync("RESYNC_NO_CHANGE_SOURCE", Map("table" -> p.ref.source.table)))
      (p, change)
    })

  /** Only AUTO may choose: under the other policies a change is applied whatever it costs. */
  private def weigh(changes: Seq[(Pin, Changes)]): Option[RefreshCost] =
    if (policy != Policy.Auto) None
    else RefreshCost.weigh(
      changes.map { case (p, c) => (p.ref.source, c) }, runtime.sources.map(_.source), rows => Dataset.ofRows(session, rows.plan).count())

  private def resyncReason(changes: Seq[(Pin, Changes)]): Option[String] =
    changes.collectFirst { case (_, r: Changes.Resync) => r.code }

  private def apply(
      base: Commit, pinned: Seq[Pin], changes: Seq[(Pin, Changes)], start: Long, cost: Option[RefreshCost] = None): Option[RefreshReport] = {
    refuseResync(changes).foreach(throw _)
    val resyncs: Map[String, Option[PartialResync]] = changes.collect { case (p, r: Changes.Resync) => p.ref.id -> partial(p, r) }.toMap
    val rows: Map[String, SignedRows] = changes.collect {
      case (p, Changes.Rows(r, _)) => p.ref.id -> r
      case (p, _: Changes.Resync) => p.ref.id -> resyncs(p.ref.id).fold(p.ref.source.snapshot(p.token))(_.rows)
    }.toMap
    if (rows.isEmpty) {
      commit(Some(base), pinned, Work("none", "NO_CHANGES", 0L, Some(0L), base.liveErrors, base.stateBytes), start)
    } else {
      changes.foreach(_._1.storeMeanwhile())
      val job = runJob(Some(base), rows, resyncs, build = false)
      job.failure match {
        case Some(Failure("NEGATIVE_MULTIPLICITY", detail, source)) => negative(base, pinned, changes, source, detail, start)
        case Some(Failure(reason, detail, _)) =>
          if (policy == Policy.Strict) {
            throw new IvmException("IVM_STRICT_FULL", Map(
              "view" -> runtime.definition.qualifiedName, "code" -> reason, "detail" -> detail))
          }
          rebuild(Some(base), pinned, reason, start)
        case None =>
          val nothing = job.records.isEmpty && job.rowsIn == 0 && job.raised.values.forall(_ == 0)
          val unversioned = changes.forall(_._1.token.isEmpty)
          if (nothing && unversioned) Some(unmoved(base, start))
          else {
            val kind = if (nothing) "none" else "incremental"
            val reason = if (nothing) "NO_CHANGES" else resyncReason(changes).getOrElse("CHANGES_APPLIED")
            commit(Some(base), pinned, Work(
              kind, reason, job.rowsIn, if (nothing) Some(0L) else changed(job), job.liveErrors(base), job.stateBytes(base),
              records = job.records, touched = job.touched, cost = cost,
              raised = raised(pinned, job, fresh = resyncs.keySet)), start)
          }
      }
    }
  }

  /** Rows that raise are counted by source, not by partition: where there are any, only all of the table can say how many are left. */
  private def partial(p: Pin, resync: Changes.Resync): Option[PartialResync] =
    resync.touched.filter(_ => p.record.exists(_.raised == 0)).flatMap(PartialResync.of(plan, runtime.exported, p.ref.id, _))

  /** More deleted than there was: a weight table says something impossible; of any other source, what the state holds is doubted. */
  private def negative(
      base: Commit, pinned: Seq[Pin], changes: Seq[(Pin, Changes)], source: String, detail: String, start: Long): Option[RefreshReport] = {
    val suspects = changes.filter { case (p, c) => (source.isEmpty || p.ref.id == source) && c.isInstanceOf[Changes.Rows] }
    suspects.find(_._1.ref.source.kind == "weights").foreach { case (p, _) =>
      throw new IvmException("IVM_NEGATIVE_WEIGHT", Map("table" -> p.ref.source.table, "row" -> detail))
    }
    if (suspects.isEmpty) {
      throw new IvmException("IVM_NEGATIVE_WEIGHT", Map("table" -> source, "row" -> detail))
    }
    val again = changes.map {
      case (p, _: Changes.Rows) if suspects.exists(_._1 eq p) =>
        (p, Changes.Resync("RESYNC_NEGATIVE_MULTIPLICITY", Map("table" -> p.ref.source.table)))
      case other => other
    }
    apply(base, pinned, again, start)
  }

  // ---- full ----------------------------------------------------------------------------------------------------------

  private def rebuild(
      base: Option[Commit], pinned: Seq[Pin], reason: String, start: Long, cost: Option[RefreshCost] = None): Option[RefreshReport] = {
    val tokens = pinned.map(p => p.ref.id -> p.token).toMap
    runtime.storePlan()
    if (plan.isFull) {
      val version = base.fold(0L)(_.version + 1)
      val relative = s"full/$version-${UUID.randomUUID}"
      val read = new RowsRead
      val result = WatchRead(read, Results.renamed(runtime.recompute(tokens)))
      Dataset.ofRows(session, result).write.parquet(log.directory.resolve(relative).toString)
      LocalPath.adopt(log.directory.resolve("full"))
      val bytes = directorySize(log.directory.resolve(relative))
      commit(base, pinned, Work("full", reason, read.total, None, 0L, bytes, result = Some(relative)), start)
    } else {
      val rows = pinned.map(p => p.ref.id -> p.ref.source.snapshot(p.token)).toMap
      val job = runJob(None, rows, Map.empty, build = true, version = base.fold(0L)(_.version + 1))
      job.failure.foreach {
        case Failure("NEGATIVE_MULTIPLICITY", detail, source) =>
          val table = pinned.find(_.ref.id == source).fold(source)(_.ref.source.table)
          throw new IvmException("IVM_NEGATIVE_WEIGHT", Map("table" -> table, "row" -> detail))
        case Failure(code, detail, _) =>
          throw new IvmException("IVM_REFRESH_FAILED", Map(
            "view" -> runtime.definition.qualifiedName, "detail" -> s"$code: $detail"))
      }
      commit(base, pinned, Work(
        "full", reason, job.rowsIn, None, job.totalErrors, job.totalBytes, records = job.records, touched = job.touched, cost = cost,
        raised = raised(pinned, job, fresh = pinned.map(_.ref.id).toSet)), start)
    }
  }

  private def session = runtime.session

  /** The block counts its own rows: a filter above it (HAVING) may hide some of them. */
  private def changed(job: JobResult): Option[Long] = {
    val node = runtime.exported.nodes(plan.top.replaces)
    val hidden = runtime.exported.analyzed.exists {
      case f: org.apache.spark.sql.catalyst.plans.logical.Filter => f.child.exists(_ eq node)
      case _ => false
    }
    if (hidden) None else job.rowsChanged(plan)
  }

  /** Rows of each source that raise. `fresh`: sources read whole; the others reported a difference. */
  private def raised(pinned: Seq[Pin], job: JobResult, fresh: Set[String]): Map[String, Long] = pinned.map { p =>
    val before = if (fresh(p.ref.id)) 0L else p.record.fold(0L)(_.raised)
    p.ref.id -> (before + job.raised.getOrElse(p.ref.id, 0L))
  }.toMap

  // ---- the commit ----------------------------------------------------------------------------------------------------

  private def commit(base: Option[Commit], pinned: Seq[Pin], work: Work, start: Long): Option[RefreshReport] = {
    val sources = watch.time("manifests")(pinned.map { p =>
      SourceRecord(
        p.ref.id, p.ref.source.table, p.location, p.location, p.schemaHash, p.token.map(_.text),
        p.manifest,
        p.ref.source.kind,
        work.raised.getOrElse(p.ref.id, if (work.kind == "full") 0L else p.record.fold(0L)(_.raised)))
    })
    val duration = elapsed(start)
    val commit = Commit(
      version = base.fold(0L)(_.version + 1),
      parent = base.fold("")(_.hash),
      attempt = UUID.randomUUID.toString,
      viewId = runtime.definition.viewId,
      definitionHash = runtime.definitionHash,
      meaningHash = runtime.meaning,
      planHash = plan.hash,
      settingsHash = runtime.settingsHash,
      partitionCount = runtime.partitions,
      hashFunction = s"xxhash64(${BlockInput.Seed})",
      strategy = plan.strategy,
      sources = sources,
      partitions = work.records,
      report = ReportRecord(
        work.kind, work.reason, work.rowsIn, work.rowsChanged, duration, System.currentTimeMillis(), work.estimates(watch)),
      liveErrors = work.liveErrors,
      stateBytes = work.stateBytes,
      result = work.result)
    log.tryCommit(commit) match {
      case Won(c) =>
        Faults.at("commit.done")
        Some(RefreshReport(runtime.definition.qualifiedName, c.version, work.kind, work.reason, work.rowsIn, work.rowsChanged, duration))
      case Lost(_) => None
    }
  }

  private def elapsed(start: Long): Long = (System.nanoTime() - start) / 1000000
}

object Refresh {
  private val mapper = new ObjectMapper()
  private val MaxAttempts = 10
  /** A refresh that builds everything anew, and why.
    * @param forced also if no source moved
    */
  private case class Full(reason: String, forced: Boolean)

  /** Why AUTO rebuilt instead of applying. */
  private val LargeChange = "FULL_IS_CHEAPER"

  /** @param sources (table, kind of change source, what would happen) */
  case class Forecast(
      kind: String, reason: String, parameters: Map[String, String], sources: Seq[(String, String, String)], refused: Option[IvmException])

  /** What a refresh did and what of it the commit names.
    *
    * @param raised by source: its rows for which a filter or a join key raises; missing: as before
    * @param result strategy `full`: where the rows were written
    */
  private case class Work(
      kind: String,
      reason: String,
      rowsIn: Long,
      rowsChanged: Option[Long],
      liveErrors: Long,
      stateBytes: Long,
      records: Seq[PartitionRecord] = Nil,
      touched: Long = 0L,
      raised: Map[String, Long] = Map.empty,
      result: Option[String] = None,
      cost: Option[RefreshCost] = None) {

    /** The column `estimates` of the history: tuples touched, what AUTO weighed, and the milliseconds of each phase before the commit. */
    def estimates(watch: Stopwatch): String = {
      val node = mapper.createObjectNode().put("touched", touched)
      cost.foreach(c => node.put("changedRows", c.changed).put("totalRows", c.total))
      watch.writeTo(node.putObject("ms"))
      node.toString
    }
  }

  private def directorySize(path: java.nio.file.Path): Long =
    scala.util.Using.resource(java.nio.file.Files.walk(path)) { files =>
      files.iterator().asScala.filter(java.nio.file.Files.isRegularFile(_)).map(java.nio.file.Files.size).sum
    }
}
