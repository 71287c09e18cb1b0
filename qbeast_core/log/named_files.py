"""Names of the files that a log still speaks of: data files and deletion vectors that must not be deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.log.actions import AddFile
from qbeast_core.spec.file_path import FilePath

__all__ = ["names_of_files", "names_removed_since", "paths_of_adds", "vector_path"]

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_CHARACTERS: Final = 20


def paths_of_adds(adds: Iterable[AddFile]) -> set[FilePath]:
    """Return the paths of data files and of their deletion vectors.

    Raises
    ------
    InvalidMetadataError
        A deletion vector's file cannot be told.

    Examples
    --------
    >>> paths_of_adds([AddFile(path="k/a%20b.parquet", size=1, modification_time=1)])
    {FilePath(text='k/a b.parquet')}
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
    return {found.name for path, vector in pairs for found in _paths(path, vector)}


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
    return {path.name for one in kept for path in _paths(one["path"], one.get("deletionVector"))}


def vector_path(vector: Mapping[str, Any]) -> FilePath | None:
    """Return the file that holds a deletion vector; None: the log itself does.

    Parameters
    ----------
    vector : Mapping
        The descriptor.

    Raises
    ------
    InvalidMetadataError
        The file cannot be told.

    Examples
    --------
    >>> vector_path({"storageType": "p", "pathOrInlineDv": "s3://b/k/1%20.bin"})
    FilePath(text='s3://b/k/1 .bin')
    """
    kind, text = vector.get("storageType"), str(vector.get("pathOrInlineDv"))
    if kind == "p":
        return FilePath.of_log(text)
    if kind != "u":
        return None
    folder, spelled = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    return FilePath(f"{folder}{'/' if folder else ''}deletion_vector_{_uuid(spelled)}.bin")


def _paths(path: str, vector: Mapping[str, Any] | None) -> Iterator[FilePath]:
    yield FilePath.of_log(path)
    held = vector_path(vector or {})
    if held is not None:
        yield held


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
