"""The request of an estimate, validated before anything is read."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from numbers import Real
from operator import and_
from typing import Any, Final, NoReturn, cast

import polars as pl

from qbeast_core.errors import InvalidInputError, unknown_columns
from qbeast_core.query.plan.fractions import Sample, Share, sample_to_weights, share_of
from qbeast_core.resources import Resources
from qbeast_core.sampling.aggregates import Aggregates, RefusedAggregate, Smooth, recognise
from qbeast_core.sampling.batch import Lookup
from qbeast_core.sampling.rules import Target
from qbeast_core.table.data.expressions import UTC_NOW, Predicate, condition_of, type_by_row
from qbeast_core.table.data.frames import FrameLike, to_frame
from qbeast_core.table.engine.choice import budget_of
from qbeast_core.table.estimate.named import Expressions, named_expressions

_NOTHING: Final = "nothing was read"
_RESERVED: Final = ("rows_sampled", "reliable")
_QUERY: Final = re.compile(r"\s*SELECT\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
    """The arguments of `Table.estimate`; see there."""

    aggregates: Expressions
    by: Expressions | None = None
    where: Predicate | None = None
    join: tuple[FrameLike, str | Sequence[str]] | None = None
    error: Share | None = None
    absolute: Mapping[str, float] | None = None
    confidence: Share = 0.95
    sample: Sample | None = None
    simultaneous: bool = False
    max_fraction: Share = 1.0
    max_bytes: int | None = None
    min_group_rows: int = 0
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of reading."""

    sample: Sample | None
    max_fraction: float
    max_bytes: int | None
    # For the sums of sampled keys.
    memory_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A validated request."""

    aggregates: Aggregates
    # Group expressions by the names of their columns.
    groups: Mapping[str, pl.Expr]
    # Only rows that meet all of these count.
    conditions: tuple[pl.Expr, ...]
    lookup: Lookup | None
    targets: dict[str, Target]
    confidence: float
    # Whether `confidence` is that of all answers at once.
    simultaneous: bool
    # Reading does not go on for groups that seem smaller.
    min_group_rows: int
    limits: Limits
    # Columns of the table that are read.
    columns: tuple[str, ...]

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of groups."""
        return tuple(self.groups)

    @property
    def has_target(self) -> bool:
        """Whether rounds go on until answers are near enough."""
        return self.limits.sample is None

    @property
    def counts_rows(self) -> bool:
        """Whether every answer is a function of the number of rows."""
        answers = self.aggregates.answers
        return not self.by and all(isinstance(one, Smooth) and set(one.totals) <= {0} for one in answers)

    @property
    def condition(self) -> pl.Expr | None:
        """All conditions joined by AND; None: every row counts."""
        return pl.all_horizontal(self.conditions) if self.conditions else None

    def pushed(self, schema: pl.Schema) -> pl.Expr | None:
        """Return the conditions that only name columns of the table, joined by AND."""
        own = [one for one in self.conditions if set(one.meta.root_names()) <= set(schema)]
        return reduce(and_, own) if own else None

    def left(self, schema: pl.Schema) -> Question:
        """Return the question for rows that already meet `pushed`, with the columns that it still needs."""
        left = tuple(one for one in self.conditions if not set(one.meta.root_names()) <= set(schema))
        looked_at = _columns(self.aggregates, self.groups, left, self.lookup)
        own = tuple(name for name in looked_at if name in schema)
        return replace(self, conditions=left, columns=own or self.columns[:1])


def question_of(request: EstimateRequest, schema: pl.Schema) -> Question:
    """Validate a request."""
    lookup = _lookup(request.join, schema)
    joined = _joined(schema, lookup)
    request = _of_query(request, joined)
    groups = _groups(request.by, joined)
    wanted = _expressions(request.aggregates, "aggregates", joined)
    if not wanted:
        _refuse("aggregates", "must be one aggregate at least, such as {'n': pl.len()} or \"avg(price)\"")
    aggregates = _aggregates(wanted, joined, groups)
    conditions = _conditions(request.where, joined, frozenset(schema))
    own = [name for name in _columns(aggregates, groups, conditions, lookup) if name in schema]
    return Question(
        aggregates=aggregates,
        groups=groups,
        conditions=conditions,
        lookup=lookup,
        targets=_targets(request, list(wanted)),
        confidence=share_of(request.confidence, "confidence", one=False),
        simultaneous=request.simultaneous,
        min_group_rows=_count(request.min_group_rows, "min_group_rows", least=0),
        limits=_limits(request),
        columns=tuple(own or list(schema)[:1]),
    )


