"""Tasks of changes for workers: find rows, fit new rows, compute changed rows, write the change data feed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from pyroaring import BitMap64

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.io.encode import choose_dictionary, page_rows_within
from qbeast_core.io.footer import PageCuts
from qbeast_core.log.actions import CHANGE_FOLDER, CdcFile
from qbeast_core.log.columns import StoredColumns
from qbeast_core.log.deletion_vectors import row_set
from qbeast_core.log.protocol import Codec, codec_of
from qbeast_core.log.rebase import RowIdColumns
from qbeast_core.log.values import partition_values
from qbeast_core.plan.nodes import named_columns
from qbeast_core.space.values import sample_values
from qbeast_core.spec.blocks import FilePath
from qbeast_core.support.frames import own_column
from qbeast_core.support.process import new_id
from qbeast_core.support.text import reason_of
from qbeast_core.table.data.expressions import Condition, evaluating
from qbeast_core.table.data.files import FileTarget, RowShape
from qbeast_core.table.data.frames import FrameLike, within
from qbeast_core.table.data.rules import AppliedRules
from qbeast_core.table.data.scan import FileScan, TableFiles, encode_rows
from qbeast_core.table.data.schema import CHANGE_TYPE
from qbeast_core.table.engine.row_change import AddedRows, RowChange, RowImages, UniformChange
from qbeast_core.table.read.tasks import RowFilter, read_scans
from qbeast_core.tree.grid import frame_weights

# Maximum number of files that one process reads at the same time.
AT_ONCE: Final = 8

# Column with the index of a row in its file.
PLACE: Final = own_column("place in file")


def find_rows(files: TableFiles, keep: RowFilter, text: str | None, scan: FileScan) -> BitMap64:
    """Return the indexes of the rows in the opened parts of a file that pass a filter, the condition `text`.

    The file is read in parts. Raises the errors of `evaluating`.
    """
    keep = replace(keep, place_column=PLACE)
    with evaluating(text):
        places = [frame[PLACE].to_numpy() for frame in read_scans([scan], keep, files)]
    return row_set(np.concatenate([np.zeros(0, np.int64), *places]))


@dataclass(frozen=True, slots=True, eq=False)
class DeleteChange(UniformChange):
    """Drops the matching rows."""

    condition: Condition

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that stay."""
        return rows.filter(~self.condition.mask(rows))

    def images(self, rows: pl.DataFrame) -> RowImages:
        """See `RowFunction`."""
        return RowImages(rows.filter(self.condition.mask(rows)), rows.clear(), rows.clear())


