"""`Store`: one small interface to files in local folders and object stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from qbeast_core.errors import invalid_argument
from qbeast_core.io.stores.location import is_address, resolve_location

_REMOTE_READS: Final = 64  # an object store answers slowly, but many at once
_In = TypeVar("_In")
_Out = TypeVar("_Out")

# Start and length, in bytes.
Range = tuple[int, int]


class Entry(NamedTuple):
    """A file of a listing: its path, size in bytes and modification time (ms since 1970 UTC)."""

    path: str
    size: int
    modified_ms: int


class Store(Protocol):
    """Files below a table's root.

    Paths are relative to the root, separated by ``/``, decoded (no ``%20``). Every method raises `StorageError`
    if the store fails, `UnsupportedTableError` for a path out of the root, and `FileNotFoundError` for a
    missing file.
    """

    @property
    def uri(self) -> str:
        """The root in its canonical form; see `qbeast_core.io.stores.location.resolve_location`."""
        ...

    @property
    def local_root(self) -> Path | None:
        """The root folder, or None for an object store."""
        ...

    @property
    def allow_absolute_paths(self) -> bool:
        """Whether absolute paths of files are allowed."""
        ...

    def locate(self, path: str) -> str:
        """Return the location of a file for other libraries; see `qbeast_core.io.stores.location.locate_file`."""
        ...

    def get(self, path: str) -> bytes:
        """Read a whole file."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read ``length`` bytes from byte ``start``; raise `StorageError` if there are fewer."""
        ...

    def get_ranges(self, path: str, ranges: Sequence[Range]) -> list[memoryview]:
        """Read several ascending ranges, one buffer each; adjacent and near ranges are one read."""
        ...

    def put(self, path: str, data: bytes | memoryview) -> None:
        """Write a file, and replace an existing one; the file is durable, and never visible half written."""
        ...

    def put_if_absent(self, path: str, data: bytes | memoryview) -> None:
        """Write a file unless it exists; exactly one of many writers wins."""
        ...

    def list(self, prefix: str) -> list[str]:
        """List all files below a folder, sorted; none for a missing folder."""
        ...

    def entries(self, prefix: str, *, after: str = "") -> Sequence[Entry]:
        """List the files of `list` after a path, with their sizes and modification times."""
        ...

    def size(self, path: str) -> int:
        """Return a file's length in bytes."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file if it exists."""
        ...


def open_store(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    *,
    allow_absolute_paths: bool = False,
) -> Store:
    """Open the store below a table's root.

    >>> open_store("/tables/orders").uri
    '/tables/orders'
    """
    whole = resolve_location(uri)
    if not is_address(whole):
        from qbeast_core.io.stores.local import LocalStore  # noqa: PLC0415 - imports this module

        return LocalStore(whole, allow_absolute_paths=allow_absolute_paths)
    from qbeast_core.io.stores.remote import RemoteStore  # noqa: PLC0415 - loads obstore, only for object stores

    return RemoteStore(whole, storage_options or {}, allow_absolute_paths=allow_absolute_paths)


def checked_options(storage_options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options of a store; raise if they do not map texts to texts. Messages never show values.

    >>> checked_options({"aws_region": "eu-west-1"}), checked_options(None)
    ({'aws_region': 'eu-west-1'}, {})
    """
    value = cast("object", storage_options)  # callers without a type checker may pass anything
    rule, outcome = "must map texts to texts", "nothing was read or written"
    if value is not None and not isinstance(value, Mapping):
        invalid_argument("storage_options", rule, outcome, value=type(value))
    options = dict(storage_options or {})
    wrong = [key for key, value in options.items() if not isinstance(cast("object", value), str)]
    if wrong:
        what = f"{rule}, and {wrong[0]!r} maps to"
        invalid_argument("storage_options", what, outcome, value=type(options[wrong[0]]))
    return options


class _HasRoot(Protocol):
    @property
    def local_root(self) -> Path | None: ...


def map_files(store: _HasRoot, function: Callable[[_In], _Out], items: Sequence[_In]) -> list[_Out]:
    """Return the results of a reading function for all items; in parallel for object stores."""
    if store.local_root is not None or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(_REMOTE_READS) as pool:
        return list(pool.map(function, items))


def merge_ranges(ranges: Sequence[Range], *, gap_bytes: int = 0) -> list[Range]:
    """Join ascending ranges that touch, or whose gap is at most `gap_bytes`.

    >>> merge_ranges([(4, 6), (10, 5), (20, 1)])
    [(4, 11), (20, 1)]
    >>> merge_ranges([(4, 6), (10, 5), (20, 1)], gap_bytes=5)
    [(4, 17)]
    """
    merged: list[Range] = []
    for start, length in ranges:
        if merged and start - sum(merged[-1]) <= gap_bytes:
            first = merged[-1][0]
            merged[-1] = (first, start + length - first)
        else:
            merged.append((start, length))
    return merged


def split_blocks(
    merged: Sequence[Range], blocks: Sequence[memoryview], ranges: Sequence[Range]
) -> list[memoryview]:
    """Cut the blocks read for ``merge_ranges(ranges)`` into the ranges, without copying."""
    parts: list[memoryview] = []
    pairs = zip(merged, blocks, strict=True)
    (first, size), block = (0, -1), memoryview(b"")
    for start, length in ranges:
        if start + length > first + size:
            (first, size), block = next(pairs)
        parts.append(block[start - first : start - first + length])
    return parts
