"""Spark Columns: their trees, and their translation to equivalent Polars expressions in conditions and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from operator import and_, or_
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.sql.operators import Comparison, compare, is_in, like, same
from qbeast_core.sql.values import (
    MAX_DIGITS,
    NULL,
    InvalidSqlError,
    Value,
    date_literal,
    number,
    of_type,
    text,
    time_literal,
    truth,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PART: Final = re.compile(r"`(?:[^`]|``)*`|[^.`]+")
_NAME: Final = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")
_PLAIN: Final = (type(None), bool, int, float, Decimal, str)


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a column, in one or more parts."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator, by Spark's lower-case name."""

    function: str
    arguments: tuple[ColumnNode, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class SqlLiteral:
    """A literal; a timestamp is in UTC, or has no zone."""

    value: int | float | str | bool | Decimal | date | datetime | None

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Opaque:
    """Anything else: a cast, a window, a Python function, a literal of another type, text of ``expr``."""

    text: str

    def __str__(self) -> str:
        return self.text


class Bound(Opaque):
    """A column of one DataFrame: ``df["x"]``."""


ColumnNode: TypeAlias = Name | Call | SqlLiteral | Opaque


def is_column(value: object) -> bool:
    """Return whether a value is a Column of any kind of session; some are not subclasses of the public class."""
    kind = type(value)
    return kind.__name__ == "Column" and kind.__module__.startswith("pyspark.sql")


def _tree_of(column: Any) -> ColumnNode:
    """Return the tree of a Column."""
    attributes = vars(column)  # attribute access on a Column would select a field
    if "_expr" in attributes:
        return _of_connect(attributes["_expr"], str(column))
    java = attributes.get("_jc")
    if java is None or not hasattr(java, "node"):
        msg = "this PySpark does not expose the parts of a Column. Give SQL text instead."
        raise InvalidInputError(msg, argument="where")
    return _of_classic(java.node())


def _of_classic(node: Any) -> ColumnNode:
    """Walk the JVM's nodes."""
    tree: ColumnNode
    match str(node.getClass().getSimpleName()):
        case "UnresolvedAttribute":
            parts = tuple(map(str, _items(node.nameParts())))
            tree = Bound(".".join(parts)) if node.planId().isDefined() else Name(parts)
        case "Literal":
            tree = _java_literal(node.value()) or Opaque(str(node.sql()))
        case "UnresolvedFunction" if not node.isDistinct():
            tree = Call(str(node.functionName()).lower(), tuple(map(_of_classic, _items(node.arguments()))))
        case "Alias":
            tree = _of_classic(node.child())
        case "SqlExpression":
            tree = Opaque(str(node.expression()))
        case "ExpressionColumnNode" if _is_attribute(node):  # `df["x"]`
            tree = Bound(str(node.sql()))
        case _:
            tree = Opaque(str(node.sql()))
    return tree


def _is_attribute(node: Any) -> bool:
    return str(node.expression().getClass().getSimpleName()) == "AttributeReference"


def _items(sequence: Any) -> Iterator[Any]:
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()


def _java_literal(value: Any) -> SqlLiteral | None:
    if isinstance(value, _PLAIN):
        return SqlLiteral(value)
    match str(value.getClass().getName()) if hasattr(value, "getClass") else "":
        case "java.sql.Date":
            return SqlLiteral(date.fromisoformat(str(value.toLocalDate().toString())))
        case "java.time.LocalDate":
            return SqlLiteral(date.fromisoformat(str(value.toString())))
        case "java.time.LocalDateTime":
            return SqlLiteral(datetime.fromisoformat(str(value.toString())))
        case "java.sql.Timestamp" | "java.time.Instant" as kind:
            instant = value.toInstant() if kind == "java.sql.Timestamp" else value
            micros = int(instant.getNano()) // 1000
            return SqlLiteral(_EPOCH + timedelta(seconds=int(instant.getEpochSecond()), microseconds=micros))
        case _:
            return None


def _of_connect(node: Any, text: str) -> ColumnNode:
    """Walk the client's expressions."""
    match type(node).__name__:
        case "ColumnReference":
            parts = _parts(node.name())
            return Bound(text) if node._plan_id is not None or parts is None else Name(parts)  # noqa: SLF001 -- not public
        case "LiteralExpression":
            return _connect_literal(node) or Opaque(text)
        case "UnresolvedFunction" if not node._is_distinct:  # noqa: SLF001 -- not public
            arguments = tuple(_of_connect(child, str(child)) for child in node.children)
            return Call(str(node._name).lower(), arguments)  # noqa: SLF001 -- not public
        case "ColumnAlias":
            return _of_connect(node.children[0], text)
        case "SQLExpression":
            return Opaque(str(node._expr))  # noqa: SLF001 -- not public
        case _:
            return Opaque(text)


def _parts(name: str) -> tuple[str, ...] | None:
    """Split a name at dots outside of quotes; None if it is invalid.

    >>> _parts("source.`x.y`"), _parts("a b"), _parts("a.")
    (('source', 'x.y'), ('a b',), None)
    """
    if _NAME.fullmatch(name) is None:
        return None
    parts = [match[0] for match in _PART.finditer(name)]
    return tuple(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts)


def _connect_literal(node: Any) -> SqlLiteral | None:
    value, kind = node._value, type(node._dataType).__name__  # noqa: SLF001 -- not public
    if value is not None and kind == "DateType":
        return SqlLiteral(_EPOCH.date() + timedelta(days=value))
    if value is not None and kind in ("TimestampType", "TimestampNTZType"):
        moment = _EPOCH + timedelta(microseconds=value)
        return SqlLiteral(moment if kind == "TimestampType" else moment.replace(tzinfo=None))
    other = kind in ("TimeType", "DayTimeIntervalType", "ArrayType") or not isinstance(value, _PLAIN)
    return None if other else SqlLiteral(value)


_SIGNS: Final[tuple[Comparison, ...]] = ("=", "<>", "<", "<=", ">", ">=")
_LONG_DIGITS: Final = 19
_MAX_SINGLE: Final = 2.0**127  # below the largest number of single precision


@dataclass(frozen=True, slots=True, eq=False)
class ColumnTranslator:
    """Translates Columns over the columns of a table, and of the source of a merge."""

    # By lower-case name: one part, or two if the first is the name of the source.
    columns: Mapping[tuple[str, ...], Value]

    @staticmethod
    def of(schema: pl.Schema, *, source_name: str | None = None) -> ColumnTranslator:
        """Return a translator for the columns of a schema.

        >>> schema = pl.Schema({"Price": pl.Int64, "source": pl.Struct({"price": pl.Int64})})
        >>> list(ColumnTranslator.of(schema, source_name="source").columns)
        [('price',), ('source', 'price')]
        """
        columns: dict[tuple[str, ...], Value] = {}
        for name, dtype in schema.items():
            if name == source_name and isinstance(dtype, pl.Struct):
                for field, inner in pl.Schema(dtype).items():
                    columns[name.lower(), field.lower()] = of_type(pl.col(name).struct.field(field), inner)
            elif not (name == "*" or (name.startswith("^") and name.endswith("$"))):  # a pattern of Polars
                columns[(name.lower(),)] = of_type(pl.col(name), dtype)
        return ColumnTranslator(columns)

    def condition(self, value: object, argument: str) -> Any:
        """Return a condition for `Table.delete`: a Column becomes a Polars expression, other values stay."""
        if not is_column(value):
            return value
        return _Reader(self.columns, argument).condition(_tree_of(value))

    def values(self, values: object, argument: str) -> Any:
        """Return values of columns for `Table.update`; see `condition`."""
        if not isinstance(values, Mapping):
            return values
        reader = _Reader(self.columns, argument)
        return {name: reader.assigned(value) if is_column(value) else value for name, value in values.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Reader:
    """Translates the Columns of one argument."""

    columns: Mapping[tuple[str, ...], Value]
    argument: str

    def condition(self, node: ColumnNode) -> pl.Expr:
        """Return a condition; raise for a part that may keep other rows in Polars."""
        arguments = node.arguments if isinstance(node, Call) else (node,)
        rule = _rule(node.function, len(arguments)) if isinstance(node, Call) else _Reader.plain
        try:
            expr = None if rule is None else rule(self, *arguments)
        except InvalidSqlError:  # values of this type are not compared
            expr = None
        if expr is None:
            raise self.unsupported(str(node), "tests of one column by literals or columns of its own type")
        return expr

    def assigned(self, column: object) -> pl.Expr:
        """Return the new value of a column."""
        node = _tree_of(column)
        if isinstance(node, SqlLiteral):
            return pl.lit(node.value)
        value = self.column(node)
        if value is None:
            raise self.unsupported(str(column), "literals and columns")
        return value.expr

    def plain(self, node: ColumnNode) -> pl.Expr | None:
        """Return a literal or a column that is a condition by itself."""
        if isinstance(node, SqlLiteral):
            return pl.lit(node.value, dtype=pl.Boolean) if isinstance(node.value, bool | None) else None
        value = self.column(node)
        return value.expr if value is not None and isinstance(value.dtype, pl.Boolean) else None

    def column(self, node: ColumnNode) -> Value | None:
        """Return the column of a name, ignoring case; None for other nodes."""
        if isinstance(node, Bound):
            msg = (
                f"{self.argument} names the column {node.text} of a DataFrame, not of the table. "
                "Name the table's column: pyspark.sql.functions.col(...)."
            )
            raise InvalidInputError(msg, argument=self.argument)
        if not isinstance(node, Name):
            return None
        value = self.columns.get(tuple(part.lower() for part in node.parts))
        if value is None:
            msg = f"{self.argument} names no such column: {str(node)!r}; there are {self.names}."
            raise InvalidInputError(msg, argument=self.argument)
        return value

    def operands(self, left: ColumnNode, right: ColumnNode) -> tuple[Value, Value] | None:
        """Return a column and the value to compare it with; None if Spark would convert one of them."""
        if isinstance(left, SqlLiteral):
            swapped = None if isinstance(right, SqlLiteral) else self.operands(right, left)
            return None if swapped is None else (swapped[1], swapped[0])
        first = self.column(left)
        if first is None:
            return None
        if isinstance(right, SqlLiteral):
            second = _literal(right.value, first.dtype)
        else:
            second = self.column(right)
            if second is not None and (second.dtype != first.dtype or second.dtype.is_nested()):
                return None
        return None if second is None else (first, second)

    def member(self, left: ColumnNode, *items: ColumnNode) -> pl.Expr | None:
        """Return whether a column's value is in a list of literals."""
        value = self.column(left)
        constants = [item.value for item in items if isinstance(item, SqlLiteral)]
        if value is None or not constants or not _is_plain_list(constants, value.dtype):
            return None
        literals = [_literal(constant, value.dtype) for constant in constants]
        plain = [literal for literal in literals if literal is not None]
        return is_in(value, plain).expr if len(plain) == len(items) else None

    def unsupported(self, part: str, supported: str) -> InvalidInputError:
        """Return the error for a part without an equivalent in Polars."""
        msg = (
            f"the Column {part!r} of {self.argument} has no equivalent in Polars, which changes the rows. "
            f"Columns may be {supported}. Give SQL text or a Polars expression. The columns are {self.names}."
        )
        return InvalidInputError(msg, argument=self.argument)

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return [".".join(parts) for parts in self.columns]


_Rule: TypeAlias = Callable[..., pl.Expr | None]


def _chain(
    join: Callable[[pl.Expr, pl.Expr], pl.Expr],
) -> Callable[[_Reader, ColumnNode, ColumnNode], pl.Expr]:
    return lambda reader, left, right: join(reader.condition(left), reader.condition(right))


def _compared(comparison: Callable[[Value, Value], Value]) -> _Rule:
    def rule(reader: _Reader, left: ColumnNode, right: ColumnNode) -> pl.Expr | None:
        pair = reader.operands(left, right)
        return None if pair is None else comparison(*pair).expr

    return rule


def _null_test(test: Callable[[pl.Expr], pl.Expr]) -> _Rule:
    def rule(reader: _Reader, node: ColumnNode) -> pl.Expr | None:
        value = reader.column(node)
        return None if value is None else test(value.expr)

    return rule


def _text_test(test: Callable[[Value, str], pl.Expr | None]) -> _Rule:
    """Return a test of a column of texts by a literal."""

    def rule(reader: _Reader, left: ColumnNode, right: ColumnNode) -> pl.Expr | None:
        value = reader.column(left)
        if value is None or not isinstance(value.dtype, pl.String) or not isinstance(right, SqlLiteral):
            return None
        return test(value, right.value) if isinstance(right.value, str) else None

    return rule


def _like(value: Value, pattern: str) -> pl.Expr | None:
    """Return LIKE, unless the pattern has an escape, which a setting of Spark interprets."""
    return None if "\\" in pattern else like(value, text(pattern)).expr


def _not(reader: _Reader, node: ColumnNode) -> pl.Expr:
    return ~reader.condition(node)


_UNARY: Final[dict[str, _Rule]] = {
    **dict.fromkeys(("!", "not"), _not),
    "isnull": _null_test(pl.Expr.is_null),
    "isnotnull": _null_test(pl.Expr.is_not_null),
}
_BINARY: Final[dict[str, _Rule]] = {
    **{sign: _compared(partial(compare, sign)) for sign in _SIGNS},
    "==": _compared(partial(compare, "=")),
    "!=": _compared(partial(compare, "<>")),
    "<=>": _compared(same),
    "and": _chain(and_),
    "or": _chain(or_),
    "like": _text_test(_like),
    "startswith": _text_test(lambda value, part: value.expr.str.starts_with(part)),
    "endswith": _text_test(lambda value, part: value.expr.str.ends_with(part)),
    "contains": _text_test(lambda value, part: value.expr.str.contains(part, literal=True)),
}


def _rule(function: str, count: int) -> _Rule | None:
    """Return the rule for a function with this number of arguments; None if it is not supported."""
    if function == "in":
        return _Reader.member
    return (_UNARY if count == 1 else _BINARY if count == 2 else {}).get(function)


def _literal(value: Any, dtype: pl.DataType) -> Value | None:
    """Return a literal that Spark compares with a type by value; None if Spark converts one of them."""
    literal: Value | None = None
    match dtype, value:
        case _, None:
            literal = NULL
        case pl.Boolean(), bool():
            literal = truth(value)
        case pl.String(), str():
            literal = text(value)
        case pl.Datetime(), datetime() if (value.tzinfo is None) is (dtype.time_zone is None):
            literal = time_literal(value, zoned=dtype.time_zone is not None)
        case pl.Date(), date() if not isinstance(value, datetime):
            literal = date_literal(value)
        case _, int() | float() | Decimal() if dtype.is_numeric() and not isinstance(value, bool):
            literal = _number(value, dtype)
        case _:
            pass
    return literal


def _number(value: Any, dtype: pl.DataType) -> Value | None:
    exact = Decimal(value)
    if dtype.is_float():
        # Whether Spark rounds a literal to single precision depends on a setting.
        is_single = abs(float(exact)) < _MAX_SINGLE and Decimal(float(np.float32(exact))) == exact
        return number(float(exact)) if is_single or not isinstance(dtype, pl.Float32) else None
    if isinstance(value, float):
        return None
    precision, scale = (dtype.precision, dtype.scale) if isinstance(dtype, pl.Decimal) else (_LONG_DIGITS, 0)
    exponent = int(exact.as_tuple().exponent)
    whole = _LONG_DIGITS + 1 if isinstance(value, int) else max(len(exact.as_tuple().digits) + exponent, 0)
    # Spark rounds one of the two if a decimal needs more digits than it can have.
    fits = max(precision - scale, whole) + max(scale, -exponent) <= MAX_DIGITS
    return number(value) if fits else None


def _is_plain_list(values: list[Any], dtype: pl.DataType) -> bool:
    """Return whether Spark compares a column and a list in the type of the column."""
    values = [value for value in values if value is not None]  # null has every type
    kinds = {type(value) for value in values}
    if dtype.is_float():
        return kinds <= {int, Decimal, float}
    if not isinstance(dtype, pl.Decimal):
        return len(kinds) == 1 and not (dtype.is_integer() and kinds != {int})
    digits = [value.as_tuple() for value in values if kinds == {Decimal}]
    whole = [dtype.precision - dtype.scale, *(len(d.digits) + int(d.exponent) for d in digits)]
    scales = [dtype.scale, *(-int(d.exponent) for d in digits)]
    return kinds == {int} or (bool(digits) and max(whole) + max(scales) <= MAX_DIGITS)
