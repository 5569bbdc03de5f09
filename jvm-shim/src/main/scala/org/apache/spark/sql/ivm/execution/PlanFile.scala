package org.apache.spark.sql.ivm.execution

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, NoSuchFileException, Path, StandardCopyOption}

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.ivm.export.ExportedPlan
import org.apache.spark.sql.ivm.state.{CommitLog, LocalPath}

/** The maintenance plans that a generation's states were built by: `plan-<hash>.json` beside the commits.
  * A plan names expressions by their ids in the export, so it is used only with an export of the same meaning.
  */
private[execution] object PlanFile {
  private val mapper = new ObjectMapper()

  private def path(directory: Path, hash: String): Path = directory.resolve(s"plan-$hash.json")

  /** The export without what only the cost model reads: a table that grew means the same. */
  private def meaning(exported: ExportedPlan): String = {
    val json = mapper.readTree(exported.json).asInstanceOf[ObjectNode]
    json.get("sources").elements().forEachRemaining { s =>
      s.asInstanceOf[ObjectNode].set[ObjectNode]("rows", JsonNodeFactory.instance.nullNode())
      s.asInstanceOf[ObjectNode].remove("kind")
      ()
    }
    CommitLog.sha256(mapper.writeValueAsBytes(json))
  }

  def write(directory: Path, plan: MaintenancePlan, exported: ExportedPlan): Unit = {
    val target = path(directory, plan.hash)
    if (!Files.exists(target)) {
      Files.createDirectories(directory)
      val json = mapper.createObjectNode()
      json.put("meaning", meaning(exported))
      json.set[ObjectNode]("plan", mapper.readTree(plan.json))
      val temporary = directory.resolve(s".tmp-plan-${java.util.UUID.randomUUID}")
      LocalPath.writeDurably(temporary, mapper.writeValueAsString(json).getBytes(UTF_8))
      Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE)
      ()
    }
  }

  /** None: not there, or written for a query that meant something else. */
  def read(directory: Path, hash: String, exported: ExportedPlan): Option[MaintenancePlan] =
    try {
      val json = mapper.readTree(Files.readAllBytes(path(directory, hash)))
      if (json.get("meaning").asText == meaning(exported)) Some(MaintenancePlan.parse(json.get("plan"))) else None
    } catch { case _: NoSuchFileException => None }
}
