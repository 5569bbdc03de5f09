package org.apache.spark.sql.ivm.parser

import scala.jdk.CollectionConverters._

import org.apache.spark.QueryContext
import org.apache.spark.sql.catalyst.analysis.{UnresolvedIdentifier, UnresolvedNamespace, UnresolvedTableOrView, UnresolvedView}
import org.apache.spark.sql.catalyst.parser.{ParameterContext, ParameterHandler, ParseException, ParserInterface, PositionMapper}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.trees.{Origin, SQLQueryContext}
import org.apache.spark.sql.ivm.Policy
import org.apache.spark.sql.ivm.command._

/** Which statement the leading keywords announce.
  * @param explain  the mode of a leading EXPLAIN
  * @param lead     how many words were looked at: the statement's own words follow
  */
private[parser] case class Claim(kind: String, explain: Option[String], lead: Int)

private[parser] object Statements {
  private val ExplainModes = Set("EXTENDED", "FORMATTED", "CODEGEN", "COST")

  /** The leading keywords of our statements; `DESC` is read as `DESCRIBE`. */
  private val Leads: Seq[(Seq[String], String)] = Seq(
    Seq("CREATE", "INCREMENTAL", "VIEW") -> "CREATE",
    Seq("CREATE", "OR", "REPLACE", "INCREMENTAL", "VIEW") -> "CREATE",
    Seq("REFRESH", "INCREMENTAL", "VIEW") -> "REFRESH",
    Seq("DROP", "INCREMENTAL", "VIEW") -> "DROP",
    Seq("ALTER", "INCREMENTAL", "VIEW") -> "ALTER",
    Seq("SHOW", "INCREMENTAL", "VIEWS") -> "SHOW",
    Seq("SHOW", "CREATE", "INCREMENTAL", "VIEW") -> "SHOW CREATE",
    Seq("DESCRIBE", "INCREMENTAL", "VIEW") -> "DESCRIBE",
    Seq("DESCRIBE", "EXTENDED", "INCREMENTAL", "VIEW") -> "DESCRIBE EXTENDED",
    Seq("DESCRIBE", "FORMATTED", "INCREMENTAL", "VIEW") -> "DESCRIBE EXTENDED", // as for Spark's tables
    Seq("DESCRIBE", "HISTORY", "INCREMENTAL", "VIEW") -> "DESCRIBE HISTORY")

  def claim(statement: StatementText): Option[Claim] = {
    val head = statement.words.take(9).toVector
    val (explain, skipped) = head match {
      case first +: mode +: _ if first.is("EXPLAIN") && mode.in(ExplainModes) => (Some(mode.text.toLowerCase(java.util.Locale.ROOT)), 2)
      case first +: _ if first.is("EXPLAIN") => (Some("simple"), 1)
      case _ => (None, 0)
    }
    val rest = head.drop(skipped)
    def is(word: Word, keyword: String): Boolean = word.is(keyword) || (keyword == "DESCRIBE" && word.is("DESC"))
    Leads
      .collectFirst {
        case (keywords, kind) if rest.length >= keywords.length && rest.zip(keywords).forall { case (w, k) => is(w, k) } =>
          Claim(kind, explain, skipped + keywords.length)
      }
      .filter(claim => explain.isEmpty || claim.kind == "CREATE" || claim.kind == "REFRESH")
      .filter(claim => !isColumnOfTable(claim, head))
  }

  /** `DESCRIBE incremental view` is Spark's: column `view` of the table `incremental` (also `view.field`, and `… AS JSON`). */
  private def isColumnOfTable(claim: Claim, head: Vector[Word]): Boolean =
    (claim.kind == "DESCRIBE" || claim.kind == "DESCRIBE EXTENDED") &&
      head.lift(claim.lead).forall(next => next.in(Set(";", ".", "AS")))
}

