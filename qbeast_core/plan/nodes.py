"""Parse row filters to ANDs and ORs over atoms, each of which bounds one column and excludes no matching row."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any, Final, Literal, TypeAlias, TypeGuard

import numpy as np
import orjson
import polars as pl

Op = Literal["<", "<=", "==", "!=", ">=", ">"]

_FEW: Final = 100  # values


@dataclass(frozen=True, slots=True)
class Operand:
    """A top-level column, possibly below casts that keep its order."""

    column: str
    dtype: pl.DataType
    # Types that it is cast to, innermost first. Every cast is monotone: `a <= b` implies `cast(a) <= cast(b)`
    # wherever both are not null.
    casts: tuple[pl.DataType, ...] = ()

    @property
    def result(self) -> pl.DataType:
        """The type that is compared: the type of the last cast, or of the column."""
        return self.casts[-1] if self.casts else self.dtype

    def apply(self, values: pl.Expr) -> pl.Expr:
        """Apply the casts to `values` of the column; values that do not fit become null."""
        for dtype in self.casts:
            values = values.cast(dtype, strict=False)
        return values


@dataclass(frozen=True, slots=True, eq=False)
class Compare:
    """Rows where the comparison with a value is true; null never matches."""

    operand: Operand
    # As Polars compares: NaN equals NaN and is above every number, strings compare by UTF-8 bytes.
    op: Op
    # Right side: one value, not null, with the type it has in the filter.
    value: pl.Series


@dataclass(frozen=True, slots=True, eq=False)
class IsIn:
    """Rows where the operand equals one of `values` (at least one; not null, sorted, unique)."""

    operand: Operand
    values: pl.Series


@dataclass(frozen=True, slots=True, eq=False)
class StartsWith:
    """Rows where a string column starts with `prefix` (not empty)."""

    operand: Operand
    prefix: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """Rows where the column is null."""

    column: str


@dataclass(frozen=True, slots=True)
class IsNotNull:
    """Rows where the column is not null."""

    column: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Any row may match: an expression that prunes nothing."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No row matches."""


@dataclass(frozen=True, slots=True, eq=False)
class And:
    """Rows that match all children."""

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Or:
    """Rows that match at least one child."""

    children: tuple[Node, ...]


Atom: TypeAlias = Compare | IsIn | StartsWith | IsNull | IsNotNull
Node: TypeAlias = And | Or | Atom | Unknown | Nothing


def all_of(nodes: Sequence[Node]) -> Node:
    """Return the node for rows that match all nodes; without nodes, any row.

    >>> all_of([Unknown(), IsNull("x")])
    IsNull(column='x')
    >>> all_of([Nothing(), IsNull("x")])
    Nothing()
    """
    return _joined(nodes, And, neutral=Unknown(), absorbing=Nothing())


def any_of(nodes: Sequence[Node]) -> Node:
    """Return the node for rows that match at least one node; without nodes, no row.

    >>> any_of([Nothing(), IsNull("x")])
    IsNull(column='x')
    >>> any_of([Unknown(), IsNull("x")])
    Unknown()
    """
    return _joined(nodes, Or, neutral=Nothing(), absorbing=Unknown())


def _joined(
    nodes: Sequence[Node], join: type[And | Or], *, neutral: Unknown | Nothing, absorbing: Unknown | Nothing
) -> Node:
    if absorbing in nodes:
        return absorbing
    kept = tuple(node for node in nodes if node != neutral)
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else join(kept)


def matches_few(node: Node, constant: Collection[str]) -> bool:
    """Return whether all matching rows have one of few values, or one prefix, in a column that is not constant.

    >>> text = Operand("s", pl.String())
    >>> node = And((IsNull("x"), Or((StartsWith(text, "a"), IsIn(text, pl.Series(["b"]))))))
    >>> matches_few(node, []), matches_few(node, ["s"]), matches_few(Or((node, IsNull("x"))), [])
    (True, False, False)
    """
    match node:
        case And(children):
            return any(matches_few(child, constant) for child in children)
        case Or(children):
            return all(matches_few(child, constant) for child in children)
        case Compare(operand, "==", _):
            return operand.dtype != pl.Boolean() and operand.column not in constant
        case IsIn(operand, values):
            return len(values) <= _FEW and operand.column not in constant
        case StartsWith(operand, _):
            return operand.column not in constant
        case _:
            return False


def columns_in(node: Node) -> frozenset[str]:
    """Return the columns that a filter names."""
    if isinstance(node, (Unknown, Nothing)):
        return frozenset()
    if isinstance(node, (And, Or)):
        return frozenset().union(*map(columns_in, node.children))
    return frozenset({column_of(node)})


