"""Recognise Polars aggregates by their structure: functions of sums, with their derivatives, and quantiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
import orjson
import polars as pl

from qbeast_core.plan.nodes import Term, named_columns
from qbeast_core.space.values import F64Array
from qbeast_core.support.frames import own_column
from qbeast_core.support.text import excerpt


@dataclass(frozen=True, slots=True, eq=False)
class Dual:
    """A function of totals at one point, and its derivatives there, for many groups at once.

    >>> total, rows = Dual.inputs(np.array([[12.0, 4.0]]))
    >>> mean = total / rows
    >>> mean.value, mean.slopes
    (array([3.]), array([[ 0.25, -0.75]]))
    """

    value: F64Array
    # Derivatives by each total, shape (groups, totals).
    slopes: F64Array

    @staticmethod
    def inputs(totals: F64Array) -> list[Dual]:
        """Return the totals as dual numbers, one per column."""
        units = np.eye(totals.shape[1])
        return [
            Dual(totals[:, index], np.broadcast_to(units[index], totals.shape)) for index in range(len(units))
        ]

    def constant(self, value: float) -> Dual:
        """Return a constant in the shape of this number."""
        return Dual(np.full_like(self.value, value), np.zeros_like(self.slopes))

    def __add__(self, other: Dual) -> Dual:
        return Dual(self.value + other.value, self.slopes + other.slopes)

    def __sub__(self, other: Dual) -> Dual:
        return Dual(self.value - other.value, self.slopes - other.slopes)

    def __mul__(self, other: Dual) -> Dual:
        slopes = self.slopes * other.value[:, None] + other.slopes * self.value[:, None]
        return Dual(self.value * other.value, slopes)

    def __truediv__(self, other: Dual) -> Dual:
        """Divide; division by zero returns NaN or an infinity."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = self.value / other.value
            slopes = (self.slopes - other.slopes * value[:, None]) / other.value[:, None]
        return Dual(value, slopes)

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slopes)

    def sqrt(self) -> Dual:
        """Return the square root; NaN below 0, where the slopes are NaN too."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.sqrt(self.value)
            return Dual(value, self.slopes / (2 * value)[:, None])


# Prefix of the columns of totals.
TOTAL: Final = own_column("total")

# Prefix of the columns of centres, from which distances are measured.
CENTRE: Final = own_column("centre")

_Formula: TypeAlias = Callable[[Sequence[Dual]], Dual]

_ARITHMETIC: Final[Mapping[str, Callable[[Dual, Dual], Dual]]] = {
    "Plus": Dual.__add__,
    "Minus": Dual.__sub__,
    "Multiply": Dual.__mul__,
    "TrueDivide": Dual.__truediv__,
}
_FLOATS: Final = ({"Literal": "Float64"}, {"Literal": "Float32"})
_NO_SCHEMA: Final = pl.Schema()
_ONE: Final = pl.lit(1, pl.Int32)
_ZERO: Final = pl.lit(0, pl.Int32)
_TRUE: Final = pl.lit(True, pl.Boolean)  # noqa: FBT003 -- a value, not an option
_REASONS: Final = (
    (
        {"Min", "Max"},
        "depends on single rows, which a sample may lack: read it with scan_table, or use a quantile",
    ),
    (
        {"UniqueCounts", "ValueCounts", "Mode"},
        "depends on rare values, which a sample may lack: read it with scan_table",
    ),
    (
        {"First", "Last", "Item", "Implode", "ArgMin", "ArgMax"},
        "picks single rows, which a sample may lack: read it with scan_table",
    ),
    ({"Over", "Rolling"}, "uses other rows (a window): aggregate with by= instead"),
    (
        {"Column", "Filter", "Ternary", "Selector"},
        "is not an aggregate: it has a value for every row; use its sum or mean",
    ),
)
_KINDS: Final = (
    "len, count, sum, mean, var, std, median, quantile, null_count, and +, -, *, / and sqrt of these, also with an "
    "inner filter; and n_unique of the sampling key"
)


class RefusedAggregate(Exception):  # noqa: N818 - internal to the library
    """The reason why an aggregate has no bound; callers turn it into a public error."""


@dataclass(frozen=True, slots=True, eq=False)
class Smooth:
    """A smooth function of totals over rows: counts, sums, means, ratios, variances."""

    name: str
    # Numbers of the totals that the function uses.
    totals: tuple[int, ...]
    formula: _Formula


@dataclass(frozen=True, slots=True, eq=False)
class Quantile:
    """The value below which a fraction of the rows lies."""

    name: str
    # Values of rows in Float64; null for rows that do not count.
    values: pl.Expr
    level: float
    # The name in Polars; used if all rows are read.
    interpolation: Any


@dataclass(frozen=True, slots=True, eq=False)
class Aggregates:
    """Requested aggregates as totals over rows, and functions of totals."""

    answers: tuple[Smooth | Quantile, ...]
    # Summed over rows; the first counts rows. They use columns of the table and of `centres`.
    totals: tuple[pl.Expr, ...]
    # Numbers near the means of squared values, so squares lose no digits. The caller computes each once, from any rows,
    # and passes it to `totals` as a column.
    centres: dict[str, pl.Expr]
    # The columns of the key if distinct keys are counted.
    key: tuple[str, ...] = ()
    # Whether a row shows its key, by the numbers of the totals that count distinct keys; these add 0 per row.
    shown: Mapping[int, pl.Expr] = field(default_factory=dict[int, pl.Expr])
    # Numbers of the totals to which a row adds at most 1.
    counts: frozenset[int] = frozenset((0,))

    @property
    def counts_keys(self) -> bool:
        """Whether all answers are functions of numbers of distinct keys."""
        return bool(self.shown) and all(
            isinstance(answer, Smooth) and self.shown.keys() >= set(answer.totals) for answer in self.answers
        )

    @property
    def quantiles(self) -> list[Quantile]:
        """The answers that are quantiles."""
        return [answer for answer in self.answers if isinstance(answer, Quantile)]

    @property
    def plain(self) -> dict[int, str]:
        """Names of columns by the numbers of the totals that are plain sums of columns."""
        columns = [(number, total) for number, total in enumerate(self.totals) if total.meta.is_column()]
        return {number: total.meta.output_name() for number, total in columns}

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns that the aggregates use."""
        values = (answer.values for answer in self.quantiles)
        exprs = [*self.totals, *values, *self.centres.values(), *self.shown.values()]
        names = dict.fromkeys([*self.key, *named_columns(*exprs)])
        return [name for name in names if not name.startswith(CENTRE)]


