package org.apache.spark.sql.ivm.state

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper, SerializationFeature}
import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

/** A source as a commit pins it. `manifest` names the token's payload (relative to the view's directory), None if empty.
  * `raised`: its rows for which a filter or a join key of the view raises.
  */
case class SourceRecord(
    id: String, table: String, tableId: String, location: String, schemaHash: String,
    token: Option[String], manifest: Option[String], kind: String, raised: Long = 0L)

/** A change file or checkpoint. `path` is relative to the block's directory; `rows` −1 where it has no meaning. */
case class FileRecord(version: Long, path: String, length: Long, checksum: String, rows: Long = -1)

/** What one partition of one block wrote in a version. */
case class PartitionRecord(block: String, partition: Int, file: Option[FileRecord], checkpoint: Option[FileRecord])

/** State of a partition: the newest checkpoint (None: it began empty), then the change files after it. */
case class Lineage(block: String, partition: Int, checkpoint: Option[FileRecord], changes: Vector[FileRecord]) {
  def files: Seq[FileRecord] = checkpoint.toSeq ++ changes
  /** The entry of contract C's `partitions`. */
  def toJson: String = CommitJson.text(CommitJson.lineage(this))
}

/** The report of a refresh, a row of the history. */
case class ReportRecord(
    kind: String, reason: String, rowsIn: Long, rowsChanged: Option[Long],
    durationMs: Long, timestampMs: Long, estimates: String)

/** One version of a view: DESIGN §8.
  * @param meaningHash  of the analyzed query: tables and views below may have changed what the same text means
  * @param parent   hash of the commit before, "" for version 0
  * @param result   strategy `full`: directory of the result, relative to the view's directory
  * @param lineage  complete lineage at this version, in some commits only, so that a cold start reads few
  * @param hash     sha256 of the commit's bytes; not part of them
  */
case class Commit(
    version: Long,
    parent: String,
    attempt: String,
    viewId: String,
    definitionHash: String,
    meaningHash: String,
    planHash: String,
    settingsHash: String,
    partitionCount: Int,
    hashFunction: String,
    strategy: String,
    sources: Seq[SourceRecord],
    partitions: Seq[PartitionRecord],
    report: ReportRecord,
    liveErrors: Long,
    stateBytes: Long,
    result: Option[String],
    lineage: Option[Seq[Lineage]] = None,
    formatVersion: Int = Commit.FormatVersion,
    hash: String = "") {
  /** A full refresh starts every partition anew; those it does not name are empty. */
  def resets: Boolean = report.kind == "full"
  /** Rows for which the query itself would raise. */
  def errors: Long = liveErrors + sources.map(_.raised).sum
  def toJson: String = CommitJson.write(this)
}

object Commit {
  /** Raised when an older reader could misread a newer commit. */
  val FormatVersion = 1
  def fromJson(text: String): Commit = CommitJson.read(text)
}

