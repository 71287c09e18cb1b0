"""Parse an SQL text into a checked tree of sqlglot: limit its size first, then check all nodes.

Each text is parsed only once, here. All evaluation works on the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from qbeast_core.sql.values import MAX_NUMBER, invalid_sql

# Enough for an IN list of a hundred thousand values.
MAX_CHARACTERS: Final = 1_000_000

# Levels of parentheses, brackets and CASE; sqlglot needs some 25 Python frames for each.
MAX_LEVELS: Final = 30


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPENING: Final = frozenset({"(", "[", "{", "CASE"})
_CLOSING: Final = frozenset({")", "]", "}", "END"})
_PREFIXES: Final = frozenset({"NOT", "-", "+", "~", "!", "@", "INTERVAL", "CASE"})
# Words and signs after which an operand is expected.
_BEFORE_OPERANDS: Final = _words(
    """
    ( , [ = == <> != < <= > >= <=> + - * / // % || AND OR NOT WHEN THEN ELSE BETWEEN IN LIKE ILIKE CASE FROM DISTINCT
    SELECT WHERE BY HAVING
    """
) | {"GROUP BY", "ORDER BY"}
_NEVER_NAMES: Final = frozenset({"NOT", "CASE"})
_PLAIN: Final = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.VAR)
_NUMBERS: Final = (TokenType.NUMBER, TokenType.HEX_STRING, TokenType.BIT_STRING)
_VALUES: Final = frozenset({"NULL", "TRUE", "FALSE"})

# Levels of a tree; a chain of AND or OR counts as one level.
MAX_DEPTH: Final = 100

# Operands of AND and OR; the time to plan a filter grows with their square.
MAX_CONDITIONS: Final = 500

# Arguments of a function, and columns in an IN list.
MAX_ITEMS: Final = 1_000

# Branches of a CASE: each is a level of the Polars expression.
MAX_BRANCHES: Final = 100

# Key of `meta` of an item of a list: its original text.
TEXT: Final = "text"

# Key of `meta` of parentheses that the text has.
WRITTEN: Final = "written"
_AND_OR: Final = (exp.And, exp.Or)
_CONSTANTS: Final = (exp.Literal, exp.Null, exp.Boolean, exp.Neg)

_Nodes = Mapping[type[exp.Expr], frozenset[str]]


def _nodes(*kinds: type[exp.Expr], args: str = "") -> _Nodes:
    more = frozenset(args.split())
    return {kind: frozenset({"this", "expression"}) | more for kind in kinds}


# Comparisons. A comparison of comparisons needs parentheses: dialects differ in precedence.
_PREDICATES: Final = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.Escape, exp.RegexpLike),
)

_PARTS: Final = (exp.Year, exp.Quarter, exp.Month, exp.Week, exp.Day, exp.DayOfWeek, exp.DayOfYear)
_TIMES: Final = (exp.Hour, exp.Minute, exp.Second)
# Functions that return a part of a time, with its name in EXTRACT.
PARTS: Final[Mapping[type[exp.Expr], str]] = {
    **{kind: kind.key.upper() for kind in (*_PARTS, *_TIMES)},
    exp.DayOfWeekIso: "ISODOW",
    exp.TimeToUnix: "EPOCH",
}

# Nodes of expressions over one row. Functions without a node class are in `functions.NAMED`.
_NODES: Final[_Nodes] = {
    **_nodes(exp.Column, args="table db catalog"),
    **_nodes(exp.Identifier, args="quoted"),
    **_nodes(exp.Literal, args="is_string"),
    **_nodes(exp.Dot, exp.Boolean, exp.Null, exp.Paren, exp.Var, exp.DataTypeParam),
    **_nodes(exp.And, exp.Or, exp.Not, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod, exp.Pow),
    **_nodes(exp.Div, args="typed safe"),
    **_nodes(*_PREDICATES),
    **_nodes(exp.Like, exp.ILike, args="negate"),
    **_nodes(exp.In, exp.Coalesce, exp.DataType, args="expressions nested"),
    **_nodes(exp.Greatest, exp.Least, args="expressions ignore_nulls"),
    **_nodes(exp.Between, args="low high"),
    **_nodes(exp.Case, args="ifs default"),
    **_nodes(exp.If, args="true false"),
    **_nodes(exp.Cast, exp.TryCast, args="to safe"),
    **_nodes(exp.DPipe, args="safe"),
    **_nodes(exp.Concat, args="expressions safe coalesce"),
    **_nodes(exp.Interval, exp.DateTrunc, exp.TimestampTrunc, args="unit"),
    **_nodes(exp.Bracket, args="expressions offset safe returns_list_for_maps"),
    **_nodes(exp.Extract, *PARTS, exp.Date, exp.CurrentDate, exp.CurrentTimestamp),
    **_nodes(
        exp.Abs, exp.Sign, exp.Floor, exp.Ceil, exp.Trunc, exp.Sqrt, exp.Exp, exp.Ln, exp.Log, exp.IsNan
    ),
    **_nodes(exp.Round, args="decimals"),
    **_nodes(exp.Lower, exp.Upper, exp.Length, exp.Left, exp.Right, exp.StartsWith, exp.EndsWith),
    **_nodes(exp.Contains, exp.ArrayContains, exp.Nullif),
    **_nodes(exp.Trim, args="position"),
    **_nodes(exp.Substring, args="start length"),
    **_nodes(exp.StrPosition, args="substr"),
    **_nodes(exp.Replace, args="replacement"),
    **_nodes(exp.TimeToStr, args="format"),
    **_nodes(exp.Anonymous, args="expressions"),
}

# Further nodes of aggregates.
_AGGREGATES: Final[_Nodes] = {
    **_nodes(exp.Count, args="big_int"),
    **_nodes(exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.First, exp.Last, exp.Median),
    **_nodes(exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop),
    **_nodes(exp.PercentileCont, exp.PercentileDisc),
    **_nodes(exp.Quantile, args="quantile"),
    **_nodes(exp.Distinct, exp.Tuple, args="expressions"),
    **_nodes(exp.Filter, exp.Where, exp.Star),
}

# Unsupported words and signs, with a replacement.
_CURES: Final = {"XOR": "write (a) <> (b)", "&": "write AND", "|": "write OR", "&&": "write AND"}


class _Tokenizer(DuckDB.Tokenizer):
    IDENTIFIERS = ['"', "`"]  # noqa: RUF012 - sqlglot's metaclass reads a list


class _Marking(Parser):
    """Marks the parentheses of the text, because sqlglot adds parentheses around some operands."""

    def _parse_paren(self) -> exp.Expr | None:
        node = super()._parse_paren()
        if isinstance(node, exp.Paren):
            node.meta[WRITTEN] = True
        return node


class _Parser(_Marking, DuckDBParser):
    def _parse_expressions(self) -> list[exp.Expr]:
        return self._parse_csv(self._parse_item)

    def _parse_item(self) -> exp.Expr | None:
        first = self._curr
        node = self._parse_expression()
        if node is not None:
            node.meta[TEXT] = self._find_sql(first, self._prev)
        return node

    EXPRESSION_PARSERS: ClassVar[dict[Any, Any]] = {
        **DuckDBParser.EXPRESSION_PARSERS,
        exp.Tuple: lambda self: exp.Tuple(expressions=self._parse_expressions()),  # pyright: ignore[reportUnknownLambdaType]
    }


class _QbeastDuckDB(DuckDB):
    Tokenizer = _Tokenizer
    Parser = _Parser


@cache
def _spark() -> Dialect:
    from sqlglot.dialects.spark import Spark  # noqa: PLC0415 - slow to load, and few tables need it
    from sqlglot.parsers.spark import SparkParser  # noqa: PLC0415 - as above

    class Marking(_Marking, SparkParser):
        pass

    class QbeastSpark(Spark):
        Parser = Marking

    return QbeastSpark()


def parse_condition(text: str, columns: Collection[str]) -> exp.Expr:
    """Parse an expression over the columns of one row.

    >>> parse_condition("a > 1 AND user IS NULL", ["a", "user"]).key
    'and'
    """
    return checked_part(_parse(text, columns, exp.Condition), aggregates=False)


def parse_spark(text: str, columns: Collection[str]) -> exp.Expr:
    """Parse an expression of Spark SQL; callers give its nodes the meaning of DuckDB and check them."""
    return _parse(text, columns, exp.Condition, _spark())


def parse_list(text: str, columns: Collection[str]) -> list[exp.Expr]:
    """Parse comma-separated expressions with optional aliases; callers check the nodes."""
    expressions: list[exp.Expr] = _parse(text, columns, exp.Tuple).expressions
    if not expressions:
        invalid_sql("it ends too early")
    return expressions


def parse_statement(text: str, columns: Collection[str]) -> exp.Expr:
    """Parse a query or another statement; callers check its parts."""
    return _parse(text, columns, None)


def without_parentheses(node: Any) -> Any:
    """Return the expression inside of any parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def operands(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a chain of operand connective, through parentheses, without recursion."""
    kind, parts, waiting = type(node), list[exp.Expr](), [node]
    while waiting:
        operand = without_parentheses(waiting.pop())
        if isinstance(operand, kind):
            waiting += (operand.expression, operand.this)
        else:
            parts.append(operand)
    return parts


def case_parts(node: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Return the conditions of a CASE or IF, and its results; the last result is the default."""
    branches = node.args.get("ifs") or [node]
    operand = node.this if isinstance(node, exp.Case) else None
    tests: list[exp.Expr] = [exp.EQ(this=operand, expression=b.this) if operand else b.this for b in branches]
    default = node.args.get("default") or node.args.get("false") or exp.Null()
    return tests, [*(branch.args["true"] for branch in branches), default]


def _parse(
    text: str, columns: Collection[str], into: type[exp.Expr] | None, dialect: Dialect | None = None
) -> exp.Expr:
    dialect = dialect or _QbeastDuckDB()
    try:
        tokens = _with_columns_quoted(_bounded(text, dialect.tokenize), frozenset(columns))
        _refuse_words(tokens)
        if any(token.token_type is TokenType.SEMICOLON for token in tokens[:-1]):
            invalid_sql("it has a second statement after ';'")
        parser = dialect.parser()
        trees = parser.parse(tokens, text) if into is None else parser.parse_into(into, tokens, text)
    except ParseError as error:
        invalid_sql(_reason(error, text), error)
    except TokenError as error:
        invalid_sql("a quoted text, a quoted name or a comment does not end", error)
    except RecursionError as error:
        invalid_sql("it is nested too deeply", error)
    parsed = [tree for tree in trees if tree is not None]
    if not parsed:
        invalid_sql("it ends too early")
    return parsed[0]


def _refuse_words(tokens: list[Token]) -> None:
    """Reject a leading WHERE, and the operators of `_CURES`."""
    for index, token in enumerate(tokens):
        word = token.text.upper()
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        if index == 0 and word == "WHERE":
            invalid_sql("it starts with WHERE; leave WHERE out")
        if word in _CURES:
            invalid_sql(f"{token.text!r} at character {token.start} is not supported; {_CURES[word]}")


def _reason(error: ParseError, text: str) -> str:
    first = error.errors[0] if error.errors else {}
    highlight, before = str(first.get("highlight") or ""), str(first.get("start_context") or "")
    if not highlight or (highlight.upper() in _BEFORE_OPERANDS and text.rstrip().endswith(highlight)):
        return "it ends too early"
    return (
        f"unexpected {highlight[:60]!r} at character {max(text.rfind(before + highlight), 0) + len(before)}"
    )


def is_supported(node: exp.Expr) -> bool:
    """Return whether a node of an expression, with the arguments that it has, is one that can be lowered."""
    allowed = _NODES.get(type(node)) or _AGGREGATES.get(type(node))
    return allowed is not None and all(name in allowed for name, value in node.args.items() if value)


def checked_part(tree: exp.Expr, *, aggregates: bool) -> exp.Expr:
    """Check all nodes of an expression. It does not recurse, because the depth is not checked yet."""
    conditions = 0
    waiting: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            invalid_sql(f"it nests more than {MAX_DEPTH} operators")
        _check_node(node, aggregates=aggregates)
        parts = operands(node) if isinstance(node, _AND_OR) else list(node.iter_expressions())
        conditions += len(parts) if isinstance(node, _AND_OR) else 0
        if conditions > MAX_CONDITIONS:
            invalid_sql(
                f"it joins more than {MAX_CONDITIONS} conditions; compare a column with many values by "
                "column IN (1, 2, 3), give a Polars expression, or split the work into several calls"
            )
        if len(parts) > MAX_ITEMS and not all(
            isinstance(without_parentheses(p), _CONSTANTS) for p in parts[1:]
        ):
            invalid_sql(f"it lists more than {MAX_ITEMS:,} values that are not constants")
        waiting += [(part, depth + (not isinstance(node, exp.Paren))) for part in parts]
    return tree


def _check_node(node: exp.Expr, *, aggregates: bool) -> None:
    allowed = _NODES.get(type(node))
    if allowed is None and aggregates:
        allowed = _AGGREGATES.get(type(node))
    if allowed is None:
        invalid_sql(_unknown(node))
    for name, value in node.args.items():
        if value and name not in allowed:
            invalid_sql(f"{sql_of(node)} uses {name.strip('_').upper()}, which is not supported")
    if len(node.args.get("ifs") or ()) > MAX_BRANCHES:
        invalid_sql(f"a CASE has more than {MAX_BRANCHES} branches")
    if isinstance(node, _PREDICATES):
        for part in node.iter_expressions():
            inner = part
            while isinstance(inner, exp.Paren) and not inner.meta.get(WRITTEN):
                inner = inner.this
            nested = isinstance(inner, (*_PREDICATES, *_AND_OR, exp.Not))
            if nested and not (isinstance(node, exp.Escape) and isinstance(inner, (exp.Like, exp.ILike))):
                invalid_sql(
                    f"{sql_of(inner)} is an operand of another comparison without parentheses; join comparisons by "
                    "AND, or put parentheses around it"
                )


_REASONS: Final[Sequence[tuple[tuple[type[exp.Expr], ...], str]]] = (
    ((*_AGGREGATES, exp.AggFunc, exp.Window, exp.UDTF), "{0} looks at several columns or rows at once"),
    (
        (exp.Query, exp.Subquery, exp.Exists),
        "{0} is a query; only expressions over the columns of a row are supported",
    ),
    ((exp.Placeholder, exp.Parameter), "{0} is a parameter; write the value itself"),
    ((exp.Func,), "the function {1!r} is not supported"),
    ((exp.Expr,), "{0} is not supported"),
)


def _unknown(node: exp.Expr) -> str:
    name = node.sql_name().lower() if isinstance(node, exp.Func) else ""
    return next(text for kinds, text in _REASONS if isinstance(node, kinds)).format(sql_of(node), name)


def sql_of(node: Any) -> str:
    """Return a node as quoted SQL of at most 60 characters, for messages."""
    try:
        text = node.sql("duckdb") if isinstance(node, exp.Expr) else str(node)
    except (RecursionError, ValueError):
        text = type(node).__name__
    text = text.replace("\0", "")  # ends the names of columns that a query computes
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def _bounded(text: str, tokenize: Callable[[str], list[Token]]) -> list[Token]:
    """Split a text into tokens; reject texts that are too long or too deeply nested to parse."""
    if len(text) > MAX_CHARACTERS:
        invalid_sql(f"it has more than {MAX_CHARACTERS:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        invalid_sql("it has half of a surrogate pair, which is not a character", error)
    tokens = tokenize(text)
    level = run = 0
    for before, token in zip((None, *tokens), tokens, strict=False):
        _check_length(token, before)
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            run = 0
            continue
        word = token.text.upper()
        level += (word in _OPENING) - (word in _CLOSING)
        run = run + 1 if word in _PREFIXES else 0
        if max(level, run) > MAX_LEVELS:
            invalid_sql(f"it nests more than {MAX_LEVELS} levels of parentheses or prefix operators")
    return tokens


def _check_length(token: Token, before: Token | None) -> None:
    """Reject numbers that Python does not read, and texts of intervals, for which sqlglot takes quadratic time."""
    is_interval = before is not None and before.text.upper() == "INTERVAL"
    if len(token.text) > MAX_NUMBER and (is_interval or token.token_type in _NUMBERS):
        invalid_sql(f"a number has more than {MAX_NUMBER:,} characters: {token.text[:20]}…")


def _with_columns_quoted(tokens: Sequence[Token], columns: frozenset[str]) -> list[Token]:
    """Quote words that equal a column name where an operand is expected: ``user = 42``."""
    quoted = list(tokens)
    for index, token in enumerate(tokens):
        if token.text not in columns or token.token_type in _PLAIN:
            continue
        word = token.text.upper()
        if word in _VALUES:
            invalid_sql(f"{token.text!r} is a value and a column; put the column's name into double quotes")
        expects_operand = index == 0 or tokens[index - 1].text.upper() in _BEFORE_OPERANDS
        next_token = tokens[index + 1] if index + 1 < len(tokens) else None
        # A word before a parenthesis or a literal is a function or a type: ``date '2026-11-05'``.
        starts_value = next_token is not None and (
            next_token.text == "(" or next_token.token_type in (TokenType.STRING, TokenType.NUMBER)
        )
        if expects_operand and word not in _NEVER_NAMES and not starts_value:
            place = token.line, token.col, token.start, token.end
            quoted[index] = Token(TokenType.IDENTIFIER, token.text, *place, token.comments)
    return quoted
