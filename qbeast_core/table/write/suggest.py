"""Which columns to index: a proposal, by what the values look like and by the filters that are to be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, cast

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidColumnsError, InvalidInputError, refuse
from qbeast_core.html import html_of
from qbeast_core.plain_text import in_lines
from qbeast_core.space.arrays import BoolArray, F64Array, I64Array
from qbeast_core.spec.transformer import transformer_for
from qbeast_core.table.data.expressions import Predicate, evaluating, filter_of
from qbeast_core.table.data.frames import FrameLike, to_frame
from qbeast_core.tree.columns import data_type_of, frame_weights
from qbeast_core.tree.design_effect import CLUSTERED, design_effect
from qbeast_core.tree.evolve import default_cube_size

__all__ = ["SuggestedColumns", "suggest_columns"]

_ROWS: Final = 200_000
"""Rows that are looked at."""

_BINS: Final = 64
_WINDOW: Final = 0.1
"""Of its rows, what a column is taken to be asked for where no queries are given."""

_MOST_COLUMNS, _MOST_TRIED = 4, 10
_PRICE_OF_A_COLUMN: Final = 0.01
_LIKE_IDS: Final = 0.95
"""Share of distinct values from which on a column tells rows apart, and is rarely asked by ranges."""

_FOLLOWS: Final = 0.9
"""Rank correlation from which on one column's order serves the other."""

_WORTHWHILE: Final = 1.5
"""Times smaller that the design effect has to become for a column more."""


@dataclass(frozen=True, slots=True, eq=False)
class SuggestedColumns:
    """A proposal for ``columns=`` of `qbeast.write_table`; prints well.

    Attributes
    ----------
    columns : tuple of str
        ``"name"``, or ``"name:hash"`` where a column is there to tell rows apart and is of a type that has a hash.
    design_effect : float
        Of samples of the given rows, indexed so; 1.0 is the best there is.
    opened : float
        Share of the table that the queries would open in the mean, in [0, 1], by a simple model: for comparisons.
    frame : polars.DataFrame
        A row a column, those proposed first: `column`, `proposed`, `distinct` values and `null_share` of the rows
        looked at, `spread` (1.0: as even as can be), `follows` (a column that has nearly the same order, or null),
        `alone` (what the queries would open if this column alone were indexed), `reason`.
    """

    columns: tuple[str, ...]
    design_effect: float
    opened: float
    frame: pl.DataFrame

    def __repr__(self) -> str:
        return in_lines([self._title, *(f"  {one}: {why}" for one, why in self._reasons.items())])

    def _repr_html_(self) -> str:
        return html_of(self._title, {}, self.frame)

    @property
    def _title(self) -> str:
        return f"columns={list(self.columns)}, design effect {self.design_effect:.2f}"

    @property
    def _reasons(self) -> dict[str, str]:
        return dict(self.frame.select("column", "reason").iter_rows())


