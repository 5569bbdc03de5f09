package org.apache.spark.sql.ivm.execution

import java.util.UUID

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.ivm.source.SignedRows
import org.apache.spark.sql.ivm.state.{Commit, Faults, FileRecord, IvmConf, PartitionRecord}
import org.apache.spark.sql.types.{LongType, StringType}

/** The one Spark job of a refresh: rows of the sources → wire of each block → `maintain`, block after block → summaries. */
private[execution] class RefreshJob(runtime: ViewRuntime, watch: Stopwatch) {
  import RefreshJob._

  private val plan = runtime.plan
  private val session = runtime.session

  private def summaryColumn: Attribute = AttributeReference("s", StringType)()

  /** @param rows   by source id: its changes, or its whole content where it is built from or resynced
    * @param resync the sources whose rows are their whole content, or that of some partitions; Python subtracts what it holds there
    * @param version −1: the one after `base`
    */
  def apply(
      base: Option[Commit], rows: Map[String, SignedRows], resync: Map[String, Option[PartialResync]], build: Boolean,
      version: Long = -1): JobResult = {
    val target = if (version >= 0) version else base.get.version + 1
    val attempt = UUID.randomUUID.toString.replace("-", "")
    val counters = rows.keys.map(id => id -> session.sparkContext.longAccumulator(s"ivm rows of $id")).toMap
    // A source that several blocks read is counted by the first.
    var counted = Set.empty[String]
    val outputs = mutable.LinkedHashMap.empty[String, LogicalPlan]
    val loose = mutable.LinkedHashMap.empty[String, LogicalPlan]
    watch.time("plan")(plan.blocks.foreach { block =>
      val partitions = runtime.partitionsOf(block)
      val input = new BlockInput(runtime.exported, block, partitions)
      val own = block.inputs.flatMap(_.source).distinct.filter(rows.contains)
      val fromSources = own.map { id =>
        val index = runtime.sources.indexWhere(_.id == id)
        val counter = if (counted(id)) session.sparkContext.longAccumulator("ivm again") else counters(id)
        counted += id
        input.fromSource(id, index, rows(id), counter)
      }
      val fromBlocks = block.inputs.flatMap(_.block).filter(outputs.contains).map { id =>
        loose.remove(id)
        input.fromBlock(plan.blocks.find(_.id == id).get, outputs(id))
      }
      val parts = fromSources ++ fromBlocks
      if (parts.nonEmpty) {
        val spec = runtime.blockSpec(plan, block, if (build) None else base)
        spec.put("version", target)
        spec.put("attempt", attempt)
        spec.put("build", build)
        spec.put("checkpointRatio", CheckpointRatio)
        IvmConf.checkpointMinimum(runtime.spark).foreach(spec.put("checkpointMinimum", _))
        val again = spec.putArray("resync")
        val within = spec.putObject("within")
        for (input <- block.inputs; id <- input.source; part <- resync.get(id)) {
          again.add(input.atom)
          part.foreach(_.write(input, within.putObject(input.atom.toString)))
        }
        val names = spec.putObject("sources")
        block.inputs.groupBy(i => i.source.orElse(i.block).get).toSeq.sortBy(_._1).foreach { case (id, inputs) =>
          val atoms = names.putArray(id)
          inputs.foreach(i => atoms.add(i.atom))
        }
        val everywhere = spec.putArray("replicated")
        if (partitions > 1) block.inputs.filter(i => block.partitionSlots(i.atom).isEmpty).foreach(i => everywhere.add(i.atom))
        val columns =
          if (!block.deltas) Seq(summaryColumn)
          else AttributeReference("w", LongType)() +:
            block.outputKinds.zipWithIndex.map { case (k, i) => AttributeReference(s"o$i", Wire.slotType(k))() } :+ summaryColumn
        val gathered = input.gather(parts, wakeAll = own.exists(resync.contains))
        val homes = Homes.ofTasks(session.sparkContext, spec.get("directory").asText, partitions)
        val maintained = PythonCalls.mapInArrow("maintain", spec.toString, columns, AtHome.of(homes, gathered))
        outputs(block.id) = maintained
        loose(block.id) = maintained
      }
    })
    val summaries = loose.values.flatMap { job =>
      val s = job.output.last
      val narrow = Project(Seq(s), job)
      val query = watch.time("plan") {
        val made = Dataset.ofRows(session, narrow)
        made.queryExecution.executedPlan
        made
      }
      watch.time("job")(query.collect()).toSeq.filterNot(_.isNullAt(0)).map(r => mapper.readTree(r.getString(0)))
    }.toSeq
    // Of the slowest partition: the others ran beside it. Part of `job`.
    summaries.map(s => Option(s.get("ms")).toSeq.flatMap(_.properties().asScala)).maxByOption(_.map(_.getValue.asDouble).sum)
      .foreach(_.foreach(e => watch.add(s"worker: ${e.getKey}", (e.getValue.asDouble * 1e6).toLong)))
    Faults.at("job.done")
    val insertOnly = rows.collect { case (id, r) if r.insertOnly && !resync.contains(id) => counters(id).value.longValue }.sum
    JobResult(summaries, insertOnly)
  }
}