def _columns(
    aggregates: Aggregates,
    groups: Mapping[str, pl.Expr],
    conditions: Sequence[pl.Expr],
    lookup: Lookup | None,
) -> list[str]:
    """Return the columns that are read, each once."""
    named = [*aggregates.columns, *(lookup.on if lookup else ())]
    named += [name for one in (*groups.values(), *conditions) for name in one.meta.root_names()]
    return list(dict.fromkeys(named))


def _refuse(name: str, what: str, cure: str = "") -> NoReturn:
    msg = f"`{name}` {what}; {_NOTHING}{cure and '.'}{cure}"
    raise InvalidInputError(msg, argument=name)


def _aggregates(expressions: Mapping[str, pl.Expr], schema: pl.Schema, by: Collection[str]) -> Aggregates:
    taken = {*by, *_RESERVED, *(f"{other}{end}" for other in expressions for end in ("_low", "_high"))}
    for name in expressions:
        if name in taken:
            _refuse(
                "aggregates", f"cannot name an answer {name!r}: the frame of answers has another such column"
            )
    try:
        return recognise(expressions, partial(type_by_row, schema=schema, argument="aggregates"))
    except RefusedAggregate as refused:
        _refuse("aggregates", f"asks for {refused}")


def _expressions(given: object, argument_name: str, schema: pl.Schema) -> dict[str, pl.Expr]:
    read = partial(_sql_list, argument_name=argument_name, schema=schema)
    found = named_expressions(given, argument_name, read)
    for expr in found.values():
        unknown = [name for name in dict.fromkeys(expr.meta.root_names()) if name not in schema]
        if unknown:
            unknown_columns(argument_name, unknown, schema, _NOTHING)
    return found


def _names(argument_name: str, given: object) -> list[str]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        _refuse(argument_name, f"takes a column's name, or several in a list, not {given!r}")
    return list(names)


def _groups(given: object, schema: pl.Schema) -> dict[str, pl.Expr]:
    found = {} if given is None else _expressions(given, "by", schema)
    for name, expr in found.items():
        dtype = type_by_row(expr, schema, argument="by")
        if dtype.is_nested() or dtype == pl.Object():
            _refuse("by", f"cannot group by {name!r}, which is {dtype}")
        if name in _RESERVED:
            cure = " Give it another name in a mapping."
            _refuse(
                "by", f"cannot be called {name!r}: the frame of answers has another such column", cure=cure
            )
    return found


def _of_query(request: EstimateRequest, schema: pl.Schema) -> EstimateRequest:
    """Return a request with the parts of its query as its fields, if `aggregates` is a query."""
    text = request.aggregates
    if not isinstance(text, str) or not _QUERY.match(text):
        return request
    if request.by is not None or request.where is not None:
        _refuse("aggregates", "is a query: write groups and conditions in it, or the aggregates alone")
    from qbeast_core.query.sql.aggregates import sql_query  # noqa: PLC0415 -- sqlglot is slow to import

    with _reading(text, "aggregates", schema):
        found = sql_query(text, schema, clock=UTC_NOW)
    return replace(request, aggregates=found.aggregates, by=found.by, where=found.where)


def _sql_list(text: str, argument_name: str, schema: pl.Schema) -> dict[str, pl.Expr]:
    if argument_name == "by" and text in schema:
        return {text: pl.col(text)}
    from qbeast_core.query.sql.aggregates import sql_list  # noqa: PLC0415 -- sqlglot is slow to import

    with _reading(text, argument_name, schema):
        return sql_list(text, schema, aggregates=argument_name == "aggregates", clock=UTC_NOW)


