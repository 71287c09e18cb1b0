"""Advise how to index a table, by what filters would open of other indexes, also of fields of structs."""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Final, cast

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError, invalid_argument
from qbeast_core.plan.bounds import evaluate
from qbeast_core.plan.nodes import Atom, column_of
from qbeast_core.plan.select import apart, draw
from qbeast_core.plan.weights import ALL_WEIGHTS
from qbeast_core.results import Hinted
from qbeast_core.space.values import BoolArray, F64Array
from qbeast_core.spec.revision import ColumnSpec, parse_column_spec
from qbeast_core.support.frames import bar, html_of
from qbeast_core.support.process import refuse_forked
from qbeast_core.support.sizing import sizing
from qbeast_core.support.text import in_lines
from qbeast_core.table.advise.search import (
    MAX_OTHERS,
    MAX_TRIED,
    TIE,
    Search,
    Workload,
    index_text,
    some_rows,
    text_of,
)
from qbeast_core.table.advise.suggest import check_request
from qbeast_core.table.advise.trial import ColumnSet, Dimension, TableFacts, importance_of, specs_of
from qbeast_core.table.data.expressions import Predicate
from qbeast_core.table.data.schema import lost_columns
from qbeast_core.table.estimate.reading import heavy_rows
from qbeast_core.table.index.counts import counts_of
from qbeast_core.table.read.explain import explain
from qbeast_core.table.read.planner import Planner, ScanPlan, scans_of
from qbeast_core.table.read.tasks import read_scans
from qbeast_core.tree.fit import default_cube_size
from qbeast_core.tree.keys import design_effect

_ALTERNATIVES: Final = pl.Schema(
    [
        ("columns", pl.List(pl.String())),
        ("importance", pl.List(pl.Float64())),
        ("cube_size", pl.Int64()),
        ("bytes_opened", pl.Float64()),
        ("times", pl.Float64()),
    ]
)

_SHOWN: Final = 3

# Of the rows of a sample in memory.
_MAX_BYTES: Final = 128 << 20

# Maximum number of rows that are read for each one that is kept, if samples of the table are clustered.
_MAX_TIMES: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Advice(Hinted):
    """How to index a table for some filters, see `Table.advise`.

    Attributes
    ----------
    columns : tuple of str
        Columns to index, as `qbeast.write_table` accepts them: ``"name"`` or ``"name:kind"``.
    importance : dict of str to float
        Columns whose pages should be narrower, as `reindex` and `qbeast.write_table` accept them; others have 1.
    cube_size : int
        Target number of rows per cube.
    keep : bool
        Whether the table has this index, or one that is as good. Then `columns`, `importance`, `cube_size` and
        `bytes_opened` are those of the table, and there is nothing to do.
    bytes_opened : float
        Expected mean of the bytes that a query opens of the table with the advised index, written at once. Partitions
        are assumed to have many cubes each; of smaller ones, filters on other columns open more.
    bytes_opened_now : float
        Mean of the bytes that a query opens of the table as it is.
    design_effect : float
        Design effect of samples of the table with the advised index; 1.0 is the minimum.
    queries : polars.DataFrame
        One row per query, in their order: `query` (its text), `bytes_now`, `bytes_advised`, and `share` (of the table
        with the advised index, in [0, 1]).
    alternatives : polars.DataFrame
        Other indexes, the best one first: `columns`, `importance` (of each column), `cube_size`, `bytes_opened`
        (expected mean), and `times` (the bytes divided by those of the advised index).
    """

    columns: tuple[str, ...]
    importance: dict[str, float]
    cube_size: int
    keep: bool
    bytes_opened: float
    bytes_opened_now: float
    design_effect: float
    queries: pl.DataFrame
    alternatives: pl.DataFrame

    def __repr__(self) -> str:
        queries = self.queries.head(_SHOWN).iter_rows()
        lines = [f"  {query}: {now:,} bytes now, {then:,} bytes then" for query, now, then, _ in queries]
        more = self.queries.height - len(lines)
        return in_lines([self._title, *lines, *([f"  and {more:,} more"] if more else [])])

    def _repr_html_(self) -> str:
        then = self.bytes_opened / max(self.bytes_opened_now, self.bytes_opened, 1.0)
        facts = {
            "bytes now": f"{self.bytes_opened_now:,.0f}",
            "bytes then": f"{self.bytes_opened:,.0f} {bar(then)}",
        }
        return html_of(self._title, facts, self.queries, self.alternatives)

    @property
    def _title(self) -> str:
        index = f"{index_text(self.columns, self.importance)}, cube_size={self.cube_size}"
        if self.keep:
            return f"keep {index}: a query opens {self.bytes_opened_now:,.0f} bytes, no other index opens much less"
        return (
            f"{index}: a query would open {self.bytes_opened:,.0f} bytes instead of {self.bytes_opened_now:,.0f}, "
            f"design effect {self.design_effect:.2f}"
        )


