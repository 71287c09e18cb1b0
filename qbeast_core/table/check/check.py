"""Check a table against the format: its log, that its files are there, and what they hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Final

import polars as pl

from qbeast_core.errors import QbeastError, UnsupportedTableError
from qbeast_core.io.stores.store import Store, map_files
from qbeast_core.query.index.index_table import IndexTable
from qbeast_core.spec.table_config import may_have_other_columns
from qbeast_core.support.runtime import Progress, ProgressCallback
from qbeast_core.table.check.copies import copy_faults
from qbeast_core.table.check.faults import OF_INDEX, OF_LAYOUT, CheckReport, Fault, fault_frame
from qbeast_core.table.check.file_tags import read_tags
from qbeast_core.table.check.log import check_log
from qbeast_core.table.check.lost_tags import LostTags, fitting_tags, proven_tags, untagged, untagged_files
from qbeast_core.table.check.placement import Placement
from qbeast_core.table.check.rows import AnswerT, FileCheck, JobT, OnEachFile, check_file
from qbeast_core.table.data.foreign_schema import lost_key_columns, taken_name
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.snapshot.checkpoint_faults import checkpoint_faults
from qbeast_core.table.snapshot.deletion_vectors import deleted_rows
from qbeast_core.table.snapshot.snapshot import Snapshot

_FILES_AT_ONCE: Final = 4  # each holds a slice of rows, and Polars has threads of its own


def check_table(
    reader: Reader,
    *,
    data: bool = True,
    progress: ProgressCallback | None = None,
    engine: Engine | None = None,
) -> CheckReport:
    """Check the version that a reader shows; see `Table.check`."""
    return check_and_restore(reader, data=data, progress=progress, engine=engine)[0]


def check_and_restore(
    reader: Reader,
    *,
    data: bool = True,
    progress: ProgressCallback | None = None,
    engine: Engine | None = None,
) -> tuple[CheckReport, LostTags]:
    """Check a table. Also return tags that can be restored: lost tags, and tags with faults."""
    snapshot = reader.snapshot
    tags: LostTags = {}
    index, frames, notes = check_log(reader.index_state)
    faults, rows = [*_checkpoints(snapshot), *_presence(snapshot)], _rows(snapshot, index)
    if data:
        read = _Files(snapshot, engine)
        faults += read.check(_jobs(snapshot, index), progress, rows)
        faults += [*_copies(snapshot, index), *_vectors(reader)]
        tags = _restorable(snapshot, index, pl.concat([*frames, fault_frame(faults)]), read)
        faults += _lost(snapshot, tags)
    else:
        notes.append("data files were not read: places, weights and statistics of rows are not checked")
    report = CheckReport(
        uri=snapshot.uri,
        version=snapshot.version,
        data=data,
        files=snapshot.files.height,
        blocks=index.binding.height,
        rows=rows,
        faults=_in_order(pl.concat([*frames, fault_frame(faults)]), snapshot),
        notes=tuple(notes),
    )
    return report, tags


def _restorable(snapshot: Snapshot, index: IndexTable, faults: pl.DataFrame, read: _Files) -> LostTags:
    """Return the tags to restore from copies in the files."""
    spoiled = faults.filter(pl.col("code").is_in(list(OF_INDEX | OF_LAYOUT)))["path"].drop_nulls()
    files = untagged_files(snapshot, _jobs(snapshot, index), spoiled)
    path_of = dict(zip(snapshot.data_paths, snapshot.files["path"].to_list(), strict=True))
    copies = zip(files, read.each(read_tags, files), strict=True)
    claimed = {path_of[job.file.path]: tags for job, tags in copies if tags is not None}
    if not claimed:
        return claimed

    def check(tagged: Snapshot, paths: Sequence[str]) -> list[Fault]:
        return read.check([job for job in _jobs(tagged, tagged.index) if job.path in set(paths)])

    return fitting_tags(snapshot, proven_tags(snapshot, claimed, check))


def _lost(snapshot: Snapshot, tags: LostTags) -> list[Fault]:
    """Return a fault for each file that has its tags no more, and could have them."""
    message = "the log lost its index, so it is read as a whole; `Table.repair` restores it from the copy in the file"
    bare = untagged(snapshot)
    return [
        Fault("tags-lost", message, path=path, revision=tags[logged].revision.revision_id)
        for path, logged, is_bare in zip(snapshot.data_paths, snapshot.files["path"], bare, strict=True)
        if is_bare and logged in tags
    ]


def _in_order(faults: pl.DataFrame, snapshot: Snapshot) -> pl.DataFrame:
    """Sort faults by the order of the files; those of the table come first."""
    order = {path: number for number, path in enumerate(snapshot.data_paths)}
    place = pl.col("path").replace_strict(order, default=-1, return_dtype=pl.Int64)
    return faults.sort(place, "code", "row", maintain_order=True)


def _rows(snapshot: Snapshot, index: IndexTable) -> int:
    """Count rows by the statistics in the log, or else by blocks."""
    counts: pl.Series = snapshot.files["num_records"]
    silent = counts.is_null().arg_true().cast(pl.Int64)
    uncounted = index.binding.filter(pl.col("file").is_in(silent.implode()))
    return int(counts.sum()) + int(uncounted["rows"].sum())


def _checkpoints(snapshot: Snapshot) -> Iterator[Fault]:
    """Check the checkpoints of the log, and the hint to the newest one."""
    for fault in checkpoint_faults(snapshot.source.store):
        yield Fault(code="checkpoint", message=fault.problem, path=fault.paths[0])


def _presence(snapshot: Snapshot) -> list[Fault]:
    """Check that the files exist and have the size in the log."""
    store, files = snapshot.source.store, snapshot.files.select("revision", "size_bytes").rows()
    listed = [(path, *file) for path, file in zip(snapshot.data_paths, files, strict=True)]
    faults = map_files(store, lambda file: _presence_fault(store, *file), listed)
    return [fault for fault in faults if fault is not None]


def _presence_fault(store: Store, path: str, revision: int | None, logged: int) -> Fault | None:
    about = partial(Fault, path=path, revision=revision)
    try:
        size = store.size(path)
    except UnsupportedTableError as error:  # it must not be opened
        return about("file-outside", str(error))
    except FileNotFoundError:
        return about("file-missing", "it does not exist: its rows cannot be read")
    return None if size == logged else about("file-size", f"it has {size:,} bytes, the log says {logged:,}")


@dataclass(frozen=True, slots=True, eq=False)
class _Files:
    """Reads files, a few at a time."""

    snapshot: Snapshot
    engine: Engine | None

    def each(
        self, call: Callable[[Store, JobT, dict[str, str]], AnswerT], jobs: Sequence[JobT]
    ) -> Iterator[AnswerT]:
        """Yield the answer for each job, in order, whichever is done first. An error leaves the rest undone."""
        store, options = self.snapshot.source.store, dict(self.snapshot.storage_options)
        on_each = OnEachFile(call, store.uri, options, store.allow_absolute_paths)
        if self.engine is not None:
            yield from self.engine.map(on_each, jobs, at_once=1)
            return
        with ThreadPoolExecutor(min(_FILES_AT_ONCE, os.cpu_count() or 1)) as pool:
            yield from pool.map(call, repeat(store), jobs, repeat(options))

    def check(
        self, jobs: Sequence[FileCheck], progress: ProgressCallback | None = None, rows: int = 0
    ) -> list[Fault]:
        """Return the faults of files."""
        faults: list[Fault] = []
        for done, of_file in enumerate(self.each(check_file, jobs), start=1):
            faults += of_file
            if progress is not None:
                progress(Progress("read", done, len(jobs), rows))
        return faults


def _jobs(snapshot: Snapshot, index: IndexTable) -> list[FileCheck]:
    latest = snapshot.config.latest
    is_lost = latest is None or lost_key_columns(latest, snapshot.schema, snapshot.columns)
    hashed = () if latest is None or is_lost else latest.hashed
    # Hidden weights of files without index may be computed from other columns or types. Then nothing relies on them.
    others = may_have_other_columns(snapshot.metadata.configuration) or snapshot.columns.type_changes
    weighed = () if others and not snapshot.config.sample_by else hashed
    columns = ["file", "cube", "min_weight", "max_weight", "rows", "legacy"]
    blocks = index.binding.select(columns).partition_by("file", as_dict=True, include_key=False)
    reserved = taken_name(snapshot.schema_json) is not None
    revisions, jobs = snapshot.config.revisions, list[FileCheck]()
    for number, path in enumerate(snapshot.data_paths):
        job = FileCheck(
            path,
            snapshot.files[number],
            weighed,
            reserved,
            snapshot.sample_column,
            snapshot.schema,
            snapshot.columns,
            snapshot.partition_texts[number] if snapshot.columns.partitions else (),
        )
        of_file = blocks.get((number,))
        revision = None if job.revision is None else revisions.get(job.revision)
        if of_file is not None and revision is not None:
            # Thresholds of flat tags, and of files that an old compaction left without statistics, bind nothing.
            bounded = not of_file["legacy"].any() and job.num_records is not None
            job = replace(job, placement=Placement(revision, of_file, bounded))
        jobs.append(job)
    return jobs


def _copies(snapshot: Snapshot, index: IndexTable) -> list[Fault]:
    paths = pl.Series("path", snapshot.data_paths, dtype=pl.String)
    blocks = index.binding.with_columns(paths[index.binding["file"]])
    if not snapshot.columns.is_plain:  # layouts before 0.6.0 have neither mapping nor partitions
        return []
    store, options = snapshot.source.store, dict(snapshot.storage_options)
    return list(copy_faults(blocks, store=store, schema=snapshot.schema, options=options))


def _vectors(reader: Reader) -> Iterator[Fault]:
    """Check that deletion vectors can be read and hide rows that exist."""
    try:
        hidden = reader.deleted_rows
    except QbeastError:
        yield from _malformed_vectors(reader.snapshot)
        return
    for number, rows in hidden.items():
        logged = reader.snapshot.files["num_records"][number]
        if logged is not None and len(rows) and int(rows.max()) >= logged:
            message = f"its deletion vector hides row {int(rows.max()):,}, and the log counts {logged:,}"
            yield Fault(code="deletion-vector", message=message, path=reader.paths[number])


def _malformed_vectors(snapshot: Snapshot) -> Iterator[Fault]:
    for number in snapshot.files["has_deletion_vector"].arg_true().to_list():
        try:
            deleted_rows(snapshot, [number])
        except QbeastError as error:
            yield Fault(code="deletion-vector", message=str(error), path=snapshot.data_paths[number])
