"""Copies of a log on this machine: of the newest part of a remote log, to save requests, and of a damaged log.

To open a table, `deltalake` reads the footer of a checkpoint five times and each commit twice, one request after the
other. A copy needs three round trips: the hint, a listing, and all files at once. A copy of a damaged log lacks broken
checkpoints, and has the texts of partition values that `deltalake` parses.
"""

from __future__ import annotations

import io
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError, QbeastError, QbeastWarning, StorageError
from qbeast_core.io.footer import stored_size
from qbeast_core.io.machine import TemporaryFolder
from qbeast_core.io.store import Entry, Store, map_files
from qbeast_core.log.columns import physical_name
from qbeast_core.log.replay import LogState, actions_of
from qbeast_core.log.schema import type_from_delta
from qbeast_core.log.values import partition_texts, typed_values
from qbeast_core.support.process import caller_stacklevel
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.found_instead import LOG_DIRECTORY
from qbeast_core.table.snapshot.log_files import (
    COMMIT,
    LAST_CHECKPOINT,
    SIDECARS,
    CheckpointFiles,
    checkpoint_parts,
    complete_checkpoints,
    hinted_checkpoint,
    newest_checkpoint,
    newest_version,
    read_log,
    sidecar_paths,
)

_PREFIX: Final = "qbeast-log-"


