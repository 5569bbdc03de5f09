package org.apache.spark.sql.ivm.execution

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

/** The maintenance plan that the planner answers: docs/contracts.md, section B.
  *
  * @param requires expressions of the same atom: where one is NULL, so is the value
  * @param carried  only delivered, never compared: doubles keep their bits
  */
case class WireColumn(slot: Int, expr: Int, as: String, part: Int, requires: Seq[Int], carried: Boolean)

case class BlockInputSpec(
    atom: Int,
    node: Option[Int],
    source: Option[String],
    block: Option[String],
    filters: Seq[Int],
    notNull: Seq[Int],
    columns: Seq[WireColumn])

case class OutputSpec(expr: Int, words: Int)

/** Positions are into the block's read channels; `sum` lists (channel, coefficient) terms. */
case class AggregateSpec(aggregate: String, sum: Seq[(Int, BigInt)], count: Option[Int])

case class ReasonSpec(code: String, sentence: String, wayOut: String)

case class BlockSpec(
    id: String,
    strategy: String,
    replaces: Int,
    deltas: Boolean,
    inputs: Seq[BlockInputSpec],
    residual: Seq[Int],
    outputs: Seq[OutputSpec],
    aggregates: Seq[AggregateSpec],
    plan: JsonNode) {

  private def ints(n: JsonNode): Seq[Int] = n.elements().asScala.map(_.asInt).toSeq

  lazy val planText: String = plan.toString
  lazy val wire: Seq[String] = plan.get("wire").elements().asScala.map(_.asText).toSeq
  lazy val mode: String = plan.get("mode").asText
  lazy val isGlobal: Boolean = plan.get("global_aggregate").asBoolean
  lazy val partials: Boolean = plan.get("partials").asBoolean
  lazy val partitionVariable: Option[Int] = Option(plan.get("partition")).filterNot(_.isNull).map(_.asInt)

  /** `word` or `bytes` of each block output. */
  lazy val outputKinds: Seq[String] = plan.get("outputs").elements().asScala.map { o =>
    plan.get("variables").get(o.get("variable").asInt).get("columns").get(o.get("column").asInt).get("kind").asText
  }.toSeq

  /** Kind of each read channel. */
  lazy val readKinds: Seq[String] =
    ints(plan.get("read_channels")).map(c => plan.get("channels").get(c).get("kind").asText)

  /** The wire slots of the partition variable in an atom's rows; None: the atom lacks it and goes everywhere. */
  def partitionSlots(atom: Int): Option[Seq[Int]] = partitionVariable.flatMap { v =>
    val a = plan.get("atoms").get(atom)
    ints(a.get("variables")).indexOf(v) match {
      case -1 => None
      case i => Some(ints(a.get("slots").get(i)))
    }
  }
}

case class MaintenancePlan(
    strategy: String,
    hash: String,
    blocks: Seq[BlockSpec],
    reasons: Seq[ReasonSpec],
    explain: String,
    explainExtended: String,
    json: String) {
  def isFull: Boolean = blocks.isEmpty
  /** The block whose output the view reads. */
  def top: BlockSpec = blocks.last
}

object MaintenancePlan {
  private val mapper = new ObjectMapper()

  def parse(root: JsonNode): MaintenancePlan = {
    def text(n: JsonNode, k: String): String = Option(n.get(k)).filterNot(_.isNull).fold("")(_.asText)
    def option(n: JsonNode, k: String): Option[JsonNode] = Option(n.get(k)).filterNot(_.isNull)
    def list(n: JsonNode, k: String): Seq[JsonNode] = option(n, k).fold(Seq.empty[JsonNode])(_.elements().asScala.toSeq)
    def ints(n: JsonNode, k: String): Seq[Int] = list(n, k).map(_.asInt)
    MaintenancePlan(
      text(root, "strategy"),
      text(root, "hash"),
      list(root, "blocks").map { b =>
        BlockSpec(
          text(b, "id"),
          text(b, "strategy"),
          b.get("replaces").asInt,
          option(b, "deltas").exists(_.asBoolean),
          list(b, "inputs").map { i =>
            BlockInputSpec(
              i.get("atom").asInt,
              option(i, "node").map(_.asInt),
              option(i, "source").map(_.asText),
              option(i, "block").map(_.asText),
              ints(i, "filters"),
              ints(i, "notNull"),
              list(i, "columns").map(c =>
                WireColumn(c.get("slot").asInt, c.get("expr").asInt, text(c, "as"), option(c, "part").fold(0)(_.asInt),
                  ints(c, "requires"), option(c, "carried").exists(_.asBoolean))))
          },
          ints(b, "residual"),
          list(b, "outputs").map(o => OutputSpec(o.get("expr").asInt, option(o, "words").fold(1)(_.asInt))),
          list(b, "aggregates").map { a =>
            AggregateSpec(
              text(a, "aggregate"),
              ints(a, "sum").zipAll(list(a, "coefficients").map(c => BigInt(c.asText)), 0, BigInt(1)),
              option(a, "count").map(_.asInt))
          },
          b.get("plan"))
      },
      list(root, "reasons").map(r => ReasonSpec(text(r, "code"), text(r, "sentence"), text(r, "wayOut"))),
      text(root, "explain"),
      text(root, "explainExtended"),
      mapper.writeValueAsString(root))
  }
}
