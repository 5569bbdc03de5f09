package org.apache.spark.sql.ivm.state

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{FileAlreadyExistsException, Files, NoSuchFileException, Path}
import java.nio.file.attribute.FileTime
import java.security.MessageDigest

import com.fasterxml.jackson.core.JsonProcessingException

import org.apache.spark.sql.ivm.IvmException

/** The outcome of a commit. */
sealed trait CommitOutcome { def won: Boolean }
case class Won(commit: Commit) extends CommitOutcome { override def won: Boolean = true }
/** Someone else made this version; start again from `winner`. */
case class Lost(winner: Commit) extends CommitOutcome { override def won: Boolean = false }

/** The versions of one view, one small file each, created atomically and never overwritten (DESIGN §8).
  *
  * `directory` is the generation's directory: `commits/`, `manifests/`, `b00/…`, `full/…`. The object is shared by the
  * threads of a session; the newest commit and the lineage are kept and moved forward, so looking for news is a few `stat`s.
  */
class CommitLog private (val directory: Path) {
  import CommitLog._

  private val commitsDirectory = directory.resolve("commits")
  private val manifests = directory.resolve("manifests")

  private var newest: Option[Commit] = None
  private var lineages: LineageMap = LineageMap.empty

  private[state] def commitFile(version: Long): Path = commitsDirectory.resolve(f"$version%020d")

  // ---- reading -----------------------------------------------------------------------------------------------------

  /** The newest commit, None before version 0. */
  def latest(): Option[Commit] = synchronized {
    checkNotDropped()
    newest = newest match {
      case Some(commit) if Files.exists(commitFile(commit.version)) => Some(rollForward(commit))
      case _ =>
        lineages = LineageMap.empty
        versions().lastOption.map(read)
    }
    newest
  }

  private def rollForward(from: Commit): Commit = {
    var last = from
    var next = readIfThere(last.version + 1)
    while (next.isDefined) {
      last = checkParent(last, next.get)
      next = readIfThere(last.version + 1)
    }
    last
  }

  private def checkParent(parent: Commit, child: Commit): Commit = {
    if (child.parent != parent.hash) {
      throw damaged(commitFile(child.version), s"its parent is not version ${parent.version} as it stands")
    }
    child
  }

  def read(version: Long): Commit = {
    checkNotDropped()
    readIfThere(version).getOrElse(throw new IvmException(
      "IVM_VERSION_NOT_FOUND", Map("version" -> version.toString, "location" -> directory.toString)))
  }

  /** Commits after `version`, oldest first; each is checked to follow the one before. */
  def since(version: Long): Seq[Commit] = {
    val last = latest().fold(-1L)(_.version)
    val found = (version + 1 to last).map(read)
    found.iterator.sliding(2).foreach { case Seq(a, b) => checkParent(a, b); case _ => }
    found
  }

  /** All commits that retention has left, oldest first. */
  def history(): Seq[Commit] = {
    checkNotDropped()
    // What a clean-up takes meanwhile is simply not in the history any more.
    val found = versions().flatMap(readIfThere)
    found.iterator.sliding(2).foreach {
      case Seq(a, b) if b.version == a.version + 1 => checkParent(a, b)
      case _ =>
    }
    found
  }

  private[state] def versions(): Seq[Long] =
    LocalPath.names(commitsDirectory).filter(n => n.length == 20 && n.forall(_.isDigit)).map(_.toLong).sorted

  private def readIfThere(version: Long): Option[Commit] = {
    val path = commitFile(version)
    try Some(decode(path, version, Files.readAllBytes(path)))
    catch { case _: NoSuchFileException => None }
  }

