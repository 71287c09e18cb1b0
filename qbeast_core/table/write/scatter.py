"""A write whose rows lie elsewhere: they are summarised in one pass, written by workers in a second, committed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import InputChangedError
from qbeast_core.io.location import resolve_location
from qbeast_core.io.store import Store, open_store
from qbeast_core.space.arrays import U64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.commit.s3_locking import refuse_unsafe_locking
from qbeast_core.table.data.data_files import delete_data_files
from qbeast_core.table.data.frames import to_frame
from qbeast_core.table.engine.scatter_task import (
    RowShape,
    ScatteredFile,
    ScatterJob,
    count_cubes,
    sort_keys,
    with_blocks,
)
from qbeast_core.table.index.design_effect import keys_of_write, table_design_effect, warn_if_clustered
from qbeast_core.table.runtime import Runtime
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.write.creation import goes_on, target_once_created
from qbeast_core.table.write.options import WriteOptions, check_options
from qbeast_core.table.write.plan import ChosenRevision, Prepared, choose_space, planned_cube_size, prepare
from qbeast_core.table.write.write import WriteResult, Written, is_applied, publish
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.design_effect import design_effect
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.outline import Outline, draw_outline
from qbeast_core.tree.pack import pack_files, rows_per_file
from qbeast_core.tree.plan import grid_columns, smallest_block_rows
from qbeast_core.tree.summary import IndexSummary

__all__ = ["ScatterPlan", "ScatterWrite", "guess_row_bytes", "plan_scatter"]


_TEXT_BYTES: Final = 24.0

_OTHER_BYTES: Final = 64.0


@dataclass(frozen=True, slots=True)
class ScatterWrite:
    """The one who plans and commits.

    Attributes
    ----------
    uri : str
        The table.
    options : WriteOptions
        What was asked for.
    runtime : Runtime
        Clock and ids.
    target : Snapshot or None
        The table as it was found.
    prepared : Prepared
        What it will look like.
    schema : polars.Schema
        Of the rows, as the table stores them.
    """

    uri: str
    options: WriteOptions
    runtime: Runtime
    target: Snapshot | None
    prepared: Prepared
    schema: pl.Schema

    @classmethod
    def begin(
        cls, empty: pl.DataFrame, uri: str, options: WriteOptions, runtime: Runtime
    ) -> ScatterWrite | WriteResult:
        """Look at the table and check that such rows can be written to it.

        Parameters
        ----------
        empty : polars.DataFrame
            No rows, but the columns and types of those to come.
        uri, options, runtime
            As for `qbeast_core.table.write.write.write_frame`.

        Returns
        -------
        ScatterWrite or WriteResult
            The outcome, where there is nothing to do.

        Raises
        ------
        QbeastError
            As `qbeast.write_table` documents.
        """
        check_options(options)
        uri = resolve_location(uri)
        target = target_once_created(options, uri)
        if target is not None and (options.mode == "ignore" or is_applied(target, options.txn)):
            return WriteResult.untouched(target.version, target.config.latest, table_design_effect(target))
        frame, prepared = prepare(to_frame(empty), target, options, runtime)
        refuse_unsafe_locking(uri, options.storage_options)
        return cls(uri, options, runtime, target, prepared, frame.schema)

    @property
    def names(self) -> tuple[str, ...]:
        """The indexed columns, in order."""
        return self.prepared.names

    @property
    def goes_on(self) -> bool:
        """Whether to begin again where `publish` finds that another writer created the table first."""
        return goes_on(self.target, self.options.mode)

    @property
    def index_schema(self) -> pl.Schema:
        """The indexed columns, in order, as the table stores them."""
        return pl.Schema({name: self.schema[name] for name in self.names})

    @property
    def cube_size(self) -> int | None:
        """Rows that a cube of the tree will aim at; None where their number decides."""
        return planned_cube_size(self.prepared, self.target, self.options)

    def job(self, summary: IndexSummary, *, row_bytes: float | None = None) -> ScatterJob:
        """Decide revision, tree and files.

        Parameters
        ----------
        summary : IndexSummary
            Of all rows.
        row_bytes : float, optional
            Bytes of a row in memory; guessed from the types by default.
        """
        space = choose_space(
            self.prepared,
            self.schema,
            summary,
            self.target,
            self.options,
            uri=self.uri,
            now_ms=self.runtime.now_ms(),
        )
        plan = plan_scatter(
            summary, space.revision, space.tree, row_bytes=row_bytes or guess_row_bytes(self.schema)
        )
        return ScatterJob(
            uri=self.uri,
            storage_options=dict(self.options.storage_options or {}),
            shape=self._shape(),
            configuration=self._properties(),
            dialect=self.prepared.dialect,
            revision=space.revision,
            is_new=space.is_new,
            outline=plan.outline,
            file_starts=plan.file_starts,
            file_rows=plan.file_rows,
            design_effect=plan.design_effect,
            rows=summary.rows,
            weight_sum=summary.weight_sum,
        )

    def publish(self, job: ScatterJob, files: Iterable[ScatteredFile]) -> WriteResult:
        """Commit what the workers wrote.

        Parameters
        ----------
        job : ScatterJob
            By which they wrote.
        files : iterable of ScatteredFile
            All they wrote, one answer of each.

        Raises
        ------
        InputChangedError
            If these are not the rows that were summarised; nothing was written.
        TableExistsError
            Another writer created the table first, and nothing of this write is left. Where `goes_on` says so,
            `begin` finds that table.
        QbeastError
            As `qbeast.write_table` documents.
        """
        found = list(files)
        rows = sum(file.rows for file in found)
        if (rows, sum(file.weight_sum for file in found)) != (job.rows, job.weight_sum):
            self.discard(found)
            msg = (
                f"the rows changed while they were written: {job.rows:,} were counted, then {rows:,} arrived, or "
                "indexed values differed. Nothing was written. The input is read twice: persist it first "
                "(`persist=True`), or take out what is random or unordered."
            )
            raise InputChangedError(msg, rows_before=job.rows, rows_after=rows)
        adds = with_blocks(found, job.outline)
        keys = keys_of_write(adds, job.design_effect)
        written = Written(
            self.prepared,
            ChosenRevision(job.revision, None, is_new=job.is_new),
            adds,
            rows,
            count_cubes(found),
            keys,
        )
        published = publish(self._store(), self.target, written, self.options)
        warn_if_clustered(published.effects, self.names)
        return published.result

    def discard(self, files: Sequence[ScatteredFile]) -> None:
        """Delete files that will not be committed, as far as the store lets us."""
        delete_data_files(self._store(), [file.add for file in files])

    def _store(self) -> Store:
        return open_store(self.uri, self.options.storage_options)

    def _shape(self) -> RowShape:
        merge = self.options.schema_mode == "merge"
        return RowShape(self.prepared.metadata.schema_string, self.schema, merge)

    def _properties(self) -> dict[str, str]:
        """Return what of the table's configuration concerns files."""
        configuration = self.prepared.metadata.configuration
        return {key: value for key, value in configuration.items() if key.startswith("delta.")}


