package org.apache.spark.sql.ivm.source

import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.databind.node.ObjectNode

/** A file as a token remembers it. */
private[source] case class ListedFile(name: String, size: Long, modified: Long)

/** One directory with data files; `values` are the texts of its partition columns, null for NULL. */
private[source] case class ListedDirectory(path: String, values: Map[String, String], files: Seq[ListedFile]) {
  def pathOf(file: ListedFile): String = if (path.endsWith("/")) path + file.name else s"$path/${file.name}"
}

/** What a file table consists of at one moment. Its token is the hash of the sorted (path, size, time). */
private[source] case class FileListing(directories: Seq[ListedDirectory]) {

  def fileCount: Int = directories.iterator.map(_.files.size).sum
  def bytes: Long = directories.iterator.flatMap(_.files).map(_.size).sum

  def byPath: Map[String, ListedFile] =
    directories.iterator.flatMap(d => d.files.iterator.map(f => d.pathOf(f) -> f)).toMap

  lazy val token: Token = {
    val digest = MessageDigest.getInstance("SHA-256")
    byPath.toSeq.sortBy(_._1).foreach { case (path, file) =>
      digest.update(s"$path\u0000${file.size}\u0000${file.modified}\n".getBytes(UTF_8))
    }
    Token(f"$fileCount%d files ${digest.digest().map("%02x".format(_)).mkString.take(32)}", payload)
  }

  private def payload: String = {
    val root = FileListing.mapper.createObjectNode()
    val list = root.putArray("directories")
    directories.foreach { directory =>
      val node = list.addObject()
      node.put("path", directory.path)
      if (directory.values.nonEmpty) {
        val values = node.putObject("values")
        directory.values.toSeq.sortBy(_._1).foreach { case (k, v) => values.put(k, v) }
      }
      val files = node.putArray("files")
      directory.files.foreach(f => files.addArray().add(f.name).add(f.size).add(f.modified))
    }
    FileListing.mapper.writeValueAsString(root)
  }
}

private[source] object FileListing {
  private val mapper = new ObjectMapper()

  def decode(payload: String): FileListing =
    FileListing(mapper.readTree(payload).get("directories").elements.asScala.map { node =>
      val values = Option(node.get("values")).map(_.asInstanceOf[ObjectNode]).fold(Map.empty[String, String]) { v =>
        v.fieldNames.asScala.map(k => k -> (if (v.get(k).isNull) null else v.get(k).asText)).toMap
      }
      val files = node.get("files").elements.asScala.map { f =>
        ListedFile(f.get(0).asText, f.get(1).asLong, f.get(2).asLong)
      }.toVector
      ListedDirectory(node.get("path").asText, values, files)
    }.toVector)
}
