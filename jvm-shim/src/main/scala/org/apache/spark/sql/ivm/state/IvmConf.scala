package org.apache.spark.sql.ivm.state

import java.util.concurrent.TimeUnit

import org.apache.hadoop.fs.Path

import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.ivm.IvmException

/** The extension's settings; all are read from the session when used. */
object IvmConf {
  val StateLocation = "spark.sql.ivm.stateLocation"
  val StatePartitions = "spark.sql.ivm.statePartitions"
  val RetentionVersions = "spark.sql.ivm.retention.versions"
  val RetentionMinAge = "spark.sql.ivm.retention.minAge"

  /** Bytes of change files below which no checkpoint is written. */
  val CheckpointMinimum = "spark.sql.ivm.checkpoint.minBytes"

  val DefaultRetentionVersions = 100
  val DefaultRetentionMinAge = "1h"

  /** Where states live, a local absolute path: by default `_ivm` in the warehouse. */
  def stateLocation(spark: SparkSession): String =
    LocalPath(spark.conf.getOption(StateLocation).getOrElse(
      new Path(new Path(spark.sessionState.conf.warehousePath), "_ivm").toString)).toString

  /** Number of state partitions asked for; None leaves it to the planner. */
  def statePartitions(spark: SparkSession): Option[Int] =
    spark.conf.getOption(StatePartitions).map(text => positive(StatePartitions, text))

  def checkpointMinimum(spark: SparkSession): Option[Int] =
    spark.conf.getOption(CheckpointMinimum).map(text => positive(CheckpointMinimum, text))

  def retention(spark: SparkSession): Retention = Retention(
    spark.conf.getOption(RetentionVersions).fold(DefaultRetentionVersions)(positive(RetentionVersions, _)),
    minAge(spark.conf.getOption(RetentionMinAge).getOrElse(DefaultRetentionMinAge)))

  private def positive(key: String, text: String): Int =
    text.trim.toIntOption.filter(_ > 0).getOrElse(throw invalid(key, text, "a whole number above zero"))

  private def minAge(text: String): Long =
    try JavaUtils.timeStringAs(text, TimeUnit.MILLISECONDS)
    catch { case _: NumberFormatException => throw invalid(RetentionMinAge, text, "a time such as 30min or 1h") }

  private def invalid(key: String, value: String, expected: String): IvmException =
    new IvmException("IVM_SETTING_INVALID", Map("key" -> key, "value" -> value, "expected" -> expected))
}

/** How much history a view keeps: the newest `versions` commits, and all that are younger than `minAgeMs`. */
case class Retention(versions: Int, minAgeMs: Long)
