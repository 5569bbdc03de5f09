package org.apache.spark.sql.ivm.execution

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.ivm.export.{ExportedPlan, Throwing}
import org.apache.spark.sql.ivm.source.{ChangeSources, SignedRows}
import org.apache.spark.sql.types._
import org.apache.spark.util.LongAccumulator

/** Builds the wire of a block's input (docs/contracts.md, section C) from rows with weights.
  *
  * Law: each source row becomes one wire row per atom whose filters it passes (and per partition, where the atom
  * lacks the partition variable). Expressions never throw here: a raised error becomes NULL and the row's flag `e`.
  * Where a filter or a join key raises, Spark raises whether or not the row joins, so such a row reaches no atom: it is
  * counted for its source (`atom` −2 − k with `e` set).
  */
class BlockInput(exported: ExportedPlan, block: BlockSpec, partitions: Int) {

  /** The wire columns; `s` last where an earlier block feeds this one. */
  private val takesBlocks = block.inputs.exists(_.block.isDefined)

  private def wireAttributes: Seq[Attribute] = {
    val fixed = Seq(
      AttributeReference("p", IntegerType, nullable = false)(),
      AttributeReference("atom", IntegerType, nullable = false)(),
      AttributeReference("w", LongType, nullable = false)(),
      AttributeReference("h", LongType)(),
      AttributeReference("e", IntegerType, nullable = false)())
    val slots = block.wire.zipWithIndex.map { case (kind, i) => AttributeReference(s"x$i", Wire.slotType(kind))() }
    fixed ++ slots ++ (if (takesBlocks) Seq(AttributeReference("s", StringType)()) else Nil)
  }

  /** A value that does not raise, and whether it did. */
  private case class Tried(value: Expression, raised: Option[Expression])

  private def tried(e: Expression): Tried =
    if (!Throwing(e)) Tried(e, None)
    else {
      val attempt = TryEval(CreateNamedStruct(Seq(Literal("v"), e)))
      Tried(GetStructField(attempt, 0), Some(IsNull(attempt)))
    }

  private def anyOf(conditions: Seq[Expression]): Expression = conditions.reduceOption(Or(_, _)).getOrElse(Literal(false))
  private def allOf(conditions: Seq[Expression]): Expression = conditions.reduceOption(And(_, _)).getOrElse(Literal(true))

  /** One way from a source row to the block: when it applies, and the wire row it gives. */
  private case class Route(passes: Expression, row: Seq[Expression])

  /** The routes of an atom, and when a row fails to reach it because a filter or a key raised. */
  private case class Routes(all: Seq[Route], raised: Option[Expression])

  private def isTrue(e: Expression): Expression = if (e.nullable) EqualNullSafe(e, Literal(true)) else e

  private def routes(
      input: BlockInputSpec,
      bind: Expression => Expression,
      weight: Expression,
      hash: Expression,
      summary: Option[Expression],
      alsoRaised: Seq[Expression] = Nil): Routes = {
    val filters = input.filters.map(f => tried(bind(exported.expressions(f))))
    val columns = input.columns.map { c =>
      val t = tried(bind(exported.expressions(c.expr)))
      val encoded = Wire.encode(t.value, if (c.carried) "carry" else c.as, c.part)
      val missing = c.requires.map(r => IsNull(tried(bind(exported.expressions(r))).value))
      (c, t, if (missing.isEmpty) encoded else If(anyOf(missing), Literal(null, encoded.dataType), encoded))
    }
    val keys = input.notNull.map(columns(_)._2)
    // A filter or key that raised is NULL: the row does not pass.
    val passes = allOf(filters.map(f => isTrue(f.value)) ++ keys.map(k => IsNotNull(k.value)))
    val doubted = (filters ++ keys).flatMap(_.raised).distinct
    val unless = allOf(filters.map(f => isTrue(f.raised.fold(f.value)(r => Or(r, f.value)))))
    val stray = if (doubted.isEmpty) None else Some(And(anyOf(doubted), unless))
    val raised = (alsoRaised ++ columns.flatMap(_._2.raised)).distinct.diff(doubted)
    val error = if (raised.isEmpty) Literal(0) else If(anyOf(raised), Literal(1), Literal(0))
    val bySlot = columns.map { case (c, _, e) => c.slot -> e }.toMap
    val slots = block.wire.zipWithIndex.map { case (kind, i) =>
      bySlot.getOrElse(i, Literal(null, Wire.slotType(kind)))
    }
    val isSummary = summary.map(IsNotNull(_))
    val atom: Expression = isSummary.fold[Expression](Literal(input.atom))(If(_, Literal(-1), Literal(input.atom)))
    val targets: Seq[Expression] =
      if (partitions == 1) Seq(Literal(0))
      else block.partitionSlots(input.atom) match {
        case Some(s) =>
          Seq(Cast(Pmod(XxHash64(s.map(slots(_)), BlockInput.Seed), Literal(partitions.toLong)), IntegerType))
        case None => (0 until partitions).map(Literal(_))
      }
    Routes(
      targets.map { p =>
        Route(isSummary.fold(passes)(Or(_, passes)), Seq(p, atom, weight, hash, error) ++ slots ++ summary.toSeq)
      },
      stray)
  }

