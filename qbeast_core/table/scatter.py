"""A write whose rows lie elsewhere: they are summarised in one pass, written by workers in a second, committed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from qbeast_core.errors import InputChangedError
from qbeast_core.io.location import resolve_location
from qbeast_core.io.store import Store, open_store
from qbeast_core.table.creation import goes_on, target_once_created
from qbeast_core.table.data_files import World, delete_data_files
from qbeast_core.table.design import keys_of_write, table_design_effect
from qbeast_core.table.frames import to_frame
from qbeast_core.table.locking import refuse_unsafe_locking
from qbeast_core.table.prepare import Prepared, choose_space, planned_cube_size, prepare
from qbeast_core.table.publish import Written, is_applied, publish
from qbeast_core.table.result import WriteResult
from qbeast_core.table.scatter_job import RowShape, ScatterJob
from qbeast_core.table.scatter_plan import guess_row_bytes, plan_scatter
from qbeast_core.table.scattered_file import ScatteredFile, count_cubes, with_blocks
from qbeast_core.table.snapshot import Snapshot
from qbeast_core.table.warn import warn_if_clustered
from qbeast_core.table.write_options import WriteOptions, check_options
from qbeast_core.tree.summary import IndexSummary

__all__ = ["ScatterWrite"]


@dataclass(frozen=True, slots=True)
class ScatterWrite:
    """The one who plans and commits.

    Attributes
    ----------
    uri : str
        The table.
    options : WriteOptions
        What was asked for.
    world : World
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
    world: World
    target: Snapshot | None
    prepared: Prepared
    schema: pl.Schema

    @classmethod
    def begin(
        cls, empty: pl.DataFrame, uri: str, options: WriteOptions, world: World
    ) -> ScatterWrite | WriteResult:
        """Look at the table and check that such rows can be written to it.

        Parameters
        ----------
        empty : polars.DataFrame
            No rows, but the columns and types of those to come.
        uri, options, world
            As for `qbeast_core.table.write.write_frame`.

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
        frame, prepared = prepare(to_frame(empty), target, options, world)
        refuse_unsafe_locking(uri, options.storage_options)
        return cls(uri, options, world, target, prepared, frame.schema)

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
            now_ms=self.world.now_ms(),
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
            space=replace(space, tree=None),
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
        written = Written(self.prepared, job.space, adds, rows, count_cubes(found), keys)
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