  private def decode(path: Path, version: Long, bytes: Array[Byte]): Commit = {
    val commit =
      try {
        val text = new String(bytes, UTF_8)
        val format = CommitJson.formatVersion(CommitJson.parse(text))
        if (format > Commit.FormatVersion) {
          throw new IvmException("IVM_STATE_FORMAT_TOO_NEW", Map(
            "file" -> path.toString, "format" -> format.toString, "supported" -> Commit.FormatVersion.toString))
        }
        CommitJson.read(text)
      } catch {
        case e: IvmException => throw e
        case e: JsonProcessingException => throw damaged(path, s"not JSON: ${e.getOriginalMessage.linesIterator.next()}")
        case e: Exception => throw damaged(path, Option(e.getMessage).getOrElse(e.toString))
      }
    if (commit.version != version) throw damaged(path, s"it says that it is version ${commit.version}")
    commit.copy(hash = sha256(bytes))
  }

  // ---- lineage -----------------------------------------------------------------------------------------------------

  /** What a partition's state is made of at the newest version. */
  def lineage(block: String, partition: Int): Lineage =
    latest().fold(LineageMap.empty)(c => lineageAt(c.version)).get(block, partition)

  /** The lineage of all partitions at a version; kept for the newest version asked, moved forward from there. */
  def lineageAt(version: Long): LineageMap = synchronized {
    if (lineages.version <= version && lineages.version >= 0) {
      lineages = (lineages.version + 1 to version).map(read).foldLeft(lineages)(_(_))
      lineages
    } else {
      val built = build(version)
      if (version > lineages.version) lineages = built
      built
    }
  }

  /** Back to a commit that stands for itself, then forward. */
  private def build(version: Long): LineageMap = {
    var chain = List(read(version))
    while (chain.head.lineage.isEmpty && !chain.head.resets && chain.head.version > 0) {
      val parent = read(chain.head.version - 1)
      checkParent(parent, chain.head)
      chain = parent :: chain
    }
    val base = chain.head
    val start = base.lineage match {
      case Some(complete) => LineageMap.complete(base.version, complete)
      case None => LineageMap(base.version - 1, Map.empty)(base)
    }
    chain.tail.foldLeft(start)(_(_))
  }

  // ---- writing -----------------------------------------------------------------------------------------------------

  /** Makes `commit` the version after its parent, or tells who did. Everything it names must be complete by now.
    * The caller sets `version` and `parent` from the commit it started from (`parent` = that commit's `hash`).
    */
  def tryCommit(commit: Commit): CommitOutcome = synchronized {
    checkNotDropped()
    LocalPath.createDirectories(commitsDirectory)
    val before = latest()
    if (before.exists(_.version >= commit.version)) Lost(before.get)
    else if (commit.version != before.fold(0L)(_.version + 1) || commit.parent != before.fold("")(_.hash)) {
      throw damaged(commitFile(commit.version), "the version it was to follow is not there any more")
    } else {
      put(withLineage(commit))
      val there = read(commit.version)
      newest = Some(there)
      if (there.attempt == commit.attempt) Won(there) else Lost(latest().get)
    }
  }

  private def withLineage(commit: Commit): Commit =
    if (commit.version % LineageInterval != 0 || commit.resets) commit.copy(lineage = None)
    else commit.copy(lineage = Some(lineageAt(commit.version - 1)(commit).all))

  /** Put if absent: a hard link to a complete, synced file either appears whole or fails because the name is taken. */
  private def put(commit: Commit): Unit = {
    val temporary = commitsDirectory.resolve(s"$TemporaryPrefix${commit.version}-${commit.attempt}")
    Files.deleteIfExists(temporary)
    Faults.at("commit.begin")
    LocalPath.writeDurably(temporary, commit.copy(hash = "").toJson.getBytes(UTF_8))
    Faults.at("commit.written")
    try {
      Files.createLink(commitFile(commit.version), temporary)
      Faults.at("commit.linked")
      LocalPath.syncDirectory(commitsDirectory)
    } catch {
      case _: FileAlreadyExistsException => // the reader of the file decides who won
      case e: UnsupportedOperationException =>
        throw LocalPath.unsupported(directory.toString, s"it has no hard links: ${e.getMessage}")
    } finally Files.deleteIfExists(temporary)
  }

  // ---- manifests ---------------------------------------------------------------------------------------------------

