package org.apache.spark.sql.ivm.state

import java.io.IOException
import java.nio.file.{Files, Path, Paths}

/** Points at which a crash would leave something half done, for the tests of crashes.
  *
  * Off unless the environment of the driver names a file, and that file is an executable: it is run with the name of the point, and may copy
  * the state, kill its parent, or fail. A failure fails the step, as a full disk would. `pyspark_ivm.state.faults` does the same on the workers.
  */
private[ivm] object Faults {
  private val hook: Option[Path] = sys.env.get("PYSPARK_IVM_FAULTS").map(Paths.get(_))

  def at(point: String): Unit = hook.filter(Files.isExecutable(_)).foreach { command =>
    val status = new ProcessBuilder(command.toString, point).start().waitFor()
    if (status != 0) throw new IOException(s"No space left on device (fault at $point)")
  }
}
