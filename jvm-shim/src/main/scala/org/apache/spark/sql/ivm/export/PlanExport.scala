package org.apache.spark.sql.ivm.export

import scala.collection.mutable

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.optimizer.{InlineCTE, ReplaceDistinctWithAggregate}
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.ivm.CaseClasses
import org.apache.spark.sql.ivm.source.ChangeSource

/** A base table of the view: one per table, however often the query mentions it.
  * @param columns names and types of its columns that the query uses
  */
case class SourceRef(id: String, source: ChangeSource, relations: Seq[LogicalPlan], columns: Seq[String] = Nil)

/** An aggregate function of an exported aggregate node, as the analyzed plan has it. */
case class ExportedAggregate(id: String, expression: AggregateExpression)

/** The exported plan and the way back from ids to Catalyst.
  *
  * @param expressions inlined expressions by id
  * @param nodes       analyzed nodes by id; `replaces` names one of them
  * @param atoms       relation node id -> source id
  * @param definitions computed columns of Projects, inlined
  * @param groupings   aggregate node id -> its inlined group expressions, in order
  */
case class ExportedPlan(
    json: String,
    analyzed: LogicalPlan,
    expressions: IndexedSeq[Expression],
    nodes: Map[Int, LogicalPlan],
    aggregates: Map[String, ExportedAggregate],
    atoms: Map[Int, String],
    definitions: Map[ExprId, Expression],
    groupings: Map[Int, Seq[Expression]],
    sources: Seq[SourceRef])

/** Exports an analyzed plan as the JSON of docs/contracts.md, section A.
  *
  * Law: an exported expression evaluates on the rows of its relations to what the analyzed expression evaluates to,
  * because inlining passes only through deterministic Projects, never through the null-supplying side of an outer join.
  */
object PlanExport {

  /** The analyzed plan without names, views, CTEs and DISTINCT: what is exported and later re-planted. */
  def normalize(analyzed: LogicalPlan): LogicalPlan = {
    val inlined = maybeNull(inlineAlways(analyzed))
    pruned(ReplaceDistinctWithAggregate(inlined.transformUpWithSubqueries {
      case SubqueryAlias(_, child) => child
      case v: View => v.child
    }))
  }

  /** NOT NULL of a table's column is a promise that the table may take back without moving: nothing is built on it. */
  private def maybeNull(plan: LogicalPlan): LogicalPlan = {
    val columns = AttributeSet(plan.collectWithSubqueries {
      case r if Leaves.isRelation(r) && !Leaves.isConstant(r) => r.output.filterNot(_.nullable)
    }.flatten)
    if (columns.isEmpty) plan
    else plan.transformUpWithSubqueries { case p =>
      p.transformExpressionsUpWithPruning(_ => true) { case a: AttributeReference if columns.contains(a) => a.withNullability(true) }
    }
  }

  /** Projects keep only what something above them reads: a column that a table gets or loses means nothing to a view that does not use it. */
  private def pruned(root: LogicalPlan): LogicalPlan = {
    def visit(plan: LogicalPlan, needed: AttributeSet): LogicalPlan = plan match {
      case Project(list, child) if list.forall(_.deterministic) =>
        val kept = list.filter(e => needed.contains(e.toAttribute))
        val some = if (kept.isEmpty) list.take(1) else kept
        Project(some, visit(child, AttributeSet(some.flatMap(_.references))))
      case a: Aggregate => a.withNewChildren(Seq(visit(a.child, a.references)))
      case p @ (_: Filter | _: Sort | _: GlobalLimit | _: LocalLimit | _: Offset | _: Join) =>
        p.withNewChildren(p.children.map(visit(_, needed ++ p.references)))
      case other => other.withNewChildren(other.children.map(c => visit(c, c.outputSet)))
    }
    visit(root, root.outputSet)
  }

  /** `InlineCTE(alwaysInline = true)`; how many further flags the rule has depends on Spark's version, all have defaults. */
  private lazy val inlineAlways: Rule[LogicalPlan] = CaseClasses.make(classOf[InlineCTE], InlineCTE, true)

  def apply(
      normalized: LogicalPlan,
      settings: Map[String, String],
      sourceOf: LogicalPlan => ChangeSource): ExportedPlan = new PlanExport(settings, sourceOf).run(normalized)
}

private class PlanExport(settings: Map[String, String], sourceOf: LogicalPlan => ChangeSource) {
  private val mapper = new ObjectMapper()
  private val registry = new ExpressionRegistry(mapper)
  private val nodes = mutable.LinkedHashMap.empty[Int, LogicalPlan]
  private val aggregates = mutable.LinkedHashMap.empty[String, ExportedAggregate]
  private val atoms = mutable.LinkedHashMap.empty[Int, String]
  private val groupings = mutable.LinkedHashMap.empty[Int, Seq[Expression]]
  private val sources = mutable.LinkedHashMap.empty[String, SourceRef]
  private var nextNode = 0

  private var used = AttributeSet.empty

