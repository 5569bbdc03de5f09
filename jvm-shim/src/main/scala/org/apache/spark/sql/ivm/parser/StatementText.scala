package org.apache.spark.sql.ivm.parser

import org.antlr.v4.runtime.{CharStream, CharStreams, CodePointCharStream, IntStream, Token}
import org.antlr.v4.runtime.misc.Interval

import org.apache.spark.sql.catalyst.parser.{ParseException, SqlBaseLexer}
import org.apache.spark.sql.catalyst.trees.Origin

/** A visible token of a statement.
  *
  * @param text  as written, quotes included, so a quoted identifier never equals a keyword
  * @param from  offsets of the token in the statement's text, in chars; `until` is exclusive
  */
private[parser] case class Word(text: String, from: Int, until: Int, line: Int, position: Int) {
  def is(keyword: String): Boolean = text.equalsIgnoreCase(keyword)
  def in(keywords: Set[String]): Boolean = keywords(text.toUpperCase(java.util.Locale.ROOT))
}

/** A statement cut by Spark's own lexer, so comments, nested comments, hints, strings and quoted identifiers are what
  * they are to Spark. Only names of token types could move between Spark versions and none is used: tokens are told apart
  * by their text and by the channel (comments and white space are hidden).
  */
private[parser] final class StatementText(val text: String) {

  /** Lazily cut: claiming a statement looks at its first few words only. */
  val words: LazyList[Word] = {
    val lexer = new SqlBaseLexer(new UpperCaseStream(CharStreams.fromString(text)))
    lexer.removeErrorListeners()
    // The lexer counts code points, Strings count chars: walk both in step.
    var codePoint = 0
    var char = 0
    def charAt(index: Int): Int = {
      char = text.offsetByCodePoints(char, index - codePoint)
      codePoint = index
      char
    }
    LazyList
      .continually(lexer.nextToken())
      .takeWhile(_.getType != Token.EOF)
      .filter(_.getChannel == Token.DEFAULT_CHANNEL)
      .map { token =>
        val from = charAt(token.getStartIndex)
        val until = charAt(token.getStopIndex + 1)
        Word(text.substring(from, until), from, until, token.getLine, token.getCharPositionInLine)
      }
  }

  /** Where "end of input" is, for error messages. */
  lazy val end: Word = {
    val lines = text.split("\n", -1)
    Word("", text.length, text.length, lines.length, lines.last.codePointCount(0, lines.last.length))
  }

  /** The text with some words blanked out or replaced in place, so that every other word keeps its position.
    * Words of ours are ASCII; a replacement is never longer than what it replaces.
    */
  def rewritten(replacements: Seq[(Word, String)]): String = {
    val out = new java.lang.StringBuilder(text)
    replacements.foreach { case (word, by) =>
      require(by.length <= word.text.length)
      out.replace(word.from, word.until, by.padTo(word.text.length, ' '))
    }
    out.toString
  }

  def error(at: Word, condition: String, parameters: Map[String, String]): ParseException =
    new ParseException(Some(text), Origin(Some(at.line), Some(at.position)), condition, parameters)

  /** Spark's error for a word that does not fit. */
  def unexpected(at: Word): ParseException = {
    val near = if (at.text.isEmpty) "end of input" else s"'${at.text}'"
    error(at, "PARSE_SYNTAX_ERROR", Map("error" -> near, "hint" -> ""))
  }
}

/** Shows the lexer upper case only, as Spark's parser does (its class is private to the parser). */
private final class UpperCaseStream(wrapped: CodePointCharStream) extends CharStream {
  override def consume(): Unit = wrapped.consume()
  override def getSourceName: String = wrapped.getSourceName
  override def index(): Int = wrapped.index
  override def mark(): Int = wrapped.mark
  override def release(marker: Int): Unit = wrapped.release(marker)
  override def seek(where: Int): Unit = wrapped.seek(where)
  override def size(): Int = wrapped.size
  override def getText(interval: Interval): String = wrapped.getText(interval)
  override def LA(i: Int): Int = {
    val la = wrapped.LA(i)
    if (la == 0 || la == IntStream.EOF) la else Character.toUpperCase(la)
  }
}
