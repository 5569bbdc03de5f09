package org.apache.spark.sql.ivm

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.sql.AnalysisException

/** Error conditions and reason codes, from the one file that JVM and Python share (`conditions.json`):
  * `{"IVM_VIEW_NOT_FOUND": {"kind": "error", "sqlState": "42P01", "sentence": "… <view> …", "wayOut": "…"}, …}`.
  */
object Conditions {
  private lazy val all: JsonNode = {
    val stream = getClass.getResourceAsStream("/org/apache/spark/sql/ivm/conditions.json")
    try new ObjectMapper().readTree(stream)
    finally stream.close()
  }

  private def fill(text: String, parameters: Map[String, String]): String =
    parameters.foldLeft(text) { case (t, (k, v)) => t.replace(s"<$k>", v) }

  def sqlState(code: String): String = Option(all.get(code)).flatMap(c => Option(c.get("sqlState"))).fold("XX000")(_.asText)

  def sentence(code: String, parameters: Map[String, String] = Map.empty): String =
    Option(all.get(code)).fold(code)(c => fill(c.get("sentence").asText, parameters))

  def wayOut(code: String, parameters: Map[String, String] = Map.empty): String =
    Option(all.get(code)).flatMap(c => Option(c.get("wayOut"))).fold("")(w => fill(w.asText, parameters))
}

/** Every error of the extension: a condition of `conditions.json` with its parameters. */
class IvmException(
    val condition: String,
    val parameters: Map[String, String] = Map.empty,
    cause: Option[Throwable] = None)
    extends AnalysisException(
      message = IvmException.text(condition, parameters),
      line = None,
      startPosition = None,
      cause = cause,
      errorClass = Some(condition),
      messageParameters = parameters,
      context = Array.empty) {
  override def getSqlState: String = Conditions.sqlState(condition)
}

object IvmException {
  private val MaxCauses = 32

  /** A failure and what caused it. */
  def causes(failure: Throwable): Iterator[Throwable] =
    Iterator.iterate(failure)(_.getCause).takeWhile(_ != null).take(MaxCauses)

  /** What a failed task said is only found in texts. */
  def texts(failure: Throwable): Iterator[String] = causes(failure).flatMap(e => Option(e.getMessage))

  private def text(condition: String, parameters: Map[String, String]): String = {
    val way = Conditions.wayOut(condition, parameters)
    s"[$condition] ${Conditions.sentence(condition, parameters)}" +
      (if (way.isEmpty) "" else s" $way") + s" SQLSTATE: ${Conditions.sqlState(condition)}"
  }
}
