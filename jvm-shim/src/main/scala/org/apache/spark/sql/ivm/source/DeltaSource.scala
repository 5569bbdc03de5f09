package org.apache.spark.sql.ivm.source

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.catalyst.expressions.{CaseWhen, Expression, In, Literal}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.types.{StringType, StructField, StructType}

/** A version of a Delta table, as the token's payload keeps it. */
private[source] case class DeltaPoint(version: Long, identity: Option[CommitIdentity], metadata: DeltaMetadata) {
  def token: Token = {
    val node = DeltaCommits.mapper.createObjectNode()
    node.put("version", version)
    identity.foreach(i => node.put("length", i.length).put("modified", i.modified))
    node.put("tableId", metadata.id).put("changeFeed", metadata.changeFeed).put("columnMapping", metadata.columnMapping)
    val stamp = identity.fold("")(i => s" ${i.length}-${i.modified}")
    Token(s"version $version$stamp", DeltaCommits.mapper.writeValueAsString(node))
  }
}

/** What a stored token says of its version. */
private[source] case class DeltaPin(
    version: Long, identity: Option[CommitIdentity], tableId: String, changeFeed: Boolean, columnMapping: Boolean)

private[source] object DeltaPin {
  def apply(token: Token): DeltaPin = {
    val node = DeltaCommits.mapper.readTree(token.payload)
    val identity = Option(node.get("length")).map(l => CommitIdentity(l.asLong, node.get("modified").asLong))
    DeltaPin(node.get("version").asLong, identity, node.get("tableId").asText,
      node.get("changeFeed").asBoolean, node.get("columnMapping").asBoolean)
  }
}

/** Law: rows(to) − rows(from) = Σ added files − Σ removed files over the commits in (from, to], and for a commit that
  * wrote change files, the rows of these with their own signs. A file that was v and is w, deletion vectors of the same file,
  * changes by its rows in v \ w (+1) and in w \ v (−1).
  *
  * Actions with dataChange=false (OPTIMIZE) move rows between files and change none. Looking for news costs two `stat`s.
  */
