package org.apache.spark.sql.ivm.execution

import org.apache.spark.sql.ivm.IvmException

/** A Python that cannot load the package. On an executor it is Python that finds out, and a failed task that tells. */
private[execution] object MissingPackage {
  private val Said = """(ModuleNotFoundError: No module named '.+')""".r.unanchored

  def error(place: String, python: String, detail: String): IvmException =
    new IvmException("IVM_PACKAGE_MISSING", Map("place" -> place, "python" -> python, "detail" -> detail))

  /** A function of the query's own may lack a module too: it is ours only where our name stands in the traceback. */
  def in(failure: Throwable): Option[IvmException] =
    IvmException.texts(failure).filter(_.contains("pyspark_ivm")).collectFirst { case Said(detail) =>
      error("the executors", PythonCalls.workerPython, detail)
    }
}