def advise(planner: Planner, queries: Sequence[Predicate], *, max_columns: int) -> Advice:
    """Return how to index a table; see `Table.advise`."""
    refuse_forked(planner.snapshot.uri)
    check_request(queries, max_columns)
    queries = list(queries)
    if not queries:
        invalid_argument("queries", "must have at least one condition", value=queries)
    plans = [explain(planner, query, None, None, argument="queries") for query in queries]
    now = np.array([plan.bytes_opened for plan in plans], np.float64)
    sample = table_sample(planner, rows=sizing().advised_rows)
    if sample.rows.is_empty():
        msg = f"{planner.snapshot.uri!r} has no rows. Pass the rows to qbeast.suggest_columns."
        raise InvalidInputError(msg, argument="queries")
    return _Advising(planner, sample, queries, now).made(max_columns)


class _Advising:
    """The simulated tables of an advice."""

    def __init__(
        self, planner: Planner, sample: TableSample, queries: Sequence[Predicate], now: F64Array
    ) -> None:
        self._queries, self._now, self._sample = queries, now, sample
        snapshot = planner.snapshot
        self._newest = snapshot.config.latest
        workload = Workload.of(queries, sample.rows)
        partitions = snapshot.columns.partitions
        # Filters on partition columns skip files with any index.
        unfit = {*lost_columns(sample.rows.columns, sample.rows.schema), snapshot.sample_column, *partitions}
        self._named = [name for name in workload.named if name not in unfit][:MAX_TRIED]
        if not self._named:
            fitting = [name for name in snapshot.schema if name not in unfit]
            problem = f"must name a column that can be indexed, one of {fitting}"
            if partitions:
                problem += (
                    f"; filters on the partition columns {list(partitions)} skip files without an index"
                )
            invalid_argument("queries", problem, value=list(map(str, queries)))
        self._planner = planner
        self._search = Search(sample.rows, facts_of(planner, sample, workload), workload)

    def made(self, max_columns: int) -> Advice:
        """Return the advice."""
        many, present, finalists = self._search.many, self._present, self._finalists(max_columns)
        best = many.best_of(finalists, many.mean_bytes, tie=TIE)
        least = min(map(many.mean_bytes, finalists))
        keep = present is not None and float(self._now.mean()) <= TIE * least
        chosen = present if keep and present is not None else best
        then = self._now if keep else many.bytes(chosen)
        weights = many.trial.weights(specs_of(chosen))
        return Advice(
            columns=tuple(map(self._text_of, chosen)),
            importance=importance_of(chosen),
            cube_size=self._size_of(chosen),
            keep=keep,
            bytes_opened=float(then.mean()),
            bytes_opened_now=float(self._now.mean()),
            design_effect=design_effect(weights, share=len(weights) / self._sample.table_rows),
            queries=pl.DataFrame(
                {
                    "query": [str(query) for query in self._queries],
                    "bytes_now": self._now.astype(np.int64),
                    "bytes_advised": then.astype(np.int64),
                    "share": many.trial.opened(chosen).shares,
                }
            ),
            alternatives=self._alternatives([index for index in finalists if index != chosen], then),
        )

    def _finalists(self, max_columns: int) -> list[ColumnSet]:
        """Return the best indexes by few rows, and the index of the table."""
        search, few = self._search, self._search.few
        options = search.options(self._named)
        few.search(
            options,
            max_columns=max_columns,
            together=lambda columns: len({column.name for column in columns}) == len(columns),
            by_bytes=True,
        )
        others = few.by_bytes[:MAX_OTHERS]
        best = few.best_of(few.by_bytes, few.mean_bytes, tie=TIE)
        # Whether the ends of a filter and of a cube meet is chance, and another kind may seem better by it. So both
        # are compared on more rows.
        bests = best, search.with_linear_columns(best)
        found = map(few.weighted, map(self._in_order, dict.fromkeys([*bests, *others])))
        present = [] if self._present is None else [self._present]
        return list(dict.fromkeys([*map(search.confirmed, found), *present]))

    def _in_order(self, index: ColumnSet) -> ColumnSet:
        """Return the index with its columns in the order of the table, if the table has the same ones."""
        present = specs_of(self._present or ())
        is_present = set(present) == set(specs_of(index))
        return tuple(sorted(index, key=lambda column: present.index(column.spec))) if is_present else index

    @cached_property
    def _present(self) -> ColumnSet | None:
        return present_index(self._planner, self._search)

    def _text_of(self, column: Dimension) -> str:
        """Return a column for a rewrite of the table, which keeps hashes unless another kind is named."""
        kinds = {} if self._newest is None else self._newest.transformer_kinds
        if column.spec.kind == "auto" and kinds.get(column.name) == "hash":
            return f"{column.name}:{self._search.few.trial.kind_of(column.spec)}"
        return text_of(column)

    def _size_of(self, index: ColumnSet) -> int:
        """Return a cube size. It matters little to filters, so a table keeps its own."""
        own = self._newest if specs_of(index) == specs_of(self._present or ()) else None
        return default_cube_size(self._sample.table_rows) if own is None else own.desired_cube_size

    def _alternatives(self, others: Sequence[ColumnSet], then: F64Array) -> pl.DataFrame:
        """Return one row per index, the best one first."""
        mean_bytes = self._search.many.mean_bytes
        records = [
            {
                "columns": list(map(self._text_of, index)),
                "importance": [column.importance for column in index],
                "cube_size": self._size_of(index),
                "bytes_opened": mean_bytes(index),
                "times": mean_bytes(index) / max(float(then.mean()), 1.0),
            }
            for index in sorted(others, key=mean_bytes)
        ]
        return pl.DataFrame(records, schema=_ALTERNATIVES)


