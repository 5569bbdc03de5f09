package org.apache.spark.sql.ivm.execution

import java.io.{DataInputStream, DataOutputStream}
import java.nio.charset.StandardCharsets

import scala.jdk.CollectionConverters._
import scala.sys.process.Process

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import net.razorvine.pickle.Pickler

import org.apache.spark.SparkEnv
import org.apache.spark.api.python.{PythonEvalType, PythonUtils, PythonWorkerUtils, SimplePythonFunction}
import org.apache.spark.sql.catalyst.expressions.{Attribute, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, MapInArrow}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.python.PythonPlannerRunner
import org.apache.spark.sql.ivm.IvmException
import org.apache.spark.sql.types.StructType

/** Calls into `pyspark_ivm` without a Python driver: functions go by reference, arguments as JSON. */
object PythonCalls {
  private val mapper = new ObjectMapper()

  private def pythonExec: String = {
    val conf = SparkEnv.get.conf
    conf.getOption("spark.pyspark.python")
      .orElse(sys.env.get("PYSPARK_PYTHON"))
      .getOrElse(PythonUtils.defaultPythonExec)
  }

  private lazy val pythonPath: String =
    PythonUtils.mergePythonPaths(PythonUtils.sparkPythonPath, sys.env.getOrElse("PYTHONPATH", ""))

  @volatile private var version: Option[(String, String)] = None

  private def pythonVersion(exec: String): String = version match {
    case Some((`exec`, v)) => v
    case _ =>
      val v = Process(
        Seq(exec, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"), None, "PYTHONPATH" -> pythonPath).!!.trim
      version = Some((exec, v))
      v
  }

  private def function(command: Array[Byte]): SimplePythonFunction = {
    val exec = pythonExec
    val includes = SparkEnv.get.conf.getOption("spark.submit.pyFiles").toSeq
      .flatMap(_.split(",")).filter(_.nonEmpty).map(f => f.substring(f.lastIndexOf('/') + 1))
    SimplePythonFunction(
      command.toSeq,
      new java.util.HashMap[String, String](Map("PYTHONPATH" -> pythonPath).asJava),
      includes.asJava,
      exec,
      pythonVersion(exec),
      List.empty.asJava,
      null)
  }

  /** A protocol-0 pickle string: raw-unicode-escape, so backslashes, newlines and non-ASCII are escaped. */
  private def pickled(text: String): String = {
    val out = new StringBuilder("V")
    text.foreach {
      case c if c < 32 || c > 126 || c == '\\' => out.append(f"\\u${c.toInt}%04x")
      case c => out.append(c)
    }
    out.append('\n').toString
  }

  /** `child` through `pyspark_ivm.worker.functions.<name>(spec, batches)`. */
  def mapInArrow(name: String, spec: String, output: Seq[Attribute], child: LogicalPlan): LogicalPlan =
    MapInArrow(arrowFunction(name, spec, output, child), output, child, isBarrier = false, None)

  /** The same for large outputs of the wire's types. */
  def enumerate(name: String, spec: String, output: Seq[Attribute], child: LogicalPlan): LogicalPlan =
    Enumerate(arrowFunction(name, spec, output, child), output, child)

  private def arrowFunction(name: String, spec: String, output: Seq[Attribute], child: LogicalPlan): PythonUDF = {
    val schema = StructType(output.map(a => org.apache.spark.sql.types.StructField(a.name, a.dataType, a.nullable)))
    val command = "(cfunctools\npartial\n(cpyspark_ivm.worker.functions\n" + name + "\n" + pickled(spec) + "tR" +
      "cpyspark.sql.types\n_parse_datatype_json_string\n(" + pickled(schema.json) + "tRt."
    PythonUDF(
      s"ivm_$name",
      function(command.getBytes(StandardCharsets.US_ASCII)),
      schema,
      child.output,
      PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
      udfDeterministic = true)
  }

  /** One request to the planning worker (`pyspark_ivm.worker.planner`); errors it answers are raised here. */
  def plan(spark: SparkSession, request: JsonNode): JsonNode = {
    val text = mapper.writeValueAsString(request)
    val answer =
      try ask(spark, text)
      catch { case _: java.io.IOException => ask(spark, text) } // its worker was killed while it idled: Spark starts another
    val json = mapper.readTree(answer)
    Option(json.get("error")).foreach { e =>
      val parameters = Option(e.get("parameters")).toSeq
        .flatMap(_.properties().asScala).map(p => p.getKey -> p.getValue.asText).toMap
      throw new IvmException(e.get("condition").asText, parameters)
    }
    json.get("ok")
  }

  private def ask(spark: SparkSession, text: String): String =
    spark.withActive {
      new PythonPlannerRunner[String](function(Array.emptyByteArray)) {
        override val workerModule: String = "pyspark_ivm.worker.planner"
        override protected def writeToPython(out: DataOutputStream, pickler: Pickler): Unit =
          PythonWorkerUtils.writeUTF(text, out)
        override protected def receiveFromPython(in: DataInputStream): String = {
          val length = in.readInt()
          val bytes = new Array[Byte](if (length >= 0) length else in.readInt())
          in.readFully(bytes)
          val message = new String(bytes, StandardCharsets.UTF_8)
          if (length < 0) throw new IvmException("IVM_PLANNER_FAILED", Map("detail" -> message))
          message
        }
      }.runInPython()
    }
}