  /** The wire rows of one source for all of this block's atoms over it. */
  def fromSource(sourceId: String, sourceIndex: Int, rows: SignedRows, counter: LongAccumulator): LogicalPlan = {
    val inputs = block.inputs.filter(_.source.contains(sourceId))
    val columns = rows.plan.output
    val weight: Expression = rows.weight.getOrElse(Literal(1L))
    // Two rows that differ in nothing but their weights are one row.
    val carrier = ChangeSources.weightColumn(exported.nodes(inputs.head.node.get))
    val hashed = columns.take(exported.nodes(inputs.head.node.get).output.size)
      .filter(c => hashable(c.dataType) && !carrier.exists(_.equalsIgnoreCase(c.name)))
    val base: LogicalPlan = if (rows.insertOnly) CountRows(counter, rows.plan) else rows.plan

    def binder(input: BlockInputSpec): Expression => Expression = {
      val relation = exported.nodes(input.node.get)
      val map = AttributeMap(relation.output.zip(columns))
      e => e.transform { case a: Attribute if map.contains(a) => map(a).withNullability(a.nullable || map(a).nullable) }
    }

    val none = Literal(null, LongType)
    // A signed row is counted once: by the first atom it reaches, or by a row of its own if it reaches none.
    val hash: Expression = if (rows.insertOnly) none else XxHash64(hashed.flatMap(nullsToo), BlockInput.Seed)
    var reached = Seq.empty[Expression]
    val perAtom = inputs.map { i =>
      val own = routes(i, binder(i), weight, if (rows.insertOnly || reached.isEmpty) hash else If(anyOf(reached), none, hash), None)
      reached = reached :+ own.all.head.passes
      own
    }
    val raised = perAtom.flatMap(_.raised)
    val unreached = if (rows.insertOnly || reached.contains(Literal(true))) None else Some(Not(anyOf(reached)))
    val elsewhere = (raised ++ unreached).reduceOption[Expression](Or(_, _)).map { passes =>
      Route(
        passes,
        Seq[Expression](
          Literal(0), Literal(-2 - sourceIndex), weight, unreached.fold[Expression](none)(If(_, hash, none)),
          if (raised.isEmpty) Literal(0) else If(anyOf(raised), Literal(1), Literal(0))) ++
          block.wire.map(k => Literal(null, Wire.slotType(k))))
    }
    fan(perAtom.flatMap(_.all) ++ elsewhere, base)
  }

  /** The wire rows that the deltas of an earlier block give. `deltas.output`: w, o0…, s. */
  def fromBlock(producer: BlockSpec, deltas: LogicalPlan): LogicalPlan = {
    val input = block.inputs.find(_.block.contains(producer.id)).get
    val w = deltas.output.head
    val s = deltas.output.last
    val decoded = Decoded(exported, producer, deltas.output.slice(1, deltas.output.size - 1))
    val columns = Project(Seq(w, s) ++ decoded.columns, deltas)
    val residual = producer.residual.map(r => tried(decoded.bind(exported.expressions(r))))
    val passes = allOf(residual.map(r => isTrue(r.raised.fold(r.value)(x => Or(x, r.value)))))
    val filtered = if (residual.isEmpty) columns else Filter(Or(IsNotNull(s), passes), columns)
    fan(routes(input, decoded.bind, Coalesce(Seq(w, Literal(1L))), Literal(null, LongType), Some(s),
      residual.flatMap(_.raised)).all, filtered)
  }

  private def fan(routes: Seq[Route], child: LogicalPlan): LogicalPlan = {
    val output = wireAttributes
    routes match {
      case Seq(Route(passes, row)) =>
        val filtered = if (passes == Literal(true)) child else Filter(passes, child)
        Project(row.zip(output).map { case (e, a) => Alias(e, a.name)() }, filtered)
      case _ =>
        val pass = AttributeReference("pass", BooleanType, nullable = false)()
        val expanded = Expand(routes.map(r => r.passes +: r.row), pass +: output, child)
        Project(output, Filter(pass, expanded))
    }
  }

  /** The hash passes over NULLs: without the flag (NULL, 5) and (5, NULL) would be one row. */
  private def nullsToo(c: Attribute): Seq[Expression] = if (c.nullable) Seq(IsNull(c), c) else Seq(c)

  private def hashable(t: DataType): Boolean = !t.existsRecursively {
    case _: MapType => true
    case v => v.typeName == "variant"
  }

  /** A row for every partition that says nothing: a resynced table may have become empty, and its partitions must hear of it. */
  private def wake: LogicalPlan = {
    val output = wireAttributes
    val nothing = output.drop(5).map(_ => null: Any)
    LocalRelation(output, (0 until partitions).map(p => InternalRow.fromSeq(Seq[Any](p, -1, 1L, null, 0) ++ nothing)))
  }

  /** All wire rows of the block, brought to the partitions' tasks. */
  def gather(parts: Seq[LogicalPlan], wakeAll: Boolean): LogicalPlan = {
    val every = if (wakeAll) parts :+ wake else parts
    val all = if (every.size == 1) every.head else Union(every)
    if (partitions == 1) Repartition(1, shuffle = false, all)
    else RepartitionByExpression(Seq(all.output.head), all, partitions)
  }
}

object BlockInput {
  /** Part of the format: the partition of a row is xxhash64(words of the partition variable, Seed) mod partitions. */
  val Seed = 42L
}

/** The columns that a rows-mode block delivers, decoded to the original attributes. */
case class Decoded(exported: ExportedPlan, block: BlockSpec, wire: Seq[Attribute]) {
  private val offsets = block.outputs.scanLeft(0)(_ + _.words)

  private val pairs: Seq[(Attribute, Alias)] = block.outputs.zip(offsets).map { case (o, offset) =>
    val attribute = exported.expressions(o.expr).asInstanceOf[Attribute]
    attribute -> Alias(Wire.decode(wire.slice(offset, offset + o.words), attribute.dataType), attribute.name)(
      exprId = attribute.exprId)
  }

  def columns: Seq[NamedExpression] = pairs.map(_._2)

  private val byId = pairs.map { case (a, alias) => a.exprId -> alias.toAttribute.withNullability(true) }.toMap

  def bind(e: Expression): Expression = e.transform { case a: Attribute if byId.contains(a.exprId) => byId(a.exprId) }
}
