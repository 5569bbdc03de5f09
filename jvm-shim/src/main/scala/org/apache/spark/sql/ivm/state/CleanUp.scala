package org.apache.spark.sql.ivm.state

import java.nio.file.{Files, Path}

/** Removes what no retained version needs.
  *
  * Retained are the newest `versions` commits and all that are younger than the minimum age. Of the files named
  * `<version>-<attempt>`, one of a committed version which no retained lineage names can never be needed again; one of a
  * version still to come may be a refresh at work and stays. Commits go first, so none ever names what is gone.
  */
private[state] class CleanUp(log: CommitLog, retention: Retention) {
  private var removed = 0

  def run(now: Long): Int = log.latest().fold(0) { newest =>
    val versions = log.versions()
    // A version's lineage is found by going back to a commit that stands for itself: the history begins with one.
    val oldest = standsForItself(oldestRetained(versions, newest.version, now))
    val needed = neededFiles(oldest, versions.filter(_ >= oldest).map(log.read))
    versions.filter(_ < oldest).foreach(v => remove(log.commitFile(v)))
    LocalPath.names(log.directory).filter(_.matches("b\\d+")).foreach { block =>
      for (kind <- Seq("changes", "checkpoints")) {
        val parent = log.directory.resolve(block).resolve(kind)
        LocalPath.names(parent).foreach { partition =>
          removeAttempts(parent.resolve(partition), newest.version, name => needed.contains(s"$block/$kind/$partition/$name"))
          removeOld(parent.resolve(partition), now, !_.startsWith("."))
        }
      }
    }
    removeAttempts(log.directory.resolve("full"), newest.version, name => needed.contains(s"full/$name"))
    removeOld(log.directory.resolve("manifests"), now, name => needed.contains(s"manifests/$name"))
    Seq(log.directory, log.directory.resolve("commits")).foreach(removeOld(_, now, !_.startsWith(".")))
    removed
  }

  private def oldestRetained(versions: Seq[Long], newest: Long, now: Long): Long = {
    val byCount = math.max(versions.head, newest - retention.versions + 1)
    // Timestamps grow with versions, so the first old commit from the top ends the search.
    versions.filter(_ < byCount).reverse
      .takeWhile(v => now - log.read(v).report.timestampMs < retention.minAgeMs)
      .lastOption.getOrElse(byCount)
  }

  private def standsForItself(version: Long): Long = {
    var commit = log.read(version)
    while (commit.lineage.isEmpty && !commit.resets && commit.version > 0) commit = log.read(commit.version - 1)
    commit.version
  }

  private def neededFiles(oldest: Long, commits: Seq[Commit]): Set[String] = {
    val lineage = log.lineageAt(oldest).all.flatMap(l => l.files.map(f => s"${l.block}/${f.path}"))
    val own = commits.flatMap(c => c.partitions.flatMap(p => (p.file ++ p.checkpoint).map(f => s"${p.block}/${f.path}")))
    val rest = commits.flatMap(c => c.result ++ c.sources.flatMap(_.manifest))
    (lineage ++ own ++ rest).map(_.stripSuffix("/")).toSet
  }

  private def removeAttempts(directory: Path, newest: Long, needed: String => Boolean): Unit =
    LocalPath.names(directory).foreach { name =>
      val version = name.takeWhile(_.isDigit)
      if (version.nonEmpty && name.startsWith(version + "-") && version.toLong <= newest && !needed(name)) {
        remove(directory.resolve(name))
      }
    }

  /** Manifests carry no version, and a temporary file is taken from under nobody: only age says that no refresh is at work on them. */
  private def removeOld(directory: Path, now: Long, keep: String => Boolean): Unit = {
    val grace = math.max(retention.minAgeMs, CleanUp.WorkingGraceMs)
    LocalPath.names(directory).filterNot(keep).map(directory.resolve).foreach { path =>
      val modified =
        try Files.getLastModifiedTime(path).toMillis
        catch { case _: java.nio.file.NoSuchFileException => now }
      if (now - modified > grace) remove(path)
    }
  }

  private def remove(path: Path): Unit = {
    LocalPath.deleteTree(path)
    removed += 1
  }
}

private[state] object CleanUp {
  /** No refresh takes longer between writing a manifest and its commit. */
  val WorkingGraceMs: Long = 24L * 3600 * 1000
}
