"""Inspect Polars expressions: parts, constants, and columns below casts that keep their order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson
import polars as pl

from qbeast_core.query.filters.nodes import Op, Operand, keeps_order

# Comparisons by their name in Polars.
COMPARISONS: dict[str, Op] = {"Lt": "<", "LtEq": "<=", "Eq": "==", "NotEq": "!=", "GtEq": ">=", "Gt": ">"}

# Comparisons with the two bounds of an interval, by its closed sides.
BOUNDS: dict[str, tuple[Op, Op]] = {
    "Both": (">=", "<="),
    "Left": (">=", "<"),
    "Right": (">", "<="),
    "None": (">", "<"),
}

_PURE_FUNCTIONS = ("TemporalExpr", "StringExpr", "Negate", "Abs")
_TIME_CASTS = {("TemporalExpr", name) for name in ("Date", "CastTimeUnit", "ConvertTimeZone")}
# Places of the parts of a construct.
_PARTS: dict[str, tuple[Any, ...]] = {
    "Alias": (0,),
    "BinaryExpr": ("left", "right"),
    "Cast": ("expr",),
    "Ternary": ("truthy", "falsy", "predicate"),
}


def named_columns(*expressions: pl.Expr | None) -> list[str]:
    """Return the columns that expressions name, each once: Polars lists a column as often as it is named.

    >>> named_columns((pl.col("x") == 5) | (pl.col("x") == 6), None, pl.col("y"))
    ['x', 'y']
    """
    named = (expr.meta.root_names() for expr in expressions if expr is not None)
    return list(dict.fromkeys(chain.from_iterable(named)))


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a filter, in two forms."""

    # The JSON serialisation of Polars, decoded. It loses NaN and infinities.
    tree: Any
    # The expression, for evaluation.
    expr: pl.Expr
    schema: pl.Schema

    @staticmethod
    def of(expr: pl.Expr, schema: pl.Schema) -> Term:
        """Return an expression as a term.

        Raises `polars.exceptions.PolarsError` if it holds a Python function, and `orjson.JSONDecodeError` if it is
        nested deeper than the limit of orjson.
        """
        return Term(orjson.loads(expr.meta.serialize(format="json")), expr, schema)

    @property
    def kind(self) -> str:
        """Name of the outermost construct."""
        return next(iter(self.tree)) if isinstance(self.tree, dict) else str(self.tree)

    @property
    def body(self) -> Any:
        """Contents of the outermost construct."""
        return self.tree[self.kind] if isinstance(self.tree, dict) else None

    @property
    def function(self) -> tuple[str, str, Any]:
        """Group, name and options of a function; only the group for functions without a name."""
        function = self.body["function"]
        if not isinstance(function, dict):
            return str(function), "", None
        group, name = next(iter(function.items()))
        if not isinstance(name, dict):
            return group, str(name), None
        return group, *next(iter(name.items()))

    @property
    def children(self) -> list[Term]:
        """Operands or arguments; empty if the two forms differ in number."""
        trees = _child_trees(self.kind, self.body)
        exprs = self.expr.meta.pop()[::-1]
        if len(trees) != len(exprs):
            return []
        return [Term(tree, expr, self.schema) for tree, expr in zip(trees, exprs, strict=True)]

    def chained(self, op: str) -> list[Term]:
        """List the parts of a left-leaning chain of one connective, without recursion."""
        term, parts = self, list[Term]()
        while term.kind == "BinaryExpr" and term.body["op"] == op and (children := term.children):
            term, right = children
            parts.append(right)
        return [term, *reversed(parts)]

    @property
    def dtype(self) -> pl.DataType | None:
        """The type of the values; None if Polars rejects the expression."""
        try:
            return pl.LazyFrame(schema=self.schema).select(self.expr).collect_schema().dtypes()[0]
        except pl.exceptions.PolarsError:
            return None

    @property
    def is_constant(self) -> bool:
        """Whether the value does not depend on rows: no column, no row count, no aggregate."""
        return _is_constant(self.tree)

    def evaluate(self) -> pl.Series | None:
        """Evaluate a constant of any length; None if the term is not a constant or Polars rejects it."""
        if not self.is_constant:
            return None
        try:
            return pl.select(self.expr).to_series()
        except pl.exceptions.PolarsError:
            return None

    def evaluate_one(self) -> pl.Series | None:
        """Evaluate a constant of one value, which may be null; None for other terms."""
        values = self.evaluate()
        return values if values is not None and len(values) == 1 else None

    def evaluate_list(self) -> pl.Series | None:
        """Evaluate a constant of several values or a constant list; None for other terms."""
        values = self.evaluate()
        if values is None or not isinstance(values.dtype, (pl.List, pl.Array)):
            return values
        return None if len(values) != 1 or values.null_count() else values.explode(empty_as_null=False)

    def operand(self) -> Operand | None:
        """Return a column below casts that keep its order; None for other terms."""
        if self.kind == "Column":
            dtype = self.schema.get(self.body)
            return None if dtype is None else Operand(self.body, dtype)
        children = self.children
        inner = children[0].operand() if len(children) == 1 else None
        if inner is None or self.kind == "Alias":
            return inner
        if self.kind != "Cast" and not (self.kind == "Function" and self.function[:2] in _TIME_CASTS):
            return None
        dtype = self.dtype
        if dtype is None or not keeps_order(inner.result, dtype):
            return None
        return Operand(inner.column, inner.dtype, (*inner.casts, dtype))


def _child_trees(kind: str, body: Any) -> list[Any]:
    return list(body["input"]) if kind == "Function" else [body[part] for part in _PARTS.get(kind, ())]


def _is_constant(tree: Any) -> bool:
    if not isinstance(tree, dict):
        return False
    kind, body = next(iter(tree.items()))
    if kind == "Literal":
        return True
    if kind == "Function":
        function = body["function"]
        group = next(iter(function)) if isinstance(function, dict) else function
        if group not in _PURE_FUNCTIONS:
            return False
    children = _child_trees(kind, body)
    return bool(children) and all(_is_constant(child) for child in children)
