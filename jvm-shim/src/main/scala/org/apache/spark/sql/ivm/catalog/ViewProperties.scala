package org.apache.spark.sql.ivm.catalog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.ivm.{IvmException, Policy, ViewDefinition}
import org.apache.spark.sql.types.{DataType, StructType}

/** A [[ViewDefinition]] as table properties: keys `ivm.view.…` are ours, all others are the user's TBLPROPERTIES.
  *
  * The schema is kept here too. The entry's own schema is what Spark lists (SHOW COLUMNS, DESCRIBE); Spark changes it and
  * the properties in two steps, and a definition must never be half of one generation and half of the next.
  */
private[catalog] object ViewProperties {
  val Prefix = "ivm.view."
  /** Metastores cut or refuse values beyond this length (Hive's PARAM_VALUE): longer ones are stored in parts. */
  val MaxValueLength = 4000
  private val Format = "1"
  private val json = new ObjectMapper

  def isOurs(key: String): Boolean = key.startsWith(Prefix)

  def encode(definition: ViewDefinition): Map[String, String] = {
    val values = Map(
      "format" -> Format,
      "id" -> definition.viewId,
      "query" -> definition.query,
      "schema" -> definition.schema.json,
      "columns" -> json.writeValueAsString(definition.columns.asJava),
      "refreshOnRead" -> definition.refreshOnRead.toString,
      "policy" -> definition.policy.text,
      "settings" -> json.writeValueAsString(new java.util.TreeMap(definition.settings.asJava)),
      "catalogPath" -> json.writeValueAsString(definition.catalogPath.asJava),
      "location" -> definition.location,
      "suspended" -> definition.suspended.toString)
    values.flatMap { case (key, value) => split(Prefix + key, value) } ++ definition.properties
  }

  def decode(table: CatalogTable): ViewDefinition = {
    val properties = table.properties
    def value(key: String): String = joined(properties, Prefix + key).getOrElse(
      throw new IvmException("IVM_CATALOG_ENTRY_DAMAGED", Map("view" -> table.identifier.unquotedString, "property" -> (Prefix + key))))
    if (value("format") != Format) {
      throw new IvmException("IVM_CATALOG_ENTRY_TOO_NEW",
        Map("view" -> table.identifier.unquotedString, "format" -> value("format"), "known" -> Format))
    }
    ViewDefinition(
      name = table.identifier,
      viewId = value("id"),
      query = value("query"),
      schema = DataType.fromJson(value("schema")).asInstanceOf[StructType],
      columns = texts(value("columns")),
      comment = table.comment,
      properties = properties.filter { case (key, _) => !isOurs(key) },
      refreshOnRead = value("refreshOnRead").toBoolean,
      policy = Policy(value("policy")),
      settings = json.readTree(value("settings")).properties.asScala.map(e => e.getKey -> e.getValue.asText).toMap,
      catalogPath = texts(value("catalogPath")),
      location = value("location"),
      suspended = value("suspended").toBoolean)
  }

  private def texts(array: String): Seq[String] = json.readTree(array).elements.asScala.map(_.asText).toSeq

  private def split(key: String, value: String): Map[String, String] =
    if (value.length <= MaxValueLength) Map(key -> value)
    else {
      val parts = value.grouped(MaxValueLength).toSeq
      parts.zipWithIndex.map { case (part, i) => s"$key.part$i" -> part }.toMap + (s"$key.parts" -> parts.length.toString)
    }

  private def joined(properties: Map[String, String], key: String): Option[String] =
    properties.get(key).orElse(properties.get(s"$key.parts").map { count =>
      (0 until count.toInt).map(i => properties.getOrElse(s"$key.part$i", "")).mkString
    })
}
