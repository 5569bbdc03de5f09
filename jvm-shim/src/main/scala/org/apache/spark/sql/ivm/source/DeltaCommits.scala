package org.apache.spark.sql.ivm.source

import java.io.{BufferedReader, FileNotFoundException, InputStreamReader}
import java.net.URI
import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.types.{DataType, StructType}

/** A file action (`add`, `remove` or `cdc`) of a commit. */
private[source] case class DeltaFile(node: ObjectNode) {
  private def field(name: String): Option[JsonNode] = Option(node.get(name)).filterNot(_.isNull)

  def path: String = node.get("path").asText
  def dataChange: Boolean = field("dataChange").forall(_.asBoolean)
  def size: Long = field("size").fold(0L)(_.asLong)
  def modified: Long = field("modificationTime").orElse(field("deletionTimestamp")).fold(0L)(_.asLong)
  def deletionVector: Option[JsonNode] = field("deletionVector")
  /** Rows that its deletion vector takes away. */
  def deletedRows: Long = deletionVector.flatMap(v => Option(v.get("cardinality"))).fold(0L)(_.asLong)
  /** The same file under another deletion vector is another set of rows. */
  def key: (String, String) = (path, deletionVector.fold("")(_.toString))
  /** A `remove` of an old writer may lack what is needed to read the file. */
  def readable: Boolean = field("size").isDefined && field("partitionValues").isDefined
  /** Texts by column; Delta writes NULL as null or as the empty string. */
  def partitionValues: Map[String, String] = field("partitionValues").fold(Map.empty[String, String]) { values =>
    values.fieldNames.asScala.map { name =>
      val value = values.get(name)
      name -> (if (value.isNull || value.asText.isEmpty) null else value.asText)
    }.toMap
  }
  def absolute(table: Path): Path = {
    val own = new Path(new URI(path))
    if (own.isAbsolute) own else new Path(table, own)
  }
  /** The action as an `add`, whichever it was: what Delta's reader takes. */
  def asAdd: String = action("add", "modificationTime")
  /** As a `remove` that says all a reader needs to know; Delta asks for the flag. */
  def asRemove: String = action("remove", "deletionTimestamp", _.put("extendedFileMetadata", true))

  private def action(name: String, time: String, more: ObjectNode => Unit = _ => ()): String = {
    val root = DeltaCommits.mapper.createObjectNode()
    val body = root.putObject(name)
    body.put("path", path)
    body.set[JsonNode]("partitionValues", node.get("partitionValues"))
    body.put("size", size)
    body.put(time, modified)
    body.put("dataChange", true)
    deletionVector.foreach(body.set[JsonNode]("deletionVector", _))
    more(body)
    DeltaCommits.mapper.writeValueAsString(root)
  }
}

/** One commit of the log, as far as changes of rows need it. */
private[source] case class DeltaCommit(
    version: Long,
    metadata: Option[DeltaMetadata],
    adds: Seq[DeltaFile],
    removes: Seq[DeltaFile],
    changeFiles: Seq[DeltaFile])

/** Length and time of a commit file: tells a recreated table from the one we knew. */
private[source] case class CommitIdentity(length: Long, modified: Long)

/** The commit files of a Delta log, read one by one: no replay, no checkpoint. */
private[source] class DeltaCommits(table: Path, hadoopConf: Configuration) {
  private val logPath = new Path(table, "_delta_log")
  private val fs = table.getFileSystem(hadoopConf)

  private def file(version: Long): Path = new Path(logPath, f"$version%020d.json")

  def exists: Boolean = fs.exists(logPath)

  def identity(version: Long): Option[CommitIdentity] =
    try {
      val status = fs.getFileStatus(file(version))
      Some(CommitIdentity(status.getLen, status.getModificationTime))
    } catch { case _: FileNotFoundException => None }

  /** VACUUM takes deletion vectors like data files. */
  def filesExist(action: DeltaFile): Boolean =
    (action.absolute(table) +: action.deletionVector.toSeq.flatMap(_ => DeltaTable.vectorFile(table, action.asAdd)))
      .forall(path => path.getFileSystem(hadoopConf).exists(path))

  /** Bytes of the table at the version, from its checksum file if Delta wrote one. */
  def tableBytes(version: Long): Option[Long] =
    try lines(new Path(logPath, f"$version%020d.crc")).headOption
      .flatMap(line => Option(DeltaCommits.mapper.readTree(line).get("tableSizeBytes"))).map(_.asLong)
    catch { case _: java.io.IOException => None }

  def read(version: Long): Option[DeltaCommit] =
    try {
      val actions = lines(file(version)).map(DeltaCommits.mapper.readTree(_))
      def named(name: String): Seq[ObjectNode] =
        actions.flatMap(a => Option(a.get(name))).map(_.asInstanceOf[ObjectNode])
      Some(DeltaCommit(
        version,
        named("metaData").lastOption.map(DeltaCommits.metadata),
        named("add").map(DeltaFile(_)),
        named("remove").map(DeltaFile(_)),
        named("cdc").map(DeltaFile(_))))
    } catch { case _: FileNotFoundException => None }

  private def lines(path: Path): Seq[String] = {
    val reader = new BufferedReader(new InputStreamReader(fs.open(path), UTF_8))
    try reader.lines().iterator.asScala.filter(_.nonEmpty).toVector
    finally reader.close()
  }
}

private[source] object DeltaCommits {
  val mapper = new ObjectMapper()

  private def metadata(node: ObjectNode): DeltaMetadata = DeltaMetadata(
    node.get("id").asText,
    Option(node.get("configuration")).fold(Map.empty[String, String]) { c =>
      c.fieldNames.asScala.map(k => k -> c.get(k).asText).toMap
    },
    DataType.fromJson(node.get("schemaString").asText).asInstanceOf[StructType])
}
