"""Where a table's bytes lie: one small interface over local folders and object stores."""

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
    """A file that a listing found: its path, its bytes, and when it was written (ms since 1970 UTC)."""

    path: str
    size: int
    modified_ms: int


class Store(Protocol):
    """Files below a table's root.

    Paths are relative to the root, separated by ``/``, decoded (no ``%20``). Every method raises
    `StorageError` naming the path when the store refuses, and `UnsupportedTableError` for a path that leads
    out of the root; a missing file is a `FileNotFoundError`.
    """

    @property
    def uri(self) -> str:
        """The root in its one form, see `qbeast_core.io.stores.location.resolve_location`."""
        ...

    @property
    def local_root(self) -> Path | None:
        """The root folder, or None for an object store."""
        ...

    @property
    def allow_absolute_paths(self) -> bool:
        """Whether files may be named by absolute paths."""
        ...

    def locate(self, path: str) -> str:
        """Return where a file lies, as other libraries take it; see `qbeast_core.io.stores.location.locate_file`."""
        ...

    def get(self, path: str) -> bytes:
        """Read a whole file."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read ``length`` bytes from byte ``start``; fewer available bytes are a `StorageError`."""
        ...

    def get_ranges(self, path: str, ranges: Sequence[Range]) -> list[memoryview]:
        """Read several ascending ranges, one buffer each: those that touch, or are so near that it pays, at once."""
        ...

    def put(self, path: str, data: bytes | memoryview) -> None:
        """Write a file, replacing one of that name; it is durable, and never seen half written."""
        ...

    def put_if_absent(self, path: str, data: bytes | memoryview) -> None:
        """Write a file unless there is one; exactly one of many writers wins."""
        ...

    def list(self, prefix: str) -> list[str]:
        """List the files below a folder and its folders, sorted; a missing folder has none."""
        ...

    def entries(self, prefix: str, *, after: str = "") -> Sequence[Entry]:
        """List like `list`, from behind a path on; say of each file how long and how old it is."""
        ...

    def size(self, path: str) -> int:
        """Return a file's length in bytes."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
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
        from qbeast_core.io.stores.local import LocalStore  # noqa: PLC0415 - it needs this module

        return LocalStore(whole, allow_absolute_paths=allow_absolute_paths)
    from qbeast_core.io.stores.remote import RemoteStore  # noqa: PLC0415 - obstore is loaded for object stores alone

    return RemoteStore(whole, storage_options or {}, allow_absolute_paths=allow_absolute_paths)


def checked_options(storage_options: Mapping[str, str] | None) -> dict[str, str]:
    """Return options of a store, or refuse what maps no texts to texts; values are not shown: they may be secret.

    >>> checked_options({"aws_region": "eu-west-1"}), checked_options(None)
    ({'aws_region': 'eu-west-1'}, {})
    """
    given = cast("object", storage_options)  # callers without a type checker pass anything
    if given is not None and not isinstance(given, Mapping):
        invalid_argument(
            "storage_options", "must map texts to texts", "nothing was read or written", value=type(given)
        )
    options = dict(storage_options or {})
    wrong = [key for key, value in options.items() if not isinstance(cast("object", value), str)]
    if wrong:
        what = f"must map texts to texts, and {wrong[0]!r} maps to"
        invalid_argument(
            "storage_options", what, "nothing was read or written", value=type(options[wrong[0]])
        )
    return options


class _Place(Protocol):
    @property
    def local_root(self) -> Path | None: ...


def map_files(store: _Place, function: Callable[[_In], _Out], items: Sequence[_In]) -> list[_Out]:
    """Return what a function that reads gives for each item: several at once where a request takes its time."""
    if store.local_root is not None or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(_REMOTE_READS) as pool:
        return list(pool.map(function, items))


def merge_ranges(ranges: Sequence[Range], *, gap_bytes: int = 0) -> list[Range]:
    """Join each range with the one before it where they touch, or lie near each other.

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
    """Cut the blocks read for ``merge_ranges(ranges)``, with whatever gap, into the ranges; nothing is copied."""
    parts: list[memoryview] = []
    pairs = zip(merged, blocks, strict=True)
    (first, size), block = (0, -1), memoryview(b"")
    for start, length in ranges:
        if start + length > first + size:
            (first, size), block = next(pairs)
        parts.append(block[start - first : start - first + length])
    return parts
