"""Spark Columns: their trees, and their translation to equivalent Polars expressions in conditions and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from operator import and_, or_
from typing import Any, Final, Literal, TypeAlias

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.sql.operators import Comparison, compare, is_in, like, same
from qbeast_core.sql.portable import comparable
from qbeast_core.sql.values import NULL, InvalidSqlError, Value, of_type, text

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PART: Final = re.compile(r"`(?:[^`]|``)*`|[^.`]+")
_NAME: Final = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")
_PLAIN: Final = (type(None), bool, int, float, Decimal, str)


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a Column.

    `value` is the parts of a name, Spark's lower-case name of a function or operator, or the value of a literal, of
    which timestamps are in UTC or have no zone. It is a text for a column of one DataFrame (``df["x"]``, "bound") and
    for all others: casts, windows, Python functions, literals of other types, ``expr``.
    """

    kind: Literal["name", "call", "literal", "bound", "other"]
    value: Any
    arguments: tuple[_Node, ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case "name":
                return ".".join(self.value)
            case "call":
                return f"{self.value}({', '.join(map(str, self.arguments))})"
            case "literal":
                return repr(self.value)
            case _:
                return str(self.value)


def is_column(value: object) -> bool:
    """Return whether a value is a Column of any kind of session; some are not subclasses of the public class."""
    kind = type(value)
    return kind.__name__ == "Column" and kind.__module__.startswith("pyspark.sql")


def _tree_of(column: Any) -> _Node:
    """Return the tree of a Column."""
    attributes = vars(column)  # attribute access on a Column would select a field
    if "_expr" in attributes:
        return _of_connect(attributes["_expr"], str(column))
    java = attributes.get("_jc")
    if java is None or not hasattr(java, "node"):
        msg = "this PySpark does not expose the parts of a Column. Give SQL text instead."
        raise InvalidInputError(msg, argument="where")
    return _of_classic(java.node())


def _of_classic(node: Any) -> _Node:
    """Walk the JVM's nodes."""
    tree: _Node
    match str(node.getClass().getSimpleName()):
        case "UnresolvedAttribute":
            parts = tuple(map(str, _items(node.nameParts())))
            is_bound = node.planId().isDefined()
            tree = _Node("bound", ".".join(parts)) if is_bound else _Node("name", parts)
        case "Literal":
            tree = _java_literal(node.value()) or _Node("other", str(node.sql()))
        case "UnresolvedFunction" if not node.isDistinct():
            arguments = tuple(map(_of_classic, _items(node.arguments())))
            tree = _Node("call", str(node.functionName()).lower(), arguments)
        case "Alias":
            tree = _of_classic(node.child())
        case "SqlExpression":
            tree = _Node("other", str(node.expression()))
        case "ExpressionColumnNode" if _is_attribute(node):  # `df["x"]`
            tree = _Node("bound", str(node.sql()))
        case _:
            tree = _Node("other", str(node.sql()))
    return tree


def _is_attribute(node: Any) -> bool:
    return str(node.expression().getClass().getSimpleName()) == "AttributeReference"


def _items(sequence: Any) -> Iterator[Any]:
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()


def _java_literal(value: Any) -> _Node | None:
    literal = value
    match str(value.getClass().getName()) if hasattr(value, "getClass") else "":
        case "java.sql.Date":
            literal = date.fromisoformat(str(value.toLocalDate().toString()))
        case "java.time.LocalDate":
            literal = date.fromisoformat(str(value.toString()))
        case "java.time.LocalDateTime":
            literal = datetime.fromisoformat(str(value.toString()))
        case "java.sql.Timestamp" | "java.time.Instant" as kind:
            instant = value.toInstant() if kind == "java.sql.Timestamp" else value
            micros = int(instant.getNano()) // 1000
            literal = _EPOCH + timedelta(seconds=int(instant.getEpochSecond()), microseconds=micros)
        case _:
            pass
    return _Node("literal", literal) if isinstance(literal, (*_PLAIN, date)) else None


def _of_connect(node: Any, text: str) -> _Node:
    """Walk the client's expressions."""
    match type(node).__name__:
        case "ColumnReference":
            parts = _parts(node.name())
            is_bound = node._plan_id is not None or parts is None  # noqa: SLF001 -- not public
            return _Node("bound", text) if is_bound else _Node("name", parts)
        case "LiteralExpression":
            return _connect_literal(node) or _Node("other", text)
        case "UnresolvedFunction" if not node._is_distinct:  # noqa: SLF001 -- not public
            arguments = tuple(_of_connect(child, str(child)) for child in node.children)
            return _Node("call", str(node._name).lower(), arguments)  # noqa: SLF001 -- not public
        case "ColumnAlias":
            return _of_connect(node.children[0], text)
        case "SQLExpression":
            return _Node("other", str(node._expr))  # noqa: SLF001 -- not public
        case _:
            return _Node("other", text)


def _parts(name: str) -> tuple[str, ...] | None:
    """Split a name at dots outside of quotes; None if it is invalid.

    >>> _parts("source.`x.y`"), _parts("a b"), _parts("a.")
    (('source', 'x.y'), ('a b',), None)
    """
    if _NAME.fullmatch(name) is None:
        return None
    parts = [match[0] for match in _PART.finditer(name)]
    return tuple(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts)


def _connect_literal(node: Any) -> _Node | None:
    value, kind = node._value, type(node._dataType).__name__  # noqa: SLF001 -- not public
    if value is not None and kind == "DateType":
        value = _EPOCH.date() + timedelta(days=value)
    elif value is not None and kind in ("TimestampType", "TimestampNTZType"):
        moment = _EPOCH + timedelta(microseconds=value)
        value = moment if kind == "TimestampType" else moment.replace(tzinfo=None)
    elif kind in ("TimeType", "DayTimeIntervalType", "ArrayType") or not isinstance(value, _PLAIN):
        return None
    return _Node("literal", value)


_SIGNS: Final[tuple[Comparison, ...]] = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True, eq=False)
class ColumnTranslator:
    """Translates Columns over the columns of a table, and of the source of a merge."""

    # By lower-case name: one part, or two if the first is the name of the source.
    columns: Mapping[tuple[str, ...], Value]
    # The argument that has the Columns.
    argument: str = "where"

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
        return replace(self, argument=argument).meets(_tree_of(value)) if is_column(value) else value

    def values(self, values: object, argument: str) -> Any:
        """Return values of columns for `Table.update`; see `condition`."""
        if not isinstance(values, Mapping):
            return values
        own = replace(self, argument=argument)
        return {name: own.assigned(value) if is_column(value) else value for name, value in values.items()}

    def meets(self, node: _Node) -> pl.Expr:
        """Return a condition; raise for a part that may keep other rows in Polars."""
        is_call = node.kind == "call"
        arguments = node.arguments if is_call else (node,)
        rule = _rule(node.value, len(arguments)) if is_call else ColumnTranslator.plain
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
        if node.kind == "literal":
            return pl.lit(node.value)
        value = self.column(node)
        if value is None:
            raise self.unsupported(str(column), "literals and columns")
        return value.expr

    def plain(self, node: _Node) -> pl.Expr | None:
        """Return a literal or a column that is a condition by itself."""
        if node.kind == "literal":
            return pl.lit(node.value, dtype=pl.Boolean) if isinstance(node.value, bool | None) else None
        value = self.column(node)
        return value.expr if value is not None and isinstance(value.dtype, pl.Boolean) else None

    def column(self, node: _Node) -> Value | None:
        """Return the column of a name, ignoring case; None for other nodes."""
        if node.kind == "bound":
            msg = (
                f"{self.argument} names the column {node.value} of a DataFrame, not of the table. "
                "Name the table's column: pyspark.sql.functions.col(...)."
            )
            raise InvalidInputError(msg, argument=self.argument)
        if node.kind != "name":
            return None
        value = self.columns.get(tuple(part.lower() for part in node.value))
        if value is None:
            msg = f"{self.argument} names no such column: {str(node)!r}; there are {self.names}."
            raise InvalidInputError(msg, argument=self.argument)
        return value

    def operands(self, left: _Node, right: _Node) -> tuple[Value, Value] | None:
        """Return a column and the value to compare it with; None if Spark would convert one of them."""
        if left.kind == "literal":
            swapped = None if right.kind == "literal" else self.operands(right, left)
            return swapped and (swapped[1], swapped[0])
        if right.kind == "literal":
            sides = self.with_literals(left, [right])
        else:
            first, second = self.column(left), self.column(right)
            sides = None if first is None or second is None else comparable(first, second)
        return sides and (sides[0], sides[1][0])

    def with_literals(self, node: _Node, literals: Sequence[_Node]) -> tuple[Value, list[Value]] | None:
        """Return a column and literals to compare it with."""
        value, constants = self.column(node), [item.value for item in literals if item.value is not None]
        nulls = [NULL] * (len(literals) - len(constants))
        if value is None:
            return None
        if not constants:
            return value, nulls
        sides = comparable(value, [pl.Series([constant]) for constant in constants])
        return sides and (sides[0], sides[1] + nulls)

    def member(self, left: _Node, *items: _Node) -> pl.Expr | None:
        """Return whether a column's value is in a list of literals."""
        literals = [item for item in items if item.kind == "literal"]
        sides = self.with_literals(left, literals) if len(literals) == len(items) > 0 else None
        return None if sides is None else is_in(*sides).expr

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
) -> Callable[[ColumnTranslator, _Node, _Node], pl.Expr]:
    return lambda reader, left, right: join(reader.meets(left), reader.meets(right))