/** The JSON of a commit; field by field, so that the format is what is written here and nothing else. */
private[state] object CommitJson {
  private val mapper = new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT)

  def text(node: JsonNode): String = mapper.writeValueAsString(node)
  def parse(text: String): JsonNode = mapper.readTree(text)

  def formatVersion(node: JsonNode): Int = need(node, "formatVersion").asInt

  private def file(record: FileRecord): ObjectNode = {
    val node = mapper.createObjectNode()
    node.put("version", record.version).put("path", record.path).put("length", record.length)
      .put("checksum", record.checksum)
    if (record.rows >= 0) node.put("rows", record.rows)
    node
  }

  private def putFile(node: ObjectNode, name: String, record: Option[FileRecord]): Unit =
    record.fold(node.putNull(name))(r => node.set[ObjectNode](name, file(r)))

  def lineage(lineage: Lineage): ObjectNode = {
    val node = mapper.createObjectNode()
    putFile(node, "checkpoint", lineage.checkpoint)
    val changes = node.putArray("changes")
    lineage.changes.foreach(c => changes.add(file(c)))
    node
  }

  def write(commit: Commit): String = {
    val node = mapper.createObjectNode()
    node.put("formatVersion", commit.formatVersion).put("version", commit.version).put("parent", commit.parent)
      .put("attempt", commit.attempt).put("viewId", commit.viewId).put("definitionHash", commit.definitionHash)
      .put("meaningHash", commit.meaningHash)
      .put("planHash", commit.planHash).put("settingsHash", commit.settingsHash)
      .put("partitionCount", commit.partitionCount).put("hashFunction", commit.hashFunction)
      .put("strategy", commit.strategy)
    val sources = node.putArray("sources")
    commit.sources.foreach { s =>
      sources.addObject().put("id", s.id).put("table", s.table).put("tableId", s.tableId).put("location", s.location)
        .put("schemaHash", s.schemaHash).put("token", s.token.orNull).put("manifest", s.manifest.orNull)
        .put("kind", s.kind).put("raised", s.raised)
    }
    val partitions = node.putArray("partitions")
    commit.partitions.foreach { p =>
      val part = partitions.addObject().put("block", p.block).put("partition", p.partition)
      putFile(part, "file", p.file)
      putFile(part, "checkpoint", p.checkpoint)
    }
    val report = commit.report
    val reportNode = node.putObject("report")
    reportNode.put("kind", report.kind).put("reason", report.reason).put("rowsIn", report.rowsIn)
    report.rowsChanged.fold(reportNode.putNull("rowsChanged"))(reportNode.put("rowsChanged", _))
    reportNode.put("durationMs", report.durationMs).put("timestampMs", report.timestampMs)
      .put("estimates", report.estimates)
    node.put("liveErrors", commit.liveErrors).put("stateBytes", commit.stateBytes).put("result", commit.result.orNull)
    commit.lineage.foreach { lineages =>
      val list = node.putArray("lineage")
      lineages.foreach { l =>
        val entry = lineage(l)
        entry.put("block", l.block).put("partition", l.partition)
        list.add(entry)
      }
    }
    text(node)
  }

  private def need(node: JsonNode, name: String): JsonNode =
    Option(node.get(name)).getOrElse(throw new IllegalArgumentException(s"field $name is missing"))
  private def string(node: JsonNode, name: String): String = {
    val value = need(node, name)
    if (!value.isTextual) throw new IllegalArgumentException(s"field $name is not a string")
    value.asText
  }
  private def long(node: JsonNode, name: String): Long = {
    val value = need(node, name)
    if (!value.isIntegralNumber) throw new IllegalArgumentException(s"field $name is not a whole number")
    value.asLong
  }
  private def option(node: JsonNode, name: String): Option[JsonNode] = Option(node.get(name)).filterNot(_.isNull)
  private def list(node: JsonNode, name: String): Vector[JsonNode] = need(node, name) match {
    case array: ArrayNode => array.elements.asScala.toVector
    case _ => throw new IllegalArgumentException(s"field $name is not a list")
  }
  private def readFile(node: JsonNode): FileRecord = FileRecord(
    long(node, "version"), string(node, "path"), long(node, "length"), string(node, "checksum"),
    option(node, "rows").fold(-1L)(_.asLong))

  def read(text: String): Commit = {
    val node = parse(text)
    if (node == null || !node.isObject) throw new IllegalArgumentException("not a JSON object")
    val report = need(node, "report")
    Commit(
      version = long(node, "version"),
      parent = string(node, "parent"),
      attempt = string(node, "attempt"),
      viewId = string(node, "viewId"),
      definitionHash = string(node, "definitionHash"),
      meaningHash = string(node, "meaningHash"),
      planHash = string(node, "planHash"),
      settingsHash = string(node, "settingsHash"),
      partitionCount = long(node, "partitionCount").toInt,
      hashFunction = string(node, "hashFunction"),
      strategy = string(node, "strategy"),
      sources = list(node, "sources").map { s =>
        SourceRecord(string(s, "id"), string(s, "table"), string(s, "tableId"), string(s, "location"),
          string(s, "schemaHash"), option(s, "token").map(_.asText), option(s, "manifest").map(_.asText),
          string(s, "kind"), option(s, "raised").fold(0L)(_.asLong))
      },
      partitions = list(node, "partitions").map { p =>
        PartitionRecord(string(p, "block"), long(p, "partition").toInt,
          option(p, "file").map(readFile), option(p, "checkpoint").map(readFile))
      },
      report = ReportRecord(
        string(report, "kind"), string(report, "reason"), long(report, "rowsIn"),
        option(report, "rowsChanged").map(_.asLong), long(report, "durationMs"), long(report, "timestampMs"),
        string(report, "estimates")),
      liveErrors = long(node, "liveErrors"),
      stateBytes = long(node, "stateBytes"),
      result = option(node, "result").map(_.asText),
      lineage = option(node, "lineage").map(_ => list(node, "lineage").map { l =>
        Lineage(string(l, "block"), long(l, "partition").toInt,
          option(l, "checkpoint").map(readFile), list(l, "changes").map(readFile))
      }),
      formatVersion = formatVersion(node))
  }
}