def column_of(atom: Atom) -> str:
    """Return the column of an atom.

    >>> column_of(IsNull("x"))
    'x'
    """
    return atom.column if isinstance(atom, IsNull | IsNotNull) else atom.operand.column


# The comparison that is true where another is false; both are null on null.
NEGATED: dict[Op, Op] = {"<": ">=", "<=": ">", "==": "!=", "!=": "==", ">=": "<", ">": "<="}

# The equivalent comparison with the sides swapped.
MIRRORED: dict[Op, Op] = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">=": "<=", ">": "<"}

_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128)
FLAT_ZONES = (None, "UTC")


def keeps_order(source: pl.DataType, target: pl.DataType) -> bool:
    """Return whether a cast never swaps two values; it may merge values or return null.

    >>> keeps_order(pl.Int32(), pl.Int64()), keeps_order(pl.Int64(), pl.Int32())
    (True, False)
    """
    if isinstance(source, _INTEGERS):
        return _integer_keeps_order(source, target)
    if isinstance(source, pl.Datetime):
        to_date = isinstance(target, pl.Date) and source.time_zone in FLAT_ZONES
        return to_date or isinstance(target, pl.Datetime)
    if isinstance(source, pl.Decimal) and isinstance(target, pl.Decimal):
        return target.scale >= source.scale
    to_double = isinstance(source, (pl.Float32, pl.Decimal)) and isinstance(target, pl.Float64)
    to_time = isinstance(source, pl.Date) and isinstance(target, pl.Datetime)
    return to_double or to_time or source == target


def _integer_keeps_order(source: pl.DataType, target: pl.DataType) -> bool:
    if isinstance(target, _INTEGERS):
        return _INTEGERS.index(type(source)) <= _INTEGERS.index(type(target))
    exact = isinstance(source, (pl.Int8, pl.Int16)) and isinstance(target, pl.Float32)
    return exact or isinstance(target, (pl.Float64, pl.Decimal))


def compare(operand: Operand, op: Op, value: pl.Series) -> Node:
    """Return the node for ``operand op value``."""
    if value.null_count():
        return Nothing()
    if not _comparable(operand.result, value.dtype):
        return Unknown()
    if isinstance(operand.result, pl.Float32) and not isinstance(value.dtype, pl.Float32):
        return _compare_float32(operand, op, value)
    return Compare(operand, op, value)


def is_in(operand: Operand, values: pl.Series, *, nulls_equal: bool) -> Node:
    """Return the node for rows whose operand is one of `values`."""
    finite = values.drop_nulls()
    null_node: Node = Nothing()
    if nulls_equal and len(finite) < len(values):
        null_node = Unknown() if operand.casts else IsNull(operand.column)
    if not len(finite):
        return null_node
    if not _comparable(operand.result, values.dtype):
        return Unknown()
    if isinstance(operand.result, pl.Float32):  # the engine may round values to the type of the column
        doubles = finite.cast(pl.Float64)
        finite = pl.concat([doubles, doubles.cast(pl.Float32).cast(pl.Float64)])
    return any_of([IsIn(operand, finite.unique().sort()), null_node])


def _comparable(left: pl.DataType, right: pl.DataType) -> bool:
    """Return whether the engine compares two types by value, in an order that bounds follow."""
    if left.is_numeric():
        return right.is_numeric()
    if isinstance(left, pl.Datetime) and isinstance(right, pl.Datetime):
        return left.time_zone == right.time_zone  # else the engine raises, and names the column
    if isinstance(left, (pl.Date, pl.Datetime)):
        return isinstance(right, (pl.Date, pl.Datetime))
    return isinstance(left, (pl.String, pl.Boolean)) and left == right


def _compare_float32(operand: Operand, op: Op, value: pl.Series) -> Node:
    """Allow for the literal and its float32 rounding: which one the engine uses depends on the literal's type."""
    double = value.cast(pl.Float64)
    rounded = double.cast(pl.Float32).cast(pl.Float64)
    if (double.eq_missing(rounded)).all():
        return Compare(operand, op, double)
    both = pl.concat([double, rounded]).sort()
    low, high = both[:1], both[1:]
    if op in ("<", "<="):
        return Compare(operand, "<=", high)
    if op in (">", ">="):
        return Compare(operand, ">=", low)
    if op == "==":
        return all_of([Compare(operand, ">=", low), Compare(operand, "<=", high)])
    return Unknown()


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


# Comparisons that are all true.
_Comparisons: TypeAlias = list[tuple[Op, pl.Series]]

# The argument of a function, and alternatives: comparisons of the argument, of which one alternative is true.
Preimage: TypeAlias = tuple[Term, list[_Comparisons]]

