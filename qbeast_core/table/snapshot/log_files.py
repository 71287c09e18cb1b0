"""The files of the log: names, contents, the conditional write of a commit, and copies on this machine.

To open a table, `deltalake` reads the footer of a checkpoint five times and each commit twice, one request after the
other. A copy needs three round trips: the hint, a listing, and all files at once. A copy of a damaged log lacks broken
checkpoints, and has the texts of partition values that `deltalake` parses.
"""

from __future__ import annotations

import io
import os
import re
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import cache, partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import orjson
import polars as pl

from qbeast_core.errors import (
    CommitUnknownError,
    InvalidInputError,
    InvalidMetadataError,
    QbeastError,
    QbeastWarning,
    StorageError,
)
from qbeast_core.io.footer import stored_size
from qbeast_core.io.machine import TemporaryFolder
from qbeast_core.io.store import Entry, Store, map_files, status_of
from qbeast_core.log.actions import CommitInfo, commit_times, parse_commit
from qbeast_core.log.columns import physical_name
from qbeast_core.log.replay import LogState, actions_of
from qbeast_core.log.schema import type_from_delta
from qbeast_core.log.values import partition_texts, typed_values
from qbeast_core.spec.blocks import FilePath
from qbeast_core.support.process import caller_stacklevel
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.schema import LOG_DIRECTORY

# Result of the write of a commit. "won": it exists; "lost": another commit has the version; "absent": no commit has it.
PutResult: TypeAlias = Literal["won", "lost", "absent"]

# The hint: it names the newest checkpoint or an earlier one.
LAST_CHECKPOINT: Final = f"{LOG_DIRECTORY}/_last_checkpoint"
SIDECARS: Final = "_sidecars"

COMMIT: Final = re.compile(rf"{LOG_DIRECTORY}/(\d{{20}})\.json")

_HEAD: Final = 1 << 16
_CHECKPOINT: Final = re.compile(
    r"(?P<version>\d{20})\.checkpoint\."
    r"(?:(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|(?P<uuid>[0-9a-f-]{36})\.(?:parquet|json)|parquet)"
)


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A complete checkpoint: its version, and the paths of its files relative to the table."""

    version: int
    paths: tuple[str, ...]


class LogFiles(Protocol):
    """Where `read_log` finds the log: a store, or a copy of its log. See `Store`."""

    @property
    def uri(self) -> str:
        """URI of the table."""
        ...

    @property
    def local_root(self) -> Path | None:
        """Folder of a local table."""
        ...

    def get(self, path: str) -> bytes:
        """Read a file."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read a part of a file."""
        ...

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        ...

    def list(self, prefix: str) -> Sequence[str]:
        """List the files whose paths start so."""
        ...


def read_log(
    store: LogFiles,
    version: int,
    *,
    after: int | None = None,
    actions: Sequence[str] = ("add",),
    hint: CheckpointHint | Literal["unread"] | None = "unread",
) -> LogState:
    """Read the log up to `version`: the newest checkpoint and the commits after it, or the commits after `after`.

    `hint` is its hint, if it was read.
    """
    if after is not None:
        return _state(store, version, after=after)
    hinted = _hinted_checkpoint(checkpoint_hint(store) if hint == "unread" else hint, version)
    if hinted is not None:
        with suppress(FileNotFoundError):  # a hint may be stale
            return _state(store, version, actions, hinted)
    newest = newest_checkpoint(store.list(LOG_DIRECTORY), version=version)
    return _state(store, version, actions, newest)


