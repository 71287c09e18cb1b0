"""Names of the files that a log still speaks of: data files and deletion vectors that must not be deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.log.actions import AddFile

__all__ = ["names_of_files", "names_removed_since", "paths_of_adds"]

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_CHARACTERS: Final = 20


def paths_of_adds(adds: Iterable[AddFile]) -> set[str]:
    """Return the decoded paths of data files and of their deletion vectors.

    Raises
    ------
    InvalidMetadataError
        A deletion vector's file cannot be told.

    Examples
    --------
    >>> paths_of_adds([AddFile(path="k/a%20b.parquet", size=1, modification_time=1)])
    {'k/a b.parquet'}
    """
    return {path for add in adds for path in _paths(add.path, add.deletion_vector)}


def names_of_files(files: pl.DataFrame) -> set[str]:
    """Return the last parts of the paths of live files and of their deletion vectors.

    Parameters
    ----------
    files : polars.DataFrame
        Columns `path` (as in the log) and `deletion_vector` (the descriptor as JSON, or null).

    Raises
    ------
    InvalidMetadataError
        A deletion vector's file cannot be told.

    Examples
    --------
    >>> names_of_files(pl.DataFrame({"path": ["k/a%20b.parquet"], "deletion_vector": [None]}))
    {'a b.parquet'}
    """
    rows = files.select("path", "deletion_vector").iter_rows()
    pairs = ((path, None if vector is None else orjson.loads(vector)) for path, vector in rows)
    return {_name(found) for path, vector in pairs for found in _paths(path, vector)}


def names_removed_since(
    checkpoint: Sequence[pl.DataFrame | bytes], commits: Iterable[bytes], *, since_ms: int
) -> set[str]:
    """Return the names of files that were removed at a time or later: readers of old versions need them.

    Parameters
    ----------
    checkpoint : sequence of polars.DataFrame or bytes
        What the checkpoint consists of; frames need the column ``remove`` to count.
    commits : iterable of bytes
        The commits after it.
    since_ms : int
        Milliseconds since 1970 UTC. A remove that does not say when counts as older.
    """
    removes: list[Mapping[str, Any]] = []
    for part in (*checkpoint, *commits):
        removes += _of_lines(part) if isinstance(part, bytes) else _of_frame(part)
    kept = (one for one in removes if (one.get("deletionTimestamp") or 0) >= since_ms)
    return {_name(path) for one in kept for path in _paths(one["path"], one.get("deletionVector"))}


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _paths(path: str, vector: Mapping[str, Any] | None) -> Iterator[str]:
    yield unquote(path)
    kind, text = (vector or {}).get("storageType"), str((vector or {}).get("pathOrInlineDv"))
    if kind == "p":
        yield unquote(text)
    elif kind == "u":
        folder, spelled = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
        yield f"{folder}{'/' if folder else ''}deletion_vector_{_uuid(spelled)}.bin"


def _uuid(text: str) -> uuid.UUID:
    """Decode the 20 characters that Delta spells the id of a deletion vector's file with."""
    if len(text) != _UUID_CHARACTERS or not set(text) <= set(_Z85):
        message = f"a deletion vector of the Delta log is named by {text!r}, which is no id of a file"
        raise InvalidMetadataError(message)
    number = 0
    for start in range(0, len(text), 5):
        word = 0
        for character in text[start : start + 5]:
            word = word * 85 + _Z85.index(character)
        number = number << 32 | word
    return uuid.UUID(int=number)


def _of_lines(body: bytes) -> Iterator[Mapping[str, Any]]:
    for line in body.splitlines():
        remove = orjson.loads(line).get("remove") if b'"remove"' in line else None
        if remove:
            yield remove


def _of_frame(frame: pl.DataFrame) -> Iterator[Mapping[str, Any]]:
    if "remove" not in frame.columns:
        return
    removes = frame.select(pl.col("remove").struct.unnest()).filter(pl.col("path").is_not_null())
    wanted = [name for name in ("path", "deletionTimestamp", "deletionVector") if name in removes.columns]
    yield from removes.select(wanted).iter_rows(named=True)
