"""Open a table of many files by a plan file: a cache of this machine, made from a checkpoint of the log.

The commits after the checkpoint are read as ever: with the other actions of the checkpoint they are a log of few files.
The plan file is found by the address of the table and the files of the checkpoint. If it is missing or unusable, it is
made again; if it cannot be made, the log is read instead.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from qbeast_core.errors import MemoryBudgetError, QbeastError
from qbeast_core.io.location import Location
from qbeast_core.io.machine import TemporaryFolder, memory_of_machine, private_folder
from qbeast_core.io.store import Entry, Store, map_files, status_of
from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns import StoredColumns, config_by_name
from qbeast_core.log.deletion_vectors import FileKey, file_key, parse_vector
from qbeast_core.log.replay import (
    LogState,
    actions_of,
    files_with_tags,
    keys_in,
    needs_removes,
    without_copies,
)
from qbeast_core.log.values import sound_bounds, statistics_by_name
from qbeast_core.plan.blocks import NO_REVISION
from qbeast_core.plan.bounds import trusted_counts
from qbeast_core.plan.nodes import Node
from qbeast_core.space.values import BoolArray, I64Array
from qbeast_core.spec.blocks import FilePath
from qbeast_core.support.process import LOG, new_id
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.schema import LOG_DIRECTORY
from qbeast_core.table.snapshot.delta import (
    DeltaSource,
    DeltaVersion,
    checkpoint_in,
    open_copy,
    refuse_linked_log,
    version_in,
)
from qbeast_core.table.snapshot.hidden_rows import logged_totals
from qbeast_core.table.snapshot.log_files import (
    LAST_CHECKPOINT,
    SIDECARS,
    CheckpointFiles,
    CheckpointHint,
    LogCopy,
    PlanUnusable,
    newest_checkpoint,
    read_log,
    version_of,
)
from qbeast_core.table.snapshot.plan_file import (
    FORMAT,
    OTHERS,
    PlanFacts,
    PlanFile,
    PlanWriter,
    decoded,
    fields_of,
    files_by_revision,
    plan_errors,
)

_FOLDER: Final = "qbeast-plans"
_MAKING: Final = "making-"
_DOWNLOADS: Final = "qbeast-checkpoint-"
_REFUSED: Final = "refused"
_PIECE_BYTES: Final = 64 << 20
_FOOTER_BYTES: Final = 64 << 10
_DIGEST_BYTES: Final = 16
_COPIES_OF_FILES: Final = 4  # memory of files, as a multiple of their columns
_LOADED_BYTES: Final = 3_600  # memory to read the log of a table of files of five blocks, per file
# Kinds of actions of a checkpoint that are not about files, and a field that each has.
_OTHERS: Final = {
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
}


@dataclass(frozen=True, slots=True, eq=False)
class PlannedFiles:
    """The live files of a version that a plan file lists: all but those that later commits replaced or removed."""

    plan: PlanFile
    # Rows of the plan file that are not live any more, ascending, and sums over these files, see `totals`.
    gone: I64Array
    gone_totals: tuple[int, int, int] = (0, 0, 0)
    gone_uncounted: int = 0
    gone_by_revision: Mapping[int, int] = field(default_factory=Counter[int])

    @property
    def count(self) -> int:
        """Number of files."""
        return self.plan.facts.files - len(self.gone)

    @property
    def rows(self) -> int:
        """Number of rows that the log counts, including deleted rows."""
        return self.totals[0]

    @property
    def totals(self) -> tuple[int, int, int]:
        """Rows that the log counts, rows of them that deletion vectors hide, by the log, and size of the files."""
        facts, (rows, hidden, size) = self.plan.facts, self.gone_totals
        return facts.rows - rows, facts.hidden_rows - hidden, facts.data_bytes - size

    @property
    def uncounted(self) -> int:
        """Number of files whose rows the log does not count."""
        return self.plan.facts.uncounted - self.gone_uncounted

    @property
    def revisions(self) -> set[int]:
        """The revisions of the files."""
        counts = self.plan.facts.files_by_revision
        return {
            number for number, files in counts.items() if files > self.gone_by_revision.get(number, 0)
        } - {NO_REVISION}

    def refuse_many(self, files: int, uri: str) -> None:
        """Raise if the metadata of a number of files does not fit into memory, before it is read."""
        _refuse_many(files, self.plan.bytes_per_file * _COPIES_OF_FILES, uri)

    def matching(self, node: Node) -> I64Array:
        """Return the rows in the plan file of the files that may match a filter by their statistics, ascending."""
        return np.setdiff1d(self.plan.matching(node), self.gone, assume_unique=True)

    def rows_of(self, paths: Iterable[str]) -> I64Array:
        """Return the rows in the plan file of some files by their decoded paths, ascending."""
        return np.setdiff1d(self.plan.rows_of(paths), self.gone, assume_unique=True)

    def parts(self, rows: I64Array) -> Iterator[pl.DataFrame]:
        """Yield files by their rows in the plan file, some at a time, in the columns of `Snapshot.files`."""
        at_once = sizing().plan_part_files
        for first in range(0, len(rows), at_once):
            yield self.plan.take(rows[first : first + at_once])

    @property
    def is_live(self) -> BoolArray:
        """Mask of the rows of the plan file."""
        is_live = np.ones(self.plan.facts.files, np.bool_)
        is_live[self.gone] = False
        return is_live

    def kept(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return a frame that depends on the plan file and a name only. It is made once, and kept beside the file."""
        path = self.plan.folder / name
        with suppress(OSError, ValueError, pl.exceptions.PolarsError):
            data = path.read_bytes()
            if data[:_DIGEST_BYTES] == _digest(data[_DIGEST_BYTES:]):
                return pl.read_parquet(io.BytesIO(data[_DIGEST_BYTES:]))
        frame, body = make(), io.BytesIO()
        frame.write_parquet(body, compression="lz4")
        with suppress(OSError):  # another process removed the folder, or the disk is full
            temporary = self.plan.folder / f"{new_id()}.tmp"
            temporary.write_bytes(_digest(body.getvalue()) + body.getvalue())
            temporary.replace(path)
        return frame

    def discard(self) -> None:
        """Remove the plan file from the cache, because it is damaged."""
        shutil.rmtree(self.plan.folder, ignore_errors=True)

    def columns(self, names: Sequence[str], statistics: Collection[str] = ()) -> Iterator[pl.DataFrame]:
        """Yield some columns of the files, and the statistics of some columns of the table; see `PlanFile.columns`."""
        for first, frame in self.plan.columns(names, statistics):
            here = self.gone[(self.gone >= first) & (self.gone < first + frame.height)] - first
            keep = np.ones(frame.height, np.bool_)
            keep[here] = False
            yield frame if not len(here) else frame.filter(pl.Series(keep))

    def first(self, count: int) -> pl.DataFrame:
        """Return a few files, in the columns of `Snapshot.files`."""
        candidates = np.arange(min(count + len(self.gone), self.plan.facts.files))
        return self.plan.take(np.setdiff1d(candidates, self.gone)[:count])

    def without_keys(self, keys: Collection[FileKey]) -> PlannedFiles:
        """Return the files without those of some keys: other deletion vectors of a path are other files."""
        rows = self.rows_of(path for path, _ in keys)
        if not len(rows):
            return self
        files = self.plan.take(rows, ["path", "deletion_vector"])
        is_gone = [file_key(path, parse_vector(vector)) in keys for path, vector in files.iter_rows()]
        return self._without(rows[np.array(is_gone, np.bool_)])

    def without(self, paths: Iterable[str]) -> PlannedFiles:
        """Return the files without those of some decoded paths."""
        return self._without(self.rows_of(paths))

    def _without(self, rows: I64Array) -> PlannedFiles:
        if not len(rows):
            return self
        files = self.plan.take(rows, ["num_records", "size_bytes", "deletion_vector", "revision"])
        rows_gone, hidden, size = self.gone_totals
        more = logged_totals(files)
        return replace(
            self,
            gone=np.union1d(self.gone, rows),
            gone_totals=(rows_gone + more[0], hidden + more[1], size + more[2]),
            gone_uncounted=self.gone_uncounted + int((trusted_counts(files) < 0).sum()),
            gone_by_revision=Counter(self.gone_by_revision) + Counter(files_by_revision(files)),
        )

    def fits(self, metadata: Metadata) -> bool:
        """Return whether the names and types of the columns of these files are as when the plan file was made.

        Added columns have no statistics in it.
        """
        facts = self.plan.facts
        is_same = facts.table_id == metadata.id and facts.partitions == metadata.partition_columns
        return is_same and set(facts.schema_fields) <= set(_schema_fields(metadata))