@dataclass(frozen=True, slots=True, eq=False)
class ScatterPlan:
    """Where rows go that workers will place.

    Attributes
    ----------
    outline : Outline
        The tree.
    file_starts : ndarray of uint64, shape (files,)
        Sort key of the first row that each file may hold, increasing, the first one 0.
    file_rows : int
        Rows that a file aims at.
    block_count : int
        Blocks that the sampled rows lie in, a cube that files share counted for each.
    design_effect : float
        Of the rows.
    """

    outline: Outline
    file_starts: U64Array
    file_rows: int
    block_count: int
    design_effect: float


def plan_scatter(
    summary: IndexSummary, revision: Revision, tree: ExistingTree | None, *, row_bytes: float
) -> ScatterPlan:
    """Draw the tree and cut it into files; of sampled rows alone, or of all of them where the sample is whole.

    Parameters
    ----------
    summary : IndexSummary
        Of the indexed columns, with a sample of the rows.
    revision : Revision
        To index them in.
    tree : ExistingTree or None
        Of the revision's blocks that stay.
    row_bytes : float
        Bytes of a row in memory, see `guess_row_bytes`.
    """
    size = revision.desired_cube_size
    weights = frame_weights(summary.sample, revision.columns)
    cells = grid_columns(summary.sample, revision)
    share = summary.sample.height / summary.rows if summary.rows else 1.0
    outline = draw_outline(
        cells,
        weights,
        rows_each=1.0 / share,
        cube_size=size,
        existing=tree,
        smallest_block_rows=smallest_block_rows(summary.rows, cube_size=size),
    )
    file_rows = rows_per_file(row_bytes)
    keys = np.sort(sort_keys(outline.place(cells, weights), weights))
    starts = _file_starts(keys, file_rows=file_rows * share)
    return ScatterPlan(
        outline=outline,
        file_starts=starts,
        file_rows=file_rows,
        block_count=_count_blocks(keys, starts),
        design_effect=design_effect(weights, share=share),
    )


def guess_row_bytes(schema: pl.Schema) -> float:
    """Return the bytes of a row in memory, guessed from the types.

    Examples
    --------
    >>> guess_row_bytes(pl.Schema({"id": pl.Int64(), "name": pl.String()}))
    32.0
    """
    return sum(_bytes_of(dtype) for dtype in schema.dtypes())


def _file_starts(keys: U64Array, *, file_rows: float) -> U64Array:
    """Cut the sampled rows into files, at the end of a cube where one is near; return where each begins."""
    if not len(keys):
        return np.zeros(0, np.uint64)
    cubes, counts = np.unique(keys >> np.uint64(32), return_counts=True)
    packed = pack_files(counts.astype(np.int64), file_rows=max(round(file_rows), 1))
    cuts = packed.file_starts[:-1]
    begins = np.cumsum(counts) - counts
    at = np.minimum(np.searchsorted(begins, cuts), len(begins) - 1)
    whole = begins[at] == cuts
    starts = np.where(whole, cubes[at] << np.uint64(32), keys[cuts])
    starts[0] = 0
    return np.unique(starts)


def _count_blocks(keys: U64Array, starts: U64Array) -> int:
    if not len(keys):
        return 0
    cubes, files = keys >> np.uint64(32), np.searchsorted(starts, keys, side="right")
    return 1 + int(((cubes[1:] != cubes[:-1]) | (files[1:] != files[:-1])).sum())


def _bytes_of(dtype: pl.DataType) -> float:
    if dtype == pl.String:
        return _TEXT_BYTES
    if dtype.is_nested() or dtype == pl.Binary:
        return _OTHER_BYTES
    return 16.0 if dtype.is_decimal() else 8.0
