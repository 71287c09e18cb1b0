"""Propose columns to index, by what filters would open of tables that are estimated from some of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidColumnsError, InvalidInputError, hints_keywords, invalid_argument
from qbeast_core.plan.nodes import named_columns
from qbeast_core.results import Hinted
from qbeast_core.space.values import F64Array, I64Array
from qbeast_core.support.frames import html_of
from qbeast_core.support.sizing import sizing
from qbeast_core.support.text import in_lines
from qbeast_core.table.advise.search import (
    FEW_ROWS,
    MAX_OTHERS,
    MAX_TRIED,
    TIE,
    Search,
    Workload,
    index_text,
    plain,
    some_rows,
    text_of,
)
from qbeast_core.table.advise.trial import ColumnSet, Dimension, TableFacts, importance_of
from qbeast_core.table.data.expressions import Predicate, filter_of
from qbeast_core.table.data.frames import FrameLike, to_frame
from qbeast_core.table.data.schema import lost_columns
from qbeast_core.tree.grid import frame_weights
from qbeast_core.tree.keys import CLUSTERED, design_effect

# Times the minimum up to which columns count as equal if no queries are given: each of many windows is about one
# column, and counts little.
_TIE_OF_WINDOWS: Final = 1.005

_MAX_COLUMNS, _MAX_WINDOWS = 4, 20
# Times smaller that the design effect has to become for a column more.
_WORTHWHILE: Final = 1.5

# Rows from which on cubes have their usual size: the least that rows given without `table_rows` may be a
# sample of.
_USUAL_ROWS: Final = 1 << 18


_FRAME: Final = pl.Schema(
    {
        "column": pl.String,
        "proposed": pl.Boolean,
        "distinct": pl.Int64,
        "null_share": pl.Float64,
        "spread": pl.Float64,
        "follows": pl.String,
        "alone": pl.Float64,
        "reason": pl.String,
    }
)

_BINS: Final = 64
# Quantiles of the range that a filter is assumed to have if no queries are given.
_WINDOW: Final = 0.45, 0.55

# From this share of distinct values on, a column identifies rows, and is rarely filtered by ranges.
_LIKE_IDS: Final = 0.95

# From this rank correlation on, two columns have nearly the same order.
_FOLLOWS: Final = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class SuggestedColumns(Hinted):
    """Proposed ``columns=`` for `qbeast.write_table`.

    Attributes
    ----------
    columns : tuple of str
        ``"name"``, or ``"name:hash"`` if the queries read less by hash, or if the column only makes keys unique.
    importance : dict of str to float
        Columns whose pages should be narrower, as `qbeast.write_table` accepts them. Empty if the queries would not
        open at least a tenth less with it.
    design_effect : float
        Design effect of samples of the table with this index; 1.0 is the minimum.
    opened : float
        Mean share of the table that a query would open, in [0, 1].
    frame : polars.DataFrame
        One row per column, proposed columns first: `column`; `proposed`; `distinct` (number of values) and `null_share`
        in the rows that were used; `spread` (1.0: values are spread evenly); `follows` (a column with nearly the same
        order, or null); `alone` (share that the queries would open if only this column were indexed, null if no query
        names it); `reason`.
    """

    columns: tuple[str, ...]
    importance: dict[str, float]
    design_effect: float
    opened: float
    frame: pl.DataFrame

    def __repr__(self) -> str:
        reasons = self.frame.select("column", "reason").iter_rows()
        return in_lines([self._title, *(f"  {column}: {reason}" for column, reason in reasons)])

    def _repr_html_(self) -> str:
        return html_of(self._title, {}, self.frame)

    @property
    def _title(self) -> str:
        shares = f"would open {self.opened:.0%} of the table, design effect {self.design_effect:.2f}"
        return f"{index_text(self.columns, self.importance)}, {shares}"


@hints_keywords
def suggest_columns(
    df: FrameLike,
    queries: Sequence[Predicate] | None = None,
    *,
    most: int = _MAX_COLUMNS,
    table_rows: int | None = None,
) -> SuggestedColumns:
    """Propose columns to index.

    Candidate tables with one and several indexed columns are simulated on some of the rows, with their cubes, files and
    pages, and each query is planned on them. The columns with which the queries open the fewest bytes are proposed. If
    several sets are equally good, the one with fewer columns is proposed. An importance of these columns is proposed if
    the queries open at least a tenth less with it. Without queries, a filter on a range of a tenth of the rows is
    assumed for each column. Columns with evenly spread values have a larger weight, and columns that identify rows a
    small one.

    If the keys of the proposal repeat so often that samples are clustered, a column with many values is added, by hash
    if its type supports it. With queries it is added only if they do not open more; otherwise the reason of that column
    states its cost.

    Parameters
    ----------
    df : polars.DataFrame, polars.LazyFrame, pandas.DataFrame or anything with ``__arrow_c_stream__``
        Rows to write, or a sample of them. They are held in memory.
    queries : sequence of polars.Expr or str, optional
        Filters that will be used. Repeat one to give it more weight. A text is SQL, as in `Table.delete`.
    most : int, default 4
        Maximum number of columns to propose, from 1 to 8, not counting the one that is added for samples.
    table_rows : int, optional
        Number of rows of the table, if `df` is a sample. The shares that queries open depend on it. By default the
        number of rows of `df`; columns are then compared for a table of at least 262,144 rows.

    Returns
    -------
    SuggestedColumns
        `.columns` and `.importance` go into `write_table`.

    Raises
    ------
    InvalidInputError
        There are no rows, a query does not fit the columns, or `most` or `table_rows` is out of range.
    InvalidColumnsError
        No column has a type that can be indexed.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> rows = pl.select(id=pl.int_range(10_000)).with_columns(
    ...     price=pl.col("id") * 7919 % 10_007, day=pl.col("id") // 100, store=pl.col("id") * 13 % 20)
    >>> qbeast.suggest_columns(rows, ["price < 100", "day = 7", "price BETWEEN 10 AND 20 AND day > 90"]).columns
    ('day', 'price')
    """
    check_request(queries, most)
    rows = to_frame(df)
    if rows.is_empty():
        msg = "there are no rows; give a sample of the rows to write"
        raise InvalidInputError(msg, argument="df")
    total = rows.height if table_rows is None else table_rows
    if not isinstance(cast("object", total), int) or total < rows.height:
        problem = f"must be a whole number, at least the number of rows in `df`, {rows.height}"
        invalid_argument("table_rows", problem, value=table_rows)
    least = _USUAL_ROWS if table_rows is None else 0  # the rows may be a sample
    return _Suggestion(rows, total, queries, most, least=least).made()


def check_request(queries: Sequence[Predicate] | None, max_columns: int) -> None:
    """Raise if the queries are one text, or the number of columns is out of range."""
    if not isinstance(cast("object", max_columns), int) or not 1 <= max_columns <= 8:
        invalid_argument("most", "must be a whole number from 1 to 8", value=max_columns)
    if isinstance(queries, str):
        invalid_argument("queries", "must be a list of conditions", value=queries)


class _Suggestion:
    """Profile of the columns, and the simulated tables, of a proposal."""

    def __init__(
        self,
        rows: pl.DataFrame,
        table_rows: int,
        queries: Sequence[Predicate] | None,
        max_columns: int,
        *,
        least: int,
    ) -> None:
        self.rows, self.table_rows, self.max_columns = rows, table_rows, max_columns
        looked_at = some_rows(rows, sizing().advised_rows)
        self.profile = Profile.of(some_rows(looked_at, FEW_ROWS))
        # A filter without columns opens the same of every index.
        filters = [
            query
            for query in queries or ()
            if named_columns(filter_of(query, looked_at.schema, argument="queries"))
        ]
        workload = Workload.of(filters, looked_at)
        self.filtered = [name for name in workload.named if name in self.profile.names]
        if not self.filtered:
            named = tuple(self.profile.evenest[:_MAX_WINDOWS])
            windows = tuple(_window(looked_at[name]) for name in named)
            workload = Workload(windows, named, self.profile.importance(named))
        self.compared = self.filtered or list(workload.named)
        ends = rows if rows.height == table_rows else pl.DataFrame()
        facts = TableFacts(table_rows, rows.estimated_size() / rows.height, ends)
        self.search = Search(looked_at, facts, workload, least_rows=least)

    def made(self) -> SuggestedColumns:
        """Return the proposal."""
        best = self._best
        key, effect = self._key_of(best)
        proposed = (*best, *key)
        return SuggestedColumns(
            columns=tuple(map(text_of, proposed)),
            importance=importance_of(proposed),
            design_effect=effect,
            opened=self._share(proposed),
            frame=self._frame(best, key),
        )

    def _share(self, columns: ColumnSet) -> float:
        many = self.search.many
        return many.share(columns, many.sizes(self._best))

    @cached_property
    def _best(self) -> ColumnSet:
        names, few = self.compared[:MAX_TRIED], self.search.few
        options = self.search.options(names) if self.filtered else list(map(plain, names))
        few.search(
            options, max_columns=self.max_columns, together=self._together, by_bytes=bool(self.filtered)
        )
        # The rows may show no difference: the first rows of a file all have the same day.
        if not few.decides:
            return tuple(map(plain, names[: self.max_columns]))
        if not self.filtered:
            return few.best(tie=_TIE_OF_WINDOWS)
        best = few.best_of(few.by_bytes, few.mean_bytes, tie=TIE)
        weighted = map(few.weighted, [best, *few.by_bytes[:MAX_OTHERS]])
        wish = self.search.confirmed(few.best_of([best, *weighted], few.mean_bytes, tie=TIE))
        return wish if importance_of(wish) else best

    def _together(self, columns: ColumnSet) -> bool:
        """Return whether the last column may be proposed with the columns before it."""
        *others, last = [column.name for column in columns]
        # Of two columns with the same order, the second divides nothing. It is kept only if a query names it.
        return last not in others and (bool(self.filtered) or self.profile.follows(last, others) is None)

    def _key_of(self, best: ColumnSet) -> tuple[ColumnSet, float]:
        """Return the column to add so that samples are not clustered, and the design effect with it."""
        effect = self._effect(best)
        if self.filtered or effect <= CLUSTERED or self.key.name in [column.name for column in best]:
            return (), effect
        better = self._effect((*best, self.key))
        return ((self.key,), better) if better < effect / _WORTHWHILE else ((), effect)

    @cached_property
    def key(self) -> Dimension:
        """The column with the most values."""
        return self.search.by_hash(self.profile.names[int(np.argmax(self.profile.distinct))])

    def _effect(self, columns: ColumnSet) -> float:
        weights = frame_weights(self.rows, [column.name for column in columns])
        return design_effect(weights, share=self.rows.height / self.table_rows)

    def _frame(self, best: ColumnSet, key: ColumnSet) -> pl.DataFrame:
        """Return one row per column, proposed columns first."""
        profile, proposed = self.profile, {column.name: column for column in (*best, *key)}
        alone: dict[str, float | None] = dict.fromkeys(profile.names)
        alone |= {name: self._share((proposed.get(name, plain(name)),)) for name in self.compared}
        others = [name for name in alone if name not in proposed]
        others.sort(key=lambda name: (alone[name] is None, alone[name]))
        records: list[dict[str, object]] = [
            {
                "column": name,
                "proposed": name in proposed,
                "distinct": int(profile.distinct[at]),
                "null_share": float(profile.null_share[at]),
                "spread": float(profile.spread[at]),
                "follows": profile.follows(name, [column.name for column in best]),
                "alone": alone[name],
                "reason": self._reason(name, alone[name], best, key),
            }
            for name, at in ((name, profile.names.index(name)) for name in (*proposed, *others))
        ]
        unfit: dict[str, object] = {"proposed": False, "reason": "its type cannot be indexed"}
        records += [{"column": name, **unfit} for name in profile.others]
        return pl.DataFrame(records, schema=_FRAME, orient="row")

    def _reason(self, name: str, alone: float | None, best: ColumnSet, key: ColumnSet) -> str:
        only = "" if alone is None else f"alone it would open {alone:.0%} of the table"
        names = [column.name for column in best]
        follows = self.profile.follows(name, names)
        if name in [column.name for column in key]:
            return "proposed as well: it makes keys unique, so that samples are not clustered"
        if name in names:
            return f"proposed: {only}"
        if name == self.key.name and self._effect(best) > CLUSTERED:
            opened, instead = self._share(best), self._share((*best, self.key))
            return (
                f"added as {text_of(self.key)!r} it makes keys unique, so that samples are not clustered, but "
                f"{instead:.0%} of the table would be opened instead of {opened:.0%}"
            )
        if alone is None:
            return (
                "no query names it" if self.filtered else "the values of other columns are spread more evenly"
            )
        if follows is not None and not self.filtered:
            return f"follows {follows}, which has nearly the same order"
        return f"adds too little: {only}"


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Profile of the columns of rows."""

    names: list[str]
    # Number of distinct values of each column, including null, shape (columns,).
    distinct: I64Array
    # Shape (columns,). The spread is the entropy of equal bins, divided by its maximum.
    null_share: F64Array
    spread: F64Array
    # Absolute rank correlation of each two columns, in [0, 1], shape (columns, columns).
    correlation: F64Array
    others: list[str]
    rows: int

    @staticmethod
    def of(rows: pl.DataFrame) -> Profile:
        """Compute the profile of rows."""
        others = lost_columns(rows.columns, rows.schema)
        names = [name for name in rows.columns if name not in others]
        if not names:
            types = dict(rows.schema)
            msg = f"no column can be indexed: {types}. Numbers, dates, timestamps and strings can."
            raise InvalidColumnsError(msg, columns=rows.columns)
        ranks = pl.col(names).rank("average").fill_null(0.5)
        order = rows.select((ranks - 0.5) / rows.height).to_numpy()
        bins = (order * _BINS).astype(np.int64)
        shares = [np.bincount(column, minlength=_BINS) / rows.height for column in bins.T]
        entropies = np.array([-(share[share > 0] * np.log2(share[share > 0])).sum() for share in shares])
        spreads = order.std(axis=0)
        centred = np.divide(order - order.mean(axis=0), spreads, out=np.zeros_like(order), where=spreads > 0)
        return Profile(
            names=names,
            distinct=np.array([rows[name].n_unique() for name in names]),
            null_share=np.array([rows[name].null_count() / rows.height for name in names]),
            spread=entropies / np.log2(_BINS),
            correlation=np.abs(centred.T @ centred) / rows.height,
            others=list(others),
            rows=rows.height,
        )

    @property
    def evenest(self) -> list[str]:
        """Columns by decreasing importance without queries: evenly spread ones first, ids last."""
        return [self.names[at] for at in np.argsort(-self._importance, kind="stable")]

    def importance(self, names: Sequence[str]) -> F64Array:
        """Return the importance of columns without queries, with sum 1."""
        importance = self._importance[[self.names.index(name) for name in names]]
        return importance / np.float64(importance.sum())

    @property
    def _importance(self) -> F64Array:
        like_ids = self.distinct >= _LIKE_IDS * self.rows
        return np.maximum(self.spread * np.where(like_ids, 0.2, 1.0), 1e-9)

    def follows(self, name: str, leaders: Sequence[str]) -> str | None:
        """Return the first of other columns that has nearly the same order, so that both divide alike."""
        own = self.correlation[self.names.index(name)]
        near = (leader for leader in leaders if own[self.names.index(leader)] >= _FOLLOWS and leader != name)
        return next(near, None)


def _window(values: pl.Series) -> pl.Expr:
    """Return a filter on a column that keeps about a tenth of its values, in the middle of their order."""
    values = values.drop_nulls().sort()
    if not len(values):
        return pl.col(values.name).is_null()
    first, last = (pl.lit(values[int(len(values) * at)], values.dtype) for at in _WINDOW)
    return pl.col(values.name).is_between(first, last)
