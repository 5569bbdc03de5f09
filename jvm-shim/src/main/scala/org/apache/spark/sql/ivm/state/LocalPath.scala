package org.apache.spark.sql.ivm.state

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{DirectoryNotEmptyException, Files, LinkOption, NoSuchFileException, Path, Paths, StandardOpenOption}

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

  /** Complete and on disk before it returns; fails if the file exists. */
  def writeDurably(path: Path, bytes: Array[Byte]): Unit =
    Using.resource(FileChannel.open(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) { channel =>
      val buffer = ByteBuffer.wrap(bytes)
      while (buffer.hasRemaining) channel.write(buffer)
      channel.force(true)
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
    try { Files.deleteIfExists(path); () }
    catch { case _: DirectoryNotEmptyException => () } // someone writes there; the next clean-up takes it
  }
}