_MAX_OF: Final[dict[type[pl.DataType], int]] = {
    dtype: (1 << bits - 1) - 1
    for dtype, bits in ((pl.Int8, 8), (pl.Int16, 16), (pl.Int32, 32), (pl.Int64, 64), (pl.Int128, 128))
}
_INTEGER_TYPES, _FLOATS = tuple(_MAX_OF), (pl.Float32, pl.Float64)
_NAN: Final = pl.Series([math.nan])
# Floats: largest number that is safe from overflow, binary digits that are exact after rounding, binary digits of
# the smallest number.
_SINGLE, _DOUBLE = (Fraction(10) ** 15, 21, 140), (Fraction(10) ** 150, 50, 1060)

# Dates reach at least this many years before and after year 0.
_YEARS: Final = 200_000


def preimage(term: Term, op: Op, value: pl.Series) -> Preimage | None:
    """Return the comparisons of a column that follow from a comparison of a function of the column.

    >>> term = Term.of(pl.col("x") * 2.0, pl.Schema({"x": pl.Float64}))
    >>> inner, alternatives = preimage(term, ">=", pl.Series([8.0]))
    >>> inner.kind, [(op, round(bound.item(), 9)) for op, bound in alternatives[0]]
    ('Column', [('>=', 4.0)])
    """
    group, name, _ = term.function if term.kind == "Function" else (term.kind, "", None)
    if op == "!=" or not term.children:
        return None
    if group in ("BinaryExpr", "Negate"):
        return _of_line(term, op, value)
    inner = term.children[0]
    if group != "TemporalExpr" or name not in ("Year", "Truncate") or not _is_flat(inner.dtype):
        return None
    comparisons = (
        _of_year(op, value) if name == "Year" else _of_truncated(inner.dtype, term.children[1], op, value)
    )
    if comparisons is None:
        return None
    zone = inner.dtype.time_zone if isinstance(inner.dtype, pl.Datetime) else None
    return inner, [[(op, bound.cast(pl.Datetime("us", zone))) for op, bound in comparisons]]


def _is_flat(dtype: pl.DataType | None) -> TypeGuard[pl.Date | pl.Datetime]:
    """Return whether a type holds dates, or times in UTC or without a time zone."""
    return isinstance(dtype, pl.Date) or (isinstance(dtype, pl.Datetime) and dtype.time_zone in FLAT_ZONES)


def _of_year(op: Op, value: pl.Series) -> _Comparisons | None:
    year = _number(value)
    if year is None or abs(year) > _YEARS:
        return None
    first, last = math.ceil(year), math.floor(year)  # years that equal the value: none if first > last
    start = last + 1 if op == ">" else first
    end = first if op == "<" else last + 1
    return _between(op, _new_year(start), _new_year(end), below="<")


def _new_year(year: int) -> pl.Series:
    """Return the first day of a year, also outside of the range of Python's dates."""
    day = np.array([year - 1970], dtype="datetime64[Y]").astype("datetime64[D]").astype(np.int32)
    return pl.Series(day).cast(pl.Date)


def _of_truncated(dtype: pl.DataType, unit_term: Term, op: Op, value: pl.Series) -> _Comparisons | None:
    """Compare the time itself: it is at or after the truncated time, by less than the unit."""
    unit = unit_term.evaluate_one()
    if unit is None or unit.null_count() or not _is_flat(value.dtype):
        return None
    if op in (">=", ">", "!="):  # needs no end, which may be out of range
        return _between(op, value, value)
    try:
        # One more step: a date drops hours, and a bound in microseconds drops nanoseconds.
        end = value.cast(pl.Datetime("us")).dt.offset_by(unit.item())
        end = end.dt.offset_by("1d" if isinstance(dtype, pl.Date) else "1us")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):  # the end is out of range
        return None
    return _between(op, value, end, below="<")


@dataclass(frozen=True, slots=True)
class _Line:
    """Arithmetic with a constant, `slope * x + offset`, exact except for rounding and overflow."""

    inner: Term
    # The slope is not 0.
    slope: Fraction
    offset: Fraction

    def solve(self, value: Fraction) -> Fraction:
        """Return the x at which the line has a value."""
        return (value - self.offset) / self.slope


def _line(term: Term) -> _Line | None:
    """Parse a sum, difference, product or quotient of a term and a constant, or a negation."""
    one, zero = Fraction(1), Fraction(0)
    if term.kind == "Function":
        return _Line(term.children[0], -one, zero)
    left, right = term.children
    inner, constant = (left, right.evaluate_one()) if right.is_constant else (right, left.evaluate_one())
    number = None if constant is None else _number(constant)
    match str(term.body["op"]):
        case "Plus" if number is not None:
            return _Line(inner, one, number)
        case "Minus" if number is not None:
            return _Line(inner, one, -number) if inner is left else _Line(inner, -one, number)
        case "Multiply" if number:
            return _Line(inner, number, zero)
        case "TrueDivide" if number and inner is left:
            return _Line(inner, 1 / number, zero)
        case _:
            return None


