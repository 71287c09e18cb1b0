"""Files that a log takes back under another spelling of their path than it gave them.

The protocol compares decoded paths, and so does Spark. delta-rs compares paths as they are spelled: a file that was
added as ``a%2Bb.parquet`` and removed as ``a+b.parquet`` (its own deletes spell it so) stays in its list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson
import polars as pl

from qbeast_core.spec.file_path import FilePath

__all__ = ["FileKey", "Spellings", "key_of", "may_be_respelled"]

FileKey: TypeAlias = tuple[FilePath, str]
"""What tells files apart: the path, and the deletion vector (empty: none)."""

_ONE_SPELLING: Final = re.compile(r"[A-Za-z0-9_./-]*")
_VECTOR: Final = ("storageType", "pathOrInlineDv", "offset")


def may_be_respelled(paths: Iterable[str]) -> bool:
    """Tell whether any of these paths is one that writers spell differently.

    Examples
    --------
    >>> may_be_respelled(["k/part-0.parquet"]), may_be_respelled(["a%2Bb.parquet"])
    (False, True)
    """
    return any(_ONE_SPELLING.fullmatch(path) is None for path in paths)


def key_of(action: Mapping[str, Any]) -> FileKey:
    """Return what an add or a remove is about.

    Examples
    --------
    >>> key_of({"path": "a%2Bb"}) == key_of({"path": "a+b", "deletionVector": None})
    True
    """
    vector = action.get("deletionVector") or {}
    told = [str(vector[name]) for name in _VECTOR if vector.get(name) is not None]
    return FilePath.of_log(action["path"]), " ".join(told)


@dataclass(slots=True)
class Spellings:
    """How a log spells the files that are live: a replay by decoded paths.

    Attributes
    ----------
    newest : dict
        Per file its path as the newest add spells it; None: it was removed.
    unsettled : set
        Files that the checkpoint names as live and as removed, spelled differently: its order does not count, so
        only the commits before it tell.
    """

    newest: dict[FileKey, str | None] = field(default_factory=dict[FileKey, str | None])
    unsettled: set[FileKey] = field(default_factory=set[FileKey])

    @staticmethod
    def replay(checkpoint: Sequence[pl.DataFrame | bytes], commits: Iterable[bytes]) -> Spellings:
        r"""Read a log.

        Parameters
        ----------
        checkpoint : sequence of polars.DataFrame or bytes
            What the checkpoint consists of; frames need the columns ``add`` and ``remove``.
        commits : iterable of bytes
            The commits after it, oldest first.

        Examples
        --------
        >>> lines = [b'{"add":{"path":"a%2Bb"}}', b'{"add":{"path":"c"}}', b'{"remove":{"path":"a+b"}}']
        >>> Spellings.replay([], lines).taken_back(["a%2Bb", "c"])
        {'a%2Bb'}
        """
        found = Spellings()
        parts = [_of_lines(part) if isinstance(part, bytes) else _of_frame(part) for part in checkpoint]
        removes = {key_of(one): one["path"] for _, gone in parts for one in gone}
        for adds, _ in parts:
            for add in adds:
                key = key_of(add)
                found.newest[key] = add["path"]
                if removes.get(key, add["path"]) != add["path"]:
                    found.unsettled.add(key)
        for body in commits:
            found.follow(body)
        return found

    def follow(self, body: bytes) -> None:
        """Go on with the next commit."""
        adds, removes = _of_lines(body)
        told = {key_of(one): None for one in removes} | {key_of(one): str(one["path"]) for one in adds}
        self.newest |= told
        self.unsettled -= told.keys()

    def settle(self, body: bytes) -> None:
        """Look for what is unsettled in a commit before the checkpoint; the newest is to be shown first."""
        adds, removes = _of_lines(body)
        told = {key_of(one): None for one in removes} | {key_of(one): str(one["path"]) for one in adds}
        known = {key: told[key] for key in self.unsettled & told.keys()}
        self.newest |= known
        self.unsettled -= known.keys()

    def taken_back(self, listed: Iterable[str]) -> set[str]:
        """Return the paths, as they are spelled, that are not live any more."""
        live = {path for path in self.newest.values() if path is not None}
        told = {key[0] for key in self.newest}
        return {path for path in listed if path not in live and FilePath.of_log(path) in told}


def _of_lines(body: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    adds: list[dict[str, Any]] = []
    removes: list[dict[str, Any]] = []
    for line in body.splitlines():
        if b'"add"' in line or b'"remove"' in line:
            action = orjson.loads(line)
            adds += [action["add"]] if action.get("add") else []
            removes += [action["remove"]] if action.get("remove") else []
    return adds, removes


def _of_frame(frame: pl.DataFrame) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return list(_actions(frame, "add")), list(_actions(frame, "remove"))


def _actions(frame: pl.DataFrame, kind: str) -> Iterator[dict[str, Any]]:
    if kind not in frame.columns:
        return
    found = frame.select(pl.col(kind).struct.unnest()).filter(pl.col("path").is_not_null())
    yield from found.select([name for name in ("path", "deletionVector") if name in found.columns]).iter_rows(
        named=True
    )