def open_planned(
    location: Location, hint: CheckpointHint, *, version: int | None = None
) -> tuple[DeltaSource, DeltaVersion, LogState, PlannedFiles] | None:
    """Open a table of many files by its plan file. None: it has few, or the log has to be read.

    The version and the log are those of the files that were added after the checkpoint.
    """
    if version is not None and hint.version > version:
        return None
    refuse_linked_log(location.store)
    found = None
    try:
        found = _opened(location, hint, version)
    except (PlanUnusable, QbeastError, OSError, ValueError, KeyError, pl.exceptions.PolarsError) as error:
        # The log decides, with its own errors.
        LOG.debug("no plan file of %s: %s", location.uri, error)
    if found is None:
        _refuse_many(hint.files, _LOADED_BYTES, location.uri)
    return found


def _refuse_many(files: int, file_bytes: int, uri: str) -> None:
    needed, most = files * file_bytes, int(memory_of_machine() * sizing().listed_share)
    if needed <= most:
        return
    message = (
        f"the metadata of {files:,} files of {uri!r} needs about {needed >> 20:,} MiB of memory, and it may use "
        f"{most >> 20:,} MiB. Filter by a column that skips more files, join small files with Table.optimize(), "
        "or run it on a machine with more memory."
    )
    raise MemoryBudgetError(message, path=uri, files=files, needed_bytes=needed)


