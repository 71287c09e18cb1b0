"""Check a table against the format: its log, that its files are there, and what they hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.io.footer import stored_size
from qbeast_core.io.store import Store, map_files
from qbeast_core.plan.blocks import BlockTable
from qbeast_core.plan.nodes import Unknown
from qbeast_core.space.values import U64Array, distinct
from qbeast_core.spec.blocks import FilePath
from qbeast_core.spec.table_config import may_have_other_columns
from qbeast_core.support.process import Progress, ProgressCallback, report
from qbeast_core.table.check.faults import OF_INDEX, OF_LAYOUT, CheckReport, Fault, fault_frame
from qbeast_core.table.check.log import (
    LostTags,
    check_log,
    fitting_tags,
    missing_vectors,
    proven_tags,
    untagged,
    untagged_files,
    usable_revisions,
    vector_faults,
)
from qbeast_core.table.check.rows import FileCheck, FileTags, Placement, check_file, read_tags
from qbeast_core.table.data.scan import SCAN_ERRORS, FileScan, TableFiles, scan_files, whole_batches
from qbeast_core.table.data.schema import LOG_DIRECTORY, lost_key_columns, taken_name
from qbeast_core.table.engine.engine import AnswerT, Engine, ItemT
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.read.planner import file_at
from qbeast_core.table.snapshot.log_files import COMMIT, checkpoint_faults, commit_damage, commit_path
from qbeast_core.table.snapshot.snapshot import Snapshot

_FILES_AT_ONCE: Final = 4  # each holds a slice of rows, and Polars has threads of its own

_SEED: Final = 20_240


def check_table(
    snapshot: Snapshot,
    *,
    data: bool = True,
    progress: ProgressCallback | None = None,
    engine: Engine | None = None,
) -> tuple[CheckReport, LostTags]:
    """Check a version; see `Table.check`. Also return tags that can be restored: lost tags, and tags with faults."""
    tags: LostTags = {}
    snapshot = snapshot.with_copies
    frames, notes = check_log(Index(snapshot))
    faults, blocks, rows = list(_commits(snapshot)), 0, 0
    faults += [
        Fault(code="checkpoint", message=broken.problem, path=broken.paths[0])
        for broken in checkpoint_faults(snapshot.source.store)
    ]
    for part in snapshot.parts(Unknown()):
        blocks, rows = blocks + part.blocks.binding.height, rows + _rows(part, part.blocks)
        faults += _presence(part)
    if data:
        known = pl.concat([*frames, fault_frame(faults)])
        of_files, lost, claimed = _data_faults(snapshot, engine, progress, rows, known)
        tags = _restorable(snapshot, engine, claimed)
        faults += [*of_files, *_lost(lost, tags)]
    else:
        faults += chain.from_iterable(map(missing_vectors, snapshot.parts(Unknown())))
        notes.append("data files were not read: places, weights and statistics of rows are not checked")
    checked = CheckReport(
        uri=snapshot.uri,
        version=snapshot.version,
        data=data,
        files=snapshot.file_count,
        blocks=blocks,
        rows=rows,
        faults=_in_order(pl.concat([*frames, fault_frame(faults)]), snapshot),
        notes=tuple(notes),
    )
    return checked, tags


def _data_faults(
    snapshot: Snapshot,
    engine: Engine | None,
    progress: ProgressCallback | None,
    rows: int,
    known: pl.DataFrame,
) -> tuple[list[Fault], dict[str, str], LostTags]:
    """Read all data files, some at a time. Return their faults, and the tags that copies in the files claim.

    `known` are the faults of the log. The second value has the paths of the files without tags, by path in the log.
    """
    faults, lost, claimed, done, is_old = list[Fault](), dict[str, str](), dict[str, FileTags](), 0, False
    spoiled, revisions = _spoiled(known), usable_revisions(snapshot)
    for part in snapshot.parts(Unknown()):
        jobs, before = _jobs(part, part.blocks), len(faults)
        for of_file in _each(snapshot, engine, check_file, jobs):
            faults += of_file
            done += 1
            report(progress, Progress("read", done, snapshot.file_count, rows))
        wrong = spoiled | _spoiled(fault_frame(faults[before:]))
        files = untagged_files(part, jobs, wrong) if revisions else {}
        read = partial(read_tags, revisions=revisions)
        copies = _each(snapshot, engine, read, list(files.values()))
        found = {path: tags for path, tags in zip(files, copies, strict=True) if tags is not None}
        bare = part.files.filter(untagged(part))["path"]
        lost |= {path: files[path].path for path in bare if path in found}
        claimed |= found
        faults += vector_faults(part)
        is_old = is_old or _may_repeat(part)
    if is_old:
        whole = snapshot.unplanned
        faults += _copies(whole, whole.blocks)
    return faults, lost, claimed


def _spoiled(faults: pl.DataFrame) -> set[str]:
    """Return the paths of files whose tags have faults."""
    return {*faults.filter(pl.col("code").is_in(list(OF_INDEX | OF_LAYOUT)))["path"].drop_nulls()}


def _may_repeat(snapshot: Snapshot) -> bool:
    """Return whether some files may hold copies of rows."""
    states, is_marked = snapshot.files["state"], bool(snapshot.blocks.binding["replicated"].any())
    return is_marked or states.null_count() < len(states)


def _restorable(snapshot: Snapshot, engine: Engine | None, claimed: LostTags) -> LostTags:
    """Return the tags to restore, of those that copies in the files claim."""
    if not claimed:
        return claimed
    whole = snapshot.unplanned

    def check(tagged: Snapshot, paths: Sequence[str]) -> list[Fault]:
        chosen = [job for job in _jobs(tagged, tagged.blocks) if job.path in set(paths)]
        return [*chain.from_iterable(_each(snapshot, engine, check_file, chosen))]

    return fitting_tags(whole, proven_tags(whole, claimed, check))


def _lost(files: Mapping[str, str], tags: LostTags) -> list[Fault]:
    """Return a fault for each file that has its tags no more, and could have them."""
    message = "the log lost its index, so it is read as a whole; `Table.repair` restores it from the copy in the file"
    return [
        Fault("tags-lost", message, path=path, revision=tags[logged].revision.revision_id)
        for logged, path in files.items()
        if logged in tags
    ]


def _in_order(faults: pl.DataFrame, snapshot: Snapshot) -> pl.DataFrame:
    """Sort faults by the order of the files; those of the table come first."""
    named = set(faults["path"].drop_nulls())
    paths = snapshot.light(["path"])["path"] if named else ()
    order = {
        path: number
        for number, path in enumerate(FilePath.of_log(raw).text for raw in paths)
        if path in named
    }
    place = pl.col("path").replace_strict(order, default=-1, return_dtype=pl.Int64)
    return faults.sort(place, "code", "row", maintain_order=True)


def _rows(snapshot: Snapshot, index: BlockTable) -> int:
    """Count rows by the statistics in the log, or else by blocks."""
    counts: pl.Series = snapshot.files["num_records"]
    silent = counts.is_null().arg_true().cast(pl.Int64)
    uncounted = index.binding.filter(pl.col("file").is_in(silent.implode()))
    return int(counts.sum()) + int(uncounted["rows"].sum())


def _commits(snapshot: Snapshot) -> Iterator[Fault]:
    """Find commits whose end is missing. A later checkpoint has what they changed, or the table could not be opened."""
    store = snapshot.source.store
    numbers = [int(m[1]) for path in store.list(LOG_DIRECTORY) if (m := COMMIT.fullmatch(path))]
    damages = map_files(store, partial(commit_damage, store), numbers)
    for number, damage in zip(numbers, damages, strict=True):
        if damage is not None:
            yield Fault(code="commit-unreadable", message=damage, path=commit_path(number))


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


def _each(
    snapshot: Snapshot,
    engine: Engine | None,
    call: Callable[[TableFiles, ItemT], AnswerT],
    jobs: Sequence[ItemT],
) -> Iterator[AnswerT]:
    """Yield the answer for each job, a few at a time, in order. An error leaves the rest undone."""
    on_each = partial(call, snapshot.data_files)
    if engine is not None:
        yield from engine.map(on_each, jobs, at_once=1)
        return
    with ThreadPoolExecutor(min(_FILES_AT_ONCE, os.cpu_count() or 1)) as pool:
        yield from pool.map(on_each, jobs)


def _jobs(snapshot: Snapshot, index: BlockTable) -> list[FileCheck]:
    latest = snapshot.config.latest
    is_lost = latest is None or lost_key_columns(latest, snapshot.schema, snapshot.columns)
    hashed = () if latest is None or is_lost else latest.hashed
    # Hidden weights of files without index may be computed from other columns or types. Then nothing relies on them.
    others = may_have_other_columns(snapshot.metadata.configuration) or snapshot.columns.type_changes
    weighed = () if others and not snapshot.config.sample_by else hashed
    columns = ["file", "cube", "min_weight", "max_weight", "rows"]
    blocks = index.binding.select(columns).partition_by("file", as_dict=True, include_key=False)
    reserved = taken_name(snapshot.schema_json) is not None
    revisions, jobs = snapshot.config.revisions, list[FileCheck]()
    for number in range(snapshot.files.height):
        scan = replace(file_at(snapshot, number), may_differ=True)
        record = snapshot.files[number]
        job = FileCheck(scan, record, weighed, reserved, snapshot.sample_column, snapshot.schema)
        of_file = blocks.get((number,))
        revision = None if job.revision is None else revisions.get(job.revision)
        if of_file is not None and revision is not None:
            # Thresholds of old layouts, and of files that an old compaction left without statistics, bind nothing.
            bounded = snapshot.files["state"][number] is None and job.num_records is not None
            job = replace(job, placement=Placement(revision, of_file, bounded or job.ours))
        jobs.append(job)
    return jobs


def _copies(snapshot: Snapshot, index: BlockTable) -> Iterator[Fault]:
    """Yield the faults of revisions that may hold copies: with blocks of the old layout, or marked as copies."""
    if not snapshot.columns.is_plain:  # layouts before 0.6.0 have neither mapping nor partitions
        return
    paths = pl.Series("path", snapshot.data_paths, dtype=pl.String)
    is_old = snapshot.files["state"].is_not_null().alias("old")
    blocks = index.binding.with_columns(paths[index.binding["file"]], is_old[index.binding["file"]])
    for revision in blocks.filter(pl.col("old") | pl.col("replicated"))["revision"].unique().sort():
        of_revision = blocks.filter(revision=revision)
        yield from _of_revision(of_revision, revision, snapshot.data_files, snapshot.schema)


def _of_revision(mine: pl.DataFrame, revision: int, files: TableFiles, schema: pl.Schema) -> Iterator[Fault]:
    """Compare the rows of one revision with each other, by a hash of all columns: 8 bytes a row."""
    kinds = mine.group_by("path", maintain_order=True).agg(
        pl.col("replicated").all(), pl.col("replicated").any().alias("some"), pl.col("old").all()
    )
    whole = kinds.filter(pl.col("replicated") == pl.col("some"))  # mixed files are a fault of their own
    single = whole.filter(~pl.col("replicated"))
    own = {path: _hashes(files, path, schema) for path in single["path"]}
    yield from _doubled({path: own[path] for path in single.filter("old")["path"]}, revision)
    originals = distinct(np.concatenate([np.zeros(0, np.uint64), *own.values()]))
    for path in whole.filter("replicated")["path"]:
        alone = ~np.isin(_hashes(files, path, schema), originals)
        if alone.any():
            count = int(alone.sum())
            message = f"{count:,} row(s) marked as copies are in no other file: no read returns them"
            yield Fault("copy-alone", message, int(np.argmax(alone)), path=path, revision=revision)


def _doubled(own: dict[str, U64Array], revision: int) -> Iterator[Fault]:
    """Find rows that an earlier file holds too, alike in every column."""
    rows = np.concatenate([np.zeros(0, np.uint64), *own.values()])
    _, first = np.unique(rows, return_index=True)
    fresh = np.zeros(len(rows), np.bool_)
    fresh[first] = True
    end = 0
    for path, keys in own.items():
        start, end = end, end + len(keys)
        _, at = np.unique(keys, return_index=True)
        repeated = ~fresh[start:end][at]  # rows alike inside one file are the data's own
        if repeated.any():
            message = (
                f"{int(repeated.sum()):,} of its {len(keys):,} rows are in another file of the revision as well: "
                "either the data repeats itself, or a bug of a writer before 0.6.0 left copies without a tag"
            )
            yield Fault("rows-doubled", message, int(at[repeated].min()), path=path, revision=revision)


def _hashes(files: TableFiles, path: str, schema: pl.Schema) -> U64Array:
    """Give each row of a file as one number made of all its columns."""
    nothing = np.zeros(0, np.uint64)
    size = stored_size(files.store, path)
    if size is None:
        return nothing
    scan = FileScan(path=path, size_bytes=size)
    try:
        lazy = scan_files(files, [scan], list(schema), schema)
        batches = whole_batches(lazy, [scan], lambda _: lazy)
        return np.concatenate([nothing, *(batch.hash_rows(seed=_SEED).to_numpy() for batch in batches)])
    except (*SCAN_ERRORS, OSError):
        return nothing  # a fault of the file