private[source] class DeltaSource(spark: SparkSession, delta: DeltaTable, override val table: String)
    extends ChangeSource {

  private val hadoopConf = spark.sessionState.newHadoopConf()
  private var path: Path = delta.path
  private var commits = new DeltaCommits(path, hadoopConf)
  private var known: Option[DeltaPoint] = None
  /** Commits read while following the log, until `changes` has used them. */
  private var recent = Map.empty[Long, DeltaCommit]

  private def metadata: DeltaMetadata = synchronized(known.fold(delta.metadataAtAnalysis)(_.metadata))
  override def kind: String = if (metadata.changeFeed) "delta-cdf" else "delta-files"
  override def tableId: String = metadata.id

  override def current(): Option[Token] = synchronized {
    locate()
    val point = known match {
      case Some(p) if commits.identity(p.version) == p.identity => follow(p)
      case Some(_) =>
        DeltaTable.forget(spark, path)
        cold()
      case None => cold()
    }
    known = Some(point)
    // Where the table stands now; on the way there it may have looked otherwise.
    checkSchema(point.metadata)
    Some(point.token)
  }

  /** A catalog table may have been dropped, or made anew somewhere else. */
  private def locate(): Unit = {
    delta.identifier.foreach { identifier =>
      val location = new Path(CatalogLookup.now(spark, table, identifier).location)
      val there = location.getFileSystem(hadoopConf).makeQualified(location)
      if (there != path.getFileSystem(hadoopConf).makeQualified(path)) {
        path = there
        commits = new DeltaCommits(path, hadoopConf)
        known = None
        recent = Map.empty
      }
    }
    if (!commits.exists) {
      DeltaTable.forget(spark, path)
      throw SourceRows.missing(table, s"there is no Delta table at $path")
    }
  }

  private def cold(): DeltaPoint = {
    recent = Map.empty
    val (version, metadata) = DeltaTable.newest(spark, path)
    follow(DeltaPoint(version, commits.identity(version), metadata))
  }

  private def follow(from: DeltaPoint): DeltaPoint =
    Iterator.iterate(Option(from)) { last =>
      for {
        point <- last
        identity <- commits.identity(point.version + 1)
        commit <- commits.read(point.version + 1)
      } yield {
        if (recent.size < DeltaSource.MaxRecentCommits) recent += commit.version -> commit
        DeltaPoint(commit.version, Some(identity), commit.metadata.getOrElse(point.metadata))
      }
    }.takeWhile(_.isDefined).flatten.reduceLeft((_, later) => later)

  /** The view's columns, as files of that version hold them: of the same types, and with column mapping under the same physical names. */
  private def sameColumns(metadata: DeltaMetadata): Boolean = {
    val same = SourceRows.resolver(spark)
    def field(schema: StructType, name: String): Option[StructField] = schema.find(f => same(f.name, name))
    delta.output.forall { column =>
      (field(metadata.schema, column.name), field(delta.metadataAtAnalysis.schema, column.name)) match {
        case (Some(then), Some(analysed)) =>
          then.dataType.asNullable == analysed.dataType.asNullable && DeltaSource.physicalName(then) == DeltaSource.physicalName(analysed)
        case _ => false
      }
    }
  }

  private def checkSchema(metadata: DeltaMetadata): Unit =
    SourceRows.checkSchema(spark, table, delta.output, metadata.schema)

  override def snapshot(at: Option[Token]): SignedRows = {
    val pin = DeltaPin(at.getOrElse(current().get))
    val frame = spark.read.format("delta").option("versionAsOf", pin.version).load(path.toString)
    SourceRows.aligned(spark, table, frame.queryExecution.analyzed, delta.output)
  }

  override def estimatedRows: Option[Long] = synchronized {
    val version = DeltaPin(known.fold(current().get)(_.token)).version
    commits.tableBytes(version).map(_ / SourceRows.bytesOf(delta.output))
  }

  // ---- changes -----------------------------------------------------------------------------------------------------

  override def changes(from: Token, to: Token): Changes = synchronized {
    val (old, now) = (DeltaPin(from), DeltaPin(to))
    def moved(pin: DeltaPin): Boolean = commits.identity(pin.version).exists(i => !pin.identity.contains(i))
    if (old.tableId != now.tableId || now.version < old.version || moved(old) || moved(now)) {
      resync("RESYNC_TABLE_RECREATED", "")
    } else {
      val range = (old.version + 1 to now.version).map(v => recent.get(v).orElse(commits.read(v)))
      recent = recent.filter(_._1 > now.version)
      if (range.exists(_.isEmpty)) resync("RESYNC_HISTORY_LOST", s"commits after version ${old.version} are gone")
      else changes(old, now, range.flatten)
    }
  }

  private def resync(code: String, detail: String): Changes =
    Changes.Resync(code, Map("table" -> table, "detail" -> detail))

  private def changes(old: DeltaPin, now: DeltaPin, range: Seq[DeltaCommit]): Changes = {
    val metadatas = range.flatMap(_.metadata)
    if (!metadatas.forall(sameColumns)) return resync("RESYNC_HISTORY_LOST", "its columns were dropped, renamed or retyped in between")
    val feed = old.changeFeed && metadatas.forall(_.changeFeed)
    val mapped = old.columnMapping || metadatas.exists(_.columnMapping)
    // A change feed whose files were vacuumed: the data files may still be there.
    val withFeed = if (feed) FileChanges.withFeed(range).filter(_.changeFiles.forall(commits.filesExist)) else None
    val (net, usesFeed) = (withFeed.getOrElse(FileChanges(range)), withFeed.isDefined)
    val involved = net.added ++ net.removed ++ net.changeFiles
    if (involved.isEmpty) Changes.None
    else if (net.removed.exists(!_.readable)) resync("RESYNC_HISTORY_LOST", "removed files are recorded without their size")
    else if (net.mayBeGone.exists(!commits.filesExist(_))) resync("RESYNC_HISTORY_LOST", "removed files were vacuumed")
    else {
      val plain = !mapped && involved.forall(_.deletionVector.isEmpty) && delta.files.isDefined &&
        now.tableId == delta.metadataAtAnalysis.id
      Changes.Rows(
        if (plain) direct(net)
        else if (usesFeed && (net.removed.nonEmpty || net.changeFiles.nonEmpty)) changeFeed(old, now)
        else throughDelta(net, now.version),
        Some(net.estimatedRows(SourceRows.bytesOf(delta.output))))
    }
  }

  /** Delta's change feed: inclusive at both ends. */
  private def changeFeed(old: DeltaPin, now: DeltaPin): SignedRows = {
    val frame = spark.read.format("delta").option("readChangeFeed", "true")
      .option("startingVersion", old.version + 1).option("endingVersion", now.version).load(path.toString)
    signedByType(frame.queryExecution.analyzed)
  }

  private def signedByType(plan: LogicalPlan): SignedRows = {
    val changeType = plan.output.find(_.name == "_change_type").get
    val inserted = In(changeType, Seq(Literal("insert"), Literal("update_postimage")))
    SourceRows.aligned(spark, table, plan, delta.output, Some(CaseWhen(Seq(inserted -> Literal(1L)), Literal(-1L))))
  }

  /** Deletion vectors or column mapping: Delta's own index and format read the files. */
  private def throughDelta(net: FileChanges, version: Long): SignedRows = {
    def part(files: Seq[DeltaFile], weight: Option[Expression]): Option[SignedRows] =
      Option.when(files.nonEmpty) {
        val frame = DeltaTable.rows(spark, path, version, files.map(_.asAdd))
        SourceRows.aligned(spark, table, frame.queryExecution.analyzed, delta.output, weight)
      }
    // Delta's change reader adds columns: a table that has such a name itself is read the long way.
    val kept = if (delta.output.exists(c => DeltaSource.ChangeColumns(c.name.toLowerCase))) Nil else net.remarked
    val remarked =
      if (kept.isEmpty) Nil
      else DeltaTable.remarked(spark, path, version, kept.map { case (was, is) => is.path -> (was.asRemove, is.asAdd) }.toMap)
    val stay = kept.map(_._2.path).toSet
    def others(files: Seq[DeltaFile]): Seq[DeltaFile] = files.filterNot(f => stay(f.path))
    SourceRows.union(
      delta.output.size,
      part(others(net.added), None).toSeq ++ part(others(net.removed), Some(Literal(-1L))) ++
        remarked.map(frame => signedByType(frame.queryExecution.analyzed)))
  }

  /** Plain Parquet files: read them ourselves, without Delta's snapshot and its jobs. */
  private def direct(net: FileChanges): SignedRows = {
    val files = delta.files.get
    val added = Option.when(net.added.nonEmpty)(
      SourceRows.aligned(spark, table, scan(files, net.added), delta.output))
    val removed = Option.when(net.removed.nonEmpty)(
      SourceRows.aligned(spark, table, scan(files, net.removed), delta.output, Some(Literal(-1L))))
    val changed = Option.when(net.changeFiles.nonEmpty) {
      val typed = files.copy(dataSchema = files.dataSchema.add("_change_type", StringType))(files.sparkSession)
      signedByType(scan(typed, net.changeFiles))
    }
    SourceRows.union(delta.output.size, added.toSeq ++ removed ++ changed)
  }

  private def scan(files: HadoopFsRelation, actions: Seq[DeltaFile]): LogicalPlan = {
    val timeZone = spark.sessionState.conf.sessionLocalTimeZone
    val partitions = actions.groupBy(_.partitionValues).toSeq.map { case (texts, part) =>
      FixedFileIndex.partitionValues(table, files.partitionSchema, texts, timeZone) ->
        part.map(a => FixedFileIndex.status(a.absolute(path), a.size, a.modified))
    }
    val index = new FixedFileIndex(Seq(path), files.partitionSchema, partitions)
    // Nullable: files of a table that took back a NOT NULL since the query was analysed hold NULLs.
    val relation = files.copy(location = index, dataSchema = files.dataSchema.asNullable, bucketSpec = None)(files.sparkSession)
    LogicalRelation(relation)
  }
}