def _opened(
    location: Location, hint: CheckpointHint, version: int | None
) -> tuple[DeltaSource, DeltaVersion, LogState, PlannedFiles] | None:
    store = location.store
    entries = [
        entry
        for entry in store.entries(LOG_DIRECTORY, after=f"{LOG_DIRECTORY}/{hint.version:020d}")
        if version is None or version_of(entry.path) <= version
    ]
    checkpoint = newest_checkpoint([entry.path for entry in entries], version=version)
    if checkpoint is None:
        return None
    plan = _plan_file(store, checkpoint, {entry.path: entry for entry in entries})
    copy = LogCopy(store)
    copy.begin(checkpoint.version, plan.other_actions, entries)
    source, known = open_copy(location, copy)
    if version not in {None, known.version}:
        return None
    log = read_log(copy, known.version, actions=("add", "domainMetadata"))
    base = PlannedFiles(plan, np.zeros(0, np.int64))
    try:
        base = base.without_keys(keys_in(log.commits))
    except PlanUnusable:
        base.discard()
        raise
    return (source, known, log, base) if base.fits(known.metadata) else None


def log_of_files(store: Store, version: int, paths: Collection[str]) -> LogState:
    """Return the log of a version with only some files of its checkpoint, which is read in parts.

    `paths` are as in the log.
    """
    checkpoint = newest_checkpoint(store.list(LOG_DIRECTORY), version=version)
    if checkpoint is None:
        return read_log(store, version)
    wanted = pl.col("add").struct.field("path").is_in(list(paths))
    folder = TemporaryFolder(Path(gettempdir()), _DOWNLOADS)
    try:
        parts = _local_parts(store, checkpoint, folder.path)
        frames = [adds.filter(wanted) for adds in _adds_in(parts)]
    finally:
        folder.close()
    newer = read_log(store, version, after=checkpoint.version)
    return replace(newer, checkpoint=tuple(frame for frame in frames if frame.height))


def write_checkpoint(location: Location, planned: PlannedFiles, version: int, *, files: int) -> None:
    """Write a checkpoint of the newest version from the one before, in parts; raise `PlanUnusable` if that fails.

    `deltalake` writes a checkpoint of the log without the files that the plan file lists. These are copied to it.
    """
    store, before = location.store, planned.plan.facts.version
    old = newest_checkpoint(store.list(LOG_DIRECTORY), version=before)
    if old is None or old.version != before:
        raise PlanUnusable(location.uri)
    folder = TemporaryFolder(Path(gettempdir()), _DOWNLOADS)
    try:
        with plan_errors():
            _write_checkpoint(store, planned, old, folder.path, version=version, files=files)
    finally:
        folder.close()


