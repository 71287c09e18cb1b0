"""Search the index of which some filters open the fewest bytes, on a small sample first, then on a larger one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.log.protocol import codec_of
from qbeast_core.plan.nodes import Node, Unknown, named_columns
from qbeast_core.plan.predicate import parse_predicate
from qbeast_core.space.values import F64Array
from qbeast_core.spec.revision import ColumnSpec, transformer_for
from qbeast_core.table.advise.trial import (
    ColumnSet,
    Dimension,
    Opened,
    RowSizes,
    TableFacts,
    Trial,
    importance_of,
    specs_of,
)
from qbeast_core.table.data.expressions import Predicate, evaluating, filter_of
from qbeast_core.table.data.files import choose_encodings
from qbeast_core.table.read.scan import pushed_down
from qbeast_core.tree.fit import default_cube_size
from qbeast_core.tree.grid import data_type_of
from qbeast_core.tree.pages import Grain

# Rows for comparing indexes; `Sizing.advised_rows` are for the shares and bytes of the result.
FEW_ROWS: Final = 1 << 14

# Maximum number of columns that are compared, and of the indexes beside the best one of which an importance is tried.
MAX_TRIED: Final = 10
MAX_OTHERS: Final = 3

# Rows that a cube is drawn from at least: a table of more cubes counts as a smaller one.
_ROWS_OF_CUBE: Final = 32

# Times the minimum up to which indexes count as equal: tables are drawn from a sample.
TIE: Final = 1.05

# Times fewer bytes that filters have to open with another kind, or another importance, than the default.
_WORTHWHILE: Final = 1.1

# Importances of a column, each tried if the one before it opens fewer bytes.
_IMPORTANCES: Final = (2.0, 4.0, 8.0)

# Number of best sets of one size to which further columns are added.
_EXTENDED: Final = 3

# Number of sets of one size that are compared by bytes, which takes longer than by shares.
_WEIGHED: Final = 8

_NOTICED: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Filters of later queries."""

    filters: tuple[pl.Expr, ...]
    # Columns that the filters name, each once.
    named: tuple[str, ...]
    # Of each filter, with sum 1.
    importance: F64Array

    @staticmethod
    def of(queries: Sequence[Predicate], rows: pl.DataFrame) -> Workload:
        """Parse filters; raise if one cannot be evaluated on the rows."""
        filters = tuple(_condition(query, rows) for query in queries)
        named = named_columns(*filters)
        return Workload(filters, tuple(named), np.full(len(filters), 1 / max(len(filters), 1)))

    def nodes(self, schema: pl.Schema) -> tuple[Node, ...]:
        """Return the parts of the filters that skip files and pages."""
        pushed = (pushed_down(schema, query, None)[0] for query in self.filters)
        return tuple(Unknown() if some is None else parse_predicate(some, schema) for some in pushed)