  def run(plan: LogicalPlan): ExportedPlan = {
    used = plan.outputSet ++ AttributeSet(plan.collectWithSubqueries { case p => p.references }.flatten)
    val root = node(plan)
    // Tables that only a subquery reads are sources too: a full refresh must notice that they moved.
    plan.foreachWithSubqueries(p => if (Leaves.isRelation(p)) register(p))
    val json = mapper.createObjectNode()
    json.put("format", 1)
    val s = json.putObject("settings")
    s.put("ansi", settings.get("spark.sql.ansi.enabled").contains("true"))
    s.put("timeZone", settings.getOrElse("spark.sql.session.timeZone", ""))
    s.put("caseSensitive", settings.get("spark.sql.caseSensitive").contains("true"))
    json.set[ObjectNode]("expressions", registry.json)
    val list = json.putArray("sources")
    sources.values.foreach { ref =>
      val o = list.addObject()
      o.put("id", ref.id)
      o.put("table", ref.source.table)
      o.put("kind", ref.source.kind)
      ref.source.estimatedRows.fold(o.putNull("rows"))(n => o.put("rows", n))
    }
    json.set[ObjectNode]("root", root)
    val refs = sources.values.map { ref =>
      ref.copy(columns = ref.relations.flatMap(_.output).filter(used.contains).map(a => s"${a.name} ${a.dataType.catalogString}").distinct.sorted)
    }
    ExportedPlan(mapper.writeValueAsString(json), plan, registry.all, nodes.toMap, aggregates.toMap, atoms.toMap,
      registry.computed, groupings.toMap, refs.toSeq)
  }

  private def register(relation: LogicalPlan): SourceRef = {
    sources.values.find(_.relations.exists(_ eq relation)).getOrElse {
      val source = sourceOf(relation)
      val key = s"${source.kind} ${source.table}" + (if (source.kind == "constant") s" ${relation.canonicalized.hashCode}" else "")
      val ref = sources.get(key) match {
        case Some(known) => known.copy(relations = known.relations :+ relation)
        case None => SourceRef(s"s${sources.size}", source, Seq(relation))
      }
      sources(key) = ref
      ref
    }
  }

  private def newNode(plan: LogicalPlan, kind: String): (Int, ObjectNode) = {
    val id = nextNode
    nextNode += 1
    nodes(id) = plan
    val o = mapper.createObjectNode()
    o.put("id", id)
    o.put("kind", kind)
    (id, o)
  }

  private def ids(parent: ObjectNode, name: String, expressions: Seq[Expression]): Unit = {
    val array = parent.putArray(name)
    expressions.foreach(e => array.add(registry.register(e)))
  }

  private def node(plan: LogicalPlan): ObjectNode = plan match {
    case p if p.expressions.exists(Throwing.containsPythonUDF) => opaque(p, "PythonUDF")

    case relation if Leaves.isRelation(relation) =>
      val (id, o) = newNode(relation, "relation")
      val ref = register(relation)
      atoms(id) = ref.id
      o.put("source", ref.id)
      val columns = o.putArray("columns")
      relation.output.filter(used.contains).foreach { a =>
        val c = columns.addObject()
        c.put("column", registry.column(a, id))
        c.put("label", a.name)
        c.put("type", a.dataType.simpleString)
        c.put("nullable", a.nullable)
      }
      o

    case Filter(condition, child) =>
      val (_, o) = newNode(plan, "filter")
      val childJson = node(child)
      ids(o, "conditions", Conjuncts(registry.inline(condition)))
      o.set[ObjectNode]("child", childJson)
      o

    case Project(list, child) if list.forall(_.deterministic) =>
      val (_, o) = newNode(plan, "project")
      val childJson = node(child)
      outputs(o, list.map(e => (e, registry.inline(e))))
      list.foreach { case a: Alias => registry.define(a.toAttribute, registry.inline(a.child)); case _ => }
      o.set[ObjectNode]("child", childJson)
      o

    case Join(left, right, joinType, condition, _) =>
      val (id, o) = newNode(plan, "join")
      o.put("type", joinType match {
        case Inner => "inner"
        case Cross => "cross"
        case LeftOuter => "left"
        case RightOuter => "right"
        case FullOuter => "full"
        case LeftSemi => "semi"
        case LeftAnti => "anti"
        case other => other.sql.toLowerCase(java.util.Locale.ROOT)
      })
      val l = node(left)
      val r = node(right)
      ids(o, "conditions", condition.toSeq.flatMap(c => Conjuncts(registry.inline(c))))
      // Above an outer join a computed column of the null-supplying side is NULL, not its expression over NULLs.
      val nullSupplying = joinType match {
        case LeftOuter => right.output
        case RightOuter => left.output
        case FullOuter => left.output ++ right.output
        case _ => Nil
      }
      nullSupplying.foreach(a => if (registry.isComputed(a)) registry.redefineAsColumn(a, id))
      o.set[ObjectNode]("left", l)
      o.set[ObjectNode]("right", r)
      o

    case a: Aggregate => aggregate(a)

    case s: Sort => unary(s, "sort", s.child)
    case l: GlobalLimit => unary(l, "limit", l.child)
    case l: LocalLimit => unary(l, "limit", l.child)
    case f: Offset => unary(f, "offset", f.child)
    case other => opaque(other, other.nodeName)
  }