def _write_checkpoint(
    store: Store, planned: PlannedFiles, old: CheckpointFiles, folder: Path, *, version: int, files: int
) -> None:
    parts, body = _local_parts(store, old, folder), io.BytesIO()
    pl.concat([_rest_of(parts), _removes_in(parts)], how="diagonal").write_parquet(body)
    copy = LogCopy(store)
    entries = store.entries(LOG_DIRECTORY, after=f"{LOG_DIRECTORY}/{old.version:020d}")
    copy.begin(
        old.version, body.getvalue(), [entry for entry in entries if version_of(entry.path) <= version]
    )
    gone = decoded(planned.plan.take(planned.gone, ["path"])["path"])
    path = folder / "checkpoint"
    adds, size = _join_checkpoint(path, checkpoint_in(copy, version), _adds_in(parts), gone)
    if adds != files:  # a file has several paths: other readers would list it again
        raise PlanUnusable(store.uri)
    with path.open("rb") as file:
        # Not closed here: an error of the store may still refer to it, and closing would hide that error.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    store.put(f"{LOG_DIRECTORY}/{version:020d}.checkpoint.parquet", memoryview(data))
    hint = {"version": version, "size": size, "sizeInBytes": path.stat().st_size, "numOfAddFiles": adds}
    store.put(LAST_CHECKPOINT, orjson.dumps(hint))


def _join_checkpoint(
    path: Path, small: pl.DataFrame, parts: Iterable[pl.DataFrame], gone: pl.Series
) -> tuple[int, int]:
    """Write a checkpoint of the actions of a small one, and of the files of another that are still live.

    Return the number of files, and of all actions.
    """
    name, lost = pl.col("add").struct.field("path"), gone.implode()
    kept: Iterator[pl.DataFrame] = (
        part.filter(~decoded(part.select(name)["path"]).is_in(lost)) for part in parts
    )
    if "add" not in small.columns:  # all files are in the other one
        first = next(kept)
        kept, small = chain([first], kept), small.with_columns(pl.lit(None, first.schema["add"]).alias("add"))
    adds, size, dtype = small.filter(name.is_not_null()).height, small.height, small.schema["add"]
    with pq.ParquetWriter(path, _arrow(small).schema) as writer:
        writer.write_table(_arrow(small))
        for part in kept:
            frame = pl.concat(
                [small.clear(), part.select(_with_type(part.schema["add"], dtype))], how="diagonal"
            )
            writer.write_table(_arrow(frame))
            adds, size = adds + frame.height, size + frame.height
    return adds, size


