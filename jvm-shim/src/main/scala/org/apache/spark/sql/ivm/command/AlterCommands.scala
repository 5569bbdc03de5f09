package org.apache.spark.sql.ivm.command

import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.ivm.{IvmException, Policy}
import org.apache.spark.sql.ivm.catalog.ViewCatalog

/** ALTER … SET | UNSET TBLPROPERTIES. As for Spark's tables the property `comment` is the view's comment, and to unset what is not
  * set is no error, with or without IF EXISTS.
  */
case class AlterIncrementalViewPropertiesCommand(
    name: Seq[String],
    set: Map[String, String] = Map.empty,
    unset: Seq[String] = Nil)
    extends IncrementalViewCommand {

  override def execute(spark: SparkSession): Seq[Row] = {
    val view = ViewCatalog.load(spark, name)
    ViewCatalog.checkProperties(set.keys ++ unset)
    ViewCatalog.alter(spark, view.copy(
      comment = if (unset.contains("comment")) None else set.get("comment").orElse(view.comment),
      properties = view.properties ++ (set - "comment") -- unset))
    Nil
  }
}

/** ALTER … SUSPEND | RESUME: reads of a suspended view give its last version, REFRESH is an error. */
case class AlterIncrementalViewSuspendCommand(name: Seq[String], suspend: Boolean) extends IncrementalViewCommand {
  override def execute(spark: SparkSession): Seq[Row] = {
    ViewCatalog.alter(spark, ViewCatalog.load(spark, name).copy(suspended = suspend))
    Nil
  }
}

/** ALTER … REFRESH ON … | REFRESH POLICY …: the plan is made again under a new policy, which may refuse it. */
case class AlterIncrementalViewRefreshCommand(name: Seq[String], onRead: Option[Boolean], policy: Option[Policy])
    extends IncrementalViewCommand {
  override def execute(spark: SparkSession): Seq[Row] = {
    val view = ViewCatalog.load(spark, name)
    val next = view.copy(refreshOnRead = onRead.getOrElse(view.refreshOnRead), policy = policy.getOrElse(view.policy))
    if (next.policy != view.policy) engine.explainCreate(spark, next, "simple")
    ViewCatalog.alter(spark, next)
    Nil
  }
}

/** ALTER … RENAME TO: the state stays where it is. A name without a schema means the view's own schema. */
case class AlterIncrementalViewRenameCommand(name: Seq[String], newName: Seq[String]) extends IncrementalViewCommand {
  override def execute(spark: SparkSession): Seq[Row] = {
    val view = ViewCatalog.load(spark, name)
    val to = ViewCatalog.qualify(spark, if (newName.length == 1) view.name.nameParts.init ++ newName else newName)
    if (to.database != view.name.database) {
      throw new IvmException("IVM_RENAME_ACROSS_SCHEMAS", Map("view" -> view.qualifiedName, "to" -> to.unquotedString))
    }
    if (ViewCatalog.exists(spark, to)) throw new TableAlreadyExistsException(to.nameParts)
    ViewCatalog.rename(spark, view.name, to)
    Nil
  }
}
