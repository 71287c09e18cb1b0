"""Spark Columns as Polars expressions: conditions and values that mean the same in both, or a refusal by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.query.atoms import mirror_op
from qbeast_spark_bridge.predicates.atoms import (
    OPS,
    Columns,
    SqlColumn,
    compared,
    in_list,
    is_null,
    same_as,
)
from qbeast_spark_bridge.predicates.column_tree import Bound, Call, ColumnNode, Name, Opaque, SqlLiteral
from qbeast_spark_bridge.predicates.compare import Translation, join

_EVERY: Final = {"and": True, "or": False}
_NOT: Final = ("!", "not")
_NULL_TESTS: Final = {"isnull": False, "isnotnull": True}
_PATTERN_SIGNS: Final = "%_\\"
_TEXT_TESTS: Final[dict[str, Callable[[pl.Expr, str], pl.Expr]]] = {
    "startswith": lambda column, text: column.str.starts_with(text),
    "endswith": lambda column, text: column.str.ends_with(text),
    "contains": lambda column, text: column.str.contains(text, literal=True),
}


def parse_column(node: ColumnNode, columns: Columns, *, argument: str, negated: bool = False) -> Translation:
    """Understand a condition that was given as a Column."""
    match node:
        case Call(name, arguments) if name.lower() in _EVERY:
            parts = [parse_column(part, columns, argument=argument, negated=negated) for part in arguments]
            return join(parts, every=_EVERY[name.lower()] is not negated)
        case Call(name, (inner,)) if name.lower() in _NOT:
            return parse_column(inner, columns, argument=argument, negated=not negated)
        case SqlLiteral("bool" | "null"):
            return Translation(pl.lit(node.kind == "bool" and node.value is not negated))
        case _:
            found = _test(node, columns, argument, negated=negated)
            if found is None or not found.exact:
                return Translation(None, unsupported=_text(node))
            return found


def _test(node: ColumnNode, columns: Columns, argument: str, *, negated: bool) -> Translation | None:
    """Understand a test of one column."""
    name, sides = (node.function.lower(), node.arguments) if isinstance(node, Call) else ("", (node,))
    left, *others = [_side(side, columns, argument) for side in sides] or [None]
    right = others[0] if len(others) == 1 else None
    if isinstance(left, SqlLiteral) and isinstance(right, SqlColumn) and name in OPS:
        return compared(right, mirror_op(OPS[name]), left, negated=negated)
    if not isinstance(left, SqlColumn):
        return None
    found: Translation | None = None
    if not name and left.dtype == pl.Boolean():
        found = Translation(~left.expr if negated else left.expr)
    elif name in OPS:
        found = compared(left, OPS[name], right, negated=negated)
    elif name == "<=>":
        found = same_as(left, right, negated=negated)
    elif name in _NULL_TESTS:
        found = is_null(left, negated=negated is not _NULL_TESTS[name])
    elif name == "in":
        literals = [one if isinstance(one, SqlLiteral) else None for one in others]
        found = in_list(left, literals, negated=negated)
    elif isinstance(right, SqlLiteral) and right.kind == "string" and left.dtype == pl.String():
        found = _text_test(left, name, str(right.value), negated=negated)
    return found


def _text_test(column: SqlColumn, name: str, text: str, *, negated: bool) -> Translation | None:
    if name == "like" and text.endswith("%"):
        name, text = "startswith", text[:-1]
        if any(sign in text for sign in _PATTERN_SIGNS):
            return None
    rule = _TEXT_TESTS.get(name)
    if rule is None:
        return None
    test = rule(column.expr, text)
    return Translation(~test if negated else test)


def _side(node: ColumnNode, columns: Columns, argument: str) -> SqlColumn | SqlLiteral | None:
    if isinstance(node, SqlLiteral):
        return node
    if isinstance(node, Bound):
        _refuse_bound(node.text, argument)
    return column_named(node.parts, columns, argument) if isinstance(node, Name) else None


def column_named(parts: tuple[str, ...], columns: Columns, argument: str) -> SqlColumn:
    """Find a column by its name, whatever the case."""
    found = columns.get(tuple(part.lower() for part in parts))
    if found is None:
        known = [".".join(name) for name in columns]
        msg = f"{argument} names no such column: {'.'.join(parts)!r}; there are {known}. Nothing was changed."
        raise InvalidInputError(msg, argument=argument)
    return found


def _refuse_bound(text: str, argument: str) -> NoReturn:
    msg = (
        f"{argument} names the column {text} of a DataFrame, and the table's rows are no rows of that; nothing was "
        "changed. Name the table's column: pyspark.sql.functions.col(...)."
    )
    raise InvalidInputError(msg, argument=argument)


def _text(node: ColumnNode) -> str:
    match node:
        case Name(parts):
            return ".".join(parts)
        case SqlLiteral():
            return repr(node.value)
        case Call(name, arguments):
            return f"{name}({', '.join(map(_text, arguments))})"
        case Bound(text) | Opaque(text):
            return text