@dataclass(frozen=True, slots=True, eq=False)
class UpdateChange(UniformChange):
    """Sets columns of the matching rows."""

    condition: Condition
    assignments: Assignments

    @property
    def replaced(self) -> frozenset[str]:
        """See `RowChange`."""
        return self.assignments.replaced.difference(self.condition.columns)

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return all rows with the new values."""
        # Compute values for matching rows only: the expression may fail for others.
        matching = self.condition.mask(rows)
        return pl.concat([rows.filter(~matching), self.assignments.apply(rows.filter(matching))])

    def images(self, rows: pl.DataFrame) -> RowImages:
        """See `RowFunction`."""
        before = rows.filter(self.condition.mask(rows))
        return RowImages(rows.clear(), before, self.assignments.apply(before))


@dataclass(frozen=True, slots=True, eq=False)
class Assignments:
    """Values for columns of a table."""

    # Expressions with the names and types of the columns.
    values: tuple[pl.Expr, ...]
    # Columns among them that may hold no nulls.
    required: frozenset[str]
    argument: str
    # Rules of the table for the rows: columns that follow the new values, and checks. None: it has none.
    rules: AppliedRules | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns, and of columns that follow from them."""
        names = [value.meta.output_name() for value in self.values]
        return names if self.rules is None else [*names, *self.rules.columns]

    @property
    def replaced(self) -> frozenset[str]:
        """Columns with new values that no value is computed from."""
        return frozenset(value.meta.output_name() for value in self.values) - {*named_columns(*self.values)}

    def of_updates(self, hidden: RowIdColumns | None) -> Assignments:
        """Return the values for rows that keep their ids: their versions become null, for the version of the commit."""
        if hidden is None:
            return self
        return replace(self, values=(*self.values, pl.lit(None, pl.Int64).alias(hidden.version)))

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with the new values. Other columns stay as they are."""
        changed = self._assigned(rows)
        return changed if self.rules is None else self.rules.apply(changed, argument=self.argument)

    def _assigned(self, rows: pl.DataFrame) -> pl.DataFrame:
        try:
            changed = rows.with_columns(*self.values)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            msg = f"{self.argument} cannot be computed for every row: {reason_of(error)}"
            raise InvalidInputError(msg, argument=self.argument) from error
        nulls = [f"column {name!r} may hold no nulls" for name in self.required if changed[name].null_count()]
        if nulls:
            msg = f"{self.argument} do not fit the table: {'; '.join(sorted(nulls))}."
            raise SchemaMismatchError(msg, problems=nulls)
        return changed


class Outside(NamedTuple):
    """New rows that do not match the condition."""

    rows: int = 0
    example: Mapping[str, object] | None = None

    def __add__(self, other: object) -> Outside:
        """Return the rows of both."""
        if not isinstance(other, Outside):
            return NotImplemented
        return Outside(self.rows + other.rows, self.example or other.example)

    def refuse(self, where: object) -> None:
        """Raise if there are such rows."""
        if self.rows:
            msg = (
                f"{self.rows:,} row(s) of df do not match where={str(where)!r}, for example {self.example}. "
                "Filter the rows, or widen the condition."
            )
            raise InvalidInputError(msg, argument="where")


# Converts new rows to rows of the table, see `fit_rows`. Picklable.
Fit: TypeAlias = Callable[[FrameLike], tuple[pl.DataFrame, Outside]]


def fit_rows(
    shape: RowShape, condition: Condition, schema: pl.Schema, rows: FrameLike
) -> tuple[pl.DataFrame, Outside]:
    """Return new rows like rows of files of this schema, and those that do not match a condition."""
    fitted = pl.concat([schema.to_frame(), shape.fit(rows)], how="diagonal")
    others = fitted.filter(~condition.mask(fitted))
    if not others.height:
        return fitted, Outside()
    return fitted, Outside(others.height, others.select(condition.columns).row(0, named=True))


_PAGE_ROWS: Final = 1 << 14


# Files with rows that change, or rows to insert.
FeedPart: TypeAlias = tuple[FileScan, ...] | AddedRows


@dataclass(frozen=True, slots=True, eq=False)
class WriteFeed:
    """Writes the feed of a part. Picklable."""

    files: TableFiles = field(repr=False)
    # Reads all columns of at least the rows that change.
    keep: RowFilter
    change: RowChange | None
    target: FileTarget
    # Indexed columns of new rows.
    hashed: tuple[str, ...]
    # First part of the names of the files, to find the files of failed tasks.
    prefix: str
    # Approximate size in memory of the rows of a file.
    file_bytes: int

    def __call__(self, part: FeedPart) -> list[CdcFile]:
        """Write one file per partition, or several of about `file_bytes`."""
        written, waiting, size = list[CdcFile](), list[pl.DataFrame](), 0
        for rows in self._rows(part):
            waiting.append(rows.select(*self.target.columns.columns, CHANGE_TYPE))
            size += int(rows.estimated_size())
            if size >= self.file_bytes:
                written += self._store(pl.concat(waiting))
                waiting, size = [], 0
        if waiting:
            written += self._store(pl.concat(waiting))
        return written

    def _rows(self, part: FeedPart) -> Iterator[pl.DataFrame]:
        if not isinstance(part, tuple):
            for frame in part.read():
                for rows in within(frame, self.file_bytes):
                    yield from _typed(self._new(rows.select(*self.target.columns.columns)), "insert")
            return
        for scan in part:
            change = None if self.change is None else self.change.of_file(scan.path)
            if change is None:
                continue
            for frame in read_scans([scan], self.keep, self.files):
                for rows in within(frame, self.file_bytes):
                    images = change.images(rows)
                    yield from _typed(images.before, "update_preimage")
                    yield from _typed(self._new(images.after), "update_postimage")
                    yield from _typed(images.deleted, "delete")

    def _new(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return new rows with the values of the sample column, which is computed when files are written."""
        name = self.target.shape.sample_column
        if name is None:
            return rows
        return rows.with_columns(pl.Series(name, sample_values(frame_weights(rows, self.hashed))))

    def _store(self, rows: pl.DataFrame) -> Iterator[CdcFile]:
        columns = self.target.columns
        by_partition = [rows]
        if columns.partitions:
            by_partition = rows.partition_by(columns.partitions, maintain_order=True)
        for part in by_partition:
            values = partition_values(part, columns)
            # Not in a folder of the partition: deltalake cannot read a feed in folders with escaped characters.
            path = f"{CHANGE_FOLDER}/{self.prefix}.{new_id()}.parquet"
            data = _encoded(part, columns, codec_of(self.target.configuration))
            self.target.store.put(path, data)
            yield CdcFile(path=FilePath(path).encoded, size=len(data), partition_values=values)


def _typed(rows: pl.DataFrame, kind: str) -> Iterator[pl.DataFrame]:
    if rows.height:
        yield rows.with_columns(pl.lit(kind).alias(CHANGE_TYPE))


def _encoded(rows: pl.DataFrame, columns: StoredColumns, codec: Codec) -> bytes:
    """Return a Parquet file of rows with their kind of change."""
    rows = rows.select(columns.in_files(rows.columns))
    cuts = PageCuts((rows.height,), (page_rows_within(rows, _PAGE_ROWS),))
    dictionary = choose_dictionary(rows)
    return encode_rows(rows, columns, weights=None, cuts=cuts, dictionary=dictionary, codec=codec).data
