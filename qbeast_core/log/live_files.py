"""Live files as whole add actions: what a commit repeats or removes, with nothing of them lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, TypeAlias

import orjson
import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.file_path import FilePath

__all__ = ["FileChange", "FileChangePlanner", "LiveFiles", "file_key", "live_files", "retag"]

_Key: TypeAlias = tuple[str, ...]
# What a checkpoint derives from other fields; an add of a commit has no such keys.
_DERIVED: Final = ("stats_parsed", "partitionValues_parsed")


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The files of one version.

    Attributes
    ----------
    listed : tuple of AddFile
        Every live file, as its newest add says it.
    unlisted : tuple of AddFile
        Files that their newest commit both removes and adds. Delta forbids such commits; Spark takes these
        files for live, `deltalake` and this library do not (format 11).
    """

    listed: tuple[AddFile, ...]
    unlisted: tuple[AddFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """What happens to the files of a version.

    Attributes
    ----------
    adds : tuple of AddFile
        Complete: tags spelled, `data_change` decided.
    removed : tuple of AddFile
        Adds that are taken back.
    data_change : bool
        Whether taking them back changes what the table holds.
    """

    adds: tuple[AddFile, ...] = ()
    removed: tuple[AddFile, ...] = ()
    data_change: bool = False


FileChangePlanner: TypeAlias = Callable[[LiveFiles, BlocksDialect], FileChange]
"""What to do with the files that live when a commit lands, and how this table spells blocks."""


def retag(live: LiveFiles, edit: Callable[[AddFile, bool], AddFile | None]) -> FileChange:
    """Return the change that gives files other tags and leaves everything else of them alone.

    Parameters
    ----------
    live : LiveFiles
        The newest files.
    edit : callable
        Gets an add and whether it is listed. The same add back leaves the file alone, another one is added
        in its place, None removes the file; rows do not change in any case.

    Examples
    --------
    >>> file = AddFile(path="a", size=1, modification_time=1, tags={"x": "1"})
    >>> change = retag(LiveFiles((file,)), lambda add, _: add.model_copy(update={"tags": None}))
    >>> [(add.path, add.tags, add.data_change) for add in change.adds], change.removed
    ([('a', None, False)], ())
    """
    edited = [(add, edit(add, True)) for add in live.listed]  # noqa: FBT003 -- a callback has no keywords
    edited += [(add, edit(add, False)) for add in live.unlisted]  # noqa: FBT003 -- the same
    adds = (new.model_copy(update={"data_change": False}) for old, new in edited if new not in (None, old))
    return FileChange(
        adds=tuple(adds),
        removed=tuple(old for old, new in edited if new is None),
    )


def file_key(add: AddFile) -> tuple[str, ...]:
    """Return what Delta tells files apart by: the decoded path and the deletion vector.

    Examples
    --------
    >>> file_key(AddFile(path="a%20b", size=1, modification_time=1))
    ('a b', 'None', 'None', 'None')
    """
    return _key({"path": add.path, "deletionVector": add.deletion_vector})


def live_files(
    listed: Iterable[str], checkpoint: Sequence[pl.DataFrame | bytes], commits: Iterable[bytes]
) -> LiveFiles:
    r"""Return the whole adds behind the paths that are live.

    Parameters
    ----------
    listed : iterable of str
        Paths of the live files, as the log spells them.
    checkpoint : sequence of polars.DataFrame or bytes
        What the checkpoint that the log is read from consists of; frames need the column ``add`` to count.
    commits : iterable of bytes
        The commits after it, oldest first.

    Raises
    ------
    ValueError
        A line is no JSON, or an add lacks what every add has.

    Examples
    --------
    >>> add = '{"add":{"path":"%s","size":1,"modificationTime":1,"partitionValues":{},"dataChange":true}}\n'
    >>> twice = '{"remove":{"path":"b","dataChange":false}}\n' + add % "b"
    >>> found = live_files(["a"], [], [(add % "a" + add % "b").encode(), twice.encode()])
    >>> [one.path for one in found.listed], [one.path for one in found.unlisted]
    (['a'], ['b'])
    """
    newest: dict[str, dict[str, Any]] = {}
    for part in checkpoint:
        adds = _of_lines(part)[0] if isinstance(part, bytes) else _of_frame(part)
        newest.update((add["path"], add) for add in adds)
    disputed: dict[FilePath, str] = {}
    for body in commits:
        adds, removes = _of_lines(body)
        gone = {_key(remove) for remove in removes}
        for path in (FilePath.of_log(one["path"]) for one in (*adds, *removes)):
            disputed.pop(path, None)  # a later commit settles it
        disputed |= {FilePath.of_log(add["path"]): add["path"] for add in adds if _key(add) in gone}
        newest.update((add["path"], add) for add in adds)
    paths = list(listed)
    hidden = set(disputed.values()) - set(paths)
    return LiveFiles(
        listed=tuple(AddFile.model_validate(newest[path]) for path in paths if path in newest),
        unlisted=tuple(AddFile.model_validate(newest[path]) for path in sorted(hidden)),
    )


def _of_lines(body: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    adds: list[dict[str, Any]] = []
    removes: list[dict[str, Any]] = []
    for line in body.splitlines():
        if b'"add"' not in line and b'"remove"' not in line:
            continue  # most of the time goes into JSON
        action = orjson.loads(line)
        adds += [action["add"]] if action.get("add") else []
        removes += [action["remove"]] if action.get("remove") else []
    return adds, removes


def _of_frame(frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    if "add" not in frame.columns:
        return
    adds = frame.select(pl.col("add").struct.unnest()).filter(pl.col("path").is_not_null())
    for row in adds.iter_rows(named=True):
        add = {key: value for key, value in row.items() if value is not None and key not in _DERIVED}
        vector = _without_nulls(add.pop("deletionVector", {}))
        if vector.get("storageType") is not None:
            add["deletionVector"] = vector
        if row.get("stats") is None and row.get("stats_parsed") is not None:
            add["stats"] = orjson.dumps(_plain(row["stats_parsed"])).decode()
        yield add


def _key(action: Mapping[str, Any]) -> _Key:
    """Return what a file is told apart by: its path and its deletion vector."""
    vector = action.get("deletionVector") or {}
    parts = (vector.get(name) for name in ("storageType", "pathOrInlineDv", "offset"))
    return FilePath.of_log(action["path"]).text, *map(str, parts)


def _plain(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Return statistics as JSON has them; a bound that cannot be spelled exactly is left out."""
    found: dict[str, Any] = {}
    for key, value in parsed.items():
        match value:
            case dict():
                found[key] = _plain(value)
            case datetime():
                pass
            case date():
                found[key] = value.isoformat()
            case float() if not math.isfinite(value):
                pass
            case bool() | int() | float() | str():
                found[key] = value
            case _:
                pass
    return found


def _without_nulls(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if value is not None}