  private def unary(plan: LogicalPlan, kind: String, child: LogicalPlan): ObjectNode = {
    val (_, o) = newNode(plan, kind)
    o.set[ObjectNode]("child", node(child))
    plan match {
      case Sort(order, _, _, _) => ids(o, "keys", order.map(s => registry.inline(s.child)))
      case _ =>
    }
    o
  }

  private def movesByItself(e: Expression): Boolean =
    e.isInstanceOf[Nondeterministic] || (!e.deterministic && e.children.forall(_.deterministic)) ||
      Set("CurrentDate", "CurrentTimestamp", "Now", "LocalTimestamp", "CurrentTime")(e.getClass.getSimpleName)

  private def opaque(plan: LogicalPlan, name: String): ObjectNode = {
    val (id, o) = newNode(plan, "opaque")
    // Its rows may move without any table moving: such a view is recomputed at every refresh.
    val moving = plan.expressions.flatMap(_.collect { case e if movesByItself(e) => e }).headOption
    o.put("name", moving.fold(name)(_.sql))
    o.put("reason", if (moving.isDefined) "NON_DETERMINISTIC" else "")
    val children = o.putArray("children")
    plan.children.foreach(c => children.add(node(c)))
    plan.output.foreach(a => registry.redefineAsColumn(a, id))
    o
  }

  private def outputs(o: ObjectNode, list: Seq[(NamedExpression, Expression)]): Unit = {
    val array = o.putArray("outputs")
    list.foreach { case (named, inlined) =>
      val c = array.addObject()
      c.put("name", named.name)
      c.put("column", registry.columnName(named.exprId))
      c.put("expr", registry.register(inlined))
    }
  }

  private def aggregate(plan: Aggregate): ObjectNode = {
    val (id, o) = newNode(plan, "aggregate")
    val childJson = node(plan.child)
    val groups = plan.groupingExpressions.map(registry.inline)
    ids(o, "groups", groups)
    groupings(id) = groups
    val functions = mutable.LinkedHashMap.empty[Expression, String]
    val list = o.putArray("aggregates")
    plan.aggregateExpressions.foreach(_.foreach {
      case e: AggregateExpression if !functions.contains(e.canonicalized) =>
        val name = s"a${aggregates.size}"
        functions(e.canonicalized) = name
        aggregates(name) = ExportedAggregate(name, e)
        aggregateFunction(list, name, e)
      case _ =>
    })
    // Outputs are over the results of groups and functions: fresh columns of this node.
    val groupAttributes = plan.groupingExpressions.map(g => g.canonicalized -> registry.result("groupResult", g, id)).toMap
    val functionAttributes = functions.keys.map(f => f -> registry.result("aggregateResult", f, id)).toMap
    val results = plan.aggregateExpressions.map { e =>
      val over = e.transformDown {
        case x if groupAttributes.contains(x.canonicalized) && !x.isInstanceOf[Alias] => groupAttributes(x.canonicalized)
        case x if functionAttributes.contains(x.canonicalized) => functionAttributes(x.canonicalized)
      }
      (e, over match { case Alias(c, _) => c; case c => c })
    }
    outputs(o, results)
    plan.output.foreach(a => registry.redefineAsColumn(a, id))
    o.set[ObjectNode]("child", childJson)
    o
  }

  private def aggregateFunction(list: ArrayNode, name: String, e: AggregateExpression): Unit = {
    val o = list.addObject()
    o.put("id", name)
    val function = e.aggregateFunction match {
      case s: Sum => if (s.prettyName == "sum" && Throwing.notTry(s)) "sum" else "try_sum"
      case _: Count => "count"
      case a: Average => if (Throwing.notTry(a)) "avg" else "try_avg"
      case other => other.prettyName
    }
    o.put("function", function)
    o.put("distinct", e.isDistinct)
    o.put("type", e.dataType.simpleString)
    val children = e.aggregateFunction match {
      // COUNT(*) is COUNT(1): no argument decides.
      case Count(children) if children.forall(c => c.foldable && !c.nullable) && e.filter.isEmpty => Nil
      case other => other.children
    }
    val arguments = children.map { c =>
      registry.inline(e.filter.fold(c)(f => If(f, c, Literal(null, c.dataType))))
    }
    ids(o, "args", arguments)
    val types = o.putArray("inputTypes")
    arguments.foreach(a => types.add(a.dataType.simpleString))
  }
}

/** The conjuncts of a condition. */
private object Conjuncts extends PredicateHelper {
  def apply(condition: Expression): Seq[Expression] = splitConjunctivePredicates(condition)
}
