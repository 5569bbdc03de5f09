package org.apache.spark.sql.ivm.export

import scala.collection.mutable

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.expressions._

/** Numbers expressions and columns. Ids follow the order of export, so the same definition gives the same ids. */
private class ExpressionRegistry(mapper: ObjectMapper) {
  val json: ObjectNode = mapper.createObjectNode()
  private val byId = mutable.ArrayBuffer.empty[Expression]
  private val known = mutable.HashMap.empty[Expression, Int]
  private val same = mutable.HashMap.empty[Expression, String]
  private val names = mutable.HashMap.empty[ExprId, String]
  private val owners = mutable.HashMap.empty[ExprId, Int]
  private val definitions = mutable.HashMap.empty[ExprId, Expression]
  private val results = mutable.HashMap.empty[ExprId, String]

  def all: IndexedSeq[Expression] = byId.toIndexedSeq

  def computed: Map[ExprId, Expression] = definitions.toMap

  def columnName(id: ExprId): String = names.getOrElseUpdate(id, s"c${names.size}")

  /** A column that a relation, aggregate or opaque node owns. */
  def column(attribute: Attribute, owner: Int): String = {
    owners(attribute.exprId) = owner
    columnName(attribute.exprId)
  }

  def define(attribute: Attribute, inlined: Expression): Unit = definitions(attribute.exprId) = inlined

  def isComputed(attribute: Attribute): Boolean =
    definitions.get(attribute.exprId).exists(d => !d.isInstanceOf[Attribute])

  def redefineAsColumn(attribute: Attribute, owner: Int): Unit = {
    definitions.remove(attribute.exprId)
    column(attribute, owner)
  }

  /** An attribute that stands for the result of a group expression or an aggregate function of a node. */
  def result(op: String, expression: Expression, owner: Int): Attribute = {
    val attribute = AttributeReference(expression.sql, expression.dataType, expression.nullable)()
    column(attribute, owner)
    results(attribute.exprId) = op
    attribute
  }

  def inline(e: Expression): Expression = {
    val stripped = e match {
      case Alias(child, _) => child
      case other => other
    }
    stripped.transform { case a: Attribute if definitions.contains(a.exprId) => definitions(a.exprId) }
  }

  def register(e: Expression): Int = known.getOrElseUpdate(e, {
    val children = e.children.map(register)
    val id = byId.size
    byId += e
    val o = json.putObject(id.toString)
    o.put("sql", e.sql)
    o.put("type", e.dataType.simpleString)
    o.put("nullable", e.nullable)
    o.put("op", op(e))
    val c = o.putArray("children")
    children.foreach(x => c.add(x))
    val columns = o.putArray("columns")
    e.references.toSeq.map(a => columnName(a.exprId)).distinct.sorted.foreach(x => columns.add(x))
    val relations = o.putArray("relations")
    e.references.toSeq.flatMap(a => owners.get(a.exprId)).distinct.sorted.foreach(x => relations.add(x))
    o.put("deterministic", e.deterministic && !TimeDependent(e))
    o.put("throws", Throwing(e))
    o.put("same", same.getOrElseUpdate(e.canonicalized, s"k$id"))
    e match {
      case Literal(v, _) => o.put("literal", String.valueOf(v))
      case _ => o.putNull("literal")
    }
    id
  })

  private def op(e: Expression): String = e match {
    case a: Attribute => results.getOrElse(a.exprId, "column")
    case _: Literal => "literal"
    case _: Add => "add"
    case _: Subtract => "subtract"
    case _: Multiply => "multiply"
    case _: Divide => "divide"
    case _: UnaryMinus => "negate"
    case _: Cast => "cast"
    case _: And => "and"
    case _: Or => "or"
    case _: Not => "not"
    case _: EqualTo => "equal"
    case _: EqualNullSafe => "equalNullSafe"
    case _: LessThan => "less"
    case _: LessThanOrEqual => "lessOrEqual"
    case _: GreaterThan => "greater"
    case _: GreaterThanOrEqual => "greaterOrEqual"
    case _: IsNull => "isNull"
    case _: IsNotNull => "isNotNull"
    case _: In => "in"
    case _: Like => "like"
    case _: CaseWhen => "case"
    case _: Coalesce => "coalesce"
    case _: If => "if"
    case other => s"other:${other.getClass.getSimpleName}"
  }
}
