"""Spark Columns as trees of names, literals and functions, for classic sessions and Spark Connect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

from qbeast_core.errors import InvalidInputError

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


def tree_of(column: Any) -> ColumnNode:
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
