"""Task that matches the rows of files with the rows of a merge source."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from pyroaring import BitMap64

from qbeast_core.errors import InvalidInputError
from qbeast_core.log.deletion_vectors import row_set
from qbeast_core.space.values import I64Array
from qbeast_core.support.frames import join_equal, own_column
from qbeast_core.table.data.scan import FileScan, TableFiles
from qbeast_core.table.dml.find_rows import AT_ONCE, PLACE
from qbeast_core.table.dml.merge.clauses import Clauses, MergeConditions
from qbeast_core.table.read.tasks import RowFilter, read_scans

# Name of a column that numbers rows of the table.
ROW: Final = own_column("row")

# Name of a column that numbers the rows of the source.
SOURCE_ROW: Final = own_column("source_row")

_FILE: Final = own_column("file")
_UPDATES: Final = own_column("is_updated")


class MergedPlaces(NamedTuple):
    """The rows of a file that a merge changes, by their indexes: updated, deleted, and deleted without a match."""

    updated: BitMap64
    deleted: BitMap64
    not_matched: BitMap64

    @property
    def rows(self) -> BitMap64:
        """All of them."""
        return self.updated | self.deleted | self.not_matched


@dataclass(frozen=True, slots=True, eq=False)
class MatchRows:
    """Matches the rows of some files with the rows of a source."""

    files: TableFiles = field(repr=False)
    # Selects the keys and the columns that the conditions use.
    keep: RowFilter
    source: pl.DataFrame = field(repr=False)
    clauses: Clauses
    conditions: MergeConditions

    def __call__(self, scans: Sequence[FileScan]) -> tuple[I64Array, list[MergedPlaces]]:
        """Return the source rows that match, and the rows that change of each file."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            frames = list(pool.map(self._read, range(len(scans)), scans))
        rows = pl.concat(frames).with_row_index(ROW)
        verdict = judge(rows, self.source, self.clauses, self.conditions)
        frames = [verdict.updated, verdict.deleted, verdict.not_matched]
        by_kind = [_by_file(frame, len(scans)) for frame in frames]
        return verdict.matched.to_numpy(), [MergedPlaces(*places) for places in zip(*by_kind, strict=True)]

    def _read(self, number: int, scan: FileScan) -> pl.DataFrame:
        keep = replace(self.keep, place_column=PLACE)
        rows = pl.concat(list(read_scans([scan], keep, self.files)))
        return rows.with_columns(pl.lit(number, dtype=pl.Int64).alias(_FILE))


def _by_file(rows: pl.DataFrame, count: int) -> list[BitMap64]:
    order = np.argsort(rows[_FILE].to_numpy(), kind="stable")
    starts = np.searchsorted(rows[_FILE].to_numpy()[order], np.arange(1, count))
    return [row_set(places) for places in np.split(rows[PLACE].to_numpy()[order], starts)]


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Actions of a merge for some rows of the table."""

    # Rows to update, each with its matching row of the source.
    updated: pl.DataFrame
    # Rows to delete: with a match, and without one.
    deleted: pl.DataFrame
    not_matched: pl.DataFrame
    # Numbers of the source rows that have a match.
    matched: pl.Series


def judge(rows: pl.DataFrame, source: pl.DataFrame, clauses: Clauses, conditions: MergeConditions) -> Verdict:
    """Match rows of the table with the source and apply the conditions."""
    keys = list(clauses.keys)
    pairs = join_equal(rows, source, keys, "inner", maintain_order="left_right")
    deletes = pl.repeat(clauses.when_matched == "delete", pairs.height, dtype=pl.Boolean, eager=True)
    if conditions.delete is not None:
        deletes = conditions.delete.mask(pairs)
    acts = conditions.matched.mask(pairs)
    if clauses.when_matched != "delete":
        acts = (acts | deletes) & (clauses.when_matched == "update")
    acting = pairs.with_columns((~deletes).alias(_UPDATES)).filter(acts)
    if clauses.when_matched == "delete":
        acting = acting.unique(ROW, keep="first", maintain_order=True)
    _refuse_several(acting, keys)
    not_matched = rows.clear()
    if clauses.when_not_matched_by_source == "delete":
        alone = join_equal(rows, source, keys, "anti", maintain_order="left")
        not_matched = alone.filter(conditions.not_matched.mask(alone))
    updated = acting.filter(_UPDATES).drop(_UPDATES)
    return Verdict(updated, acting.filter(~pl.col(_UPDATES)), not_matched, pairs[SOURCE_ROW].unique())


def join_source(
    source: pl.DataFrame, keys: pl.DataFrame, on: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of the source joined with their matching keys, and the rows without a match."""
    numbered = source.with_row_index(SOURCE_ROW)
    pairs = join_equal(numbered, keys, on, "inner")
    matched = pairs.select(SOURCE_ROW).unique()
    rest = numbered.join(matched, on=SOURCE_ROW, how="anti", maintain_order="left")
    return pairs.drop(SOURCE_ROW), rest.drop(SOURCE_ROW)


def _refuse_several(acting: pl.DataFrame, keys: list[str]) -> None:
    duplicates = acting.filter(pl.col(ROW).is_duplicated())
    if duplicates.height:
        example = duplicates.select(keys).row(0, named=True)
        msg = (
            f"{duplicates[ROW].n_unique()} or more rows of the table match several rows of the source that would "
            f"change them, for example {example}. Leave one row per key in the source."
        )
        raise InvalidInputError(msg, argument="source")