/** Turns a claimed statement into its command.
  *
  * Our statements are Spark's view statements with a few words more. So Spark parses them: the extra words are blanked out in place, and
  * statements Spark has no twin for are shown to it as `DROP VIEW name`. Names, column lists, properties, the query,
  * parameters, trailing semicolons and syntax errors are therefore exactly Spark's, at the right positions.
  */
private[parser] final class Statements(
    delegate: ParserInterface,
    statement: StatementText,
    claim: Claim,
    parameters: Option[ParameterContext]) {

  private val words: Vector[Word] = statement.words.toVector
  private val lead: Vector[Word] = words.take(claim.lead)

  /** EXPLAIN with its mode, and INCREMENTAL: what Spark must not see of the leading keywords. */
  private val extraLead: Seq[Word] = {
    val explain = claim.explain.fold(0)(mode => if (mode == "simple") 1 else 2)
    lead.take(explain) ++ lead.find(_.is("INCREMENTAL"))
  }

  def plan: LogicalPlan = {
    val command = claim.kind match {
      case "CREATE" => create
      case "REFRESH" => refresh
      case "DROP" => drop
      case "ALTER" => alter
      case "SHOW" => show
      case "SHOW CREATE" => ShowCreateIncrementalViewCommand(nameOnly)
      case "DESCRIBE" => DescribeIncrementalViewCommand(nameOnly, extended = false)
      case "DESCRIBE EXTENDED" => DescribeIncrementalViewCommand(nameOnly, extended = true)
      case "DESCRIBE HISTORY" => DescribeIncrementalViewHistoryCommand(nameOnly)
    }
    claim.explain.fold(command: LogicalPlan) { mode =>
      ExplainIncrementalViewCommand(command, mode)
    }
  }

  // ---- the statements -------------------------------------------------------------------------------------------

  private def create: CreateIncrementalViewCommand = {
    val ifNotExists = Seq("IF", "NOT", "EXISTS")
    val nameAt =
      if (words.slice(claim.lead, claim.lead + 3).zip(ifNotExists).count { case (w, k) => w.is(k) } == 3) claim.lead + 3
      else claim.lead
    val clauses = refreshClauses(afterName(nameAt))
    val view = bySpark(extraLead.map(_ -> "") ++ clauses.words.map(_ -> "")) match {
      case view: CreateView => view
      case _ => throw statement.unexpected(words.lift(nameAt).getOrElse(statement.end))
    }
    CreateIncrementalViewCommand(
      name = nameOf(view.child, nameAt),
      columns = view.userSpecifiedColumns,
      comment = view.comment,
      properties = view.properties,
      refreshOnRead = clauses.onRead.getOrElse(true),
      policy = clauses.policy.getOrElse(Policy.Auto),
      query = view.originalText.get,
      ifNotExists = view.allowExisting,
      replace = view.replace)
  }

  private def refresh: RefreshIncrementalViewCommand = {
    val at = afterName(claim.lead)
    val full = words.lift(at).filter(_.is("FULL"))
    RefreshIncrementalViewCommand(name(full.toSeq), full.isDefined)
  }

  private def drop: DropIncrementalViewCommand = bySpark(extraLead.map(_ -> "")) match {
    case DropView(child, ifExists) => DropIncrementalViewCommand(nameOf(child, claim.lead), ifExists)
    case _ => throw statement.unexpected(words(claim.lead))
  }

  private def alter: LogicalPlan = {
    val at = afterName(claim.lead)
    def next(i: Int): Word = words.lift(at + i).getOrElse(statement.end)
    if (next(0).is("SUSPEND")) AlterIncrementalViewSuspendCommand(name(Seq(next(0))), suspend = true)
    else if (next(0).is("RESUME")) AlterIncrementalViewSuspendCommand(name(Seq(next(0))), suspend = false)
    else if (next(0).is("REFRESH")) {
      val clause = refreshClause(at)
      AlterIncrementalViewRefreshCommand(name(clause.words), clause.onRead, clause.policy)
    } else {
      val known = next(0).is("AS") || (next(0).in(Set("SET", "UNSET")) && next(1).is("TBLPROPERTIES")) ||
        (next(0).is("RENAME") && next(1).is("TO"))
      if (!known) throw statement.unexpected(if (next(0).in(Set("SET", "UNSET", "RENAME"))) next(1) else next(0))
      bySpark(extraLead.map(_ -> "")) match {
        case v: AlterViewAs => AlterIncrementalViewAsCommand(nameOf(v.child, claim.lead), v.originalText)
        case SetViewProperties(child, properties) =>
          AlterIncrementalViewPropertiesCommand(nameOf(child, claim.lead), set = properties)
        case UnsetViewProperties(child, keys, _) =>
          AlterIncrementalViewPropertiesCommand(nameOf(child, claim.lead), unset = keys)
        case RenameTable(child, newName, _) => AlterIncrementalViewRenameCommand(nameOf(child, claim.lead), newName)
        case _ => throw statement.unexpected(next(0))
      }
    }
  }

  private def show: ShowIncrementalViewsCommand = bySpark(extraLead.map(_ -> "")) match {
    case views: ShowViews =>
      val namespace = views.namespace match {
        case named: UnresolvedNamespace => Some(named.multipartIdentifier)
        case _ => None
      }
      ShowIncrementalViewsCommand(namespace, views.pattern)
    case _ => throw statement.unexpected(words.lift(claim.lead).getOrElse(statement.end))
  }

  // ---- REFRESH clauses ------------------------------------------------------------------------------------------

  private case class RefreshClauses(words: Seq[Word], onRead: Option[Boolean], policy: Option[Policy])

  /** The REFRESH clauses between the name and AS; clauses of CREATE VIEW that have no meaning here are errors. */
  private def refreshClauses(from: Int): RefreshClauses = {
    var found = RefreshClauses(Nil, None, None)
    var depth = 0
    var i = from
    while (i < words.length && !(depth == 0 && words(i).is("AS"))) {
      val word = words(i)
      if (word.is("(")) depth += 1
      else if (word.is(")")) depth -= 1
      else if (depth == 0 && word.in(Set("WITH", "DEFAULT", "PARTITIONED", "USING"))) throw statement.unexpected(word)
      else if (depth == 0 && word.is("REFRESH")) {
        val clause = refreshClause(i)
        def once(twice: Boolean, name: String): Unit =
          if (twice) throw statement.error(word, "DUPLICATE_CLAUSES", Map("clauseName" -> name))
        once(found.onRead.isDefined && clause.onRead.isDefined, "REFRESH ON")
        once(found.policy.isDefined && clause.policy.isDefined, "REFRESH POLICY")
        found = RefreshClauses(found.words ++ clause.words, found.onRead.orElse(clause.onRead), found.policy.orElse(clause.policy))
        i += clause.words.length - 1
      }
      i += 1
    }
    found
  }

  private def refreshClause(at: Int): RefreshClauses = {
    def word(i: Int): Word = words.lift(at + i).getOrElse(statement.end)
    def clause(length: Int, onRead: Option[Boolean], policy: Option[Policy]) =
      RefreshClauses(words.slice(at, at + length), onRead, policy)
    if (word(1).is("ON")) {
      if (word(2).is("READ")) clause(3, Some(true), None)
      else if (word(2).is("DEMAND")) clause(3, Some(false), None)
      else throw statement.unexpected(word(2))
    } else if (word(1).is("POLICY")) {
      if (word(2).is("AUTO")) clause(3, None, Some(Policy.Auto))
      else if (word(2).is("FULL")) clause(3, None, Some(Policy.Full))
      else if (word(2).is("INCREMENTAL") && word(3).is("STRICT")) clause(4, None, Some(Policy.Strict))
      else if (word(2).is("INCREMENTAL")) clause(3, None, Some(Policy.Incremental))
      else throw statement.unexpected(word(2))
    } else throw statement.unexpected(word(1))
  }

  // ---- names ----------------------------------------------------------------------------------------------------

  /** The index of the first word after the name that starts at `from`: `a.b.c`, or `IDENTIFIER(…)`. */
  private def afterName(from: Int): Int = {
    def is(i: Int, text: String): Boolean = words.lift(i).exists(_.is(text))
    if (is(from, "IDENTIFIER") && is(from + 1, "(")) {
      val depths = words.drop(from + 1).scanLeft(0)((d, w) => if (w.is("(")) d + 1 else if (w.is(")")) d - 1 else d)
      val closed = depths.indexOf(0, 1)
      if (closed < 0) words.length else from + 1 + closed
    } else {
      var i = from + 1
      while (is(i, ".")) i += 2
      i
    }
  }

  private def nameOnly: Seq[String] = name(Nil)

  /** The view named by a statement that Spark has no twin for: read as `DROP VIEW name`, without `clause`. */
  private def name(clause: Seq[Word]): Seq[String] = {
    val explain = claim.explain.fold(0)(mode => if (mode == "simple") 1 else 2)
    val verb = lead(explain)
    val others = lead.filterNot(w => w == verb || w.is("VIEW"))
    bySpark((verb -> "DROP") +: (others ++ clause).map(_ -> "")) match {
      case DropView(child, false) => nameOf(child, claim.lead)
      case _ => throw statement.unexpected(words(claim.lead)) // IF EXISTS
    }
  }

  private def nameOf(child: LogicalPlan, at: Int): Seq[String] = child match {
    case UnresolvedIdentifier(nameParts, _) => nameParts
    case view: UnresolvedView => view.multipartIdentifier
    case either: UnresolvedTableOrView => either.multipartIdentifier
    // IDENTIFIER(…) over something that only analysis can evaluate
    case _ => throw statement.unexpected(words(at))
  }

  // ---- asking Spark ---------------------------------------------------------------------------------------------

  /** Spark's plan for the statement with some words blanked out; its errors, as if it had read the whole statement. */
  private def bySpark(replacements: Seq[(Word, String)]): LogicalPlan = {
    val shown = statement.rewritten(replacements)
    var mapper: Option[PositionMapper] = None
    try {
      // Bound here, not by `delegate.parsePlanWithParameters`: a parser in between may drop the parameters (Delta's does).
      val bound = parameters.fold(shown) { context =>
        val (text, positions) = ParameterHandler.substituteParameters(shown, context)
        mapper = Some(positions)
        text
      }
      delegate.parsePlan(bound)
    } catch {
      case e: ParseException => throw relocated(e, mapper.filter(_ => e.command.exists(_ != shown)))
    }
  }

  private def relocated(e: ParseException, mapper: Option[PositionMapper]): ParseException = {
    val contexts: Array[QueryContext] = e.getQueryContext.map {
      case context: SQLQueryContext if mapper.isEmpty => context.copy(sqlText = Some(statement.text))
      case context => context
    }
    val start = mapper.fold(e.start)(positions => mapped(e.start, e.command.get, positions))
    new ParseException(Some(statement.text), start, e.getCondition, e.getMessageParameters.asScala.toMap, contexts)
  }

  /** A place in the text with parameters filled in, as a place in the statement as written. */
  private def mapped(start: Origin, bound: String, positions: PositionMapper): Origin = (start.line, start.startPosition) match {
    case (Some(line), Some(position)) =>
      val offset = bound.split("\n", -1).take(line - 1).map(_.length + 1).sum + position
      val before = statement.text.take(positions.mapToOriginal(offset))
      start.copy(line = Some(before.count(_ == '\n') + 1), startPosition = Some(before.length - (before.lastIndexOf('\n') + 1)))
    case _ => start
  }
}
