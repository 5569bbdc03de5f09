package org.apache.spark.sql.ivm.state

/** Law: lineage(n) = lineage(n−1) with version n's files appended; a checkpoint replaces what is before it. */
case class LineageMap(version: Long, entries: Map[(String, Int), Lineage]) {

  def get(block: String, partition: Int): Lineage =
    entries.getOrElse((block, partition), Lineage(block, partition, None, Vector.empty))

  def block(block: String): Seq[Lineage] = entries.valuesIterator.filter(_.block == block).toSeq.sortBy(_.partition)

  def all: Seq[Lineage] = entries.valuesIterator.toSeq.sortBy(l => (l.block, l.partition))

  def apply(commit: Commit): LineageMap = {
    require(commit.version == version + 1, s"version ${commit.version} does not follow $version")
    val start = if (commit.resets) Map.empty[(String, Int), Lineage] else entries
    LineageMap(commit.version, commit.partitions.foldLeft(start) { (map, record) =>
      val key = (record.block, record.partition)
      val before = map.getOrElse(key, Lineage(record.block, record.partition, None, Vector.empty))
      // A checkpoint holds the state after its own version's change file, which only `ivm_changes` still wants.
      val after = record.checkpoint match {
        case Some(checkpoint) => before.copy(checkpoint = Some(checkpoint), changes = Vector.empty)
        case None => before.copy(changes = before.changes ++ record.file)
      }
      map.updated(key, after)
    })
  }
}

object LineageMap {
  val empty: LineageMap = LineageMap(-1, Map.empty)

  def complete(version: Long, lineages: Seq[Lineage]): LineageMap =
    LineageMap(version, lineages.map(l => (l.block, l.partition) -> l).toMap)
}
