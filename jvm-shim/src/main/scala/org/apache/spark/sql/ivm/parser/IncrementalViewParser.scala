package org.apache.spark.sql.ivm.parser

import java.lang.reflect.{InvocationHandler, InvocationTargetException, Method, Proxy}

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.catalyst.parser.{ParameterContext, ParseException, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.Origin
import org.apache.spark.sql.internal.VariableSubstitution

/** Spark's parser with our statements in front of it.
  *
  * A statement is ours if its leading keywords say so ([[Statements.claim]]); everything else reaches the parser
  * below exactly as it came, whichever method was called. It is a dynamic proxy because `ParserInterface` gained methods in 4.1
  * and 4.3: a class compiled against one version misses those of the next.
  */
object IncrementalViewParser {

  def apply(delegate: ParserInterface): ParserInterface =
    Proxy
      .newProxyInstance(classOf[ParserInterface].getClassLoader, Array(classOf[ParserInterface]), new Handler(delegate))
      .asInstanceOf[ParserInterface]

  private final class Handler(delegate: ParserInterface) extends InvocationHandler {
    private val substitution = new VariableSubstitution

    override def invoke(proxy: AnyRef, method: Method, args: Array[AnyRef]): AnyRef = {
      try {
        val own = (method.getName, args) match {
          case ("parsePlan", Array(sql: String)) => parse(sql, None)
          case ("parsePlanWithParameters", Array(sql: String, parameters: ParameterContext)) => parse(sql, Some(parameters))
          case _ => None
        }
        own.getOrElse {
          try method.invoke(delegate, (if (args == null) Array.empty[AnyRef] else args): _*)
          catch { case e: InvocationTargetException => throw e.getCause }
        }
      } catch {
        case e: ParseException => throw e
        case e: Exception with SparkThrowable if e.getCondition != null && !e.isInstanceOf[RuntimeException] => throw new Undeclared(e)
      }
    }

    private def parse(sql: String, parameters: Option[ParameterContext]): Option[LogicalPlan] = {
      val text = if (sql.contains("${")) substitution.substitute(sql) else sql
      if (!mentions(text)) None
      else {
        val statement = new StatementText(text)
        Statements.claim(statement).map(claim => new Statements(delegate, statement, claim, parameters).plan)
      }
    }

    /** The one keyword all our statements have: ordinary statements are not even cut into words. */
    private def mentions(text: String): Boolean =
      (0 to text.length - Keyword.length).exists(i => text.regionMatches(true, i, Keyword, 0, Keyword.length))
  }

  private val Keyword = "INCREMENTAL"

  /** Spark's parser also throws checked exceptions that `ParserInterface` does not declare (UNBOUND_SQL_PARAMETER is a plain
    * AnalysisException); a proxy may not pass those on. To everyone who looks, this is the original: condition, parameters, text, context.
    */
  private final class Undeclared(original: Exception with SparkThrowable)
      extends ParseException(
        command = None,
        start = Origin(),
        errorClass = original.getCondition,
        messageParameters = original.getMessageParameters.asScala.toMap,
        queryContext = original.getQueryContext) {
    setStackTrace(original.getStackTrace)
    override def getMessage: String = original.getMessage
    override def getSqlState: String = original.getSqlState
    override def getCause: Throwable = original.getCause
  }
}
