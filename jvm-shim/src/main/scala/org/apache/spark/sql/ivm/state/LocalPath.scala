package org.apache.spark.sql.ivm.state

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{
  DirectoryNotEmptyException, FileAlreadyExistsException, Files, LinkOption, NoSuchFileException, Path, Paths, StandardOpenOption}
import java.nio.file.attribute.PosixFilePermission

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.spark.sql.ivm.IvmException

/** State directories are POSIX paths; everything here is what a commit needs of them and java.nio does not say in one word. */
private[ivm] object LocalPath {

  /** `/a/b` and `file:/a/b` → the path; any other scheme lacks the primitive a commit needs. */
  def apply(location: String): Path = {
    val path = new org.apache.hadoop.fs.Path(location)
    val scheme = path.toUri.getScheme
    if (scheme != null && scheme != "file") throw unsupported(location, s"the scheme $scheme is not local")
    Paths.get(path.toUri.getPath).toAbsolutePath.normalize()
  }

  def unsupported(location: String, detail: String): IvmException =
    new IvmException("IVM_STATE_SCHEME_NOT_SUPPORTED", Map("location" -> location, "detail" -> detail))

  /** New directories and files are for whom the directory above them is for: drivers of several users share a state by its location's mode. */
  def createDirectories(path: Path): Unit = if (!Files.isDirectory(path)) {
    Option(path.getParent).foreach(createDirectories)
    try { Files.createDirectory(path); likeParent(path, directory = true) }
    catch { case _: FileAlreadyExistsException => () }
  }

  private def likeParent(path: Path, directory: Boolean): Unit =
    try {
      val mode = Files.getPosixFilePermissions(path.getParent)
      if (!directory) mode.removeAll(Executable)
      if (mode != Files.getPosixFilePermissions(path)) Files.setPosixFilePermissions(path, mode)
      ()
    } catch { case _: UnsupportedOperationException | _: IOException => () } // no such modes here, or not ours to give

  private val Executable =
    java.util.Set.of(PosixFilePermission.OWNER_EXECUTE, PosixFilePermission.GROUP_EXECUTE, PosixFilePermission.OTHERS_EXECUTE)

  /** The same for a tree that Spark wrote. */
  def adopt(tree: Path): Unit = {
    val directory = Files.isDirectory(tree, LinkOption.NOFOLLOW_LINKS)
    likeParent(tree, directory)
    if (directory) names(tree).foreach(n => adopt(tree.resolve(n)))
  }

  /** Complete and on disk before it returns; fails if the file exists. */
  def writeDurably(path: Path, bytes: Array[Byte]): Unit = {
    Using.resource(FileChannel.open(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) { channel =>
      val buffer = ByteBuffer.wrap(bytes)
      while (buffer.hasRemaining) channel.write(buffer)
      channel.force(true)
    }
    likeParent(path, directory = false)
  }

  /** Makes names created in the directory survive a crash of the machine. */
  def syncDirectory(path: Path): Unit =
    try Using.resource(FileChannel.open(path, StandardOpenOption.READ))(_.force(true))
    catch { case _: IOException => () } // some systems cannot open a directory; they sync names themselves

  def names(directory: Path): Seq[String] =
    try Using.resource(Files.newDirectoryStream(directory))(_.asScala.map(_.getFileName.toString).toVector)
    catch { case _: NoSuchFileException => Vector.empty }

  def deleteTree(path: Path): Unit = {
    if (Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS)) names(path).foreach(n => deleteTree(path.resolve(n)))
    Faults.at("delete")
    try { Files.deleteIfExists(path); () }
    catch { case _: DirectoryNotEmptyException => () } // someone writes there; the next clean-up takes it
  }
}
