package org.apache.spark.sql.ivm.execution

import java.io.{DataInputStream, DataOutputStream, IOException}
import java.nio.charset.StandardCharsets
import java.nio.file.Paths
import java.util.Locale

import scala.jdk.CollectionConverters._
import scala.sys.process.{Process, ProcessLogger}
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import net.razorvine.pickle.Pickler

import org.apache.spark.{SparkConf, SparkContext, SparkEnv, SparkFiles}
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
  private val Planner = "pyspark_ivm.worker.planner"
  private val Archives = Seq(".whl", ".zip", ".egg")

  private def conf: SparkConf = SparkEnv.get.conf

  /** Of the workers. A relative path leads into an archive of the application, which is unpacked where executors run. */
  private[execution] def workerPython: String =
    conf.getOption("spark.pyspark.python").orElse(sys.env.get("PYSPARK_PYTHON")).getOrElse(PythonUtils.defaultPythonExec)

  /** Plans, on the driver. Notebooks are started by naming `jupyter` or `ipython` there, which run no modules. */
  private def driverPython: String =
    Seq(conf.getOption("spark.pyspark.driver.python"), sys.env.get("PYSPARK_DRIVER_PYTHON")).flatten
      .find(p => Paths.get(p).getFileName.toString.startsWith("python")).getOrElse(workerPython)

  /** Packages that came with the application: `--py-files`, `addPyFile`. Python imports from a wheel as from any zip. */
  private def shipped: Seq[String] =
    (conf.getOption("spark.submit.pyFiles").toSeq.flatMap(_.split(",")).filter(_.nonEmpty) ++
      SparkContext.getActive.toSeq.flatMap(_.listFiles()).filter(f => Archives.exists(f.toLowerCase(Locale.ROOT).endsWith)))
      .map(f => f.substring(f.lastIndexOf('/') + 1)).distinct

  /** The planning worker imports its module before it hears of shipped files. */
  private def driverPath: String = PythonUtils.mergePythonPaths(
    PythonUtils.sparkPythonPath +: sys.env.getOrElse("PYTHONPATH", "") +: shipped.map(SparkFiles.get): _*)

  @volatile private var version: Option[(String, String)] = None

  private def pythonVersion(exec: String): String = version match {
    case Some((`exec`, v)) => v
    case _ =>
      val v = Process(Seq(exec, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")).!!.trim
      version = Some((exec, v))
      v
  }

  private def function(command: Array[Byte], exec: String, environment: Map[String, String]): SimplePythonFunction =
    SimplePythonFunction(
      command.toSeq,
      new java.util.HashMap[String, String](environment.asJava),
      shipped.asJava,
      exec,
      pythonVersion(driverPython),
      List.empty.asJava,
      null)

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
      function(command.getBytes(StandardCharsets.US_ASCII), workerPython, conf.getExecutorEnv.toMap),
      schema,
      child.output,
      PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
      udfDeterministic = true)
  }

  /** One request to the planning worker (`pyspark_ivm.worker.planner`); errors it answers are raised here. */
  def plan(spark: SparkSession, request: JsonNode): JsonNode = {
    val text = mapper.writeValueAsString(request)
    val answer =
      try {
        try ask(spark, text)
        catch { case _: IOException => ask(spark, text) } // its worker was killed while it idled: Spark starts another
      } catch { case NonFatal(e) if !e.isInstanceOf[IvmException] => throw unplannable.getOrElse(e) }
    val json = mapper.readTree(answer)
    Option(json.get("error")).foreach { e =>
      val parameters = Option(e.get("parameters")).toSeq
        .flatMap(_.properties().asScala).map(p => p.getKey -> p.getValue.asText).toMap
      throw new IvmException(e.get("condition").asText, parameters)
    }
    json.get("ok")
  }

  /** Spark says only that its worker has crashed. */
  private def unplannable: Option[IvmException] = {
    var said = ""
    val python = driverPython
    val works =
      try Process(Seq(python, "-c", s"import $Planner"), None, "PYTHONPATH" -> driverPath).!(ProcessLogger(line => said = line)) == 0
      catch { case e: IOException => said = e.getMessage; false }
    if (works) None else Some(MissingPackage.error("the driver", python, said))
  }

  private def ask(spark: SparkSession, text: String): String =
    spark.withActive {
      new PythonPlannerRunner[String](function(Array.emptyByteArray, driverPython, Map("PYTHONPATH" -> driverPath))) {
        override val workerModule: String = Planner
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