def _of_line(term: Term, op: Op, value: pl.Series) -> Preimage | None:
    line, target, result = _line(term), _number(value), term.dtype
    source = None if line is None else line.inner.dtype
    if line is None or target is None or result is None:
        return None
    alternatives: list[_Comparisons] | None = None
    if isinstance(result, _FLOATS) and isinstance(source, (*_FLOATS, *_INTEGER_TYPES)):
        alternatives = _of_floats(line, result, op, target)
    elif (
        isinstance(result, _INTEGER_TYPES)
        and isinstance(source, _INTEGER_TYPES)
        and line.slope.denominator == 1
    ):
        # An integer is compared with a float as a float.
        slack = abs(target) / (1 << 50) if value.dtype.is_float() else Fraction(0)
        alternatives = _of_integers(line, result, op, target, slack)
    return None if alternatives is None else (line.inner, alternatives)


def _of_floats(line: _Line, result: pl.DataType, op: Op, target: Fraction) -> list[_Comparisons] | None:
    slack = _rounding(result, line, target)
    if slack is None:
        return None
    turned = MIRRORED[op] if line.slope < 0 else op
    low, high = float(line.solve(target) - slack), float(line.solve(target) + slack)
    ends = pl.Series([math.nextafter(low, -math.inf)]), pl.Series([math.nextafter(high, math.inf)])
    alternatives = [_between(turned, *ends)]
    if turned != op and op in (">", ">="):
        # Arithmetic on NaN returns NaN, which is above all numbers, whatever the sign of the slope.
        alternatives.append([(">=", _NAN)])
    return alternatives


def _of_integers(
    line: _Line, result: pl.DataType, op: Op, target: Fraction, slack: Fraction
) -> list[_Comparisons]:
    source = line.inner.dtype
    turned = MIRRORED[op] if line.slope < 0 else op
    low, high = line.solve(target) - slack, line.solve(target) + slack
    ends = _integer(math.ceil(low), source), _integer(math.floor(high), source)
    return [_between(turned, *ends), *_wrapped(result, line)]


def _rounding(result: pl.DataType, line: _Line, target: Fraction) -> Fraction | None:
    """Return the maximum error that rounding adds to a solution; None for very large or very small numbers."""
    largest, digits, min_digits = _SINGLE if isinstance(result, pl.Float32) else _DOUBLE
    if max(abs(target), abs(line.offset), abs(line.slope), 1 / abs(line.slope)) > largest:
        return None
    size = (abs(target) + abs(line.offset)) / abs(line.slope) + abs(line.solve(target))
    tiny = Fraction(1, 1 << min_digits)
    return size / (1 << digits) + tiny / abs(line.slope) + tiny


def _wrapped(result: pl.DataType, line: _Line) -> list[_Comparisons]:
    """Return the ranges of x where integer arithmetic overflows and wraps around."""
    max_value, source = _MAX_OF[type(result)], line.inner.dtype
    ends = line.solve(Fraction(max_value)), line.solve(Fraction(-max_value - 1))
    above, below = math.floor(max(ends)), math.ceil(min(ends))
    alternatives: list[_Comparisons] = []
    if above < max_value:
        alternatives.append([(">", _integer(above, source))])
    if below > -max_value - 1:
        alternatives.append([("<", _integer(below, source))])
    return alternatives


def _between(op: Op, low: pl.Series, high: pl.Series, *, below: Op = "<=") -> _Comparisons:
    """Compare with the ends of an interval that encloses the value."""
    comparisons: _Comparisons = []
    if op in ("==", ">=", ">"):
        comparisons.append((">=", low))
    if op in ("==", "<=", "<"):
        comparisons.append((below, high))
    return comparisons


def _integer(value: int, source: pl.DataType | None) -> pl.Series:
    """Return a bound as Int64, or as Int128 if the column has that type and the bound needs it."""
    wide = isinstance(source, pl.Int128) and not -(2**63) <= value < 2**63
    dtype = pl.Int128 if wide else pl.Int64
    max_value = _MAX_OF[dtype]
    return pl.Series([min(max(value, -max_value - 1), max_value)], dtype=dtype)


def _number(value: pl.Series) -> Fraction | None:
    """Return a constant as an exact number; None for NaN, infinities and values that are not numbers."""
    if not value.dtype.is_numeric():
        return None
    item = value.item()
    return Fraction(item) if not isinstance(item, float) or math.isfinite(item) else None
