"""The files of the log: names, contents, and the conditional write of the next commit."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

import orjson
import polars as pl

from qbeast_core.errors import CommitUnknownError, InvalidMetadataError, StorageError
from qbeast_core.io.store import Store, map_files, status_of
from qbeast_core.log.actions import CommitInfo, commit_times, parse_commit
from qbeast_core.log.replay import LogState, actions_of
from qbeast_core.spec.blocks import FilePath
from qbeast_core.table.data.found_instead import LOG_DIRECTORY

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
    store: LogFiles, version: int, *, after: int | None = None, actions: Sequence[str] = ("add",)
) -> LogState:
    """Read the log up to `version`: the newest checkpoint and the commits after it, or the commits after `after`."""
    if after is not None:
        return _state(store, version, after=after)
    hinted = hinted_checkpoint(store, version)
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


def newest_version(store: Store, version: int | None) -> int:
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


def fingerprint(store: LogFiles, version: int) -> tuple[int, int, int] | None:
    """Identify a local commit file, to detect a table that was deleted and written again."""
    if store.local_root is None:
        return None
    status = status_of(store.local_root / commit_path(version))
    if status is None:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def hinted_checkpoint(store: LogFiles, version: int | None) -> CheckpointFiles | None:
    """Return the checkpoint that the hint names if it is a single file. This saves a listing of the log."""
    try:
        hint: Any = orjson.loads(store.get(LAST_CHECKPOINT))
    except (FileNotFoundError, StorageError, ValueError):
        return None
    number = hint.get("version") if isinstance(hint, dict) else None
    if not isinstance(number, int) or hint.get("parts") or hint.get("v2Checkpoint"):
        return None
    return newest_checkpoint([f"{number:020d}.checkpoint.parquet"], version=version)


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
        parts, after = checkpoint_parts(store, checkpoint.paths, actions), checkpoint.version
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


def checkpoint_parts(
    store: LogFiles, paths: Sequence[str], actions: Sequence[str]
) -> tuple[pl.DataFrame | bytes, ...]:
    """Read some kinds of actions from the files of a checkpoint and its sidecars."""
    parts = [
        store.get(path) if path.endswith(".json") else _read_parquet(store, path, actions) for path in paths
    ]
    return *parts, *(_read_parquet(store, path, actions) for path in _sidecars(parts))


def sidecar_paths(store: LogFiles, paths: Sequence[str]) -> list[str]:
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