def recognise(
    expressions: Mapping[str, pl.Expr], check: Callable[[pl.Expr], pl.DataType], key: Sequence[str] = ()
) -> Aggregates:
    """Recognise aggregates by the structure of their expressions. `key`: columns whose distinct values can be counted.

    >>> aggregates = recognise({"mean": pl.col("x").mean()}, lambda expr: pl.Float64())
    >>> [str(total) for total in aggregates.totals], aggregates.answers[0].totals
    (['1', 'col("x")', 'col("x").is_not_null()'], (1, 2))
    """
    reader = _Recogniser(check, tuple(key))
    answers: list[Smooth | Quantile] = []
    for name, expr in expressions.items():
        try:
            answers.append(reader.answer(name, expr))
        except RefusedAggregate as refused:
            msg = f"{name!r}, {excerpt(expr)}: {refused}"
            raise RefusedAggregate(msg) from None
    used_key = reader.key if reader.shown else ()
    counts = frozenset((*reader.counts, *reader.shown))
    return Aggregates(tuple(answers), tuple(reader.totals), reader.centres, used_key, reader.shown, counts)


@dataclass(slots=True)
class _Recogniser:
    """Walks through expressions and collects their totals."""

    check: Callable[[pl.Expr], pl.DataType]
    key: tuple[str, ...]
    shown: dict[int, pl.Expr] = field(default_factory=dict[int, pl.Expr])
    totals: list[pl.Expr] = field(default_factory=lambda: [_ONE])
    centres: dict[str, pl.Expr] = field(default_factory=dict[str, pl.Expr])
    counts: set[int] = field(default_factory=lambda: {0})
    used: list[int] = field(default_factory=list[int])

    def answer(self, name: str, expr: pl.Expr) -> Smooth | Quantile:
        """Return one aggregate."""
        term = _term(expr)
        while term.kind == "Alias":
            term = _term(term.expr.meta.pop()[0])
        level = _quantile_of(term)
        if level is not None:
            values = term.expr.meta.pop()[-1]
            self._numeric(values, "a quantile", booleans=False)
            return Quantile(name, _filtered(values).cast(pl.Float64), *level)
        self.used = []
        formula = self.formula(term)
        return Smooth(name, tuple(dict.fromkeys(self.used)), formula)

    def formula(self, term: Term) -> _Formula:
        """Return an aggregate, or arithmetic on aggregates, as a function of totals."""
        inputs = term.expr.meta.pop()[::-1]
        match term.kind:
            case "Len":
                formula = self.total(_ONE)
            case "Literal":
                formula = _constant(_number(term.expr))
            case "Agg":
                formula = self.aggregate(term, inputs[0])
            case "BinaryExpr":
                formula = self.arithmetic(term, inputs)
            case "Function" if inputs:
                formula = self.function(term, inputs[0])
            case "Alias" | "Cast" if term.kind == "Alias" or term.body["dtype"] in _FLOATS:
                formula = self.formula(_term(inputs[0]))
            case _:
                _refuse(_name(term))
        return formula

    def arithmetic(self, term: Term, operands: Sequence[pl.Expr]) -> _Formula:
        """Return a sum, difference, product or ratio of aggregates."""
        sign = str(term.body["op"])
        combine = _ARITHMETIC.get(sign)
        if combine is None:
            _refuse(f"the operator {sign}", "is not smooth: only +, -, * and / of aggregates have a bound")
        left, right = (self.formula(_term(operand)) for operand in operands)
        return lambda totals: combine(left(totals), right(totals))

    def function(self, term: Term, inner: pl.Expr) -> _Formula:
        """Return a function of an aggregate, or an aggregate that Polars calls a function."""
        function = term.body["function"]
        if function == "NullCount":
            self._by_row(inner)
            return self.total(_filtered(inner, rows=pl.Expr.is_null), is_count=True)
        if function == "ApproxNUnique":
            return self.distinct(inner)
        if function not in ("Negate", {"Pow": "Sqrt"}):
            return _refuse(_name(term))
        operand = self.formula(_term(inner))
        if function == "Negate":
            return lambda totals: -operand(totals)
        return lambda totals: operand(totals).sqrt()

    def aggregate(self, term: Term, values: pl.Expr) -> _Formula:
        """Return an aggregate of rows."""
        name, body = next(iter(term.body.items()))
        match name:
            case "Count":
                self._by_row(values)
                present = pl.Expr.is_not_null if not body["include_nulls"] else _always
                return self.total(_filtered(values, rows=present), is_count=True)
            case "Sum":
                dtype = self._numeric(values, "a sum", booleans=True)
                return self.total(_filtered(values), is_count=dtype == pl.Boolean())
            case "Mean":
                self._numeric(values, "a mean", booleans=True)
                total = self.total(_filtered(values))
                rows = self.total(_filtered(values, rows=pl.Expr.is_not_null))
                return lambda totals: total(totals) / rows(totals)
            case "Var" | "Std":
                return self.variance(values, float(body[1]), root=name == "Std")
            case "NUnique":
                return self.distinct(values)
            case _:
                return _refuse(_name(term))

    def distinct(self, values: pl.Expr) -> _Formula:
        """Return the number of distinct keys of rows."""
        drops_nulls = _name(_term(values)) == "DropNulls"
        if drops_nulls:
            values = values.meta.pop()[0]
        self._by_row(values)
        kept = values.meta.pop()[-1] if _term(values).kind == "Filter" else values
        columns = _columns_of(kept)
        if not self.key or {*columns} != {*self.key}:
            self._refuse_distinct(kept, columns, drops_nulls=drops_nulls)
        # A struct of nulls is not null.
        is_dropped = drops_nulls and _term(kept).kind == "Column"
        shown = _filtered(values, rows=pl.Expr.is_not_null if is_dropped else lambda _: _TRUE)
        numbers = (number for number, other in self.shown.items() if other.meta.eq(shown))
        number = next(numbers, len(self.totals))
        if number == len(self.totals):
            self.totals.append(_ZERO)
            self.shown[number] = shown
        self.used.append(number)
        return lambda totals: totals[number]

    def _refuse_distinct(self, values: pl.Expr, columns: Sequence[str], *, drops_nulls: bool) -> NoReturn:
        """Refuse to count distinct values of other columns than the key."""
        sampled = f"this table is sampled by {[*self.key]}" if self.key else "this table has no sampling key"
        names = ", ".join(f'"{name}"' for name in columns or named_columns(values))
        call = f"qbeast.scan_table(path, columns=[{names}])"
        if columns:
            counted = f"pl.col({names})" if len(columns) == 1 else f"pl.struct({names})"
            nulls = ".drop_nulls()" if drops_nulls else ""
            call += f".select({counted}{nulls}.n_unique()).collect()"
        _refuse(
            "n_unique",
            "depends on rare values, which a sample may lack, except for all columns of the sampling key together, and "
            f"{sampled}: read it with {call}",
        )

    def variance(self, values: pl.Expr, ddof: float, *, root: bool) -> _Formula:
        """Return a variance, or its root, from sums of distances to a number near the mean."""
        self._numeric(values, "a variance", booleans=False)
        floats = _filtered(values).cast(pl.Float64)
        name = f"{CENTRE}{len(self.centres)}"
        self.centres[name] = floats.mean()
        distance = floats - pl.col(name)
        squares, total = self.total(distance * distance), self.total(distance)
        rows = self.total(_filtered(values, rows=pl.Expr.is_not_null))

        def formula(totals: Sequence[Dual]) -> Dual:
            count, distances = rows(totals), total(totals)
            spread = squares(totals) - distances * distances / count
            variance = spread / (count - count.constant(ddof))
            return variance.sqrt() if root else variance

        return formula

    def total(self, expr: pl.Expr, *, is_count: bool = False) -> _Formula:
        """Return the total of a value over rows; equal values share a total."""
        equal = (index for index, total in enumerate(self.totals) if total.meta.eq(expr))
        numbers = (index for index in equal if index not in self.shown)
        number = next(numbers, len(self.totals))
        if number == len(self.totals):
            self.totals.append(expr)
        if is_count:
            self.counts.add(number)
        self.used.append(number)
        return lambda totals: totals[number]

    def _numeric(self, values: pl.Expr, what: str, *, booleans: bool) -> pl.DataType:
        dtype = self._by_row(values)
        if not (dtype.is_numeric() or (booleans and dtype == pl.Boolean()) or dtype == pl.Null()):
            msg = f"{what} needs numbers, and {values} is {dtype}; cast it to a number first"
            raise RefusedAggregate(msg)
        return dtype

    def _by_row(self, values: pl.Expr) -> pl.DataType:
        """Check the aggregated value, and its inner filter if any."""
        parts = values.meta.pop()[::-1] if _term(values).kind == "Filter" else [values]
        types = [self.check(part) for part in parts]
        if types[-1] != pl.Boolean() and len(parts) > 1:
            msg = f"a filter needs a condition, and {parts[-1]} is {types[-1]}; compare it with a value"
            raise RefusedAggregate(msg)
        return types[0]