@contextmanager
def _reading(text: str, argument_name: str, schema: pl.Schema) -> Generator[None]:
    """Turn errors of reading an SQL text into errors of an argument."""
    from qbeast_core.query.sql.lower import UnknownColumnError  # noqa: PLC0415 -- sqlglot is slow to import
    from qbeast_core.query.sql.tokens import InvalidSqlError  # noqa: PLC0415 -- as above

    try:
        yield
    except InvalidSqlError as error:
        _refuse(argument_name, f"asks for {text!r}, which cannot be read as SQL: {error}")
    except UnknownColumnError as error:
        unknown_columns(argument_name, [error.name], schema, _NOTHING)


def _conditions(given: Predicate | None, schema: pl.Schema, own: frozenset[str]) -> tuple[pl.Expr, ...]:
    """Split a condition at AND, until each part names columns of the table only or cannot be split."""
    if given is None:
        return ()
    found: list[pl.Expr] = []
    left = [condition_of(given, schema, argument="where", outcome=_NOTHING).expr]
    while left:
        one = left.pop()
        halves = [] if own.issuperset(one.meta.root_names()) else one.meta.pop()
        if len(halves) == 2 and (halves[1] & halves[0]).meta.eq(one):
            left += halves
        else:
            found.append(one)
    return tuple(found)


def _lookup(given: Any, schema: pl.Schema) -> Lookup | None:
    if given is None:
        return None
    pair: tuple[Any, ...] = tuple(given) if isinstance(given, tuple) else ()
    if len(pair) != 2:
        _refuse("join", "must be a pair of a frame and the column(s) that it shares with the table")
    frame, on = pair
    frame, names = to_frame(frame), _names("join", on)
    missing = [name for name in names if name not in schema or name not in frame.columns]
    if missing or not names:
        _refuse("join", f"needs columns that the table and the frame both have, and not both have {missing}")
    other = [name for name in names if frame.schema[name] != schema[name]]
    if other:
        _refuse(
            "join", f"compares {other}, which are of other types in the frame than in the table: cast them"
        )
    clash = [name for name in frame.columns if name in schema and name not in names]
    if clash:
        _refuse("join", f"brings columns that the table has too: {clash}; rename or drop them")
    if frame.select(names).is_duplicated().any():
        _refuse("join", f"is many to one: each value of {names} may be in the frame once; make it unique")
    return Lookup(frame, tuple(names))


def _joined(schema: pl.Schema, lookup: Lookup | None) -> pl.Schema:
    return schema if lookup is None else pl.Schema({**schema, **lookup.frame.schema})


def _targets(request: EstimateRequest, names: Sequence[str]) -> dict[str, Target]:
    given = cast("object", request.absolute)  # callers without a type checker pass anything
    if given is not None and not isinstance(given, Mapping):
        _refuse("absolute", "must be a mapping of names of answers to errors in their own units")
    absolute = dict(request.absolute or {})
    unknown = [name for name in absolute if name not in names]
    if unknown:
        _refuse("absolute", f"names no such answer(s): {unknown}; there are {[*names]}")
    if request.sample is not None:
        if request.error is not None or absolute:
            _refuse("sample", "says what to read and error what to reach: give one of them")
        return {name: Target() for name in names}
    if request.error is None and set(absolute) != set(names):
        _refuse(
            "error",
            "must be given: how far an answer may be off, as a share of it (0.02), or `absolute` for each answer; or "
            "sample=0.01, for intervals from that much",
        )
    relative = None if request.error is None else share_of(request.error, "error")
    return {
        name: Target(
            None if name in absolute else relative,
            _positive(absolute[name], "absolute") if name in absolute else None,
        )
        for name in names
    }


def _limits(request: EstimateRequest) -> Limits:
    if request.sample is not None:
        weights = sample_to_weights(request.sample)
        if weights.is_empty:
            _refuse("sample", f"must hold something, and {request.sample!r} does not")
    most = request.max_bytes
    return Limits(
        request.sample,
        share_of(request.max_fraction, "max_fraction"),
        None if most is None else _count(most, "max_bytes", least=1),
        budget_of(Resources(memory_bytes=request.memory_bytes), outcome=_NOTHING).memory_bytes,
    )


def _positive(given: object, name: str) -> float:
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 < float(given) < math.inf:
        _refuse(name, f"must be a number above 0, not {given!r}")
    return float(given)


def _count(given: object, name: str, *, least: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        _refuse(name, f"must be a whole number, {least} or more, not {given!r}")
    return given