  /** Stores a token's payload under its own hash and returns its path relative to the directory; None for an empty one. */
  def writeManifest(payload: String): Option[String] = if (payload.isEmpty) None else {
    checkNotDropped()
    LocalPath.createDirectories(manifests)
    val bytes = payload.getBytes(UTF_8)
    val name = sha256(bytes)
    val path = manifests.resolve(name)
    // Touched first: a clean-up spares young manifests, and this one is about to be named by a commit.
    val reused =
      try { Files.setLastModifiedTime(path, FileTime.fromMillis(System.currentTimeMillis())); true }
      catch { case _: NoSuchFileException => false }
    if (!reused) {
      val temporary = manifests.resolve(s"$TemporaryPrefix$name-${java.util.UUID.randomUUID}")
      Faults.at("manifest.begin")
      LocalPath.writeDurably(temporary, bytes)
      Faults.at("manifest.written")
      Files.move(temporary, path, java.nio.file.StandardCopyOption.ATOMIC_MOVE)
      LocalPath.syncDirectory(manifests)
    }
    Some(s"manifests/$name")
  }

  def readManifest(manifest: Option[String]): String = manifest.fold("") { relative =>
    checkNotDropped()
    val path = directory.resolve(relative)
    val bytes =
      try Files.readAllBytes(path)
      catch { case _: NoSuchFileException => throw damaged(path, "it is missing") }
    if (sha256(bytes) != path.getFileName.toString) throw damaged(path, "its content does not have the hash it is named by")
    new String(bytes, UTF_8)
  }

  // ---- dropping and cleaning up ------------------------------------------------------------------------------------

  /** Leaves the tombstone, then removes everything else; other drivers get IVM_VIEW_DROPPED from then on. */
  def drop(): Unit = synchronized {
    Faults.at("drop.begin")
    LocalPath.createDirectories(directory)
    val tombstone = directory.resolve(Tombstone)
    try LocalPath.writeDurably(tombstone, s"dropped at ${java.time.Instant.now()}\n".getBytes(UTF_8))
    catch { case _: FileAlreadyExistsException => }
    LocalPath.syncDirectory(directory)
    LocalPath.names(directory).filterNot(_ == Tombstone).foreach(n => LocalPath.deleteTree(directory.resolve(n)))
    newest = None
    lineages = LineageMap.empty
  }

  /** What a drop that was cut short left, and the tombstone itself once nobody can be at work there any more. */
  def finishDrop(now: Long): Unit = {
    drop()
    val tombstone = directory.resolve(Tombstone)
    val old =
      try now - Files.getLastModifiedTime(tombstone).toMillis > CleanUp.WorkingGraceMs
      catch { case _: NoSuchFileException => false }
    if (old) LocalPath.deleteTree(directory)
  }

  /** The tombstone lies in the generation's directory, or above it when the whole view went. */
  private[state] def checkNotDropped(): Unit =
    if (Files.exists(directory.resolve(Tombstone)) || Option(directory.getParent).exists(p => Files.exists(p.resolve(Tombstone)))) {
      throw new IvmException("IVM_VIEW_DROPPED", Map("location" -> directory.toString))
    }

  /** Removes what no retained version needs; returns the number of files and directories removed. */
  def cleanUp(now: Long, retention: Retention): Int = synchronized(new CleanUp(this, retention).run(now))
}

object CommitLog {
  val Tombstone = "DROPPED"
  private[state] val TemporaryPrefix = ".tmp-"
  /** Every so many versions a commit carries its complete lineage: the most commits that a cold start reads. */
  private[state] val LineageInterval = 50L

  /** The log under a generation's directory, which need not exist yet. */
  def apply(location: String): CommitLog = new CommitLog(LocalPath(location))

  def sha256(bytes: Array[Byte]): String =
    MessageDigest.getInstance("SHA-256").digest(bytes).map("%02x".format(_)).mkString

  private[state] def damaged(path: Path, detail: String): IvmException =
    new IvmException("IVM_STATE_DAMAGED", Map("file" -> path.toString, "detail" -> detail))
}
