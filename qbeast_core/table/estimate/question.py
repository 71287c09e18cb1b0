"""Validate the request of an estimate before reading."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from numbers import Real
from operator import and_
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import polars as pl

from qbeast_core.errors import unknown_columns
from qbeast_core.query.filters.predicate import conjuncts
from qbeast_core.query.plan.fractions import Sample, Share, sample_to_weights, share_of
from qbeast_core.resources import Resources
from qbeast_core.sampling.aggregates import Aggregates, RefusedAggregate, Smooth, recognise
from qbeast_core.sampling.rules import Target
from qbeast_core.table.data.expressions import UTC_NOW, Predicate, condition_of, type_by_row
from qbeast_core.table.engine.choice import budget_of
from qbeast_core.table.estimate.join import Joined, Joins, joins_of
from qbeast_core.table.estimate.named import Expressions, named_expressions, refuse
from qbeast_core.table.estimate.per_key import PerKey, key_of, refuse_split_keys, split_groups
from qbeast_core.table.read.reader import Reader

if TYPE_CHECKING:
    from qbeast_core.query.sql.aggregates import GroupedQuery

# A function of rows that returns a number, numbers by name, or a sequence of numbers.
Function: TypeAlias = Callable[[pl.DataFrame], object]

RESERVED: Final = ("rows_sampled", "reliable")
_QUERY: Final = re.compile(r"\s*SELECT\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
    """The arguments of `Table.estimate`."""

    aggregates: Expressions | Function
    per: Expressions | None = None
    by: Expressions | None = None
    where: Predicate | None = None
    join: Joins | None = None
    error: Share | None = None
    absolute: Mapping[str, float] | None = None
    confidence: Share = 0.95
    sample: Sample | None = None
    simultaneous: bool = False
    max_fraction: Share = 1.0
    max_bytes: int | None = None
    min_group_rows: int = 0
    memory_bytes: int | None = None
    # Of a function, see `functions`.
    replicates: int = 64
    columns: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A validated request."""

    aggregates: Aggregates
    # Group expressions by column name.
    groups: Mapping[str, pl.Expr]
    # Only rows that match both conditions count: `pushed` uses only columns of the table, `late` also joined ones.
    pushed: pl.Expr | None
    late: pl.Expr | None
    joins: tuple[Joined, ...]
    targets: dict[str, Target]
    confidence: float
    # Whether `confidence` applies to all answers at once.
    simultaneous: bool
    # Groups with fewer estimated rows do not cause further rounds.
    min_group_rows: int
    # None: rounds continue until answers are precise enough.
    sample: Sample | None
    max_fraction: float
    max_bytes: int | None
    # Memory for the sums of sampled keys.
    memory_bytes: int
    # Columns of the table to read.
    columns: tuple[str, ...]
    # Whether samples must hold all rows of their keys, also rows of files without index.
    whole_keys: bool = False
    # The values per key; then the rows of `aggregates` and `groups` are one per key. None: rows of the table.
    per: PerKey | None = None

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of groups."""
        return tuple(self.groups)

    @property
    def counts_rows(self) -> bool:
        """Whether all answers are functions of the number of rows."""
        answers = self.aggregates.answers
        return not (self.by or self.per or self.changes_rows) and all(
            isinstance(answer, Smooth) and set(answer.totals) <= {0} for answer in answers
        )

    @property
    def changes_rows(self) -> bool:
        """Whether joins may change the number of rows."""
        return any(join.changes_rows for join in self.joins)

    @property
    def condition(self) -> pl.Expr | None:
        """All conditions joined by AND; None without conditions."""
        return _all((self.pushed, self.late))

    @property
    def left(self) -> Question:
        """The question for rows that already match `pushed`, with the columns it still needs."""
        names = _columns(self.aggregates, self.groups, self.late, self.joins, self.per)
        columns = tuple(name for name in self.columns if name in names)
        return replace(self, pushed=None, columns=columns or self.columns[:1])


def question_of(request: EstimateRequest, reader: Reader) -> Question:
    """Validate a request."""
    _refuse_function(request)
    schema = reader.snapshot.schema
    joins, joined = joins_of(request.join, reader)
    request, per = _per_key(request, joined, reader)
    rows = joined if per is None else per.schema
    if per is None or request.per is None:  # an inner query has its own columns
        groups = _expressions(request.by, "by", rows)
    else:
        groups = _expressions(request.by, "by", pl.Schema({**joined, **rows}))
        groups, per = split_groups(groups, per, joined)
        rows = per.schema
    _check_groups(groups, rows)
    expressions = _expressions(request.aggregates, "aggregates", rows)
    if not expressions:
        refuse("aggregates", "must have at least one aggregate, such as {'n': pl.len()} or \"avg(price)\"")
    aggregates = _aggregates(expressions, rows, groups, reader.hashed if per is None else ())
    pushed, late = _conditions(request.where, joined, frozenset(schema))
    names = _columns(aggregates, groups, _all((pushed, late)), joins, per)
    columns = [name for name in names if name in schema]
    return Question(
        aggregates=aggregates,
        groups=groups,
        pushed=pushed,
        late=late,
        joins=tuple(join.needed(names) for join in joins),
        targets=_targets(request, list(expressions)),
        confidence=share_of(request.confidence, "confidence", one=False),
        simultaneous=request.simultaneous,
        min_group_rows=_count(request.min_group_rows, "min_group_rows", min_value=0),
        sample=request.sample,
        max_fraction=share_of(request.max_fraction, "max_fraction"),
        max_bytes=None if request.max_bytes is None else _count(request.max_bytes, "max_bytes", min_value=1),
        memory_bytes=budget_of(Resources(memory_bytes=request.memory_bytes)).memory_bytes,
        columns=tuple(columns or list(schema)[:1]),
        whole_keys=_needs_whole_keys(aggregates, joins, per),
        per=per,
    )


def _refuse_function(request: EstimateRequest) -> None:
    """Raise if the request is about a function of rows, or has its arguments."""
    if callable(request.aggregates):
        cure = " Read a sample, and pass its rows to the function, or use aggregates."
        refuse(
            "aggregates", "is a function, which only `Table.estimate` and `qbeast.estimate` call", cure=cure
        )
    if request.columns is not None:
        refuse("columns", "lists the columns of a function, and `aggregates` is not a function")


def _needs_whole_keys(aggregates: Aggregates, joins: Iterable[Joined], per: PerKey | None) -> bool:
    """Return whether answers combine all rows of a key."""
    combines_rows = bool(aggregates.shown) and not aggregates.counts_keys
    return per is not None or combines_rows or any(join.reader is not None for join in joins)


def _per_key(
    request: EstimateRequest, schema: pl.Schema, reader: Reader
) -> tuple[EstimateRequest, PerKey | None]:
    """Return the values per key of `per` or of an inner query, and the request for the rows of keys."""
    query = _query_of(request, schema)
    if query is not None:
        request = replace(request, aggregates=query.aggregates, by=query.by, where=query.where)
        if query.inner is None:
            return request, None
        inner = query.inner
        refuse_split_keys(key_of(reader, "aggregates"), inner.by.values())
        per = PerKey.of(inner.by, inner.aggregates, schema, query.where)
        return replace(request, where=inner.where), per
    if request.per is None:
        return request, None
    values, keys = _expressions(request.per, "per", schema), key_of(reader, "per")
    if not values:
        refuse("per", "must have at least one aggregate, such as {'n': pl.len()} or \"sum(price) AS spend\"")
    return request, PerKey.of({name: pl.col(name) for name in keys}, values, schema)


def _columns(
    aggregates: Aggregates,
    groups: Mapping[str, pl.Expr],
    condition: pl.Expr | None,
    joins: Iterable[Joined],
    per: PerKey | None,
) -> list[str]:
    """Return the distinct columns to read."""
    exprs = [*groups.values()] if per is None else []
    exprs += [] if condition is None else [condition]
    names = [*(aggregates.columns if per is None else per.columns)]
    names += [name for join in joins for name in join.lookup.on]
    names += [name for expr in exprs for name in expr.meta.root_names()]
    return list(dict.fromkeys(names))


def _all(conditions: Iterable[pl.Expr | None]) -> pl.Expr | None:
    """Join conditions by AND; None without conditions."""
    present = [condition for condition in conditions if condition is not None]
    return reduce(and_, present) if present else None


def _aggregates(
    expressions: Mapping[str, pl.Expr], schema: pl.Schema, by: Collection[str], key: Sequence[str]
) -> Aggregates:
    reserved = {*by, *RESERVED, *(f"{answer}{end}" for answer in expressions for end in ("_low", "_high"))}
    for name in expressions:
        if name in reserved:
            refuse(
                "aggregates", f"cannot name an answer {name!r}: the result has another column of this name"
            )
    try:
        return recognise(expressions, partial(type_by_row, schema=schema, argument="aggregates"), key)
    except RefusedAggregate as refused:
        refuse("aggregates", f"contains {refused}")


def _expressions(expressions: object, argument_name: str, schema: pl.Schema) -> dict[str, pl.Expr]:
    if expressions is None and argument_name == "by":
        return {}
    parse = partial(_sql_list, argument_name=argument_name, schema=schema)
    result = named_expressions(expressions, argument_name, parse)
    for expr in result.values():
        unknown = [name for name in dict.fromkeys(expr.meta.root_names()) if name not in schema]
        if unknown:
            unknown_columns(argument_name, unknown, schema)
    return result


def _check_groups(groups: Mapping[str, pl.Expr], schema: pl.Schema) -> None:
    for name, expr in groups.items():
        dtype = type_by_row(expr, schema, argument="by")
        if dtype.is_nested() or dtype == pl.Object():
            refuse("by", f"cannot group by {name!r}, which is {dtype}")
        if name in RESERVED:
            cure = " Use a mapping to rename it."
            refuse("by", f"cannot be named {name!r}: the result has another column of this name", cure=cure)


def _query_of(request: EstimateRequest, schema: pl.Schema) -> GroupedQuery | None:
    """Return the parts of `aggregates` if it is a query."""
    text = request.aggregates
    if not isinstance(text, str) or not _QUERY.match(text):
        return None
    if request.by is not None or request.where is not None:
        refuse("aggregates", "is a query: write groups and conditions in it, or pass only aggregates")
    if request.per is not None:
        refuse("aggregates", "is a query: write FROM (SELECT ... GROUP BY ...) instead of `per`")
    from qbeast_core.query.sql.aggregates import sql_query  # noqa: PLC0415 -- sqlglot is slow to import

    with _reading(text, "aggregates", schema):
        return sql_query(text, schema, clock=UTC_NOW)


def _sql_list(text: str, argument_name: str, schema: pl.Schema) -> dict[str, pl.Expr]:
    is_field = any(isinstance(schema[name], pl.Struct) and text.startswith(f"{name}.") for name in schema)
    if argument_name == "by" and text in schema and not is_field:
        return {text: pl.col(text)}
    from qbeast_core.query.sql.aggregates import sql_list  # noqa: PLC0415 -- sqlglot is slow to import

    with _reading(text, argument_name, schema):
        aggregates, null_sums = argument_name != "by", argument_name == "per"
        return sql_list(text, schema, aggregates=aggregates, clock=UTC_NOW, null_sums=null_sums)


@contextmanager
def _reading(text: str, argument_name: str, schema: pl.Schema) -> Generator[None]:
    """Convert errors of an SQL text to errors of an argument."""
    from qbeast_core.query.sql.lower import UnknownColumnError  # noqa: PLC0415 -- sqlglot is slow to import
    from qbeast_core.query.sql.tokens import InvalidSqlError  # noqa: PLC0415 -- as above

    try:
        yield
    except InvalidSqlError as error:
        refuse(argument_name, f"contains {text!r}, which cannot be read as SQL: {error}")
    except UnknownColumnError as error:
        unknown_columns(argument_name, [error.name], schema)


def _conditions(
    predicate: Predicate | None, schema: pl.Schema, table_columns: frozenset[str]
) -> tuple[pl.Expr | None, pl.Expr | None]:
    """Split a condition at AND into the parts that use only columns of the table, and the others."""
    if predicate is None:
        return None, None
    condition = condition_of(predicate, schema).expr
    if table_columns.issuperset(condition.meta.root_names()):
        return condition, None
    pushed: list[pl.Expr] = []
    late: list[pl.Expr] = []
    for part in conjuncts(condition):
        (pushed if table_columns.issuperset(part.meta.root_names()) else late).append(part)
    return _all(pushed), _all(late)


def _targets(request: EstimateRequest, names: Sequence[str]) -> dict[str, Target]:
    mapping = cast("object", request.absolute)  # callers without a type checker pass anything
    if mapping is not None and not isinstance(mapping, Mapping):
        refuse("absolute", "must be a mapping from answer names to errors in their units")
    absolute = dict(request.absolute or {})
    unknown = [name for name in absolute if name not in names]
    if unknown:
        refuse("absolute", f"has unknown answer(s): {unknown}; the answers are {[*names]}")
    if request.sample is not None:
        if request.error is not None or absolute:
            refuse("sample", "cannot be combined with `error` or `absolute`: use one of them")
        if sample_to_weights(request.sample).is_empty:
            refuse("sample", f"must not be empty, and {request.sample!r} is")
        return {name: Target() for name in names}
    if request.error is None and set(absolute) != set(names):
        refuse(
            "error",
            "must be given: the maximum error as a fraction of an answer (0.02), or `absolute` for each answer; or "
            "sample=0.01 for intervals from a fixed sample",
        )
    relative = None if request.error is None else share_of(request.error, "error")
    return {
        name: Target(
            None if name in absolute else relative,
            _positive(absolute[name], "absolute") if name in absolute else None,
        )
        for name in names
    }


def _positive(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        refuse(name, f"must be a number above 0, not {value!r}")
    return float(value)


def _count(value: object, name: str, *, min_value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < min_value:
        refuse(name, f"must be a whole number of at least {min_value}, not {value!r}")
    return value
