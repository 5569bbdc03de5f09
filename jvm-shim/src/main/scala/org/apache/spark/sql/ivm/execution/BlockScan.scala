package org.apache.spark.sql.ivm.execution

import java.util.Base64

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.types._

/** The block's output at one version, as the wire delivers it: `o0…` (words or bytes), then the limbs `c0_0…`.
  * A leaf of the plan inside a read; the optimizer prunes and pushes over it like over any table.
  *
  * @param spec       plan, planHash, directory, partitions (lineage): the fixed part of the enumerate spec
  * @param partitions the state's partitions
  */
case class BlockScan(block: BlockSpec, spec: ObjectNode, partitions: Int, splits: Int, output: Seq[Attribute])
    extends LeafNode {
  override def computeStats(): Statistics = Statistics(sizeInBytes = BigInt(1) << 40)

  def outputAttributes: Seq[Attribute] = output.take(block.outputKinds.size)

  /** The limb attributes of each read channel. */
  def channels: Seq[Seq[Attribute]] = {
    val sizes = block.readKinds.map(BlockScan.limbs)
    val starts = sizes.scanLeft(block.outputKinds.size)(_ + _)
    sizes.zip(starts).map { case (n, s) => output.slice(s, s + n) }
  }
}

object BlockScan {
  private val mapper = new ObjectMapper()

  def limbs(kind: String): Int = kind match {
    case "int2" => 2
    case "int3" => 3
    case _ => 1
  }

  /** @param types of the outputs as the query has them, None for a part of a wide decimal */
  def of(block: BlockSpec, spec: ObjectNode, partitions: Int, splits: Int, types: Seq[Option[DataType]]): BlockScan = {
    val outputs = block.outputKinds.zip(types).zipWithIndex.map { case ((kind, t), i) =>
      AttributeReference(s"o$i", t.filter(Wire.native(_).isDefined).getOrElse(Wire.slotType(kind)))()
    }
    val channels = block.readKinds.zipWithIndex.flatMap { case (kind, i) =>
      (0 until limbs(kind)).map { l =>
        AttributeReference(s"c${i}_$l", if (kind == "float") DoubleType else LongType, nullable = false)()
      }
    }
    BlockScan(block, spec, partitions, splits, outputs ++ channels)
  }

  /** The Python side of a scan: only the columns in use, filters as hints, a limit where nothing filters above. */
  def plan(scan: BlockScan, used: AttributeSet, filters: Seq[Expression], limit: Option[Int]): LogicalPlan = {
    val channels = scan.channels.flatten
    val withChannels = channels.exists(used.contains)
    val all = scan.outputAttributes.zipWithIndex
    val needed = all.filter { case (a, _) => used.contains(a) }
    // Counting rows needs no column, but Arrow batches without one are slow to make: the narrowest goes along.
    val wanted =
      if (needed.nonEmpty || withChannels) needed
      else all.find(_._1.dataType == LongType).orElse(all.headOption).toSeq
    val spec = scan.spec.deepCopy()
    val outputs = spec.putArray("outputs")
    wanted.foreach { case (_, i) => outputs.add(i) }
    val types = spec.putArray("types")
    wanted.foreach { case (a, _) => Wire.native(a.dataType).fold(types.addNull())(types.add(_)) }
    spec.put("channels", withChannels)
    val hints = spec.putArray("filters")
    filters.foreach(f => hint(f, scan).foreach(hints.add))
    limit.fold(spec.putNull("limit"))(n => spec.put("limit", n))
    val merge = scan.block.partials && scan.partitions > 1
    val output = wanted.map(_._1) ++ (if (withChannels) channels else Nil)
    val homes = Homes.ofPartitions(SparkSession.active.sparkContext, scan.spec.get("directory").asText, scan.partitions)
    val list = LocalRelation(
      Seq("p", "split", "splits").map(AttributeReference(_, IntegerType, nullable = false)()),
      for ((p, _) <- homes; s <- 0 until scan.splits) yield InternalRow(p, s, scan.splits))
    // The first split of a partition goes to its home; the others would only wait there.
    val tasks = AtHome.of(homes.flatMap { case (_, home) => home +: Seq.fill(scan.splits - 1)("") }, list)
    // Spark deals a local list out to as many tasks as there are cores: no shuffle. A task may get several (partition, split).
    if (!merge) PythonCalls.enumerate("enumerate_block", spec.toString, output, tasks)
    else {
      // Partials: every group column and the whole vector cross, one task merges and finalises.
      val raw = spec.deepCopy()
      raw.put("raw", true)
      raw.remove("types")
      val whole = raw.putArray("outputs")
      scan.outputAttributes.indices.foreach(i => whole.add(i))
      raw.putNull("limit")
      val vector = AttributeReference("vec", BinaryType)()
      val partial = PythonCalls.mapInArrow(
        "enumerate_block", raw.toString,
        scan.block.outputKinds.zipWithIndex.map { case (k, i) => AttributeReference(s"o$i", Wire.slotType(k))() } :+ vector, tasks)
      PythonCalls.mapInArrow("merge_partials", spec.toString, output, Repartition(1, shuffle = true, partial))
    }
  }