def suggest_columns(
    df: FrameLike, queries: Sequence[Predicate] | None = None, *, most: int = _MOST_COLUMNS
) -> SuggestedColumns:
    """Propose columns to index.

    Without queries every column counts as asked by ranges of a tenth of its rows, the more the evener its values are
    spread; columns that tell every row apart count little. With queries, what they would open decides. Of columns that
    follow one another one is enough. Where the key of a proposal repeats so much that samples are clustered, a column
    that tells rows apart is added, by hash if its type has one.

    Parameters
    ----------
    df : polars.DataFrame, polars.LazyFrame, pandas.DataFrame or anything with ``__arrow_c_stream__``
        Rows to be written, or some of them; held in memory, and 200,000 of them looked at closely.
    queries : sequence of polars.Expr or str, optional
        Filters that will be asked, each as often as it stands there. A text is SQL, as in `Table.delete`.
    most : int, default 4
        Columns to propose at most, besides one by hash; 1 to 8.

    Returns
    -------
    SuggestedColumns
        `.columns` goes into `write_table`.

    Raises
    ------
    InvalidInputError
        There are no rows, a query goes not with the columns, or `most` is out of range.
    InvalidColumnsError
        No column is of a type that can be indexed.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> rows = pl.select(id=pl.int_range(50_000)).with_columns(
    ...     price=pl.col("id") * 7919 % 10_007, day=pl.col("id") // 500, store=pl.col("id") * 13 % 20)
    >>> qbeast.suggest_columns(rows, ["price < 100", "day = 7", "price BETWEEN 10 AND 20 AND day > 90"]).columns
    ('price', 'day')
    """
    if not isinstance(cast("object", most), int) or not 1 <= most <= 8:
        refuse("most", "must be a whole number from 1 to 8", "nothing was read", given=most)
    if isinstance(queries, str):
        refuse("queries", "must be a list of conditions", "nothing was read", given=queries)
    rows = to_frame(df)
    if rows.is_empty():
        msg = "there are no rows to look at; give some of those that are to be written"
        raise InvalidInputError(msg, argument="df")
    looked_at = rows.gather_every(-(-rows.height // _ROWS))
    profile = _Profile.of(looked_at)
    shares, importance = profile.asked_by([_kept(looked_at, one) for one in queries or ()])
    cells = max(rows.height / default_cube_size(rows.height), 1.0)
    tried = np.argsort(-_worth(shares, importance, cells), kind="stable")[:_MOST_TRIED]
    sets = [
        one
        for size in range(1, most + 1)
        for one in combinations(tried.tolist(), size)
        if not profile.some_follow(one)
    ]
    costs = [_opened(shares, importance, one, cells) + _PRICE_OF_A_COLUMN * len(one) for one in sets]
    best = sorted(sets[int(np.argmin(costs))], key=tried.tolist().index)
    names = [profile.names[at] for at in best]
    key, effect = _key_of(rows, names, profile)
    return SuggestedColumns(
        columns=(*names, *(_by_hash(one, rows.schema[one]) for one in key)),
        design_effect=effect,
        opened=_opened(shares, importance, tuple(best), cells),
        frame=_told(
            profile,
            best,
            key,
            [_opened(shares, importance, (at,), cells) for at in range(len(profile.names))],
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Profile:
    """What columns look like.

    Attributes
    ----------
    names : list of str
        Columns that can be indexed.
    bins : I64Array
        Place of every row in the order of a column, in bins of about equal rows, shape (rows, columns).
    distinct : I64Array
        Different values of each column, null counted, shape (columns,).
    null_share, spread : F64Array
        Shape (columns,); the spread is the entropy of the bins over the greatest there is.
    correlation : F64Array
        How much the order of two columns is the same, or the reverse, in [0, 1], shape (columns, columns).
    others : list of str
        Columns that cannot be indexed.
    """

    names: list[str]
    bins: I64Array
    distinct: I64Array
    null_share: F64Array
    spread: F64Array
    correlation: F64Array
    others: list[str]

    @staticmethod
    def of(rows: pl.DataFrame) -> _Profile:
        """Look at rows."""
        names = [name for name, dtype in rows.schema.items() if _can_be_indexed(name, dtype)]
        if not names:
            msg = (
                f"no column can be indexed: {dict(rows.schema)}. Numbers, dates, timestamps and strings can."
            )
            raise InvalidColumnsError(msg, columns=rows.columns)
        order = rows.select(
            ((pl.col(name).rank("average").fill_null(0.5) - 0.5) / rows.height).alias(name) for name in names
        ).to_numpy()
        bins = (order * _BINS).astype(np.int64)
        shares = [np.bincount(column, minlength=_BINS) / rows.height for column in bins.T]
        entropies = np.array([-(share[share > 0] * np.log2(share[share > 0])).sum() for share in shares])
        spreads = order.std(axis=0)
        centred = np.divide(order - order.mean(axis=0), spreads, out=np.zeros_like(order), where=spreads > 0)
        return _Profile(
            names=names,
            bins=bins,
            distinct=np.array([rows[name].n_unique() for name in names]),
            null_share=np.array([rows[name].null_count() / rows.height for name in names]),
            spread=entropies / np.log2(_BINS),
            correlation=np.abs(centred.T @ centred) / rows.height,
            others=[name for name in rows.columns if name not in names],
        )

    def some_follow(self, chosen: Sequence[int]) -> bool:
        """Tell whether some of the columns have nearly the same order: they divide nothing that one does not."""
        among = self.correlation[np.ix_(chosen, chosen)] >= _FOLLOWS
        return bool(np.triu(among, k=1).any())

    def asked_by(self, kept: Sequence[BoolArray]) -> tuple[F64Array, F64Array]:
        """Return which share of each column's order every query reaches, and how much each query counts.

        Parameters
        ----------
        kept : sequence of BoolArray
            Which rows each query keeps, shape (rows,); none: each column is asked for a window of its order.

        Returns
        -------
        shares : F64Array
            In (0, 1], shape (queries, columns); 1.0 where the column says nothing about the query.
        importance : F64Array
            Shape (queries,), of sum 1.
        """
        if kept:
            importance = np.ones(len(kept))
        else:
            window = _BINS * (1 - _WINDOW) / 2, _BINS * (1 + _WINDOW) / 2
            kept = [(column >= window[0]) & (column < window[1]) for column in self.bins.T]
            like_ids = self.distinct >= _LIKE_IDS * len(self.bins)
            importance = np.maximum(self.spread * np.where(like_ids, 0.2, 1.0), 1e-9)
        return np.array([self._reached(one) for one in kept]), importance / importance.sum()

    def _reached(self, kept: BoolArray) -> F64Array:
        """Return the share of each column's order in which rows are kept, over what chance alone would leave."""
        count = int(kept.sum())
        if not count:
            return np.full(len(self.names), 1 / _BINS)
        shares = np.empty(len(self.names))
        for at, column in enumerate(self.bins.T):
            sizes = np.bincount(column, minlength=_BINS) / len(column)
            hit = np.bincount(column[kept], minlength=_BINS) > 0
            by_chance = float((sizes * -np.expm1(count * np.log1p(-np.minimum(sizes, 1 - 1e-12)))).sum())
            shares[at] = min(float(sizes[hit].sum()) / max(by_chance, 1e-12), 1.0)
        return shares


def _kept(rows: pl.DataFrame, query: Predicate) -> BoolArray:
    """Tell which rows a query keeps."""
    condition = filter_of(query, rows.schema, argument="queries")
    with evaluating(query, "queries", "nothing was written"):
        kept = rows.select(pl.lit(value=True) if condition is None else condition).to_series()
    return np.broadcast_to(kept.fill_null(value=False).to_numpy(), rows.height)  # a constant is one value


def _can_be_indexed(name: str, dtype: pl.DataType) -> bool:
    try:
        data_type_of(name, dtype)
    except InvalidColumnsError:
        return False
    return True


def _by_hash(name: str, dtype: pl.DataType) -> str:
    """Spell a column that is there to tell rows apart: dates and times have no hash in the format."""
    try:
        transformer_for(name, kind="hashing", data_type=data_type_of(name, dtype))
    except InvalidColumnsError:
        return name
    return f"{name}:hash"


def _opened(shares: F64Array, importance: F64Array, chosen: Sequence[int], cells: float) -> float:
    """Return what queries open in the mean: along each column what they reach, and a cell that is cut by its end."""
    cell = cells ** (-1 / len(chosen))
    return float(importance @ np.minimum(shares[:, list(chosen)] + cell, 1.0).prod(axis=1))


def _worth(shares: F64Array, importance: F64Array, cells: float) -> F64Array:
    return np.array([1 - _opened(shares, importance, (at,), cells) for at in range(shares.shape[1])])


def _key_of(rows: pl.DataFrame, names: list[str], profile: _Profile) -> tuple[list[str], float]:
    """Return what to add by hash so that samples are not clustered, and the design effect with it."""
    effect = design_effect(frame_weights(rows, names))
    if effect <= CLUSTERED:
        return [], effect
    name = profile.names[int(np.argmax(profile.distinct))]
    better = effect if name in names else design_effect(frame_weights(rows, [*names, name]))
    return ([name], better) if better < effect / _WORTHWHILE else ([], effect)


def _told(profile: _Profile, best: list[int], key: list[str], alone: list[float]) -> pl.DataFrame:
    order = [*best, *sorted(set(range(len(profile.names))) - set(best), key=lambda at: alone[at])]
    records = []
    for at in order:
        others = [one for one in best if one != at and profile.correlation[at, one] >= _FOLLOWS]
        follows = profile.names[others[0]] if others else None
        name = profile.names[at]
        records.append(
            {
                "column": name,
                "proposed": at in best or name in key,
                "distinct": int(profile.distinct[at]),
                "null_share": float(profile.null_share[at]),
                "spread": float(profile.spread[at]),
                "follows": follows,
                "alone": alone[at],
                "reason": _reason(alone[at], follows, chosen=at in best, key=name in key),
            }
        )
    records += [
        {"column": name, "proposed": False, "reason": "its type cannot be indexed"} for name in profile.others
    ]
    schema = {
        "column": pl.String,
        "proposed": pl.Boolean,
        "distinct": pl.Int64,
        "null_share": pl.Float64,
        "spread": pl.Float64,
        "follows": pl.String,
        "alone": pl.Float64,
        "reason": pl.String,
    }
    return pl.DataFrame(records, schema=schema, orient="row")


def _reason(alone: float, follows: str | None, *, chosen: bool, key: bool) -> str:
    if chosen:
        return f"proposed: with it alone the queries would open {alone:.0%} of the table"
    if key:
        return "proposed as well: it tells rows apart, so that samples are not clustered"
    if follows is not None:
        return f"follows {follows}, whose order serves it as well"
    return f"adds too little: with it alone the queries would open {alone:.0%} of the table"
