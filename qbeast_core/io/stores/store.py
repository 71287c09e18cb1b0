"""`Store`: one small interface to files in local folders and object stores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from qbeast_core.errors import invalid_argument
from qbeast_core.support.plain_text import for_people

_REMOTE_READS: Final = 64  # an object store answers slowly, but many at once
_NO_BUCKET: Final = (
    "the bucket or container does not exist: check the address and the endpoint, or create the bucket"
)
_OTHER_REGION: Final = (
    "the bucket is in another region: set it in `storage_options` or the environment (AWS_REGION)"
)
_NO_CREDENTIALS: Final = (
    "credentials are missing or not usable: set them in `storage_options` or the environment"
)
_PLAIN_HTTP: Final = (
    "the endpoint is http, which has to be allowed: AWS_ALLOW_HTTP='true' in `storage_options`"
)
_NO_STORE: Final = (
    "the store cannot be reached: check the endpoint in `storage_options` or the environment (AWS_ENDPOINT_URL, "
    "a whole address like https://host:port), and the network"
)
_REFUSED: Final = "the store refuses these credentials: check them and their permissions"
_BUSY: Final = "the store is overloaded or has a failure: try again later"
_LATE: Final = "the store did not respond in time: check the network, or try again later"
_REASONS: Final = (
    (r"NoSuchBucket|ContainerNotFound|specified (?:bucket|container) does not exist", _NO_BUCKET),
    (r"PermanentRedirect|AuthorizationHeaderMalformed|incorrectly configured region", _OTHER_REGION),
    # The first two are the metadata service of a cloud machine.
    (r"api/token|169\.254\.169\.254|credentials?\b", _NO_CREDENTIALS),
    (r"URL scheme is not allowed", _PLAIN_HTTP),
    (r"dns error|Connection refused|tcp connect|builder error|Executor has crashed", _NO_STORE),
    (r"denied|Unauthorized|Forbidden|InvalidAccessKey|SignatureDoesNotMatch|AuthenticationFailed", _REFUSED),
    (r"InvalidToken|ExpiredToken|lacked the necessary privileges", _REFUSED),
    (r"SlowDown|TooManyRequests|status code\W+(?:429|50[0234])\b", _BUSY),
    (r"timed out|RequestTimeout", _LATE),
)
# Paths of a table, in which any word may stand.
_PATHS: Final = re.compile(r"(?<=for path )\S+|(?<=://)([^/\s]+)/(?!\S*api/token)\S*")
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
        """The root in its canonical form; see `qbeast_core.io.stores.resolve.resolve_location`."""
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
        """Return the location of a file for other libraries; see `qbeast_core.io.stores.resolve.locate_file`."""
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


def checked_options(storage_options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options of a store; raise if they do not map texts to texts. Messages never show values.

    >>> checked_options({"aws_region": "eu-west-1"}), checked_options(None)
    ({'aws_region': 'eu-west-1'}, {})
    """
    value = cast("object", storage_options)  # callers without a type checker may pass anything
    rule = "must map texts to texts"
    if value is not None and not isinstance(value, Mapping):
        invalid_argument("storage_options", rule, value=type(value))
    options = dict(storage_options or {})
    wrong = [key for key, value in options.items() if not isinstance(cast("object", value), str)]
    if wrong:
        what = f"{rule}, and {wrong[0]!r} maps to"
        invalid_argument("storage_options", what, value=type(options[wrong[0]]))
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


def reason_of_failure(text: str) -> str | None:
    """Return why a store failed, and what to do. None: the text is not known.

    >>> reason_of_failure("GET http://host/denied - 404 Not Found: <Error><Code>NoSuchBucket</Code>")[:40]
    'the bucket or container does not exist: '
    """
    words = _PATHS.sub(r"\1", for_people(text))
    return next((why for pattern, why in _REASONS if re.search(pattern, words, re.IGNORECASE)), None)