def _filtered(values: pl.Expr, rows: Callable[[pl.Expr], pl.Expr] | None = None) -> pl.Expr:
    """Return values, null for rows that an inner filter drops; with a test, whether rows pass both."""
    if _term(values).kind != "Filter":
        return values if rows is None else rows(values)
    kept, condition = values.meta.pop()[::-1]
    if rows is not None:
        return rows(kept) & condition.fill_null(value=False)
    return pl.when(condition).then(kept)


def _columns_of(values: pl.Expr) -> list[str]:
    """Return the name of a column, or the names of the columns of a struct; empty for other values."""
    is_struct = _name(_term(values)) == "AsStruct"
    parts = values.meta.pop()[::-1] if is_struct else [values]
    return [part.meta.output_name() for part in parts] if all(part.meta.is_column() for part in parts) else []


def _constant(number: float) -> _Formula:
    return lambda totals: totals[0].constant(number)


def _always(values: pl.Expr) -> pl.Expr:
    """Return true for each row."""
    return values.is_null() | values.is_not_null()


def _quantile_of(term: Term) -> tuple[float, Any] | None:
    """Return level and interpolation of a quantile; None for other aggregates."""
    name = _name(term)
    if name == "Median":
        return 0.5, "linear"
    if term.kind != "Function" or name != "Quantile":
        return None
    try:
        number = term.body["input"][1]["Literal"]["Dyn"]
        level = float(number["Float"] if "Float" in number else number["Int"])
    except (KeyError, TypeError):
        msg = "a quantile needs one level, a plain number between 0 and 1"
        raise RefusedAggregate(msg) from None
    if not 0 <= level <= 1:
        percent = f"; for {level:g} % write {level / 100:g}" if 1 < level < 100 else ""
        msg = f"a quantile's level lies between 0 and 1, and {level} does not{percent}"
        raise RefusedAggregate(msg)
    return level, str(term.body["function"]["Quantile"]["method"]).lower()


def _refuse(name: str, why: str | None = None) -> NoReturn:
    """Raise `RefusedAggregate` with the reason."""
    reason = why or next(
        (text for names, text in _REASONS if name in names), "cannot be bounded from a sample"
    )
    msg = f"{name} {reason}. Supported are: {_KINDS}"
    raise RefusedAggregate(msg)


def _name(term: Term) -> str:
    """Return the name of an expression's kind in Polars."""
    if term.kind == "Agg":
        return str(next(iter(term.body)))
    return term.function[0] if term.kind == "Function" else term.kind


def _term(expr: pl.Expr) -> Term:
    """Return an expression with its structure; the schema does not matter."""
    try:
        return Term.of(expr, _NO_SCHEMA)
    except (pl.exceptions.PolarsError, orjson.JSONDecodeError):
        return Term("a Python function, or a very deep expression,", expr, _NO_SCHEMA)


def _number(expr: pl.Expr) -> float:
    values = pl.select(expr).to_series()
    if (
        len(values) != 1
        or values.null_count()
        or not (values.dtype.is_numeric() or values.dtype == pl.Boolean)
    ):
        msg = f"{excerpt(expr)} beside aggregates is not a number"
        raise RefusedAggregate(msg)
    return float(values.item())