class LogCopy:
    """A local copy of a log from a checkpoint on. Implements `LogFiles`; other files are read from the store.

    The folder is deleted with the last reference to the copy.
    """

    def __init__(self, store: Store, rewrite: RewriteFile | None = None) -> None:
        self._store = store
        self._rewrite = rewrite
        folder = TemporaryFolder(Path(gettempdir()), _PREFIX)
        weakref.finalize(self, folder.close)
        self._root = folder.path
        (self._root / LOG_DIRECTORY / SIDECARS).mkdir(parents=True)
        self._newest = -1
        self.local_root: Path | None = None

    @property
    def uri(self) -> str:
        """URI of the table."""
        return self._store.uri

    @property
    def newest(self) -> int:
        """The newest copied version, -1 without one."""
        return self._newest

    @property
    def path(self) -> str:
        """Folder that `deltalake` can open as a table. It has the log only."""
        return str(self._root)

    def update(self) -> None:
        """Copy newer commits."""
        entries = self._store.entries(LOG_DIRECTORY, after=f"{LOG_DIRECTORY}/{self._newest:020d}.json")
        self.add(None, entries)

    def add(
        self, checkpoint: CheckpointFiles | None, entries: Sequence[Entry], sidecars: Sequence[str] = ()
    ) -> None:
        """Copy a checkpoint and the commits of `entries` after it; without a checkpoint, newer commits."""
        before = self._newest if checkpoint is None else checkpoint.version
        commits = {int(m[1]): entry.path for entry in entries if (m := COMMIT.fullmatch(entry.path))}
        sizes = {entry.path: entry.size for entry in entries if COMMIT.fullmatch(entry.path)}
        newer = sorted(number for number in commits if number > before)
        if newer != list(range(before + 1, before + 1 + len(newer))):
            raise FileNotFoundError(LOG_DIRECTORY)
        paths = [commits[number] for number in newer]
        if checkpoint is not None:  # and the commit of its version, for the commit info
            paths += [*checkpoint.paths, *(commits[number] for number in commits if number == before)]
            paths += sidecars
        bodies = map_files(self._store, self._store.get, paths)
        short = [
            path for path, body in zip(paths, bodies, strict=True) if sizes.get(path, len(body)) != len(body)
        ]
        if short:
            message = f"the store did not return {short[0]!r} of {self.uri} as it is listed. Try again."
            raise StorageError(message, path=short[0])
        try:
            for path, body in zip(paths, bodies, strict=True):
                (self._root / path).write_bytes(body if self._rewrite is None else self._rewrite(path, body))
        except OSError as error:  # the disk is full, or the folder was deleted
            raise FileNotFoundError(self._root) from error
        self._newest = before + len(newer)

    def get(self, path: str) -> bytes:
        """Read a file of the log."""
        local = self._root / path
        # The hint is not needed: the copy has at most one checkpoint.
        return local.read_bytes() if local.exists() or path == LAST_CHECKPOINT else self._store.get(path)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read a part of a file of the log."""
        return self.get(path)[start : start + length]

    def size(self, path: str) -> int:
        """Return the size of a file of the log in bytes."""
        return len(self.get(path))

    def list(self, prefix: str) -> Sequence[str]:
        """List the copied files. They are complete from the checkpoint on."""
        return sorted(f"{prefix}/{path.name}" for path in (self._root / prefix).iterdir())


def copy_log(store: Store) -> LogCopy | None:
    """Copy the log files of the newest version. None: the log is local, too large, or cannot be copied."""
    if store.local_root is not None:
        return None
    hinted = hinted_checkpoint(store, None)
    after = "" if hinted is None else f"{LOG_DIRECTORY}/{hinted.version:020d}"
    entries = store.entries(LOG_DIRECTORY, after=after)
    checkpoint = newest_checkpoint([entry.path for entry in entries], version=None)
    names = () if checkpoint is None else checkpoint.paths
    if any(not name.endswith(".checkpoint.parquet") for name in names) or (hinted and not checkpoint):
        return None
    if not entries or sum(entry.size for entry in entries) > sizing().max_copied_log_bytes:
        return None
    copy = LogCopy(store)
    with suppress(FileNotFoundError):
        copy.add(checkpoint, entries)
        return copy
    return None


def sound_copies(store: Store, version: int | None, rewrite: RewriteFile | None = None) -> Iterator[LogCopy]:
    """Yield copies of a log without its hint: with each of its checkpoints, the newest first, and with commits alone.

    Each copy ends at `version`, or at the newest version that any file of the log is about.
    """
    entries = store.entries(LOG_DIRECTORY)
    commits = [entry for entry in entries if (m := COMMIT.fullmatch(entry.path)) and _is_up_to(m[1], version)]
    checkpoints = complete_checkpoints([entry.path for entry in entries], version=version)
    numbers = [int(entry.path[-25:-5]) for entry in commits] + [each.version for each in checkpoints]
    end = max(numbers, default=-1) if version is None else version
    if end not in numbers:  # nothing to copy: a version that does not exist costs one listing
        return
    for checkpoint in (*checkpoints, None):
        copy = LogCopy(store, rewrite)
        with suppress(FileNotFoundError, InvalidMetadataError, StorageError, ValueError):
            copy.add(
                checkpoint, commits, () if checkpoint is None else sidecar_paths(store, checkpoint.paths)
            )
            if copy.newest == end:
                yield copy


def _is_up_to(number: str, version: int | None) -> bool:
    return version is None or int(number) <= version


_NEEDED: Final = ("protocol", "metaData")
_READ: Final = ("add", "remove", "txn", "domainMetadata", *_NEEDED)


class CheckpointFault(NamedTuple):
    """A hint, or a checkpoint, that cannot be right: its files, the first for messages, and the problem."""

    paths: tuple[str, ...]
    problem: str


def checkpoint_faults(store: Store) -> list[CheckpointFault]:
    """Read the hint and all complete checkpoints, and return their faults."""
    counts: dict[int, Counter[str] | None] = {}
    faults: list[CheckpointFault] = []
    for checkpoint in complete_checkpoints(store.list(LOG_DIRECTORY), version=None):
        try:
            count = _counted(checkpoint_parts(store, checkpoint.paths, _READ))
        except FileNotFoundError as error:
            # Otherwise it was cleaned up.
            if all(stored_size(store, path) is not None for path in checkpoint.paths):
                faults.append(CheckpointFault(checkpoint.paths, f"a file that it needs is missing: {error}"))
        except (InvalidMetadataError, StorageError, ValueError) as error:
            faults.append(CheckpointFault(checkpoint.paths, f"it cannot be read: {error.__cause__ or error}"))
        else:
            counts[checkpoint.version] = count
    problem = _hint_problem(store, counts)
    return faults if problem is None else [CheckpointFault((LAST_CHECKPOINT,), problem), *faults]


def warn_of_faults(store: Store) -> None:
    """Warn that a log is read without what is broken."""
    faults = checkpoint_faults(store)
    if not faults:
        return
    shown = "; ".join(f"{fault.paths[0]}: {fault.problem}" for fault in faults[:3])
    message = (
        f"the log of {store.uri} is read without broken parts, from its commits ({shown}). No row is lost, but other "
        "engines may fail. Table.repair() replaces them."
    )
    warnings.warn(message, QbeastWarning, stacklevel=caller_stacklevel())


def _counted(parts: Iterable[pl.DataFrame | bytes]) -> Counter[str] | None:
    """Count the actions of a checkpoint by kind; None: sidecars have some. Raise `ValueError` if it is not whole."""
    count: Counter[str] = Counter()
    for part in parts:
        if isinstance(part, bytes):
            count.update(kind for line in part.splitlines() for kind in orjson.loads(line))
            continue
        count["all"] += part.height
        for kind in part.columns:
            fields = part[kind].struct.unnest() if part.schema[kind] == pl.Struct else pl.DataFrame()
            count[kind] += (
                fields.filter(pl.any_horizontal(pl.all().is_not_null())).height if fields.width else 0
            )
    missing = [kind for kind in _NEEDED if not count[kind]]
    if missing:
        msg = f"it has no {' and no '.join(missing)}"
        raise ValueError(msg)
    return None if count["sidecar"] or count["checkpointMetadata"] else count


def _hint_problem(store: Store, counts: Mapping[int, Counter[str] | None]) -> str | None:
    try:
        hint: Any = orjson.loads(store.get(LAST_CHECKPOINT))
    except FileNotFoundError:
        return None
    except (StorageError, ValueError) as error:
        return f"the hint to the newest checkpoint cannot be read: {error}"
    version = hint.get("version") if isinstance(hint, dict) else None
    if not isinstance(version, int):
        return "the hint to the newest checkpoint names no version"
    if version not in counts:
        return f"the hint names version {version}, which has no checkpoint that can be read"
    count = counts[version]
    for field, kind in (("size", "all"), ("numOfAddFiles", "add")):
        if count is not None and hint.get(field) not in {None, count[kind]}:
            return f"the hint has {field} {hint[field]!r}, and the checkpoint has {count[kind]}"
    return None


# Returns a file of a log, by its path and bytes, with other texts of partition values.
RewriteFile: TypeAlias = Callable[[str, bytes], bytes]

_KINDS = ("add", "remove", "cdc")
_ENTRIES = pl.List(pl.Struct({"key": pl.String, "value": pl.String}))


def text_rewriter(store: Store, version: int | None) -> RewriteFile | None:
    """Return a function that rewrites the files of a log for `deltalake`. None: its metadata cannot be read."""
    try:
        log = read_log(store, newest_version(store, version), actions=("metaData",))
        types = _partition_types(log)
    except (QbeastError, FileNotFoundError, ValueError, KeyError, TypeError):
        return None

    @cache
    def text_of(name: str, text: str | None) -> str | None:
        return text if text is None or name not in types else _rewritten(text, types[name])

    def rewrite(path: str, body: bytes) -> bytes:
        if path.endswith(".json"):
            return b"\n".join(_line(line, text_of) for line in body.splitlines()) + b"\n"
        return _checkpoint(body, text_of) if path.endswith(".parquet") else body

    return rewrite


def _partition_types(log: LogState) -> dict[str, pl.DataType]:
    """Return the types of the partition columns by their names in files."""
    found: dict[str, Any] = {}
    for part in (*log.checkpoint, *log.commits):
        found = next(actions_of(part, "metaData"), found)
    fields: Mapping[str, Any] = {
        field["name"]: field for field in orjson.loads(found["schemaString"])["fields"]
    }
    partitions = [fields[name] for name in found["partitionColumns"]]
    return {physical_name(field): type_from_delta(field["type"]) for field in partitions}


def _rewritten(text: str, dtype: pl.DataType) -> str | None:
    """Return the text of a value as we write it; unchanged if it is not exactly a value of the type."""
    try:
        values = typed_values(pl.Series([text]), dtype)
        is_exact = not isinstance(dtype, pl.Decimal) or Decimal(text) == values[0]
    except (pl.exceptions.PolarsError, InvalidOperation):
        return text
    return partition_texts(values).item() if is_exact else text


def _line(line: bytes, text_of: Callable[[str, str | None], str | None]) -> bytes:
    if b'"partitionValues"' not in line:
        return line
    action: dict[str, Any] = orjson.loads(line)
    for kind in _KINDS:
        values = (action.get(kind) or {}).get("partitionValues")
        if values:
            action[kind]["partitionValues"] = {name: text_of(name, text) for name, text in values.items()}
    return orjson.dumps(action)


def _checkpoint(body: bytes, text_of: Callable[[str, str | None], str | None]) -> bytes:
    frame = pl.read_parquet(io.BytesIO(body))
    for kind in _KINDS:
        if kind not in frame.columns or "partitionValues" not in frame[kind].struct.fields:
            continue
        values = pl.col(kind).struct.field("partitionValues").cast(_ENTRIES)
        entries = frame.select(values.alias(kind)).explode(kind)[kind].drop_nulls().unique().to_list()
        new = [{"key": entry["key"], "value": text_of(entry["key"], entry["value"])} for entry in entries]
        if new == entries:
            continue
        olds, news = (pl.Series(side, dtype=_ENTRIES.inner) for side in (entries, new))
        rewritten = values.list.eval(pl.element().replace_strict(olds, news, return_dtype=_ENTRIES.inner))
        whole = pl.col(kind).struct.with_fields(
            rewritten.cast(pl.Map(pl.String(), pl.String())).alias("partitionValues")
        )
        frame = frame.with_columns(whole)
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()