  private val ordered = Set("toByte", "toShort", "toInt", "toLong", "toDecimal")
  private val exact = ordered ++ Set("toBoolean", "toString")

  /** The wire column behind a decoded value, with the function that decodes it. */
  private def decoded(e: Expression, scan: BlockScan): Option[(Int, String)] = e match {
    // Another collation calls texts equal whose bytes differ.
    case s: StaticInvoke if s.staticObject == WireFunctions.getClass && exact(s.functionName) && byBytes(s.dataType) =>
      s.arguments.head match {
        case a: Attribute => indexOf(a, scan).map((_, s.functionName))
        case _ => None
      }
    case a: Attribute => nativeName(a.dataType).flatMap(name => indexOf(a, scan).map((_, name)))
    case _ => None
  }

  /** How a column that arrives as it is would have been decoded; floats are compared by Spark alone. */
  private def nativeName(t: DataType): Option[String] = t match {
    case IntegerType | DateType => Some("toInt")
    case LongType => Some("toLong")
    case s: StringType if s.isUTF8BinaryCollation => Some("toString")
    case BinaryType => Some("toString")
    case _ => None
  }

  private def byBytes(t: DataType): Boolean = t match {
    case s: StringType => s.isUTF8BinaryCollation
    case _ => true
  }

  private def indexOf(a: Attribute, scan: BlockScan): Option[Int] =
    Some(scan.outputAttributes.indexWhere(_.exprId == a.exprId)).filter(_ >= 0)

  private def put(o: ObjectNode, name: String, literal: Expression): Boolean =
    Wire.encode(literal, "key", 0).eval() match {
      case w: Long => o.put(name, w); true
      case b: Array[Byte] => o.put(name, Base64.getEncoder.encodeToString(b)); true
      case _ => false
    }

  private def binary(e: Expression, op: String, l: Expression, scan: BlockScan): Option[ObjectNode] =
    decoded(e, scan).filter { case (_, f) => op == "=" || ordered(f) }.flatMap { case (i, _) =>
      val o = mapper.createObjectNode()
      o.put("output", i)
      o.put("op", op)
      if (put(o, "value", l)) Some(o) else None
    }

  private def hint(filter: Expression, scan: BlockScan): Option[ObjectNode] = filter match {
    case EqualTo(e, l: Literal) => binary(e, "=", l, scan)
    case EqualTo(l: Literal, e) => binary(e, "=", l, scan)
    case LessThan(e, l: Literal) => binary(e, "<", l, scan)
    case LessThan(l: Literal, e) => binary(e, ">", l, scan)
    case LessThanOrEqual(e, l: Literal) => binary(e, "<=", l, scan)
    case LessThanOrEqual(l: Literal, e) => binary(e, ">=", l, scan)
    case GreaterThan(e, l: Literal) => binary(e, ">", l, scan)
    case GreaterThan(l: Literal, e) => binary(e, "<", l, scan)
    case GreaterThanOrEqual(e, l: Literal) => binary(e, ">=", l, scan)
    case GreaterThanOrEqual(l: Literal, e) => binary(e, "<=", l, scan)
    case In(e, list) if list.forall(_.isInstanceOf[Literal]) =>
      decoded(e, scan).flatMap { case (i, _) =>
        val o = mapper.createObjectNode()
        o.put("output", i)
        o.put("op", "in")
        val values = o.putArray("values")
        val each = list.filter(_.eval() != null).map { l =>
          val v = mapper.createObjectNode()
          if (put(v, "v", l)) Some(v.get("v")) else None
        }
        if (each.forall(_.isDefined)) { each.flatten.foreach(values.add); Some(o) } else None
      }
    case _ => None
  }
}
