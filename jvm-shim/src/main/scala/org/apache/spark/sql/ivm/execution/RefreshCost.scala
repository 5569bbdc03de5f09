package org.apache.spark.sql.ivm.execution

import org.apache.spark.sql.ivm.source.{Changes, ChangeSource, SignedRows}

/** What AUTO weighs: applying the changed rows against building the state from all rows. */
private[execution] case class RefreshCost(changed: Long, total: Long) {
  import RefreshCost._

  /** The state is built anew: fewer than so many changed rows never are worth it, whatever the estimate (DESIGN §11). */
  def rebuild: Boolean = changed >= SmallestRebuild && ApplyToBuild * changed > total

  def parameters: Map[String, String] = Map("changed" -> changed.toString, "total" -> total.toString)
}

private[execution] object RefreshCost {
  val SmallestRebuild = 10000L

  /** A row that is applied costs about as much as two that are built from: `maintain` takes 1.9 M rows/s, a build 9 M, and
    * both wait for the 3 M rows/s that reach Python (benchmarks/RESULTS.md, the engine alone).
    */
  val ApplyToBuild = 2.0

  /** None where there is nothing to weigh: the change is small, a size is unknown, or a table is resynced (which is no full refresh).
    *
    * Sizes in bytes say roughly how many rows there are. Where they speak for a rebuild the changed rows are counted, so that many
    * small files are not taken for many rows; that count corrects the size of its table too.
    *
    * @param moved the sources that moved, each with its changes
    */
  def weigh(moved: Seq[(ChangeSource, Changes)], all: Seq[ChangeSource], count: SignedRows => Long): Option[RefreshCost] = {
    val changes = moved.collect { case (source, Changes.Rows(rows, Some(estimate))) => (source, rows, estimate) }
    val known = moved.forall {
      case (_, Changes.None | Changes.Rows(_, Some(_))) => true
      case _ => false
    }
    val rough = changes.map(_._3).sum
    if (!known || rough < SmallestRebuild) None
    else {
      val sizes = all.map(source => source -> source.estimatedRows)
      if (sizes.exists(_._2.isEmpty)) None
      else {
        val first = RefreshCost(rough, sizes.flatMap(_._2).sum)
        Some(if (!first.rebuild) first else {
          val counted = changes.map { case (source, rows, estimate) => (source, estimate, count(rows)) }
          val total = sizes.map { case (source, size) =>
            counted.find(_._1 eq source).fold(size.get.toDouble) { case (_, estimate, exact) =>
              size.get.toDouble * exact / math.max(1L, estimate)
            }
          }
          RefreshCost(counted.map(_._3).sum, total.sum.toLong)
        })
      }
    }
  }
}