def _with_type(found: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    """Return the adds of a checkpoint with the fields of those of another writer."""
    if not (isinstance(found, pl.Struct) and isinstance(wanted, pl.Struct)):
        raise PlanUnusable(found)
    present = found.to_schema()
    return pl.struct(
        pl.col("add").struct.field(name).cast(dtype) if name in present else pl.lit(None, dtype).alias(name)
        for name, dtype in wanted.to_schema().items()
    ).alias("add")


def _arrow(frame: pl.DataFrame) -> pa.Table:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


# --- the cache ----------------------------------------------------------------------------------------------------


def _plan_file(store: Store, checkpoint: CheckpointFiles, entries: Mapping[str, Entry]) -> PlanFile:
    """Return the plan file of a checkpoint. Make it if it is missing or damaged."""
    root = private_folder(Path(gettempdir()), _FOLDER)
    folder = root / _key(store, checkpoint, entries)
    if (folder / _REFUSED).exists():
        raise PlanUnusable(folder)
    with suppress(PlanUnusable):
        return PlanFile.open(folder)
    making = TemporaryFolder(root, _MAKING)
    try:
        try:
            _Maker(store, checkpoint, making.path, folder.name).make()
        except _Refused:
            (making.path / _REFUSED).touch()
        return _put(making.path, folder)
    finally:
        making.close()
        _clean(root, keep=folder)


def _put(made: Path, folder: Path) -> PlanFile:
    """Move a plan file to its place, and open it. Another process may have been faster, or left a damaged one."""
    try:
        made.rename(folder)
    except OSError:
        with suppress(PlanUnusable):
            return PlanFile.open(folder)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return PlanFile.open(folder)


def _key(store: Store, checkpoint: CheckpointFiles, entries: Mapping[str, Entry]) -> str:
    """Return a name that a checkpoint of another table, or another one at the same place, does not have."""
    digest = hashlib.blake2b(f"{FORMAT} {store.uri}".encode(), digest_size=16)

    def end_of(path: str) -> bytes:
        length = min(entries[path].size, _FOOTER_BYTES)
        return store.get_range(path, entries[path].size - length, length)

    ends = map_files(store, end_of, checkpoint.paths)
    for path, end in zip(checkpoint.paths, ends, strict=True):
        status = None if store.local_root is None else status_of(store.local_root / path)
        digest.update(repr((path, *entries[path], status and (status.st_ino, status.st_mtime_ns))).encode())
        digest.update(end)
    return f"{checkpoint.version:020d}-{digest.hexdigest()}"


def _clean(root: Path, *, keep: Path) -> None:
    """Remove the plan files that were not used for the longest time, if all are too large together."""
    total, folders = 0, [path for path in root.iterdir() if not path.name.startswith(_MAKING)]
    for path in sorted(folders, key=_used_ns, reverse=True):
        with suppress(OSError):  # another process removes it
            total += sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        if total > sizing().plan_cache_bytes and path != keep:
            shutil.rmtree(path, ignore_errors=True)


def _used_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


# --- making -------------------------------------------------------------------------------------------------------


class _Refused(Exception):  # noqa: N818 - not an error: the log is read
    """A table has what plan files do not support."""


class _Maker:
    """Makes the plan file of a checkpoint in parts, so that the memory does not depend on the number of files."""

    def __init__(self, store: Store, checkpoint: CheckpointFiles, folder: Path, name: str) -> None:
        self._store, self._checkpoint, self._folder, self._name = store, checkpoint, folder, name
        self._writer: PlanWriter | None = None
        self._is_odd = False

    def make(self) -> None:
        """Write all files of the plan file. Raise `_Refused` if a table has what plan files do not support."""
        if any(not path.endswith(".parquet") for path in self._checkpoint.paths):
            raise _Refused
        parts = _local_parts(self._store, self._checkpoint, self._folder)
        rest = _rest_of(parts)
        rest.write_parquet(self._folder / OTHERS)
        for number, adds in enumerate(_adds_in(parts)):
            self._add(adds, rest, parts, self._folder / f"{number}")
        if self._writer is None:
            raise _Refused
        self._writer.finish(has_odd_paths=self._is_odd)

    def _add(self, adds: pl.DataFrame, rest: pl.DataFrame, parts: Sequence[Path], folder: Path) -> None:
        """Add some files: `deltalake` reads them from a log of their own, without the tags, which it does not need."""
        add = pl.col("add").struct
        fields = [add.field(name) for name in adds["add"].struct.fields if name != "tags"]
        log_folder, version = folder / LOG_DIRECTORY, self._checkpoint.version
        log_folder.mkdir(parents=True)
        small = pl.concat([rest, adds.select(pl.struct(fields).alias("add"))], how="diagonal")
        small.write_parquet(log_folder / f"{version:020d}.checkpoint.parquet", compression="uncompressed")
        hint = {"version": version, "size": small.height}
        (log_folder / "_last_checkpoint").write_bytes(orjson.dumps(hint))
        known = version_in(folder, self._store.uri)
        shutil.rmtree(folder)
        columns = StoredColumns.of(known.metadata, known.protocol.writer_features)
        listed = sound_bounds(statistics_by_name(known.files, columns), columns)
        is_odd = needs_removes(listed)
        self._is_odd |= is_odd
        checkpoint = (adds, _removes_in(parts)) if is_odd else (adds,)
        earlier = read_log(self._store, version, after=version).earlier if is_odd else iter(())
        log = LogState(uri=self._store.uri, version=version, checkpoint=checkpoint, earlier=earlier)
        files, copies = without_copies(files_with_tags(listed, log))
        if copies or files["state"].null_count() < files.height:
            raise _Refused
        if self._writer is None:
            self._writer = self._begin(known, columns, files)
        self._writer.add(files)

    def _begin(self, known: DeltaVersion, columns: StoredColumns, files: pl.DataFrame) -> PlanWriter:
        config = config_by_name(known.metadata.configuration, columns)
        if config.replicated_sets:
            raise _Refused
        facts = PlanFacts(
            format=FORMAT,
            name=self._name,
            table_id=known.metadata.id,
            version=known.version,
            schema_fields=_schema_fields(known.metadata),
            partitions=known.metadata.partition_columns,
            fields=fields_of(files),
        )
        indexed = () if config.latest is None else config.latest.columns
        return PlanWriter(self._folder, facts, (*columns.partitions, *indexed))


def _local_parts(store: Store, checkpoint: CheckpointFiles, folder: Path) -> list[Path]:
    """Return the parts and sidecars of a checkpoint as local files."""
    parts = [_local(store, path, folder) for path in checkpoint.paths]
    return parts + [_local(store, path, folder) for path in _sidecars_of(parts)]


def _local(store: Store, path: str, folder: Path) -> Path:
    """Return a local path of a file of the log, downloaded to a folder in pieces if it is in an object store."""
    if store.local_root is not None:
        return Path(store.locate(path))
    target, size = folder / path.rpartition("/")[2], store.size(path)
    with target.open("wb") as file:
        for start in range(0, size, _PIECE_BYTES):
            file.write(store.get_range(path, start, min(_PIECE_BYTES, size - start)))
    return target


def _schema_fields(metadata: Metadata) -> tuple[str, ...]:
    fields: list[Any] = orjson.loads(metadata.schema_string)["fields"]
    return tuple(orjson.dumps(field, option=orjson.OPT_SORT_KEYS).decode() for field in fields)


def _sidecars_of(parts: Sequence[Path]) -> list[str]:
    """Return the sidecars that the parts of a checkpoint name."""
    names: list[str] = []
    for part in parts:
        lazy = pl.scan_parquet(part, glob=False)
        if "sidecar" in lazy.collect_schema():
            names += [action["path"] for action in actions_of(lazy.select("sidecar").collect(), "sidecar")]
    return [f"{LOG_DIRECTORY}/{SIDECARS}/{FilePath.of_log(name).name}" for name in names]


def _rest_of(parts: Sequence[Path]) -> pl.DataFrame:
    """Return the actions of a checkpoint that are not about files."""
    frames: list[pl.DataFrame] = []
    for part in parts:
        lazy = pl.scan_parquet(part, glob=False)
        names = [name for name in _OTHERS if name in lazy.collect_schema()]
        if names:
            is_one = [pl.col(name).struct.field(_OTHERS[name]).is_not_null() for name in names]
            frames.append(lazy.select(names).filter(pl.any_horizontal(is_one)).collect())
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def _removes_in(parts: Sequence[Path]) -> pl.DataFrame:
    """Return the removed files that a checkpoint lists."""
    frames: list[pl.DataFrame] = []
    for part in parts:
        lazy = pl.scan_parquet(part, glob=False)
        if "remove" in lazy.collect_schema():
            path = pl.col("remove").struct.field("path")
            frames.append(lazy.select("remove").filter(path.is_not_null()).collect())
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def _adds_in(parts: Sequence[Path]) -> Iterator[pl.DataFrame]:
    """Yield the live files of a checkpoint, some at a time, as frames with a column `add`."""
    for part in parts:
        # Read as a stream: a row group may hold a million files.
        with pq.ParquetFile(part, pre_buffer=False, buffer_size=1 << 20) as file:
            if "add" not in file.schema_arrow.names:
                continue
            for batch in file.iter_batches(batch_size=sizing().plan_chunk_files, columns=["add"]):
                pa.default_memory_pool().release_unused()  # of the batch before
                frame = pl.DataFrame(pl.from_arrow(pa.Table.from_batches([batch])))
                adds = frame.filter(pl.col("add").struct.field("path").is_not_null())
                if adds.height:
                    yield adds