private[source] object DeltaSource {
  /** Commits kept in memory between `current` and `changes`; further ones are read again. */
  val MaxRecentCommits = 100

  /** The columns of Delta's change feed. */
  private val ChangeColumns = Set("_change_type", "_commit_version", "_commit_timestamp")

  private val PhysicalName = "delta.columnMapping.physicalName"

  private def physicalName(field: StructField): String =
    if (field.metadata.contains(PhysicalName)) field.metadata.getString(PhysicalName) else field.name
}

/** The net file actions of a range of commits.
  * @param mayBeGone  files that the table does not hold any more at the end of the range: VACUUM may have taken them
  */
private[source] case class FileChanges(
    added: Seq[DeltaFile], removed: Seq[DeltaFile], changeFiles: Seq[DeltaFile], mayBeGone: Seq[DeltaFile]) {

  /** Files that stay under another deletion vector: as they were, and as they are. */
  lazy val remarked: Seq[(DeltaFile, DeltaFile)] = {
    val before = removed.map(f => f.path -> f).toMap
    added.flatMap(now => before.get(now.path).map(_ -> now))
  }

  def estimatedRows(bytesARow: Long): Long = {
    val marked = remarked.map { case (was, is) => math.abs(is.deletedRows - was.deletedRows) }.sum
    val same = remarked.map(_._2.path).toSet
    marked + ((added ++ removed).filterNot(f => same(f.path)) ++ changeFiles).map(_.size).sum / bytesARow
  }
}