private[execution] object RefreshJob {
  private val mapper = new ObjectMapper()
  /** Change files may grow to this share of their checkpoint before a new one is written. */
  private val CheckpointRatio = 0.5

  case class Failure(reason: String, detail: String, source: String)

  /** What the tasks said: one summary per block and partition that had rows. */
  case class JobResult(summaries: Seq[JsonNode], insertedRows: Long) {
    private def text(n: JsonNode, k: String): String = Option(n.get(k)).filterNot(_.isNull).fold("")(_.asText)
    private def long(n: JsonNode, k: String): Long = Option(n.get(k)).filterNot(_.isNull).fold(0L)(_.asLong)

    def failure: Option[Failure] = summaries.find(s => text(s, "status") != "ok").map { s =>
      Failure(text(s, "reason"), text(s, "detail"), text(s, "source"))
    }

    private def file(n: JsonNode): Option[FileRecord] = Option(n).filterNot(_.isNull).map { f =>
      FileRecord(f.get("version").asLong, f.get("path").asText, f.get("length").asLong, f.get("checksum").asText,
        Option(f.get("rows")).filterNot(_.isNull).fold(-1L)(_.asLong))
    }

    def records: Seq[PartitionRecord] = summaries.map { s =>
      PartitionRecord(text(s, "block"), s.get("partition").asInt, file(s.get("file")), file(s.get("checkpoint")))
    }.filter(r => r.file.isDefined || r.checkpoint.isDefined)

    def rowsIn: Long = insertedRows + summaries.flatMap { s =>
      Option(s.get("rowsIn")).toSeq.flatMap(_.properties().asScala).filter(_.getKey.startsWith("s")).map(_.getValue.asLong)
    }.sum

    /** By source: rows for which a filter or a key raised, with their weights. */
    def raised: Map[String, Long] = summaries.flatMap { s =>
      Option(s.get("raised")).toSeq.flatMap(_.properties().asScala).map(e => e.getKey -> e.getValue.asLong)
    }.groupMapReduce(_._1)(_._2)(_ + _)

    def touched: Long = summaries.map(long(_, "touched")).sum

    def rowsChanged(plan: MaintenancePlan): Option[Long] = {
      val top = summaries.filter(s => text(s, "block") == plan.top.id)
      val each = top.map(s => Option(s.get("rowsChanged")).filterNot(_.isNull).map(_.asLong))
      if (each.forall(_.isDefined) && !(plan.top.partials && top.size > 1)) Some(each.flatten.sum) else None
    }

    // A partition that had no rows keeps its numbers, which only the sum of the last commit knows: partitions report differences.
    def liveErrors(base: Commit): Long = base.liveErrors + summaries.map(long(_, "liveErrorsDelta")).sum
    def stateBytes(base: Commit): Long = base.stateBytes + summaries.map(long(_, "stateBytesDelta")).sum
    def totalErrors: Long = summaries.map(long(_, "liveErrors")).sum
    def totalBytes: Long = summaries.map(long(_, "stateBytes")).sum
  }
}
