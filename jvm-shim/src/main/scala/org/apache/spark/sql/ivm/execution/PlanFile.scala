package org.apache.spark.sql.ivm.execution

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, NoSuchFileException, Path, StandardCopyOption}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.ivm.export.ExportedPlan
import org.apache.spark.sql.ivm.state.{CommitLog, Faults, LocalPath}
import org.apache.spark.sql.types.{DataType, StructType}

/** The maintenance plans that a generation's states were built by: `plan-<hash>.json` beside the commits.
  * A plan names expressions by their ids in the export, so it is used only with an export of the same meaning.
  */
private[execution] object PlanFile {
  private val mapper = new ObjectMapper()

  private def path(directory: Path, hash: String): Path = directory.resolve(s"plan-$hash.json")

  /** The export without what only the cost model reads: a table that grew, or whose changes come another way, means the same. */
  def meaning(exported: ExportedPlan): String = {
    val json = mapper.readTree(exported.json).asInstanceOf[ObjectNode]
    json.get("sources").elements().forEachRemaining { s =>
      s.asInstanceOf[ObjectNode].set[ObjectNode]("rows", JsonNodeFactory.instance.nullNode())
      val weights = s.get("kind").asText == "weights"
      s.asInstanceOf[ObjectNode].put("kind", if (weights) "weights" else "")
      ()
    }
    CommitLog.sha256(mapper.writeValueAsBytes(json))
  }

  def write(directory: Path, plan: MaintenancePlan, exported: ExportedPlan): Unit = {
    val target = path(directory, plan.hash)
    if (!Files.exists(target)) {
      LocalPath.createDirectories(directory)
      val json = mapper.createObjectNode()
      json.put("meaning", meaning(exported))
      val schemas = json.putObject("schemas")
      exported.sources.foreach(s => schemas.put(s.source.table, s.relations.head.schema.json))
      json.set[ObjectNode]("plan", mapper.readTree(plan.json))
      val temporary = directory.resolve(s".tmp-plan-${java.util.UUID.randomUUID}")
      LocalPath.writeDurably(temporary, mapper.writeValueAsString(json).getBytes(UTF_8))
      Faults.at("plan.written")
      Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE)
      ()
    }
  }

  /** The plan and the schemas of its tables, for a read that cannot ask the tables what the query means. */
  def readAlone(directory: Path, hash: String): Option[(MaintenancePlan, Map[String, StructType])] =
    try {
      val json = mapper.readTree(Files.readAllBytes(path(directory, hash)))
      val schemas = json.get("schemas").properties().asScala.map(e => e.getKey -> DataType.fromJson(e.getValue.asText).asInstanceOf[StructType])
      Some((MaintenancePlan.parse(json.get("plan")), schemas.toMap))
    } catch { case _: NoSuchFileException => None }

  /** None: not there, or written for a query that meant something else. */
  def read(directory: Path, hash: String, exported: ExportedPlan): Option[MaintenancePlan] =
    try {
      val json = mapper.readTree(Files.readAllBytes(path(directory, hash)))
      if (json.get("meaning").asText == meaning(exported)) Some(MaintenancePlan.parse(json.get("plan"))) else None
    } catch { case _: NoSuchFileException => None }
}
