"""Parse an SQL text into a checked tree of sqlglot: limit its size first, then check all nodes.

Each text is parsed only once, here. All evaluation works on the tree.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from qbeast_core.query.sql.nodes import AGGREGATES, CURES, NODES, PREDICATES
from qbeast_core.query.sql.tokens import BEFORE_OPERANDS, bounded, invalid_sql, with_columns_quoted

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

_CLAUSES: Final = frozenset({"expressions", "from_", "where", "group"})
# Other clauses of a query, and what to do instead.
_OTHER_CLAUSES: Final = {
    "joins": ("JOIN", "give the other table or frame as `join`: join=(other, [columns])"),
    "order": ("ORDER BY", "sort the result"),
    "limit": ("LIMIT", "take the head of the result"),
    "having": ("HAVING", "filter the result"),
    "with_": ("WITH", "write the inner query in FROM"),
}
_WRITTEN: Final = "written"
_AND_OR: Final = (exp.And, exp.Or)
_CONSTANTS: Final = (exp.Literal, exp.Null, exp.Boolean, exp.Neg)


class _Tokenizer(DuckDB.Tokenizer):
    IDENTIFIERS = ['"', "`"]  # noqa: RUF012 - sqlglot's metaclass reads a list


class _Marking(Parser):
    """Marks the parentheses of the text, because sqlglot adds parentheses around some operands."""

    def _parse_paren(self) -> exp.Expr | None:
        node = super()._parse_paren()
        if isinstance(node, exp.Paren):
            node.meta[_WRITTEN] = True
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


class _SparkParser(_Marking, SparkParser):
    pass


class _QbeastSpark(Spark):
    Parser = _SparkParser


def parse_condition(text: str, columns: Collection[str]) -> exp.Expr:
    """Parse an expression over the columns of one row.

    >>> parse_condition("a > 1 AND user IS NULL", ["a", "user"]).key
    'and'
    """
    return checked_part(_parse(text, columns, exp.Condition), aggregates=False)


def parse_spark(text: str, columns: Collection[str]) -> exp.Expr:
    """Parse an expression of Spark SQL; callers give its nodes the meaning of DuckDB and check them."""
    return _parse(text, columns, exp.Condition, _QbeastSpark())


def parse_list(text: str, columns: Collection[str]) -> list[exp.Expr]:
    """Parse comma-separated expressions with optional aliases; callers check the nodes."""
    expressions: list[exp.Expr] = _parse(text, columns, exp.Tuple).expressions
    if not expressions:
        invalid_sql("it ends too early")
    return expressions


def parse_select(text: str, columns: Collection[str]) -> exp.Select:
    """Parse ``SELECT ... [FROM name] [WHERE ...] [GROUP BY ...]``; callers check the parts."""
    tree = _parse(text, columns, exp.Select)
    if not isinstance(tree, exp.Select):
        invalid_sql("it is not a SELECT")
    check_clauses(tree)
    return tree


def check_clauses(tree: exp.Select) -> None:
    """Reject a query with other clauses than those that `parse_select` names."""
    for name, value in tree.args.items():
        if value and name not in _CLAUSES:
            word, cure = _OTHER_CLAUSES.get(name, (name.strip("_").upper().replace("_", " "), ""))
            invalid_sql(
                f"{word} is not supported: a query has SELECT, FROM, WHERE and GROUP BY only{cure and f'; {cure}'}"
            )


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
    text: str, columns: Collection[str], into: type[exp.Expr], dialect: Dialect | None = None
) -> exp.Expr:
    dialect = dialect or _QbeastDuckDB()
    try:
        tokens = with_columns_quoted(bounded(text, dialect.tokenize), frozenset(columns))
        _refuse_words(tokens)
        if any(token.token_type is TokenType.SEMICOLON for token in tokens[:-1]):
            invalid_sql("it has a second statement after ';'")
        trees = dialect.parser().parse_into(into, tokens, text)
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
    """Reject a leading WHERE, and the operators of `CURES`."""
    for index, token in enumerate(tokens):
        word = token.text.upper()
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        if index == 0 and word == "WHERE":
            invalid_sql("it starts with WHERE; leave WHERE out")
        if word in CURES:
            invalid_sql(f"{token.text!r} at character {token.start} is not supported; {CURES[word]}")


def _reason(error: ParseError, text: str) -> str:
    first = error.errors[0] if error.errors else {}
    highlight, before = str(first.get("highlight") or ""), str(first.get("start_context") or "")
    if not highlight or (highlight.upper() in BEFORE_OPERANDS and text.rstrip().endswith(highlight)):
        return "it ends too early"
    return (
        f"unexpected {highlight[:60]!r} at character {max(text.rfind(before + highlight), 0) + len(before)}"
    )


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
    allowed = NODES.get(type(node))
    if allowed is None and aggregates:
        allowed = AGGREGATES.get(type(node))
    if allowed is None:
        invalid_sql(_unknown(node))
    for name, value in node.args.items():
        if value and name not in allowed:
            invalid_sql(f"{sql_of(node)} uses {name.strip('_').upper()}, which is not supported")
    if len(node.args.get("ifs") or ()) > MAX_BRANCHES:
        invalid_sql(f"a CASE has more than {MAX_BRANCHES} branches")
    if isinstance(node, PREDICATES):
        for part in node.iter_expressions():
            inner = part
            while isinstance(inner, exp.Paren) and not inner.meta.get(_WRITTEN):
                inner = inner.this
            nested = isinstance(inner, (*PREDICATES, *_AND_OR, exp.Not))
            if nested and not (isinstance(node, exp.Escape) and isinstance(inner, (exp.Like, exp.ILike))):
                invalid_sql(
                    f"{sql_of(inner)} is an operand of another comparison without parentheses; join comparisons by "
                    "AND, or put parentheses around it"
                )


_REASONS: Final[Sequence[tuple[tuple[type[exp.Expr], ...], str]]] = (
    ((*AGGREGATES, exp.AggFunc, exp.Window, exp.UDTF), "{0} looks at several columns or rows at once"),
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
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
