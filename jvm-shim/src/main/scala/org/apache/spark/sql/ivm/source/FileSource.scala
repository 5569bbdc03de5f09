package org.apache.spark.sql.ivm.source

import java.io.FileNotFoundException

import org.apache.hadoop.fs.{FileStatus, Path}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.catalog.{CatalogTable, ExternalCatalogUtils}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation, PathFilterFactory}
import org.apache.spark.sql.types.{DataType, DoubleType, LongType, NullType, StringType}

/** Law: a table of files is the bag union of its files, so rows(new files) is the change while no file goes away.
  *
  * A file that vanished or was rewritten took rows with it that nobody can read any more: resync.
  * Files are listed through the file system itself each time; Spark's own listing is cached per session.
  */
private[source] class FileSource(
    spark: SparkSession,
    relation: LogicalRelation,
    files: HadoopFsRelation,
    override val table: String)
    extends ChangeSource {

  override val kind: String = "files"

  private val same = SourceRows.resolver(spark)
  private val hadoopConf = spark.sessionState.newHadoopConfWithOptions(files.options)
  private val options = CaseInsensitiveMap(files.options)
  private val pathFilters = PathFilterFactory.create(options)
  private val recursive = options.get("recursiveFileLookup").exists(_.toBoolean)
  private val partitionSchema = files.partitionSchema
  /** Metadata columns (`_metadata`) are made by the scan and unknown to the catalog. */
  private val columns: Seq[Attribute] =
    relation.output.filter(a => files.schema.fieldNames.exists(same(_, a.name)))

  /** The newest listing, so that `changes` and `snapshot` need not parse what was just made. */
  @volatile private var newest: Option[FileListing] = None

  override def tableId: String = catalogTable() match {
    case Some(entry) if entry.storage.locationUri.isDefined => entry.location.toString
    case _ => files.location.rootPaths.map(_.toString).mkString(",")
  }

  override val layout: String =
    (files.fileFormat.toString +: partitionSchema.fields.map(f => s"${f.name} ${f.dataType.catalogString}").toSeq).mkString(",") +
      options.toSeq.filterNot(o => FileSource.NotLayout(o._1)).sorted.mkString(",")

  override def current(): Option[Token] = Some(list().token)

  override def changes(from: Token, to: Token): Changes = {
    val (before, after) = (listingAt(from).byPath, listingAt(to))
    val now = after.byPath
    val vanished = before.keysIterator.filterNot(now.contains).toSeq
    val rewritten = before.iterator.collect { case (path, file) if now.get(path).exists(_ != file) => path }.toSeq
    if (vanished.nonEmpty) resync("RESYNC_FILES_VANISHED", vanished, listingAt(from), after)
    else if (rewritten.nonEmpty) resync("RESYNC_FILES_REWRITTEN", rewritten, listingAt(from), after)
    else {
      val added = after.directories
        .map(d => d.copy(files = d.files.filterNot(f => before.contains(d.pathOf(f)))))
        .filter(_.files.nonEmpty)
      val listing = FileListing(added)
      if (added.isEmpty) Changes.None
      else {
        if (schemaIsInferred) checkInferred(listing)
        Changes.Rows(read(listing), Some(rowsIn(listing.bytes)))
      }
    }
  }

  /** A path of texts: what types its columns have was guessed from the files that were there. */
  private val schemaIsInferred: Boolean = relation.catalogTable.isEmpty && FileSource.Texts(files.toString.toLowerCase)

  /** Under the guessed types a new file's values must not silently read as NULL. */
  private def checkInferred(listing: FileListing): Unit = {
    val paths = listing.directories.flatMap(d => d.files.map(d.pathOf))
    val now = spark.read.format(files.toString.toLowerCase).options(files.options - "path").load(paths: _*).schema
    columns.foreach { column =>
      now.find(f => same(f.name, column.name)).filterNot(f => FileSource.fits(f.dataType, column.dataType)).foreach { f =>
        throw SourceRows.schemaChanged(
          table, s"column ${column.name} is ${column.dataType.simpleString}, but new files hold ${f.dataType.simpleString}")
      }
    }
  }

  private def resync(code: String, paths: Seq[String], before: FileListing, after: FileListing): Changes =
    Changes.Resync(
      code, Map("table" -> table, "count" -> paths.size.toString, "file" -> paths.min),
      Option.when(partitionSchema.nonEmpty)(touched(before, after)))

  /** The partitions whose files differ. */
  private def touched(before: FileListing, after: FileListing): TouchedPartitions = {
    def files(listing: FileListing): Map[Seq[Any], Set[(String, ListedFile)]] =
      listing.directories.groupMapReduce(valuesOf(_).toSeq(partitionSchema))(d => d.files.map(f => d.pathOf(f) -> f).toSet)(_ ++ _)
    val (old, now) = (files(before), files(after))
    val values = (old.keySet ++ now.keySet).filter(v => old.get(v) != now.get(v)).toSeq
    TouchedPartitions(
      partitionSchema.fieldNames.toSeq.map(name => relation.output.indexWhere(a => same(a.name, name))),
      values,
      places => {
        val wanted = values.map(v => places.map(v(_))).toSet
        read(FileListing(after.directories.filter { d =>
          val own = valuesOf(d).toSeq(partitionSchema)
          wanted(places.map(own(_)))
        }))
      })
  }

  override def snapshot(at: Option[Token]): SignedRows = read(at.fold(list())(listingAt))

  override def estimatedRows: Option[Long] =
    catalogTable().flatMap(_.stats).flatMap(_.rowCount).map(_.toLong).orElse {
      Some(rowsIn(newest.getOrElse(list()).bytes))
    }

  private def rowsIn(bytes: Long): Long = bytes / SourceRows.bytesOf(columns)

  private def listingAt(token: Token): FileListing =
    newest.filter(_.token.text == token.text).getOrElse(FileListing.decode(token.payload))

  private def valuesOf(directory: ListedDirectory): InternalRow = FixedFileIndex.partitionValues(
    table, partitionSchema, directory.values, options.getOrElse("timeZone", spark.sessionState.conf.sessionLocalTimeZone))

  private def read(listing: FileListing): SignedRows = {
    val partitions = listing.directories.map { directory =>
      valuesOf(directory) -> directory.files.map(f => FixedFileIndex.status(new Path(directory.pathOf(f)), f.size, f.modified))
    }
    val index = new FixedFileIndex(files.location.rootPaths, partitionSchema, partitions)
    // Without the catalog entry (whose statistics are the whole table's) and without buckets (a part has no full set).
    val part = files.copy(location = index, bucketSpec = None)(files.sparkSession)
    SignedRows(relation.copy(relation = part, catalogTable = None).newInstance(), None)
  }

  // ---- listing -------------------------------------------------------------------------------------------------

  /** The catalog's entry now, not at analysis; None for a path. A dropped table is an error, so is a changed column. */
  private def catalogTable(): Option[CatalogTable] =
    relation.catalogTable.map(entry => CatalogLookup.now(spark, table, entry.identifier))

  private def list(): FileListing = {
    val directories = catalogTable() match {
      case Some(entry) =>
        if (entry.provider.map(_.toLowerCase) != relation.catalogTable.get.provider.map(_.toLowerCase)) {
          throw SourceRows.schemaChanged(table, s"its format is now ${entry.provider.getOrElse("unknown")}")
        }
        SourceRows.checkSchema(spark, table, columns, entry.schema)
        if (partitionSchema.nonEmpty && entry.tracksPartitionsInCatalog) {
          spark.sessionState.catalog.listPartitions(entry.identifier).flatMap { partition =>
            directFiles(new Path(partition.location), required = false).map(d => d.copy(values = named(partition.spec)))
          }
        } else walk(new Path(entry.location), required = false)
      case None => files.location.rootPaths.flatMap(walk(_, required = true))
    }
    val listing = FileListing(directories.filter(_.files.nonEmpty).sortBy(_.path))
    newest = Some(listing)
    listing
  }

  private def walk(root: Path, required: Boolean): Seq[ListedDirectory] = {
    val base = options.get("basePath").map(new Path(_)).getOrElse(root)
    if (recursive) below(root, required)
    else if (partitionSchema.isEmpty) directFiles(root, required)
    else {
      val prefix = qualified(base).toString
      below(root, required).flatMap { directory =>
        val values = named(parse(directory.path.stripPrefix(prefix)))
        // A file outside of any partition directory is not part of the table, as in Spark.
        if (partitionSchema.fieldNames.forall(values.contains)) Some(directory.copy(values = values)) else None
      }
    }
  }

  /** `a=1/b=x%20y` → {a: 1, b: x y}. */
  private def parse(path: String): Map[String, String] =
    path.split('/').iterator.filter(_.contains('=')).map { segment =>
      val at = segment.indexOf('=')
      ExternalCatalogUtils.unescapePathName(segment.take(at)) ->
        ExternalCatalogUtils.unescapePathName(segment.drop(at + 1))
    }.toMap

  /** Keyed by the partition schema's own spelling; NULL for Hive's default partition. */
  private def named(texts: Map[String, String]): Map[String, String] = (for {
    field <- partitionSchema.fieldNames.iterator
    (_, text) <- texts.find { case (name, _) => same(name, field) }
  } yield field -> (if (text == ExternalCatalogUtils.DEFAULT_PARTITION_NAME) null else text)).toMap

  private def qualified(path: Path): Path = path.getFileSystem(hadoopConf).makeQualified(path)

  private def children(path: Path, required: Boolean): Seq[FileStatus] =
    try path.getFileSystem(hadoopConf).listStatus(path).toSeq.filterNot(s => hidden(s.getPath.getName))
    catch {
      case _: FileNotFoundException if required => throw SourceRows.missing(table, s"$path does not exist")
      case _: FileNotFoundException => Nil
    }

  private def directFiles(path: Path, required: Boolean): Seq[ListedDirectory] =
    Seq(directory(path, children(path, required)))

  private def below(path: Path, required: Boolean): Seq[ListedDirectory] = {
    val (inner, leaves) = children(path, required).partition(_.isDirectory)
    directory(path, leaves) +: inner.flatMap(d => below(d.getPath, required = false))
  }

  private def directory(path: Path, statuses: Seq[FileStatus]): ListedDirectory = {
    // The path of a table may name a single file: then that file is its own only child.
    val single = statuses.size == 1 && statuses.head.getPath == qualified(path)
    val data = statuses.filter(s => s.isFile && s.getLen > 0 && pathFilters.forall(_.accept(s)))
    ListedDirectory(
      (if (single) qualified(path).getParent else qualified(path)).toString,
      Map.empty,
      data.map(s => ListedFile(s.getPath.getName, s.getLen, s.getModificationTime)).sortBy(_.name))
  }

  /** Spark's rule for files that are not data: leading `_` (but not of a partition directory) or `.`, files in copying. */
  private def hidden(name: String): Boolean =
    (name.startsWith("_") && !name.contains("=")) || name.startsWith(".") || name.endsWith("._COPYING_")
}

private object FileSource {
  /** Options that say where or how fast, not what. */
  private val NotLayout = Set("path", "serialization.format")

  private val Texts = Set("json", "csv", "xml")

  /** Every value of the one type reads as itself under the other. */
  private def fits(found: DataType, known: DataType): Boolean = (found, known) match {
    case (a, b) if a == b => true
    case (NullType, _) | (_, StringType) => true
    case (LongType, DoubleType) => true
    case _ => false
  }
}