def facts_of(planner: Planner, sample: TableSample, workload: Workload) -> TableFacts:
    """Return the facts of a table that a simulation needs."""
    snapshot = planner.snapshot
    return TableFacts(
        rows=sample.table_rows,
        row_bytes=sample.rows.estimated_size() / sample.rows.height,
        ends=_ends_of(snapshot.files, snapshot.schema),
        drawn_by=sample.drawn_by,
        sample_by=snapshot.config.sample_by,
        configuration=snapshot.metadata.configuration,
        partition_shares=_shares_of_partitions(planner, workload) if snapshot.columns.partitions else None,
    )


def present_index(planner: Planner, search: Search) -> ColumnSet | None:
    """Return the index of a table, without kinds that a write would choose; None if it has none."""
    snapshot, trial = planner.snapshot, search.few.trial
    newest = snapshot.config.latest
    if newest is None or not newest.revision_id or lost_columns(newest.columns, trial.rows.schema):
        return None
    importance = {
        snapshot.columns.name(stored): value for stored, value in snapshot.config.importance.items()
    }
    columns: list[Dimension] = []
    for spec in map(parse_column_spec, newest.column_specs):
        usual = ColumnSpec(spec.name)
        is_usual = trial.kind_of(usual) == spec.kind
        columns.append(Dimension(usual if is_usual else spec, importance.get(spec.name, 1.0)))
    return tuple(columns)


