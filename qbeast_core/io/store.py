"""Files in local folders and object stores, behind one small interface. Local files survive a power cut."""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from qbeast_core.errors import StorageError, invalid_argument
from qbeast_core.io.address import locate_file, refuse_link_out
from qbeast_core.support.text import for_people

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
_EXPIRED: Final = (
    "the credentials have expired: pass new ones, or open the table again, and make frames and views of it again, "
    "if a catalog lends them"
)
_BUSY: Final = "the store is overloaded or has a failure: try again later"
_LATE: Final = "the store did not respond in time: check the network, or try again later"
_REASONS: Final = (
    (r"NoSuchBucket|ContainerNotFound|specified (?:bucket|container) does not exist", _NO_BUCKET),
    (r"PermanentRedirect|AuthorizationHeaderMalformed|incorrectly configured region", _OTHER_REGION),
    # The first two are the metadata service of a cloud machine.
    (r"api/token|169\.254\.169\.254|credentials?\b", _NO_CREDENTIALS),
    (r"URL scheme is not allowed", _PLAIN_HTTP),
    (r"dns error|Connection refused|tcp connect|builder error|Executor has crashed", _NO_STORE),
    (r"ExpiredToken|not valid in the specified time frame", _EXPIRED),
    (r"denied|Unauthorized|Forbidden|InvalidAccessKey|SignatureDoesNotMatch|AuthenticationFailed", _REFUSED),
    (r"InvalidToken|lacked the necessary privileges", _REFUSED),
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
        """The root in its canonical form; see `qbeast_core.io.address.resolve_location`."""
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
        """Return the location of a file for other libraries; see `qbeast_core.io.address.locate_file`."""
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
    first = end = -gap_bytes - 1
    for start, length in ranges:
        if start - end <= gap_bytes:
            merged[-1] = (first, start + length - first)
        else:
            merged.append((start, length))
            first = start
        end = start + length
    return merged


def split_blocks(
    merged: Sequence[Range], blocks: Sequence[memoryview], ranges: Sequence[Range]
) -> list[memoryview]:
    """Cut the blocks read for ``merge_ranges(ranges)`` into the ranges, without copying."""
    if len(merged) == len(ranges):  # none touches another
        return list(blocks)
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


_MAX_READ_BYTES: Final = 1 << 30  # systems refuse 2 GiB, or read less


class LocalStore:
    """A `Store` in a local folder. Writes create missing folders.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = LocalStore(folder)
    ...     store.put("a/b.bin", b"0123456789")
    ...     store.list("a"), [bytes(part) for part in store.get_ranges("a/b.bin", [(2, 3), (9, 1)])]
    (['a/b.bin'], [b'234', b'9'])
    """

    def __init__(self, root: str | os.PathLike[str], *, allow_absolute_paths: bool = False) -> None:
        self.uri = os.fspath(root)
        self.local_root = Path(self.uri)
        self.allow_absolute_paths = allow_absolute_paths

    def locate(self, path: str) -> str:
        """Return the path of a file for other libraries; raise if a symbolic link leads out of the table."""
        location = locate_file(self.uri, path, allow_absolute=self.allow_absolute_paths)
        if not self.allow_absolute_paths:
            refuse_link_out(self.uri, path)
        return location

    def get(self, path: str) -> bytes:
        """Read a whole file."""
        with _errors("read", path):
            return self._at(path).read_bytes()

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read one range."""
        return bytes(self.get_ranges(path, [(start, length)])[0])

    def get_ranges(self, path: str, ranges: Sequence[Range]) -> list[memoryview]:
        """Read several ranges; the buffers share memory where ranges touch."""
        merged = merge_ranges(ranges)
        with _errors("read", path), _opened(self._at(path), os.O_RDONLY) as file:
            _refuse_short(file, path, max(map(sum, merged), default=0))
            _request(file, merged)
            blocks = [_read(file, path, start, length) for start, length in merged]
        return split_blocks(merged, blocks, ranges)

    def put(self, path: str, data: bytes | memoryview) -> None:
        """Write a file, and replace an existing one."""
        target = self._entry(path)
        with _errors("write", path), _temporary_file(target, data) as file:
            file.replace(target)

    def put_if_absent(self, path: str, data: bytes | memoryview) -> None:
        """Write a file unless it exists.

        A hard link decides which writer wins, as in deltalake and obstore, so all three exclude each other.
        """
        target = self._entry(path)
        with _errors("write", path), _temporary_file(target, data) as file:
            os.link(file, target)
            file.unlink()

    def list(self, prefix: str) -> list[str]:
        """List the files below a folder."""
        with _errors("list", prefix):
            files = (p for p in (self.local_root / prefix).rglob("*") if p.is_file())
            return sorted(p.relative_to(self.local_root).as_posix() for p in files)

    def entries(self, prefix: str, *, after: str = "") -> Sequence[Entry]:
        """List the files below a folder, with their sizes and ages."""
        entries: list[Entry] = []
        for path in self.list(prefix):
            if path <= after:
                continue
            with suppress(FileNotFoundError), _errors("list", path):  # another process cleans up too
                about = (self.local_root / path).stat()
                entries.append(Entry(path, about.st_size, about.st_mtime_ns // 1_000_000))
        return entries

    def size(self, path: str) -> int:
        """Return a file's length in bytes."""
        with _errors("read", path):
            return self._at(path).stat().st_size

    def delete(self, path: str) -> None:
        """Remove a file if it exists."""
        with _errors("delete", path):
            self._entry(path).unlink(missing_ok=True)

    def _entry(self, path: str) -> Path:
        """Return the path to replace or remove: for a symbolic link, the link itself."""
        location = locate_file(self.uri, path, allow_absolute=self.allow_absolute_paths)
        if not self.allow_absolute_paths and "/" in path:
            refuse_link_out(self.uri, path.rpartition("/")[0])
        return Path(location)

    def _at(self, path: str) -> Path:
        return Path(self.locate(path))


def status_of(path: Path) -> os.stat_result | None:
    """Return the status of a file or folder, None if nothing is there; raise StorageError if it cannot be seen.

    `Path.exists` and its like return False from Python 3.14 on where permissions forbid to look.
    """
    # ValueError: a name with a null character.
    with _errors("read", str(path)), suppress(FileNotFoundError, NotADirectoryError, ValueError):
        return path.stat()
    return None


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; raise StorageError if it cannot be seen."""
    status = status_of(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_file(path: Path) -> bool:
    """Return whether a path is a file; raise StorageError if it cannot be seen."""
    status = status_of(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def entries_of(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a folder; raise StorageError if it cannot be listed."""
    with _errors("list", str(folder)), os.scandir(folder) as entries:
        yield from entries


@contextmanager
def _errors(action: str, path: str) -> Generator[None]:
    try:
        yield
    except (FileExistsError, StorageError):
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError) and action != "write":
            raise
        # The path that cannot be created, or is not a folder.
        where = f" ({error.filename})" if action == "write" and error.filename else ""
        message = (
            f"cannot {action} {path!r}: {error.strerror or error}{where}. Remove the cause and try again."
        )
        raise StorageError(message, path=path) from error


