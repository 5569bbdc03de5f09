package org.apache.spark.sql.ivm.source

import org.apache.hadoop.fs.{FileStatus, Path}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{And, AttributeReference, BoundReference, Cast, EvalMode, Expression, Literal, Predicate}
import org.apache.spark.sql.execution.datasources.{FileIndex, PartitionDirectory}
import org.apache.spark.sql.types.StructType

/** Exactly the files it was given: no listing, no job, never refreshed. A partition is a row of values and its files. */
private[source] class FixedFileIndex(
    override val rootPaths: Seq[Path],
    override val partitionSchema: StructType,
    partitions: Seq[(InternalRow, Seq[FileStatus])])
    extends FileIndex {

  /** Spark drops filters on partition columns after it has given them to the index: they must be applied here. */
  override def listFiles(partitionFilters: Seq[Expression], dataFilters: Seq[Expression]): Seq[PartitionDirectory] = {
    val names = partitionSchema.fieldNames
    val usable = partitionFilters.filter(_.references.forall(a => names.contains(a.name)))
    val keeps: InternalRow => Boolean = usable.reduceOption(And(_, _)) match {
      case None => _ => true
      case Some(filter) =>
        val bound = Predicate.createInterpreted(filter.transform {
          case a: AttributeReference =>
            val position = names.indexOf(a.name)
            BoundReference(position, partitionSchema(position).dataType, nullable = true)
        })
        row => bound.eval(row)
    }
    partitions.collect { case (values, files) if keeps(values) => PartitionDirectory(values, files.toArray) }
  }

  override def inputFiles: Array[String] = partitions.flatMap(_._2).map(_.getPath.toString).toArray
  override def refresh(): Unit = ()
  override val sizeInBytes: Long = partitions.iterator.flatMap(_._2).map(_.getLen).sum
  override def toString: String = s"FixedFileIndex(${partitions.iterator.map(_._2.size).sum} files)"
}

private[source] object FixedFileIndex {

  /** Values of the partition columns from their texts (null = NULL), as Spark casts them when it reads a directory name. */
  def partitionValues(
      table: String, schema: StructType, texts: Map[String, String], timeZone: String): InternalRow =
    InternalRow.fromSeq(schema.map { field =>
      texts.getOrElse(field.name, null) match {
        case null => null
        case text =>
          val value = Cast(Literal(text), field.dataType, Some(timeZone), EvalMode.LEGACY).eval()
          if (value == null) {
            throw SourceRows.schemaChanged(
              table, s"partition column ${field.name} has the value '$text', which is no ${field.dataType.simpleString}")
          }
          value
      }
    })

  def status(path: Path, size: Long, modified: Long): FileStatus =
    // The block size bounds nothing here: Spark splits by spark.sql.files.maxPartitionBytes.
    new FileStatus(size, false, 1, math.max(size, 1L), modified, path)
}