def _shares_of_partitions(planner: Planner, workload: Workload) -> F64Array:
    """Return the share of the table's bytes in partitions that can match, shape (filters,)."""
    snapshot = planner.snapshot
    sizes = snapshot.files["size_bytes"].cast(pl.Float64).to_numpy()
    statistics, partitions = snapshot.blocks.statistics, set(snapshot.columns.partitions)

    def may_match(atom: Atom) -> BoolArray:
        is_known = column_of(atom) in partitions
        return statistics.may_match(atom) if is_known else np.ones(len(sizes), np.bool_)

    masks = [evaluate(node, len(sizes), may_match) for node in workload.nodes(snapshot.schema)]
    return np.array([float(sizes[mask].sum()) for mask in masks]) / max(float(sizes.sum()), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class TableSample:
    """A uniform sample of a table."""

    rows: pl.DataFrame
    # Number of rows of the table.
    table_rows: int
    # Columns by whose weights the rows were chosen; none if the sample has all rows.
    drawn_by: tuple[str, ...]


def table_sample(planner: Planner, *, rows: int, max_bytes: int = _MAX_BYTES) -> TableSample:
    """Read about a number of rows of a table, fewer if they take too many bytes.

    Rows of heavy keys are drawn one by one, as in estimates. If samples of the table are clustered, more rows are read
    than kept. Files without index are read as a whole, in parts, because the weights of their rows are not known.
    """
    total = explain(planner, None, None, None).rows_total
    total -= int(planner.hidden_rows.counts.sum())
    wanted = min(rows / max(total, 1), 1.0)
    effect = counts_of(planner.snapshot).lower_bound
    fraction = min(wanted * min(math.ceil(effect), _MAX_TIMES), 1.0)
    frames = (
        _read(planner, planner.plan(None, None)) if fraction == 1.0 else _sampled(planner, fraction, total)
    )
    kept = _within(frames, max_bytes, schema=planner.snapshot.schema, share=wanted / fraction)
    return TableSample(kept, max(total, kept.height), planner.hashed if fraction < 1.0 else ())


def _ends_of(files: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return the minimum and maximum of each column, from the statistics of files that all have them.

    >>> _ends_of(pl.DataFrame({"min": [{"a": 1}, {"a": 0}], "max": [{"a": 1}, {"a": 9}]}), pl.Schema({"a": pl.Int64}))
    shape: (2, 1)
    ┌─────┐
    │ a   │
    │ --- │
    │ i64 │
    ╞═════╡
    │ 0   │
    │ 9   │
    └─────┘
    """
    if not {"min", "max"} <= set(files.columns):
        return pl.DataFrame()
    low, high = (files[side].struct.unnest() for side in ("min", "max"))
    known = [
        name
        for name, dtype in schema.items()
        if not dtype.is_nested()
        and all(name in side.columns and side[name].dtype == dtype for side in (low, high))
        and not low[name].has_nulls()
        and not high[name].has_nulls()
    ]
    return pl.concat([low.select(pl.col(known).min()), high.select(pl.col(known).max())])


def _sampled(planner: Planner, fraction: float, total: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of a sample, with rows of heavy keys drawn one by one."""
    plan_of = planner.of_filter(None)
    every, plan = plan_of(None).selection, plan_of(fraction)
    files = heavy_rows(planner, every, rows=total).files
    if not files:
        yield from _read(planner, plan)
        return
    yield from _read(planner, replace(plan, selection=draw(plan.selection, every, files, plan.weights)))
    skipped = ScanPlan(apart(every, files), ALL_WEIGHTS, None)
    for frame in _read(planner, skipped):
        yield some_rows(frame, round(frame.height * fraction))


def _read(planner: Planner, plan: ScanPlan) -> Iterator[pl.DataFrame]:
    row_filter = planner.row_filter(plan, list(planner.snapshot.schema))
    return read_scans(scans_of(planner, plan), row_filter, planner.files)


def _within(
    frames: Iterable[pl.DataFrame], max_bytes: int, *, schema: pl.Schema, share: float
) -> pl.DataFrame:
    """Join a share of the rows of frames; halve them at random each time that they take too many bytes."""
    kept = schema.to_frame()
    for frame in frames:
        kept = pl.concat([kept, some_rows(frame, round(frame.height * share))])
        while kept.estimated_size() > max_bytes and kept.height > 1:
            kept, share = some_rows(kept, kept.height // 2), share / 2
    return kept.rechunk()


def field_of(path: Sequence[str]) -> pl.Expr:
    """Return the values of a field of a column, and of its fields."""
    return reduce(lambda outer, name: outer.struct.field(name), path[1:], pl.col(path[0]))


def code_of(path: Sequence[str]) -> str:
    """Return a field in Python.

    >>> code_of(("user", "country"))
    "pl.col('user').struct.field('country')"
    """
    return f"pl.col({path[0]!r})" + "".join(f".struct.field({name!r})" for name in path[1:])


def with_fields_as_columns(
    where: pl.Expr, columns: Collection[str]
) -> tuple[pl.Expr, dict[str, tuple[str, ...]]]:
    """Return a filter on columns in place of fields, and the paths of the fields by the names of these columns.

    >>> where, fields = with_fields_as_columns(pl.col("user").struct.field("country") == "DE", ["user"])
    >>> str(where), fields
    ('[(col("user_country")) == ("DE")]', {'user_country': ('user', 'country')})
    """
    try:
        tree = orjson.loads(where.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, orjson.JSONDecodeError):  # calls Python, or is nested too deeply
        return where, {}
    fields: dict[str, tuple[str, ...]] = {}

    def replaced(tree: object) -> object:
        path = _path_of(tree)
        if len(path) > 1:
            name = "_".join(path)
            while name in columns:
                name += "_"
            fields[name] = path
            return {"Column": name}
        if isinstance(tree, dict):
            return {key: replaced(part) for key, part in cast("dict[str, Any]", tree).items()}
        if isinstance(tree, list):
            return list(map(replaced, cast("list[object]", tree)))
        return tree

    text = orjson.dumps(replaced(tree)).decode()
    return (pl.Expr.deserialize(io.StringIO(text), format="json") if fields else where), fields


def _path_of(tree: object) -> tuple[str, ...]:
    """Return the names of a field, or of a column; nothing for other expressions."""
    match tree:
        case {"Column": str(name)}:
            return (name,)
        case {"Function": {"input": [outer], "function": {"StructExpr": {"FieldByName": str(name)}}}}:
            path = _path_of(outer)
            return (*path, name) if path else ()
        case _:
            return ()
