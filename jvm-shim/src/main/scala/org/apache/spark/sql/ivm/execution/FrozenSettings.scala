package org.apache.spark.sql.ivm.execution

import org.apache.spark.sql.catalyst.CapturesConfig
import org.apache.spark.sql.internal.SQLConf

/** The settings that decide what a query means: those that Spark stores with its persistent views, and some even where nobody set them. */
private[ivm] object FrozenSettings extends CapturesConfig {

  private val always = Seq(SQLConf.ANSI_ENABLED, SQLConf.SESSION_LOCAL_TIMEZONE, SQLConf.CASE_SENSITIVE,
    SQLConf.DECIMAL_OPERATIONS_ALLOW_PREC_LOSS, SQLConf.MAP_KEY_DEDUP_POLICY, SQLConf.LEGACY_SIZE_OF_NULL,
    SQLConf.GROUP_BY_ORDINAL, SQLConf.ORDER_BY_ORDINAL, SQLConf.ESCAPED_STRING_LITERALS, SQLConf.DOUBLE_QUOTED_IDENTIFIERS)

  def of(conf: SQLConf): Map[String, String] =
    sqlConfigsToProps(conf, "").filter { case (key, _) => !key.startsWith("spark.sql.ivm.") } ++
      always.map(entry => entry.key -> conf.getConfString(entry.key, entry.defaultValueString))
}