def read_history(store: Store, *, version: int, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the `commitInfo` of each commit up to `version` that the log still has, newest first.

    Its `timestamp` is the time of the version by `commit_times`, which needs all commits. `deltalake` is not used,
    because it cannot read a ``readVersion`` of -1, which conversions by Spark write.
    """
    commits = [
        {**({} if info is None else info.model_dump(exclude_none=True)), "timestamp": time, "version": number}
        for number, info, time in _timed(store)
        if number <= version
    ]
    return commits[::-1][:limit]


def version_at(store: Store, time_ms: int) -> tuple[int | None, tuple[int, int] | None]:
    """Return the newest version that is not newer than a time, and the oldest version with its time.

    None: all versions are newer; the log has no commit.
    """
    times = [(number, time) for number, _, time in _timed(store)]
    versions = (number for number, time in reversed(times) if time <= time_ms)
    return next(versions, None), next(iter(times), None)


def version_or_time(version: object, argument: str = "version") -> tuple[int | None, datetime | None]:
    """Return a version number or a time. A time without zone is in UTC.

    >>> version_or_time(3), version_or_time("3"), version_or_time("2026-01-31")[1].isoformat()
    ((3, None), (3, None), '2026-01-31T00:00:00+00:00')
    """
    match version:
        case None:
            return None, None
        case bool():
            pass
        case int() if version >= 0:
            return version, None
        case datetime():
            return None, _zoned(version)
        case date():
            return None, datetime(version.year, version.month, version.day, tzinfo=UTC)
        case str():
            with suppress(ValueError):  # first: 20260131 is a date
                return None, _zoned(datetime.fromisoformat(version))
            if version.isdecimal():
                return int(version), None
        case _:
            pass
    msg = (
        f"`{argument}` must be a number of at least 0, a date, a datetime, or the text of one (ISO 8601), not "
        f"{version!r}"
    )
    raise InvalidInputError(msg, argument=argument, value=version)


def _zoned(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _timed(store: Store) -> list[tuple[int, CommitInfo | None, int]]:
    """Return number, info and time of each commit, oldest first."""
    entries = {
        int(m[1]): entry for entry in store.entries(LOG_DIRECTORY) if (m := COMMIT.fullmatch(entry.path))
    }
    numbers = sorted(entries)
    infos = map_files(
        store, lambda number: _read_commit_info(store, number, size=entries[number].size), numbers
    )
    times = commit_times([(info, entries[n].modified_ms) for n, info in zip(numbers, infos, strict=True)])
    return list(zip(numbers, infos, times, strict=True))


# Other files of a log without checkpoints: checksums, and the folder that a copy of a log has.
_UNREAD: Final = re.compile(r"\..*|\d{20}\.crc|_sidecars")


def short_log(store: LogFiles, root: Path, version: int | None) -> LogState | None:
    """Read a log in a local folder if it has a few small commits from version 0 on. None: it has more, or other files.

    `version` is the last version; None: the newest.
    """
    folder = root / LOG_DIRECTORY
    try:
        sizes = _plain_commits(folder)
        if not sizes or int(max(sizes)[:-5]) != len(sizes) - 1:
            return None
        names = sorted(sizes)[: len(sizes) if version is None else version + 1]
        is_short = 0 < len(names) <= sizing().max_short_commits
        if not is_short or sum(map(sizes.__getitem__, names)) > sizing().max_short_bytes:
            return None
        newest = len(names) - 1
        if newest != (newest if version is None else version):
            return None
        commits = tuple((folder / name).read_bytes() for name in names)
        return LogState(
            uri=store.uri,
            version=newest,
            commits=commits,
            commit_info=_info_of(commits[-1], newest),
            fingerprint=fingerprint(store, newest),
        )
    except (OSError, InvalidMetadataError):
        return None


def _plain_commits(folder: Path) -> dict[str, int] | None:
    """Return the sizes of the commits of a log by name. None: it has links or other files."""
    sizes: dict[str, int] = {}
    if folder.is_symlink():
        return None
    with os.scandir(folder) as entries:
        for entry in entries:
            if COMMIT.fullmatch(f"{LOG_DIRECTORY}/{entry.name}") and entry.is_file(follow_symlinks=False):
                sizes[entry.name] = entry.stat().st_size
            elif entry.is_symlink() or not _UNREAD.fullmatch(entry.name):
                return None
    return sizes


def _newest_version(store: Store, version: int | None) -> int:
    """Return the newest version that has a commit, up to `version`, -1 without one."""
    found = (int(m[1]) for path in store.list(LOG_DIRECTORY) if (m := COMMIT.fullmatch(path)))
    return max((number for number in found if version is None or number <= version), default=-1)


def put_commit(store: Store, version: int, body: bytes, txn_id: str) -> PutResult:
    """Try to write one version. The commit that exists afterwards decides, not the response of the store."""
    path, failure = commit_path(version), None
    try:
        store.put_if_absent(path, body)
    except FileExistsError:
        pass
    except OSError as error:
        failure = error
    else:
        return "won"
    try:
        stored = parse_commit(read_commit(store, version), version=version).commit_info
    except FileNotFoundError:
        if failure is None:
            return "absent"  # object stores respond so to concurrent writes that both fail
    except OSError as error:
        raise _unknown(store, version, txn_id) from (failure or error)
    else:
        return "won" if stored is not None and stored.txn_id == txn_id else "lost"
    if store.local_root is not None:
        raise failure  # a local error is final
    raise _unknown(store, version, txn_id) from failure


def read_commit(store: LogFiles, version: int) -> bytes:
    """Read the commit of a version. Raise if its end is missing. An empty one lacks all: each commit has an action."""
    path = commit_path(version)
    body = store.get(path)
    try:
        orjson.loads(body.rstrip().rpartition(b"\n")[2])
    except orjson.JSONDecodeError:
        if store.size(path) != len(body):
            message = f"the store did not return all of {path!r} of {store.uri}. Try again."
            raise StorageError(message, path=path) from None
    else:
        return body
    problem = "ends within a line" if body.strip() else "is empty"
    before = f"; until then version={version - 1} can be opened" if version else ""
    message = (
        f"the Delta log of {store.uri} is damaged: {path} {problem}, so what this version changed is lost. Restore "
        f"the file from a copy{before}."
    )
    raise InvalidMetadataError(message)


def commit_damage(store: LogFiles, version: int) -> str | None:
    """Return what is wrong with the commit of a version. None: it is whole, or was cleaned up."""
    try:
        read_commit(store, version)
    except FileNotFoundError:
        return None
    except InvalidMetadataError as error:
        return str(error)
    return None


def commit_path(version: int) -> str:
    """Return the path of a version's commit, relative to the table.

    >>> commit_path(7)
    '_delta_log/00000000000000000007.json'
    """
    return f"{LOG_DIRECTORY}/{version:020d}.json"


def version_of(path: str) -> int:
    """Return the version in the name of a file of the log, -1 for other files.

    >>> version_of("_delta_log/00000000000000000007.checkpoint.parquet"), version_of("_delta_log/_last_checkpoint")
    (7, -1)
    """
    number = path.removeprefix(f"{LOG_DIRECTORY}/").partition(".")[0]
    return int(number) if number.isdecimal() else -1


def fingerprint(store: LogFiles, version: int) -> tuple[int, int, int] | None:
    """Identify a local commit file, to detect a table that was deleted and written again."""
    if store.local_root is None:
        return None
    status = status_of(store.local_root / commit_path(version))
    if status is None:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


class PlanUnusable(Exception):  # noqa: N818 - the log decides then, so it is not an error
    """A plan file cannot be made, or its bytes are not as they were written."""


@dataclass(frozen=True, slots=True)
class CheckpointHint:
    """The hint to the newest checkpoint, or an earlier one."""

    version: int
    # Number of files that it lists, or of all actions; 0 if the hint does not have it.
    files: int
    # Whether the checkpoint is a single file.
    is_single: bool


def checkpoint_hint(store: LogFiles) -> CheckpointHint | None:
    """Read the hint of a log. None: it has none that can be read."""
    try:
        hint: Any = orjson.loads(store.get(LAST_CHECKPOINT))
    except (FileNotFoundError, StorageError, ValueError):
        return None
    number = hint.get("version") if isinstance(hint, dict) else None
    if not isinstance(number, int) or number < 0:
        return None
    counts = (hint.get("numOfAddFiles"), hint.get("size"), 0)
    files = next(count for count in counts if isinstance(count, int))
    return CheckpointHint(number, files, is_single=not (hint.get("parts") or hint.get("v2Checkpoint")))


def _hinted_checkpoint(hint: CheckpointHint | None, version: int | None) -> CheckpointFiles | None:
    """Return the checkpoint that the hint names if it is a single file. This saves a listing of the log."""
    if hint is None or not hint.is_single:
        return None
    return newest_checkpoint([f"{hint.version:020d}.checkpoint.parquet"], version=version)


def newest_checkpoint(names: Iterable[str], *, version: int | None) -> CheckpointFiles | None:
    """Return the newest complete checkpoint up to `version`.

    >>> newest_checkpoint(["00000000000000000010.checkpoint.parquet", "_last_checkpoint"], version=12)
    CheckpointFiles(version=10, paths=('_delta_log/00000000000000000010.checkpoint.parquet',))
    >>> newest_checkpoint(["00000000000000000010.checkpoint.0000000001.0000000002.parquet"], version=12)
    """
    return next(iter(complete_checkpoints(names, version=version)), None)


def complete_checkpoints(names: Iterable[str], *, version: int | None) -> list[CheckpointFiles]:
    """Return the complete checkpoints up to `version`, the newest first.

    Classic, multi-part and UUID-named (V2) checkpoints count. Other names are ignored: hints, checksums, compacted
    logs, temporary files, and what is in folders of the log.
    """
    parts: dict[tuple[int, int], set[str]] = {}
    for name in {path.removeprefix(f"{LOG_DIRECTORY}/") for path in names}:
        match = _CHECKPOINT.fullmatch(name)
        if match is None or (version is not None and int(match["version"]) > version):
            continue
        key = (int(match["version"]), int(match["parts"] or 1))
        # Complete checkpoints of one version are equal, so one is enough: the shortest name is the classic one.
        parts.setdefault(key, set()).add(name)
    complete = [
        (number, sorted(files) if count > 1 else [min(files, key=len)])
        for (number, count), files in parts.items()
        if count == 1 or len(files) == count
    ]
    return [
        CheckpointFiles(number, tuple(f"{LOG_DIRECTORY}/{name}" for name in files))
        for number, files in sorted(complete, reverse=True)
    ]


def _unknown(store: Store, version: int, txn_id: str) -> CommitUnknownError:
    message = (
        f"the store failed while version {version} of {store.uri} was written: the version may exist. "
        f"Keep the data files, check later whether its commitInfo has the txnId {txn_id}, and write again "
        "only if it does not."
    )
    return CommitUnknownError(message, table=store.uri, version=version, txn_id=txn_id)


def _state(
    store: LogFiles,
    version: int,
    actions: Sequence[str] = (),
    checkpoint: CheckpointFiles | None = None,
    *,
    after: int = -1,
) -> LogState:
    """Read a checkpoint, if any, and the commits after it, or after a version."""
    parts: tuple[pl.DataFrame | bytes, ...] = ()
    if checkpoint is not None:
        parts, after = _checkpoint_parts(store, checkpoint.paths, actions), checkpoint.version
    commits = map_files(store, partial(read_commit, store), range(after + 1, version + 1))
    return LogState(
        uri=store.uri,
        version=version,
        checkpoint=parts,
        commits=tuple(commits),
        earlier=_before(store, after),
        commit_info=_info_of(commits[-1], version) if commits else _read_commit_info(store, version),
        fingerprint=fingerprint(store, version),
    )


def _before(store: LogFiles, version: int) -> Iterator[bytes]:
    # Older commits may be cleaned up, or damaged: then the checkpoint is used.
    with suppress(FileNotFoundError, InvalidMetadataError):
        for number in range(version, -1, -1):
            yield read_commit(store, number)


def _read_commit_info(store: LogFiles, version: int, *, size: int | None = None) -> CommitInfo | None:
    """Return the `commitInfo` of a version. None: the log has none."""
    path = commit_path(version)
    try:
        size = store.size(path) if size is None else size
        head = store.get_range(path, 0, min(size, _HEAD))
        first, ended, _ = head.partition(b"\n")
        if not ended or b'"commitInfo"' not in first:  # it is not the first line, as it usually is
            first = read_commit(store, version) if size else b""
        return _info_of(first, version)
    except FileNotFoundError:
        return None


def _info_of(body: bytes, version: int) -> CommitInfo | None:
    lines = (line for line in body.splitlines() if b'"commitInfo"' in line)
    return parse_commit(b"\n".join(lines), version=version).commit_info


def _checkpoint_parts(
    store: LogFiles, paths: Sequence[str], actions: Sequence[str]
) -> tuple[pl.DataFrame | bytes, ...]:
    """Read some kinds of actions from the files of a checkpoint and its sidecars."""
    parts = [
        store.get(path) if path.endswith(".json") else _read_parquet(store, path, actions) for path in paths
    ]
    return *parts, *(_read_parquet(store, path, actions) for path in _sidecars(parts))


def _sidecar_paths(store: LogFiles, paths: Sequence[str]) -> list[str]:
    """Return the sidecars that a checkpoint names."""
    parts = [store.get(path) if path.endswith(".json") else _read_parquet(store, path, ()) for path in paths]
    return _sidecars(parts)


def _sidecars(parts: Iterable[pl.DataFrame | bytes]) -> list[str]:
    names = [FilePath.of_log(action["path"]).name for part in parts for action in actions_of(part, "sidecar")]
    return [f"{LOG_DIRECTORY}/{SIDECARS}/{name}" for name in names]


def _read_parquet(store: LogFiles, path: str, actions: Sequence[str]) -> pl.DataFrame:
    root = store.local_root
    source = io.BytesIO(store.get(path)) if root is None else root / path
    try:
        lazy = pl.scan_parquet(source, glob=False)
        names = [name for name in (*actions, "sidecar") if name in lazy.collect_schema()]
        return lazy.select(names).collect()
    except pl.exceptions.PolarsError as error:
        message = f"the checkpoint {path} of {store.uri} is damaged: {error}."
        raise InvalidMetadataError(message) from error


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

    def begin(self, version: int, checkpoint: bytes, entries: Sequence[Entry]) -> None:
        """Begin the copy with another checkpoint of a version, and the commits of `entries` after it."""
        (self._root / LOG_DIRECTORY / f"{version:020d}.checkpoint.parquet").write_bytes(checkpoint)
        self._newest = version
        self.add(None, entries)

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


def copy_log(store: Store, hint: CheckpointHint | None) -> LogCopy | None:
    """Copy the log files of the newest version. None: the log is local, too large, or cannot be copied."""
    if store.local_root is not None:
        return None
    hinted = _hinted_checkpoint(hint, None)
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
                checkpoint, commits, () if checkpoint is None else _sidecar_paths(store, checkpoint.paths)
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
            count = _counted(_checkpoint_parts(store, checkpoint.paths, _READ))
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
        log = read_log(store, _newest_version(store, version), actions=("metaData",))
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