def _compared(comparison: Callable[[Value, Value], Value]) -> _Rule:
    def rule(reader: ColumnTranslator, left: _Node, right: _Node) -> pl.Expr | None:
        sides = reader.operands(left, right)
        return None if sides is None else comparison(*sides).expr

    return rule


def _null_test(test: Callable[[pl.Expr], pl.Expr]) -> _Rule:
    def rule(reader: ColumnTranslator, node: _Node) -> pl.Expr | None:
        value = reader.column(node)
        return None if value is None else test(value.expr)

    return rule


def _text_test(test: Callable[[Value, str], pl.Expr | None]) -> _Rule:
    """Return a test of a column of texts by a literal."""

    def rule(reader: ColumnTranslator, left: _Node, right: _Node) -> pl.Expr | None:
        is_text = right.kind == "literal" and isinstance(right.value, str)
        sides = reader.operands(left, right) if is_text else None
        return None if sides is None else test(sides[0], sides[1].const)

    return rule


def _like(value: Value, pattern: str) -> pl.Expr | None:
    """Return LIKE, unless the pattern has an escape, which a setting of Spark interprets."""
    return None if "\\" in pattern else like(value, text(pattern)).expr


def _not(reader: ColumnTranslator, node: _Node) -> pl.Expr:
    return ~reader.meets(node)


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
        return ColumnTranslator.member
    return (_UNARY if count == 1 else _BINARY if count == 2 else {}).get(function)