@contextmanager
def _opened(path: Path, flags: int) -> Generator[int]:
    # Windows changes the ends of lines without O_BINARY. Other systems have no such flag.
    file = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o666)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def _temporary_file(target: Path, data: bytes | memoryview) -> Generator[Path]:
    """Write a durable temporary file beside the target; sync the folder after the caller renamed it."""
    _make_folders(target.parent)
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        yield temporary
        _sync_folder(target.parent)
    except BaseException:  # also on an interrupt; raised again
        temporary.unlink(missing_ok=True)
        raise


def _make_folders(folder: Path) -> None:
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for created in reversed(missing):
        _sync_folder(created.parent)


def _sync_folder(folder: Path) -> None:
    with suppress(PermissionError), _opened(folder, os.O_RDONLY) as file:  # Windows opens no folder
        os.fsync(file)


def _request(file: int, ranges: Sequence[Range]) -> None:
    """Request all ranges from the disk at once. Without this, Linux waits for each, and reads up to 128 KiB ahead."""
    if sys.platform == "linux":
        with suppress(OSError):  # some kernels do not support it
            for start, length in ranges:
                os.posix_fadvise(file, start, length, os.POSIX_FADV_WILLNEED)


def _refuse_short(file: int, path: str, end: int) -> None:
    """Raise if a file ends before a byte, before memory is allocated: the log may name any number."""
    if end > os.fstat(file).st_size:
        raise _ended(path, end)


def _read(file: int, path: str, start: int, length: int) -> memoryview:
    if sys.platform == "win32":  # it has no `pread`; the descriptor is not shared
        os.lseek(file, start, os.SEEK_SET)
        block = os.read(file, min(length, _MAX_READ_BYTES))
    else:
        block = os.pread(file, min(length, _MAX_READ_BYTES), start)
    while len(block) < length:
        more = os.read(file, min(length - len(block), _MAX_READ_BYTES))
        if not more:
            raise _ended(path, start + length)
        block += more
    return memoryview(block)


def _ended(path: str, end: int) -> StorageError:
    message = f"{path!r} ends before byte {end}: it was cut or replaced. Restore it and try again."
    return StorageError(message, path=path)
