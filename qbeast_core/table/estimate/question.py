"""Validate the request of an estimate before reading."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from numbers import Real
from operator import and_
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import polars as pl

from qbeast_core.errors import unknown_columns
from qbeast_core.plan.nodes import named_columns
from qbeast_core.plan.predicate import conjuncts
from qbeast_core.plan.weights import Sample, Share, sample_to_weights, share_of
from qbeast_core.sampling.confidence import Target
from qbeast_core.sampling.key_sample import KeySample
from qbeast_core.sampling.recognise import Aggregates, RefusedAggregate, Smooth, recognise
from qbeast_core.sql.cut import HIDDEN, Cut
from qbeast_core.support.process import Resources
from qbeast_core.table.data.expressions import (
    Predicate,
    clock_of_text,
    condition_of,
    first_word,
    reading_sql,
    type_by_row,
)
from qbeast_core.table.engine.local import budget_of
from qbeast_core.table.estimate.join import Joined, Joins, joins_of, joins_of_text
from qbeast_core.table.estimate.sum_task import (
    Expressions,
    PerKey,
    named_expressions,
    refuse,
    refuse_split_keys,
    split_groups,
)
from qbeast_core.table.read.planner import Planner

if TYPE_CHECKING:
    from qbeast_core.sql.aggregates import GroupedQuery
    from qbeast_core.sql.clauses import Query


# A function of rows that returns a number, numbers by name, or a sequence of numbers.
Function: TypeAlias = Callable[[pl.DataFrame], object]

RESERVED: Final = ("rows_sampled", "reliable")
# Column that says whether a row is certain to be in the answer, if HAVING or LIMIT drops rows.
CERTAIN: Final = "certain"
# Maximum error of an answer without another one.
_ERROR: Final = 0.05
# First words of a query.
_QUERY: Final = ("SELECT", "WITH", "FROM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The requested precision of an estimate, and the limits of its cost; see `EstimateKeywords`."""

    error: Share | None
    absolute: Mapping[str, float] | None
    confidence: float
    # None: rounds continue until answers are precise enough.
    sample: Sample | None
    # Whether `confidence` applies to all answers at once.
    simultaneous: bool
    max_fraction: float
    max_bytes: int | None
    # Groups with fewer estimated rows do not cause further rounds. None: with less than `Sizing.deciding_share`.
    min_group_rows: int | None
    # Memory for the sums of sampled keys.
    memory_bytes: int

    @staticmethod
    def of(
        *,
        error: Share | None = None,
        absolute: Mapping[str, float] | None = None,
        confidence: Share = 0.95,
        sample: Sample | None = None,
        simultaneous: bool = False,
        max_fraction: Share = 1.0,
        max_bytes: int | None = None,
        min_group_rows: int | None = None,
        resources: Resources | None = None,
    ) -> Limits:
        """Check the arguments of `Read.estimate`."""
        return Limits(
            error=error,
            absolute=absolute,
            confidence=share_of(confidence, "confidence", one=False),
            sample=sample,
            simultaneous=simultaneous,
            max_fraction=share_of(max_fraction, "max_fraction"),
            max_bytes=_count_or_none(max_bytes, "max_bytes", min_value=1),
            min_group_rows=_count_or_none(min_group_rows, "min_group_rows", min_value=0),
            memory_bytes=budget_of(resources).memory_bytes,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A validated request, with the aggregates of all rows or of all keys."""

    aggregates: Aggregates
    # Group expressions by column name.
    groups: Mapping[str, pl.Expr]
    # Only rows that match both conditions count: `pushed` uses only columns of the table, `late` also joined ones.
    pushed: pl.Expr | None
    late: pl.Expr | None
    joins: tuple[Joined, ...]
    targets: dict[str, Target]
    limits: Limits
    # Columns of the table to read.
    columns: tuple[str, ...]
    # Whether samples must hold all rows of their keys, also rows of files without index.
    whole_keys: bool = False
    # The values per key; then the rows of `aggregates` and `groups` are one per key. None: rows of the table.
    per: PerKey | None = None
    # HAVING, ORDER BY and LIMIT of a query.
    cut: Cut | None = None
    # Names of the last answers, which only the cut uses.
    hidden: tuple[str, ...] = ()

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of groups."""
        return tuple(self.groups)

    @property
    def shown(self) -> int:
        """Number of answers that the result lists; they come first."""
        return len(self.aggregates.answers) - len(self.hidden)

    def may_lack_groups(self, sample: KeySample) -> bool:
        """Whether groups without a row in a sample may be missing."""
        return bool(self.by) and sample.probability < 1.0

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


def question_of(
    planner: Planner,
    aggregates: Expressions | Function,
    limits: Limits,
    *,
    per: Expressions | None = None,
    by: Expressions | None = None,
    where: Predicate | None = None,
    join: Joins | None = None,
) -> Question:
    """Validate a request."""
    if callable(aggregates):
        cure = " Read a sample, and pass its rows to the function, or use aggregates."
        refuse(
            "aggregates", "is a function, which only `Read.estimate` and `qbeast.estimate` call", cure=cure
        )
    schema = planner.snapshot.schema
    parsed = _parsed(aggregates, schema, is_alone=by is None and where is None, per=per)
    joins, joined = joins_of(joins_of_text(join, None if parsed is None else parsed.joins), planner)
    query = None if parsed is None else _query_of(cast("str", aggregates), parsed, joined)
    keys = _keys(planner, per, query, joined)
    if query is not None:
        aggregates, by = query.aggregates, query.by
        where = query.where if query.inner is None else query.inner.where
    groups, keys = _groups(by, keys, joined, splits=per is not None)
    rows = joined if keys is None else keys.schema
    expressions = _expressions(aggregates, "aggregates", rows)
    if len(expressions) == (0 if query is None else len(query.hidden)):
        refuse("aggregates", "must have at least one aggregate, such as {'n': pl.len()} or \"avg(price)\"")
    answers = _aggregates(expressions, rows, groups, planner.hashed if keys is None else ())
    cut, hidden = (None, ()) if query is None else (query.cut, query.hidden)
    if cut is not None and CERTAIN in (*groups, *expressions):
        refuse("aggregates", f"cannot name a column {CERTAIN!r}: the result has another column of this name")
    pushed, late = _conditions(where, joined, frozenset(schema))
    names = _columns(answers, groups, _all((pushed, late)), joins, keys)
    columns = [name for name in names if name in schema]
    combines_rows = bool(answers.shown) and not answers.counts_keys
    return Question(
        aggregates=answers,
        groups=groups,
        pushed=pushed,
        late=late,
        joins=tuple(join.needed(names) for join in joins),
        targets=_targets(limits, list(expressions), cut, hidden),
        limits=limits,
        columns=tuple(columns or list(schema)[:1]),
        whole_keys=keys is not None or combines_rows or any(join.planner is not None for join in joins),
        per=keys,
        cut=cut,
        hidden=hidden,
    )


def _keys(
    planner: Planner, per: Expressions | None, query: GroupedQuery | None, schema: pl.Schema
) -> PerKey | None:
    """Return the values per key of `per` or of an inner query."""
    if query is not None and query.inner is not None:
        refuse_split_keys(_key_of(planner, "aggregates"), query.inner.by.values())
        return PerKey.of(query.inner.by, query.inner.aggregates, schema, query.where)
    if per is None:
        return None
    values, keys = _expressions(per, "per", schema), _key_of(planner, "per")
    if not values:
        refuse("per", "must have at least one aggregate, such as {'n': pl.len()} or \"sum(price) AS spend\"")
    return PerKey.of({name: pl.col(name) for name in keys}, values, schema)


def _groups(
    by: Expressions | None, keys: PerKey | None, schema: pl.Schema, *, splits: bool
) -> tuple[dict[str, pl.Expr], PerKey | None]:
    """Return the groups, and the values per key; `splits`: by groups of rows, too."""
    rows = schema if keys is None else keys.schema
    if keys is not None and splits:  # an inner query has its own columns
        groups = _expressions(by, "by", pl.Schema({**schema, **rows}))
        groups, keys = split_groups(groups, keys, schema)
        rows = keys.schema
    else:
        groups = _expressions(by, "by", rows)
    for name, expr in groups.items():
        dtype = type_by_row(expr, rows, argument="by")
        if dtype.is_nested() or dtype == pl.Object():
            refuse("by", f"cannot group by {name!r}, which is {dtype}")
        if name in RESERVED:
            cure = " Use a mapping to rename it."
            refuse("by", f"cannot be named {name!r}: the result has another column of this name", cure=cure)
    return groups, keys


def _key_of(planner: Planner, argument: str) -> tuple[str, ...]:
    """Return the columns of the key; raise if samples of the table do not hold all rows of their keys."""
    if not planner.hashed:
        cure = ' Pass sample_by=["user"] to name the key and read all rows.'
        refuse(argument, "needs a key, and the table has neither an index nor a sampling key", cure)
    if planner.hashes_differ:
        key = list(planner.hashed)
        cure = f" Call Table.optimize(full=True), or pass sample_by={key} to read all rows."
        refuse(argument, f"needs samples by {key}, and files of older revisions are sampled by others", cure)
    return planner.hashed


def _columns(
    aggregates: Aggregates,
    groups: Mapping[str, pl.Expr],
    condition: pl.Expr | None,
    joins: Iterable[Joined],
    per: PerKey | None,
) -> list[str]:
    """Return the distinct columns to read."""
    exprs = groups.values() if per is None else ()
    names = [*(aggregates.columns if per is None else per.columns)]
    names += [name for join in joins for name in join.lookup.on]
    return list(dict.fromkeys([*names, *named_columns(*exprs, condition)]))


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
        refuse("aggregates", f"contains {str(refused).replace(repr(HIDDEN)[1:-1], '')}")


def _expressions(expressions: object, argument_name: str, schema: pl.Schema) -> dict[str, pl.Expr]:
    if expressions is None and argument_name == "by":
        return {}
    parse = partial(_sql_list, argument_name=argument_name, schema=schema)
    result = named_expressions(expressions, argument_name, parse)
    for expr in result.values():
        unknown = [name for name in named_columns(expr) if name not in schema]
        if unknown:
            unknown_columns(argument_name, unknown, schema)
    return result


def _parsed(text: Expressions, schema: pl.Schema, *, is_alone: bool, per: Expressions | None) -> Query | None:
    """Return the clauses of `aggregates` if it is a query."""
    if not isinstance(text, str) or first_word(text) not in _QUERY:
        return None
    if not is_alone:
        refuse("aggregates", "is a query: write groups and conditions in it, or pass only aggregates")
    if per is not None:
        refuse("aggregates", "is a query: write FROM (SELECT ... GROUP BY ...) instead of `per`")
    from qbeast_core.sql.clauses import parse_query  # noqa: PLC0415 -- sqlglot is slow to import

    with reading_sql(text, "aggregates", schema):
        return parse_query(text, schema.names())


def _query_of(text: str, query: Query, schema: pl.Schema) -> GroupedQuery:
    """Return the parts of a query over the joined rows."""
    from qbeast_core.sql.aggregates import lowered_query  # noqa: PLC0415 -- sqlglot is slow to import

    with reading_sql(text, "aggregates", schema):
        return lowered_query(query, schema, clock=clock_of_text())


def _sql_list(text: str, argument_name: str, schema: pl.Schema) -> dict[str, pl.Expr]:
    is_field = any(isinstance(schema[name], pl.Struct) and text.startswith(f"{name}.") for name in schema)
    if argument_name == "by" and text in schema and not is_field:
        return {text: pl.col(text)}
    from qbeast_core.sql.aggregates import sql_list  # noqa: PLC0415 -- sqlglot is slow to import

    with reading_sql(text, argument_name, schema):
        aggregates, null_sums = argument_name != "by", argument_name == "per"
        return sql_list(text, schema, aggregates=aggregates, clock=clock_of_text(), null_sums=null_sums)


def _conditions(
    predicate: Predicate | None, schema: pl.Schema, table_columns: frozenset[str]
) -> tuple[pl.Expr | None, pl.Expr | None]:
    """Split a condition at AND into the parts that use only columns of the table, and the others."""
    if predicate is None:
        return None, None
    condition = condition_of(predicate, schema).expr
    if table_columns.issuperset(named_columns(condition)):
        return condition, None
    pushed: list[pl.Expr] = []
    late: list[pl.Expr] = []
    for part in conjuncts(condition):
        (pushed if table_columns.issuperset(named_columns(part)) else late).append(part)
    return _all(pushed), _all(late)


def _targets(
    limits: Limits, every: Sequence[str], cut: Cut | None, hidden: Collection[str]
) -> dict[str, Target]:
    """Return the targets of answers; hidden ones only have to be reliable."""
    targets = _targets_of(limits, [name for name in every if name not in hidden])
    if cut is not None and cut.chooses:
        targets = {name: target.of_exact() for name, target in targets.items()}
    return {**targets, **dict.fromkeys(hidden, Target())}


def _targets_of(limits: Limits, names: Sequence[str]) -> dict[str, Target]:
    mapping = cast("object", limits.absolute)  # callers without a type checker pass anything
    if mapping is not None and not isinstance(mapping, Mapping):
        refuse("absolute", "must be a mapping from answer names to errors in their units")
    absolute = dict(limits.absolute or {})
    unknown = [name for name in absolute if name not in names]
    if unknown:
        refuse("absolute", f"has unknown answer(s): {unknown}; the answers are {[*names]}")
    if limits.sample is not None:
        if limits.error is not None or absolute:
            refuse("sample", "cannot be combined with `error` or `absolute`: use one of them")
        if sample_to_weights(limits.sample).is_empty:
            refuse("sample", f"must not be empty, and {limits.sample!r} is")
        return {name: Target() for name in names}
    relative = share_of(_ERROR if limits.error is None else limits.error, "error")
    return {
        name: Target(
            None if name in absolute else relative,
            _positive(absolute[name]) if name in absolute else None,
        )
        for name in names
    }


def _positive(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        refuse("absolute", f"must be a number above 0, not {value!r}")
    return float(value)


def _count_or_none(value: object, name: str, *, min_value: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < min_value:
        refuse(name, f"must be a whole number of at least {min_value}, not {value!r}")
    return value
