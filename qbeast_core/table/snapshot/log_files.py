"""Read the log's own files: commits, and the index tags in the newest checkpoint and the commits after it."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.io.store import Store
from qbeast_core.log.actions import Commit, CommitInfo, parse_commit
from qbeast_core.log.names import (
    LAST_CHECKPOINT,
    LOG_DIRECTORY,
    CheckpointFiles,
    commit_path,
    newest_checkpoint,
)
from qbeast_core.log.replay import newest_tags, sidecar_names, tags_of_checkpoint, tags_of_lines
from qbeast_core.log.spellings import Spellings
from qbeast_core.spec.file_path import FilePath

__all__ = [
    "LogState",
    "read_commit",
    "read_commit_info",
    "read_history",
    "read_state",
    "read_tags",
    "read_tags_since",
    "read_taken_back",
]

T = TypeVar("T")
R = TypeVar("R")

_REQUESTS_AT_ONCE: Final = 16
_HEAD: Final = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class LogState:
    """The files of the log behind one version.

    Attributes
    ----------
    checkpoint : list of polars.DataFrame or bytes
        Its parts and sidecars with a column per action and ``sidecar``, or lines of JSON; empty: there is none.
    commits : list of bytes
        The commits after it, oldest first.
    """

    checkpoint: list[pl.DataFrame | bytes]
    commits: list[bytes]


def read_commit(store: Store, version: int) -> Commit | None:
    """Return the actions of one version; None: it does not exist, or not any more."""
    try:
        body = store.get(commit_path(version))
    except FileNotFoundError:
        return None
    return parse_commit(body, version=version)


def read_commit_info(store: Store, version: int) -> CommitInfo | None:
    """Return who wrote a version and when; None: the log does not say."""
    path = commit_path(version)
    try:
        head = store.get_range(path, 0, min(store.size(path), _HEAD))
        first, ended, _ = head.partition(b"\n")
        if ended and b'"commitInfo"' in first:  # where the protocol wants it; a commit may be long
            return parse_commit(first, version=version).commit_info
        return parse_commit(store.get(path), version=version).commit_info
    except FileNotFoundError:
        return None


def read_history(store: Store, *, version: int, limit: int | None = None) -> list[dict[str, Any]]:
    """Return what the log says of each commit up to `version`, newest first; cleaned up ones are left out.

    Not asked of `deltalake`, which cannot read a ``readVersion`` of -1: Spark's conversions write it.
    """
    there = set(store.list(LOG_DIRECTORY))
    versions = [number for number in range(version, -1, -1) if commit_path(number) in there][:limit]
    infos = _side_by_side(store, lambda number: read_commit_info(store, number), versions)
    found = zip(versions, infos, strict=True)
    return [
        {**({} if info is None else info.model_dump(exclude_none=True)), "version": number}
        for number, info in found
    ]


def read_tags(store: Store, *, version: int) -> pl.DataFrame:
    """Return the newest tags of every path that the log up to `version` names, live or not.

    Raises
    ------
    FileNotFoundError
        A file of the log vanished: another process cleaned it up; load the table again.
    InvalidMetadataError
        A file of the log is damaged.
    """
    state = read_state(store, version=version)
    frames = [
        tags_of_lines([part]) if isinstance(part, bytes) else tags_of_checkpoint(part)
        for part in state.checkpoint
    ]
    return newest_tags([*frames, _tags_of(store, state.commits, version)])


def read_state(store: Store, *, version: int, actions: Sequence[str] = ("add",)) -> LogState:
    """Return the files of the log that make up `version`: the newest checkpoint and the commits after it.

    Of a checkpoint only the `actions` are read.

    Raises
    ------
    FileNotFoundError
        A file of the log vanished: another process cleaned it up; load the table again.
    InvalidMetadataError
        The checkpoint is damaged.
    """
    hinted = _hinted_checkpoint(store, version)
    if hinted is not None:
        try:
            return _state_from(store, hinted, version, actions)
        except FileNotFoundError:
            pass  # a hint may be stale
    newest = newest_checkpoint(store.list(LOG_DIRECTORY), version=version)
    return _state_from(store, newest, version, actions)


def read_tags_since(store: Store, *, after: int, version: int) -> pl.DataFrame:
    """Return the tags of all adds in the versions ``after + 1 .. version``, oldest first.

    Raises
    ------
    FileNotFoundError
        One of the commits is gone.
    """
    return _tags_of(store, _commits(store, after, version), version)


def read_taken_back(store: Store, listed: Sequence[str], *, version: int) -> list[str]:
    """Return which of the paths that `deltalake` lists the log took back under another spelling.

    Raises
    ------
    FileNotFoundError
        A file of the log vanished.
    InvalidMetadataError
        A file of the log is damaged.
    """
    state = read_state(store, version=version, actions=("add", "remove"))
    try:
        found = Spellings.replay(state.checkpoint, state.commits)
        _settle(store, found, version - len(state.commits))
    except (ValueError, AttributeError, KeyError) as error:
        message = f"a commit of {store.uri} up to version {version} is damaged: {error}"
        raise InvalidMetadataError(message) from error
    return sorted(found.taken_back(listed))


def _settle(store: Store, found: Spellings, checkpoint: int) -> None:
    """Look for what a checkpoint leaves open in the commits before it, as far as they are there."""
    with suppress(FileNotFoundError):  # they may be cleaned up: then what the checkpoint lists counts
        for version in range(checkpoint, -1, -1):
            if not found.unsettled:
                return
            found.settle(store.get(commit_path(version)))


def _commits(store: Store, after: int, version: int) -> list[bytes]:
    return _side_by_side(store, store.get, [commit_path(n) for n in range(after + 1, version + 1)])


def _tags_of(store: Store, bodies: Sequence[bytes], version: int) -> pl.DataFrame:
    try:
        return tags_of_lines(bodies)
    except (ValueError, AttributeError, KeyError) as error:
        message = f"a commit of {store.uri} up to version {version} is damaged: {error}"
        raise InvalidMetadataError(message) from error


def _state_from(
    store: Store, checkpoint: CheckpointFiles | None, version: int, actions: Sequence[str]
) -> LogState:
    parts = [] if checkpoint is None else _checkpoint_parts(store, checkpoint.paths, actions)
    after = -1 if checkpoint is None else checkpoint.version
    return LogState(parts, _commits(store, after, version))


def _hinted_checkpoint(store: Store, version: int) -> CheckpointFiles | None:
    """Return the checkpoint that the hint names if it is of the one-file kind: that saves listing the log."""
    try:
        hint: Any = orjson.loads(store.get(LAST_CHECKPOINT))
    except (FileNotFoundError, ValueError):
        return None
    number = hint.get("version") if isinstance(hint, dict) else None
    if not isinstance(number, int) or number > version or hint.get("parts") or hint.get("v2Checkpoint"):
        return None
    return newest_checkpoint([f"{number:020d}.checkpoint.parquet"], version=version)


def _checkpoint_parts(
    store: Store, paths: Sequence[str], actions: Sequence[str]
) -> list[pl.DataFrame | bytes]:
    parts: list[pl.DataFrame | bytes] = []
    sidecars: list[str] = []
    for path in paths:
        if path.endswith(".json"):
            body = store.get(path)
            parts.append(body)
            lines = (orjson.loads(line) for line in body.splitlines() if b'"sidecar"' in line)
            sidecars += [line["sidecar"]["path"] for line in lines if line.get("sidecar")]
        else:
            frame = _read_parquet(store, path, actions)
            parts.append(frame)
            sidecars += sidecar_names(frame)
    return [*parts, *(_read_parquet(store, _sidecar_path(name), actions) for name in sidecars)]


def _sidecar_path(name: str) -> str:
    return f"{LOG_DIRECTORY}/_sidecars/{FilePath.of_log(name).name}"


def _read_parquet(store: Store, path: str, actions: Sequence[str]) -> pl.DataFrame:
    root = store.local_root
    source = io.BytesIO(store.get(path)) if root is None else root / path
    try:
        lazy = pl.scan_parquet(source, glob=False)
        wanted = [name for name in (*actions, "sidecar") if name in lazy.collect_schema()]
        return lazy.select(wanted).collect()
    except pl.exceptions.PolarsError as error:
        message = f"the checkpoint {path} of {store.uri} is damaged: {error}. Nothing was changed."
        raise InvalidMetadataError(message) from error


def _side_by_side(store: Store, read: Callable[[T], R], items: Sequence[T]) -> list[R]:
    if store.local_root is not None or len(items) < 2:
        return [read(item) for item in items]
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        return list(pool.map(read, items))