private[source] object FileChanges {
  /** Of two ways to the same sum the one that reads less. OPTIMIZE alone is nothing to the first; OPTIMIZE and a RESTORE of what was
    * before it are nothing to the second.
    */
  def apply(range: Seq[DeltaCommit]): FileChanges =
    (balance(range).toSeq :+ difference(range)).minBy(_.estimatedRows(bytesARow = 1))

  /** Σ adds − Σ removes of the commits without change files, and the change files of the others; None if there are none to use. */
  def withFeed(range: Seq[DeltaCommit]): Option[FileChanges] = {
    val (typed, plain) = range.partition(_.changeFiles.nonEmpty)
    balance(plain).map(net => of(range, net.added, net.removed).copy(changeFiles = typed.flatMap(_.changeFiles)))
  }

  /** Σ adds − Σ removes over the actions that change rows. None where a file counts twice or stands under two deletion vectors: its
    * rows were moved elsewhere in between by actions that change none, and then it came back.
    */
  private def balance(range: Seq[DeltaCommit]): Option[FileChanges] = {
    val adds = range.flatMap(_.adds).filter(_.dataChange)
    val removes = range.flatMap(_.removes).filter(_.dataChange)
    // +1 and −1 on the same file cancel: added and removed within the range.
    val sums = (adds.map(_ -> 1) ++ removes.map(_ -> -1)).groupMapReduce(_._1.key)(_._2)(_ + _)
    def surplus(files: Seq[DeltaFile], sign: Int): Seq[DeltaFile] = files.distinctBy(_.key).filter(f => sums(f.key).sign == sign)
    val (added, removed) = (surplus(adds, 1), surplus(removes, -1))
    val once = sums.values.forall(math.abs(_) <= 1) && Seq(added, removed).forall(files => files.distinctBy(_.path).size == files.size)
    Option.when(once)(of(range, added, removed))
  }

  /** Files at the end − files at the beginning: the first and the last action on a file say whether it was and is there. */
  private def difference(range: Seq[DeltaCommit]): FileChanges = {
    val actions = range.flatMap { commit =>
      // Files that are there already are added again for new statistics or tags.
      val adds = if (commit.removes.isEmpty) commit.adds.filter(_.dataChange) else commit.adds
      commit.removes.map(_ -> false) ++ adds.map(_ -> true)
    }.groupBy(_._1.key).values.toSeq
    def always(present: Boolean): Seq[DeltaFile] =
      actions.collect { case all if all.head._2 == present && all.last._2 == present => all.last._1 }
    of(range, always(present = true), always(present = false))
  }

  private def of(range: Seq[DeltaCommit], added: Seq[DeltaFile], removed: Seq[DeltaFile]): FileChanges = {
    val dropped = range.flatMap(_.removes).map(_.path).toSet
    FileChanges(added, removed, Nil, removed ++ added.filter(f => dropped.contains(f.path)))
  }
}
