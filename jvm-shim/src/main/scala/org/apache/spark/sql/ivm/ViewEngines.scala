package org.apache.spark.sql.ivm

/** The one maintenance engine. Found by name, so that statements and maintenance do not compile against each other: the seam
  * between them is [[ViewEngine]] alone, and tests of the statements put a small engine of their own behind it.
  */
object ViewEngines {
  private val EngineClass = "org.apache.spark.sql.ivm.execution.Engine"

  private lazy val default: ViewEngine =
    Class.forName(EngineClass, true, getClass.getClassLoader).getConstructor().newInstance().asInstanceOf[ViewEngine]

  @volatile private var replacement: Option[ViewEngine] = None

  def engine: ViewEngine = replacement.getOrElse(default)

  /** For tests: `null` brings the real engine back. */
  def use(engine: ViewEngine): Unit = replacement = Option(engine)
}
