"""Conditions on rows, for Spark to apply and for the index to skip files; Polars expressions become Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.plan.nodes import BOUNDS, COMPARISONS, MIRRORED, Term, named_columns
from qbeast_core.support.text import excerpt
from qbeast_core.table.data.expressions import filter_of, text_filter
from qbeast_spark_bridge.predicates.columns import is_column
from qbeast_spark_bridge.spark_types import NAN, quoted, spark_literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_NAME: Final = re.compile(r"(?<!\.)`(?:[^`]|``)*`")  # not a field of a column

# Spark substitutes settings and environment variables that start like this, even inside quotes.
_SUBSTITUTED: Final = "${"


@dataclass(frozen=True, slots=True, eq=False)
class Where:
    """A condition for Spark, and for the index."""

    # Spark SQL for `keep_where`, or the caller's Column; None keeps all rows.
    condition: str | Column | None
    # True for the rows that the condition keeps; None if the condition is not translated.
    predicate: pl.Expr | None


def parse_where(
    where: str | Column | pl.Expr | None, schema: pl.Schema, collated: Collection[str] = ()
) -> Where:
    """Parse a condition of any form."""
    if where is None or is_column(where):
        return Where(where, None)  # type: ignore[arg-type] # a Column
    if isinstance(where, str):
        from qbeast_spark_bridge.predicates.text import tree_to_sql  # noqa: PLC0415 -- sqlglot takes 0.1 s to load

        expr, tree = text_filter(where, schema)
        _refuse_collations(expr, collated)
        return Where(tree_to_sql(tree, schema), expr)
    predicate = polars_filter(where, schema, collated)
    return Where(_to_sql(where, schema), predicate)  # type: ignore[arg-type] # an expression


def polars_filter(where: object, schema: pl.Schema, collated: Collection[str] = ()) -> pl.Expr | None:
    """Return a condition in Polars; raise if it uses a column with a collation."""
    predicate = filter_of(where, schema)  # type: ignore[arg-type] # it raises for other values
    _refuse_collations(predicate, collated)
    return predicate


def _refuse_collations(predicate: pl.Expr | None, collated: Collection[str]) -> None:
    compared = [name for name in named_columns(predicate) if name in collated]
    if compared:
        msg = (
            f"columns {compared} have a collation, which only Spark applies in comparisons. "
            "Filter the DataFrame by a condition of Spark."
        )
        raise InvalidInputError(msg, argument="where")


def keep_where(rows: DataFrame, sql: str) -> DataFrame:
    """Return the rows for which a condition is true.

    Spark substitutes ``${env:HOME}`` and the like in SQL before parsing it, even in quoted names. Columns with such
    names are renamed for the condition.
    """
    names = rows.columns
    if not any(_SUBSTITUTED in name for name in names):
        return rows.where(sql)
    plain = {name: f"c{number}" for number, name in enumerate(names)}
    return rows.toDF(*plain.values()).where(_with_names(sql, plain)).toDF(*names)


def _with_names(sql: str, names: dict[str, str]) -> str:
    """Return a condition with other names of columns.

    >>> _with_names("`a``b` > 1 AND `b` = 'b'", {"a`b": "c0", "b": "c1"})
    "`c0` > 1 AND `c1` = 'b'"
    """
    return _NAME.sub(lambda match: f"`{names[match[0][1:-1].replace('``', '`')]}`", sql)


_CONNECTIVES: Final = {"And": " AND ", "LogicalAnd": " AND ", "Or": " OR ", "LogicalOr": " OR "}

_SAME: Final = {"EqValidity": "{} <=> {}", "NotEqValidity": "NOT ({} <=> {})"}

# Spark compares no maps, not even with null. All other comparisons with null are null.
_WITH_NULL: Final = {"{} <=> {}": "({} IS NULL)", "NOT ({} <=> {})": "({} IS NOT NULL)"}

_TEXT_TESTS: Final = {"StartsWith": "startswith", "EndsWith": "endswith", "Contains": "contains"}

_UNKNOWN: Final = "CAST(NULL AS BOOLEAN)"

_INFINITIES: Final = "(CAST('-Infinity' AS DOUBLE), CAST('Infinity' AS DOUBLE))"

# Comparisons, not isnan(): null stays null. NaN is above the infinities for Spark as for Polars.
_FLOAT_TESTS: Final = {
    "IsNan": f"{{0}} = {NAN}",
    "IsNotNan": f"{{0}} != {NAN}",
    "IsFinite": f"{{0}} != {NAN} AND {{0}} NOT IN {_INFINITIES}",
    "IsInfinite": f"{{0}} IN {_INFINITIES}",
}


def _to_sql(expr: pl.Expr, schema: pl.Schema) -> str:
    """Translate a Polars condition to Spark's SQL, which keeps the same rows under all settings of a session.

    >>> _to_sql((pl.col("x") > 5) & ~pl.col("s").is_null(), pl.Schema({"x": pl.Int64, "s": pl.String}))
    "((`x` > CAST('5' AS BIGINT)) AND (NOT (`s` IS NULL)))"
    """
    try:
        term = Term.of(expr, schema)
    except (pl.exceptions.PolarsError, orjson.JSONDecodeError):  # a Python function, or nested too deep
        _refuse(expr)
    return _sql_of(term)


def _refuse(expr: pl.Expr) -> NoReturn:
    msg = (
        f"{excerpt(expr)!r} has no equivalent in Spark for all rows. Give the condition "
        "as SQL text or as a Spark Column, or compare a column with values of its own type."
    )
    raise InvalidInputError(msg, argument="where")


def _sql_of(term: Term) -> str:
    """Translate a condition, in parentheses."""
    if term.is_constant:
        value = term.evaluate_one()
        if value is None or value.dtype not in (pl.Boolean(), pl.Null()):
            _refuse(term.expr)
        return _UNKNOWN if value.null_count() else f"({str(value.item()).upper()})"
    children = term.children
    match term.kind:
        case "Column" if isinstance(term.schema.get(term.body), pl.Boolean):
            return quoted(term.body)
        case "Alias" if children:
            return _sql_of(children[0])
        case "BinaryExpr" if children:
            return _sql_of_binary(term, *children)
        case "Function" if children:
            return _sql_of_function(term, children)
        case _:
            _refuse(term.expr)


def _sql_of_binary(term: Term, left: Term, right: Term) -> str:
    op = str(term.body["op"])
    if op in _CONNECTIVES:
        return f"({_CONNECTIVES[op].join(map(_sql_of, term.chained(op)))})"
    if op in _SAME:
        sides = (right, left) if left.is_constant else (left, right)
        return _sql_of_comparison(term, *sides, _SAME[op])
    if op not in COMPARISONS:
        _refuse(term.expr)
    sign = COMPARISONS[op]
    if left.is_constant:
        left, right, sign = right, left, MIRRORED[sign]
    return _sql_of_comparison(term, left, right, f"{{}} {sign} {{}}")


def _sql_of_comparison(term: Term, left: Term, right: Term, form: str) -> str:
    name, dtype = _column(term, left)
    if right.is_constant:
        value = right.evaluate_one()
        if value is not None and value.null_count():
            return _WITH_NULL.get(form, _UNKNOWN).format(quoted(name))
        literal = None if value is None else spark_literal(value, dtype)
        if literal is None:
            _refuse(term.expr)
        return f"({form.format(literal.column(quoted(name)), literal.text)})"
    other, other_type = _column(term, right)
    if dtype != other_type or dtype.is_nested():
        _refuse(term.expr)
    return f"({form.format(quoted(name), quoted(other))})"


def _column(term: Term, part: Term) -> tuple[str, pl.DataType]:
    """Return a bare column's name and type."""
    while part.kind == "Alias" and part.children:
        part = part.children[0]
    dtype = term.schema.get(part.body) if part.kind == "Column" else None
    if dtype is None:
        _refuse(term.expr)
    return part.body, dtype


