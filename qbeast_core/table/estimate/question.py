"""What an estimate is asked for, understood or refused before anything is read."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Final, NoReturn, cast

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.estimate.aggregates import Aggregates, RefusedAggregate, Smooth, recognise
from qbeast_core.estimate.batch import Lookup
from qbeast_core.estimate.rules import Target
from qbeast_core.hints import Hint, Message, argument, did_you_mean
from qbeast_core.query.fractions import Sample, Share, sample_to_weights, share_of
from qbeast_core.resources import Resources
from qbeast_core.table.data.expressions import UTC_NOW, Predicate, condition_of, type_by_row
from qbeast_core.table.data.frames import FrameLike, to_frame
from qbeast_core.table.engine.choice import budget_of
from qbeast_core.table.estimate.named import Expressions, named_expressions

_NOTHING: Final = "nothing was read"
_RESERVED: Final = ("rows_sampled", "reliable")
_QUERY: Final = re.compile(r"\s*SELECT\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The arguments of `Table.estimate`, as they were given; see there."""

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
    """How far reading goes."""

    sample: Sample | None
    max_fraction: float
    max_bytes: int | None
    # That sums of sampled keys may take.
    memory_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A request that can be answered."""

    aggregates: Aggregates
    # What rows are grouped by, and what its columns are called.
    groups: Mapping[str, pl.Expr]
    # Rows that count meet all of these.
    conditions: tuple[pl.Expr, ...]
    lookup: Lookup | None
    targets: dict[str, Target]
    confidence: float
    # Whether it is that of all answers at once.
    simultaneous: bool
    # Groups that seem smaller are not read on for.
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
        """Whether reading goes on until answers are near enough."""
        return self.limits.sample is None

    @property
    def counts_rows(self) -> bool:
        """Whether nothing is asked for but the number of rows that count."""
        answers = self.aggregates.answers
        return not self.by and all(isinstance(one, Smooth) and set(one.totals) <= {0} for one in answers)

    @property
    def condition(self) -> pl.Expr | None:
        """All conditions in one; None: every row counts."""
        return pl.all_horizontal(self.conditions) if self.conditions else None

    def pushed(self, schema: pl.Schema) -> pl.Expr | None:
        """Return the conditions that name columns of the table alone, in one."""
        own = [one for one in self.conditions if set(one.meta.root_names()) <= set(schema)]
        if not own:
            return None
        both = own[0]
        for one in own[1:]:
            both &= one
        return both

    def left(self, schema: pl.Schema) -> Question:
        """Return the same of rows that meet `pushed` already, with the columns that it needs of these."""
        left = tuple(one for one in self.conditions if not set(one.meta.root_names()) <= set(schema))
        looked_at = _columns(self.aggregates, self.groups, left, self.lookup)
        own = tuple(name for name in looked_at if name in schema)
        return replace(self, conditions=left, columns=own or self.columns[:1])


def question_of(asked: Asked, schema: pl.Schema) -> Question:
    """Understand a request, or refuse it."""
    lookup = _lookup(asked.join, schema)
    joined = _joined(schema, lookup)
    asked = _of_query(asked, joined)
    groups = _groups(asked.by, joined)
    wanted = _expressions(asked.aggregates, "aggregates", joined)
    if not wanted:
        _refuse("aggregates", "must be one aggregate at least, such as {'n': pl.len()} or \"avg(price)\"")
    aggregates = _aggregates(wanted, joined, groups)
    conditions = _conditions(asked.where, joined, frozenset(schema))
    own = [name for name in _columns(aggregates, groups, conditions, lookup) if name in schema]
    return Question(
        aggregates=aggregates,
        groups=groups,
        conditions=conditions,
        lookup=lookup,
        targets=_targets(asked, list(wanted)),
        confidence=share_of(asked.confidence, "confidence", one=False),
        simultaneous=asked.simultaneous,
        min_group_rows=_count(asked.min_group_rows, "min_group_rows", least=0),
        limits=_limits(asked),
        columns=tuple(own or list(schema)[:1]),
    )


def _columns(
    aggregates: Aggregates,
    groups: Mapping[str, pl.Expr],
    conditions: Sequence[pl.Expr],
    lookup: Lookup | None,
) -> list[str]:
    """Return what is looked at, each column once."""
    named = [*aggregates.columns, *(lookup.on if lookup else ())]
    named += [name for one in (*groups.values(), *conditions) for name in one.meta.root_names()]
    return list(dict.fromkeys(named))


def _refuse(name: str, *what: str | Hint, cure: str = "") -> NoReturn:
    told = Message(argument(**{name: None}), " ", *what, f"; {_NOTHING}{cure and '.'}{cure}")
    raise InvalidInputError(told, argument=name)


def _aggregates(asked: Mapping[str, pl.Expr], schema: pl.Schema, by: Collection[str]) -> Aggregates:
    taken = {*by, *_RESERVED, *(f"{other}{end}" for other in asked for end in ("_low", "_high"))}
    for name in asked:
        if name in taken:
            _refuse(
                "aggregates", f"cannot name an answer {name!r}: the frame of answers has another such column"
            )
    try:
        return recognise(asked, partial(type_by_row, schema=schema, argument="aggregates"))
    except RefusedAggregate as refused:
        _refuse("aggregates", f"asks for {refused}")


def _expressions(given: object, argument_name: str, schema: pl.Schema) -> dict[str, pl.Expr]:
    read = partial(_sql_list, argument_name=argument_name, schema=schema)
    found = named_expressions(given, argument_name, read)
    for expr in found.values():
        unknown = [name for name in dict.fromkeys(expr.meta.root_names()) if name not in schema]
        if unknown:
            _refuse_unknown(unknown, argument_name, schema)
    return found


def _refuse_unknown(unknown: list[str], argument_name: str, schema: pl.Schema) -> NoReturn:
    guess = did_you_mean(unknown, schema)
    _refuse(argument_name, f"names no such column(s): {unknown}; there are {list(schema)}", cure=guess)


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


def _of_query(asked: Asked, schema: pl.Schema) -> Asked:
    """Return a request with the parts of its query in their places, if it is one."""
    text = asked.aggregates
    if not isinstance(text, str) or not _QUERY.match(text):
        return asked
    if asked.by is not None or asked.where is not None:
        _refuse("aggregates", "is a query: write groups and conditions in it, or the aggregates alone")
    from qbeast_core.query.sql.aggregates import sql_query  # noqa: PLC0415 -- sqlglot is slow to import

    with _reading(text, "aggregates", schema):
        found = sql_query(text, schema, clock=UTC_NOW)
    return replace(asked, aggregates=found.aggregates, by=found.by, where=found.where)


def _sql_list(text: str, argument_name: str, schema: pl.Schema) -> dict[str, pl.Expr]:
    if argument_name == "by" and text in schema:
        return {text: pl.col(text)}
    from qbeast_core.query.sql.aggregates import sql_list  # noqa: PLC0415 -- sqlglot is slow to import

    with _reading(text, argument_name, schema):
        return sql_list(text, schema, aggregates=argument_name == "aggregates", clock=UTC_NOW)


@contextmanager
def _reading(text: str, argument_name: str, schema: pl.Schema) -> Generator[None]:
    """Refuse an SQL text for the reason that its reading gives."""
    from qbeast_core.query.sql.lower import UnknownColumnError  # noqa: PLC0415 -- sqlglot is slow to import
    from qbeast_core.query.sql.tokens import InvalidSqlError  # noqa: PLC0415 -- as above

    try:
        yield
    except InvalidSqlError as error:
        _refuse(argument_name, f"asks for {text!r}, which cannot be read as SQL: {error}")
    except UnknownColumnError as error:
        _refuse_unknown([error.name], argument_name, schema)


def _conditions(given: Predicate | None, schema: pl.Schema, own: frozenset[str]) -> tuple[pl.Expr, ...]:
    """Return the parts of a condition that AND joins, as far as that sets apart what names own columns alone."""
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


def _targets(asked: Asked, names: Sequence[str]) -> dict[str, Target]:
    given = cast("object", asked.absolute)  # callers without a type checker pass anything
    if given is not None and not isinstance(given, Mapping):
        _refuse("absolute", "must be a mapping of names of answers to errors in their own units")
    absolute = dict(asked.absolute or {})
    unknown = [name for name in absolute if name not in names]
    if unknown:
        _refuse("absolute", f"names no such answer(s): {unknown}; there are {[*names]}")
    if asked.sample is not None:
        if asked.error is not None or absolute:
            _refuse("sample", "says what to read and error what to reach: give one of them")
        return {name: Target() for name in names}
    if asked.error is None and set(absolute) != set(names):
        _refuse(
            "error",
            "must be given: how far an answer may be off, as a share of it (0.02), or ",
            *(argument(absolute=None), " for each answer; or ", argument(sample=0.01)),
            ", for intervals of what that much gives",
        )
    relative = None if asked.error is None else share_of(asked.error, "error")
    return {
        name: Target(
            None if name in absolute else relative,
            _positive(absolute[name], "absolute") if name in absolute else None,
        )
        for name in names
    }


def _limits(asked: Asked) -> Limits:
    if asked.sample is not None:
        weights = sample_to_weights(asked.sample)
        if weights.is_empty:
            _refuse("sample", f"must hold something, and {asked.sample!r} does not")
    most = asked.max_bytes
    return Limits(
        asked.sample,
        share_of(asked.max_fraction, "max_fraction"),
        None if most is None else _count(most, "max_bytes", least=1),
        budget_of(Resources(memory_bytes=asked.memory_bytes), outcome=_NOTHING).memory_bytes,
    )


def _positive(given: object, name: str) -> float:
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 < float(given) < math.inf:
        _refuse(name, f"must be a number above 0, not {given!r}")
    return float(given)


def _count(given: object, name: str, *, least: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        _refuse(name, f"must be a whole number, {least} or more, not {given!r}")
    return given