class Search:
    """Simulated tables of a sample, to compare indexes on few rows, and to estimate what is opened on more rows."""

    def __init__(
        self, rows: pl.DataFrame, facts: TableFacts, workload: Workload, *, least_rows: int = 0
    ) -> None:
        self._schema, self._facts, self._workload = rows.schema, facts, workload
        self._nodes = workload.nodes(rows.schema)
        codec, size_bytes = codec_of(facts.configuration), facts.row_bytes * facts.rows
        chosen = choose_encodings(rows, codec, Grain.of(facts.rows), size_bytes=size_bytes)
        self._encodings = (*chosen, codec)
        self.few = self._candidates(some_rows(rows, FEW_ROWS), max(facts.rows, least_rows))
        self.many = self._candidates(rows, facts.rows)

    def _candidates(self, some: pl.DataFrame, table_rows: int) -> Candidates:
        max_rows = max(some.height // _ROWS_OF_CUBE * default_cube_size(self._facts.rows), some.height)
        facts = replace(self._facts, rows=min(table_rows, max_rows))
        trial = Trial(some, facts, self._nodes, self._workload.named, self._encodings)
        return Candidates(trial, self._workload.importance)

    def options(self, names: Sequence[str]) -> list[Dimension]:
        """Return columns to index, by the kind that a write would choose and by hash."""
        return list(dict.fromkeys([*map(plain, names), *map(self.by_hash, names)]))

    def by_hash(self, name: str) -> Dimension:
        """Return a column by hash; dates and times have none in the format."""
        return Dimension(ColumnSpec(name, "hashing")) if self._fits(name, "hashing") else plain(name)

    def with_linear_columns(self, index: ColumnSet) -> ColumnSet:
        """Return the index with quantiles replaced by equal ranges, where the filters open much less then.

        Hashes are among the options of a search. Columns that a write divides into equal ranges have evenly spread
        values, whose quantiles would be the same ranges.
        """
        for at, column in enumerate(index):
            if self.few.trial.kind_of(column.spec) != "quantiles" or not self._fits(column.name, "linear"):
                continue
            linear = replace(column, spec=ColumnSpec(column.name, "linear"))
            columns = _with(index, at, linear)
            if self.few.mean_bytes(columns) * _WORTHWHILE < self.few.mean_bytes(index):
                index = columns
        return index

    def confirmed(self, index: ColumnSet) -> ColumnSet:
        """Return the index, without its importance unless the filters open much less with it of many rows."""
        even, sizes = tuple(map(Dimension, specs_of(index))), self.many.sizes(index)
        is_better = self.many.share(index, sizes) * _WORTHWHILE <= self.many.share(even, sizes)
        return index if is_better else even

    def _fits(self, name: str, kind: Literal["hashing", "linear"]) -> bool:
        """Return whether a column can have a kind."""
        try:
            transformer_for(name, kind=kind, data_type=data_type_of(name, self._schema[name]))
        except InvalidColumnsError:
            return False
        return True


def some_rows(rows: pl.DataFrame, max_rows: int) -> pl.DataFrame:
    """Return at most this number of random rows, in their order, which the pages of a table keep."""
    if rows.height <= max_rows:
        return rows
    numbers = np.random.default_rng(0).choice(rows.height, max_rows, replace=False)
    return rows[np.sort(numbers)]


def plain(name: str) -> Dimension:
    """Return a column by the kind that a write would choose."""
    return Dimension(ColumnSpec(name))


def text_of(column: Dimension) -> str:
    """Return a column as users write it; the log has a longer name for a hash."""
    return f"{column.name}:hash" if column.spec.kind == "hashing" else str(column.spec)


def index_text(columns: Sequence[str], importance: Mapping[str, float]) -> str:
    """Return an index as arguments of a write.

    >>> index_text(["ts", "ms"], {"ts": 2.0})
    "columns=['ts', 'ms'], importance={'ts': 2.0}"
    """
    return f"columns={list(columns)}" + (f", importance={dict(importance)}" if importance else "")


def _with(index: ColumnSet, at: int, column: Dimension) -> ColumnSet:
    """Return the index with another column in one place."""
    return *index[:at], column, *index[at + 1 :]


def _condition(query: Predicate, rows: pl.DataFrame) -> pl.Expr:
    """Return a query as an expression; raise if it cannot be evaluated."""
    condition = filter_of(query, rows.schema, argument="queries")
    condition = pl.lit(value=True) if condition is None else condition
    with evaluating(query, "queries"):
        rows.select(condition)
    return condition


class Candidates:
    """Indexes, each simulated once."""

    def __init__(self, trial: Trial, importance: F64Array) -> None:
        self.trial, self._importance = trial, importance
        self._opened: dict[ColumnSet, Opened] = {}
        self._sizes: dict[ColumnSet, RowSizes] = {}
        self._bytes: dict[ColumnSet, F64Array] = {}

    def search(
        self,
        options: Sequence[Dimension],
        *,
        max_columns: int,
        together: Callable[[ColumnSet], bool],
        by_bytes: bool = False,
    ) -> None:
        """Try single columns, and add further columns to the best sets, up to `max_columns` columns.

        The best sets are those of which the filters open the smallest share, and with `by_bytes` also those of which
        they open the fewest bytes: tables of the same rows differ by up to a third in bytes. All pairs are tried then.
        """
        level: list[ColumnSet] = [(option,) for option in options]
        for _ in range(max_columns):
            tried = set(map(frozenset[Dimension], self._opened))
            sets = {frozenset(columns): columns for columns in level if together(columns)}
            fresh = [columns for key, columns in sets.items() if key not in tried]
            for index in fresh:
                self._opened[index] = self.trial.opened(index)
            if not fresh:
                break
            ordered = sorted(fresh, key=self._expected_bytes if by_bytes else self.share_that_decides)
            best = ordered[:_EXTENDED]
            if by_bytes and len(ordered[0]) == 1:
                # All pairs: of many filters, each column serves one, and the best pair may be of any two.
                best = [index for index in ordered if (self._opened[index].shares < 1 - _NOTICED).any()]
                ordered = sorted(best or ordered[:1], key=self.mean_bytes)
            elif by_bytes:
                best += sorted(ordered[:_WEIGHED], key=self.mean_bytes)[:_EXTENDED]
            level = [(*index, option) for index in dict.fromkeys(best) for option in options]

    def _expected_bytes(self, index: ColumnSet) -> float:
        """Return about the bytes that are opened, from the share and from the tables of the single columns."""
        alone = [(column,) for column in index]
        sizes = [self.mean_bytes(one) / self._mean_share(one) for one in alone if one in self._bytes]
        return self._mean_share(index) * (sum(sizes) / len(sizes) if sizes else 1.0)

    def _mean_share(self, index: ColumnSet) -> float:
        return max(float(self._opened[index].shares @ self._importance), _NOTICED)

    @property
    def by_bytes(self) -> list[ColumnSet]:
        """The indexes whose bytes are known, with the fewest bytes first."""
        return sorted(self._bytes, key=self.mean_bytes)

    def best(self, *, tie: float) -> ColumnSet:
        """Return the index with the fewest columns of all that cost at most `tie` times the minimum."""
        return self.best_of(self._opened, self.share_that_decides, tie=tie)

    def best_of(
        self, tried: Iterable[ColumnSet], cost: Callable[[ColumnSet], float], *, tie: float
    ) -> ColumnSet:
        """Return the index with the fewest columns of those that cost at most `tie` times the minimum."""
        costs = {index: cost(index) for index in tried}
        limit = tie * min(costs.values()) + _NOTICED
        return min(
            (index for index, value in costs.items() if value <= limit), key=lambda i: _rank(i, costs[i])
        )

    def share_that_decides(self, index: ColumnSet) -> float:
        """Return the mean share that is opened by the filters for which indexes differ."""
        decide = self._differences > _NOTICED
        return float(self._opened[index].shares[decide] @ self._importance[decide])

    def sizes(self, index: ColumnSet) -> RowSizes:
        """Return the size of the rows, which is about the same with any index."""
        if index not in self._sizes:
            self._sizes[index] = self.trial.sizes(index)
        return self._sizes[index]

    def share(self, columns: ColumnSet, sizes: RowSizes) -> float:
        """Return the mean share of the bytes that all filters open, for rows of some size."""
        return float(self.trial.shares(columns, sizes) @ self._importance)

    def bytes(self, index: ColumnSet) -> F64Array:
        """Return the bytes that each filter opens, shape (filters,)."""
        if index not in self._bytes:
            self._bytes[index] = self.trial.bytes_opened(index, self.sizes(index))
        return self._bytes[index]

    def mean_bytes(self, index: ColumnSet) -> float:
        """Return the mean of the bytes that the filters open."""
        return float(self.bytes(index) @ self._importance)

    def weighted(self, index: ColumnSet) -> ColumnSet:
        """Return the index with an importance of its columns, if the filters open much less with it.

        The importance of one column after the other is doubled while they do.
        """
        wish, sizes = index, self.sizes(index)
        for at in range(len(index)) if len(index) > 1 else ():
            for importance in _IMPORTANCES:
                other = _with(wish, at, replace(wish[at], importance=importance))
                if self.share(other, sizes) * TIE > self.share(wish, sizes):
                    break
                wish = other
        return wish if self.share(wish, sizes) * _WORTHWHILE <= self.share(index, sizes) else index

    @property
    def decides(self) -> bool:
        """Whether a filter opens more with one index than with another."""
        return bool((self._differences > _NOTICED).any())

    @property
    def _differences(self) -> F64Array:
        shares = np.array([opened.shares for opened in self._opened.values()])
        return np.asarray(np.ptp(shares, axis=0), np.float64)


def _rank(index: ColumnSet, cost: float) -> tuple[int, int, int, int, float]:
    kinds = [spec.kind for spec in specs_of(index)]
    named = len(kinds) - kinds.count("auto")
    return len(kinds), kinds.count("hashing"), named, len(importance_of(index)), cost