def _sql_of_function(term: Term, children: list[Term]) -> str:
    group, name, _ = term.function
    rule = _sql_of_text_test if group == "StringExpr" and name in _TEXT_TESTS else _POLARS_RULES.get(name)
    if rule is None or group not in ("Boolean", "StringExpr"):
        _refuse(term.expr)
    return rule(term, children)


def _null_test(term: Term, children: list[Term], test: str) -> str:
    name, _ = _column(term, children[0])
    return f"({quoted(name)} {test})"


def _sql_of_between(term: Term, children: list[Term]) -> str:
    bounds = BOUNDS.get(str(term.function[2]["closed"]))
    if bounds is None:
        _refuse(term.expr)
    sides = zip(bounds, children[1:], strict=True)
    parts = [_sql_of_comparison(term, children[0], side, f"{{}} {op} {{}}") for op, side in sides]
    return f"({' AND '.join(parts)})"


def _sql_of_text_test(term: Term, children: list[Term]) -> str:
    _, name, options = term.function
    column, dtype = _column(term, children[0])
    value = children[1].evaluate_one()
    text = None if value is None or not isinstance(dtype, pl.String) else spark_literal(value, dtype)
    is_plain = name != "Contains" or (isinstance(options, dict) and options.get("literal"))
    if text is None or not is_plain:
        _refuse(term.expr)
    return f"{_TEXT_TESTS[name]}({quoted(column)}, {text.text})"


def _sql_of_is_in(term: Term, children: list[Term]) -> str:
    name, dtype = _column(term, children[0])
    values = children[1].evaluate_list()
    if values is None or values.dtype.is_nested():
        _refuse(term.expr)
    items = values.drop_nulls()
    translated = [spark_literal(items[place : place + 1], dtype) for place in range(len(items))]
    literals = [literal for literal in translated if literal is not None]
    forms = {literal.column(quoted(name)) for literal in literals}
    if len(literals) < len(translated) or len(forms) > 1:
        _refuse(term.expr)
    texts = ", ".join(literal.text for literal in literals)
    test = f"{forms.pop()} IN ({texts})" if forms else f"IF({quoted(name)} IS NULL, {_UNKNOWN}, FALSE)"
    if not term.function[2]["nulls_equal"]:
        return f"({test})"
    if values.null_count():
        return f"({quoted(name)} IS NULL OR {test})"
    return f"({quoted(name)} IS NOT NULL AND {test})"


def _sql_of_float_test(term: Term, children: list[Term]) -> str:
    column, dtype = _column(term, children[0])
    if not dtype.is_float():
        _refuse(term.expr)
    return f"({_FLOAT_TESTS[term.function[1]].format(quoted(column))})"


_POLARS_RULES: Final[dict[str, Callable[[Term, list[Term]], str]]] = {
    "AllHorizontal": lambda _, children: f"({' AND '.join(map(_sql_of, children))})",
    "AnyHorizontal": lambda _, children: f"({' OR '.join(map(_sql_of, children))})",
    "IsBetween": _sql_of_between,
    "IsIn": _sql_of_is_in,
    "IsNotNull": lambda term, children: _null_test(term, children, "IS NOT NULL"),
    "IsNull": lambda term, children: _null_test(term, children, "IS NULL"),
    "Not": lambda _, children: f"(NOT {_sql_of(children[0])})",
    **dict.fromkeys(_FLOAT_TESTS, _sql_of_float_test),
}
