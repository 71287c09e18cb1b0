"""A table in an object store, through obstore."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from qbeast_core.errors import InvalidInputError, StorageError, invalid_argument, shown_cause
from qbeast_core.io.address import LOCKING_SETTINGS, SCHEMES, is_address, locate_file, other_locking
from qbeast_core.io.catalog.lent import current_options
from qbeast_core.io.store import Entry, Range, merge_ranges, reason_of_failure, split_blocks

_CLIENT: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
_IGNORED: Final = {*LOCKING_SETTINGS, "object_store_concurrency_limit"}
# Ranges nearer than this are read together: a request takes longer than these bytes. Half of it means 1.4 times the
# requests of a filter, twice of it 1.4 times the bytes.
_GAP_BYTES: Final = 1 << 17
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


class RemoteStore:
    """A `Store` in an object store.

    Never use it in a forked process: obstore hangs there. Spawn instead.
    """

    def __init__(
        self, uri: str, storage_options: Mapping[str, str], *, allow_absolute_paths: bool = False
    ) -> None:
        self.uri = uri
        self.local_root = None
        self.allow_absolute_paths = allow_absolute_paths
        # obstore and deltalake know more, such as https://
        if uri.partition("://")[0].lower() not in SCHEMES:
            kinds = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            invalid_argument("path", f"must be a folder or begin with one of {kinds}", value=uri)
        self._other_locking = other_locking(self.uri, storage_options)
        self._options = storage_options
        self._opened: dict[str, tuple[Mapping[str, str], Any]] = {}
        self._open(uri)

    def _open(self, uri: str) -> Any:
        """Return a store at an address, opened again when a catalog has lent other credentials."""
        options = current_options(self._options)
        known = self._opened.get(uri)
        if known is None or known[0] is not options:
            open_any: Any = from_url  # typed per kind of store
            try:
                known = options, open_any(uri, **translate_options(options))
            except (BaseError, TypeError, ValueError) as error:
                cause = str(error).splitlines()[0].rstrip(".")
                message = f"cannot open {uri!r}: {cause}. Check the address and `storage_options`."
                raise InvalidInputError(message, argument="storage_options") from shown_cause(error)
            self._opened[uri] = known
        return known[1]

    def locate(self, path: str) -> str:
        """Return the address of a file for other libraries."""
        return locate_file(self.uri, path, allow_absolute=self.allow_absolute_paths)

    def get(self, path: str) -> bytes:
        """Read a whole file."""
        store, key = self._at(path)
        with _errors("read", path):
            return bytes(obstore.get(store, key).bytes())

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read one range."""
        return bytes(self.get_ranges(path, [(start, length)])[0])

    def get_ranges(self, path: str, ranges: Sequence[Range]) -> list[memoryview]:
        """Read several ranges in parallel; ranges near each other are one request."""
        merged = merge_ranges(ranges, gap_bytes=_GAP_BYTES)
        requests = [(start, length) for start, length in merged if length]  # empty ranges need no request
        starts, lengths = [start for start, _ in requests], [length for _, length in requests]
        store, key = self._at(path)
        with _errors("read", path):  # coalesce=0: the default gap is a megabyte
            buffers = iter(obstore.get_ranges(store, key, starts=starts, lengths=lengths, coalesce=0))
        blocks = [memoryview(next(buffers) if length else b"") for _, length in merged]
        if [len(block) for block in blocks] != [length for _, length in merged]:
            message = f"{path!r} is too short: it was cut or replaced. Restore it and try again."
            raise StorageError(message, path=path)
        return split_blocks(merged, blocks, ranges)

    def put(self, path: str, data: bytes | memoryview) -> None:
        """Write a file, and replace an existing one."""
        store, key = self._at(path)
        with _errors("write", path):
            obstore.put(store, key, data)

    def put_if_absent(self, path: str, data: bytes | memoryview) -> None:
        """Write a file unless it exists, by a conditional put.

        An error does not mean that nothing was stored, and a `FileExistsError` may be caused by our own request
        after a retry: read the path to find out.
        """
        if self._other_locking:
            message = (
                f"cannot write {path!r}: {self._other_locking} says that other writers of this table do not "
                "use conditional puts, so commits could be lost. Remove the setting "
                "once all of them do."
            )
            raise StorageError(message, path=path)
        store, key = self._at(path)
        try:
            with _errors("write", path):
                obstore.put(store, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            raise FileExistsError(path) from error

    def list(self, prefix: str) -> list[str]:
        """List the files below a folder."""
        return [entry.path for entry in self.entries(prefix)]

    def entries(self, prefix: str, *, after: str = "") -> Sequence[Entry]:
        """List the files below a folder, with their sizes and ages."""
        with _errors("list", prefix):
            pages = obstore.list(self._open(self.uri), prefix or None, offset=after or None)
            entries = [entry for page in pages for entry in page]
        return sorted(
            Entry(entry["path"], entry["size"], int(entry["last_modified"].timestamp() * 1000))
            for entry in entries
        )

    def size(self, path: str) -> int:
        """Return a file's length in bytes."""
        store, key = self._at(path)
        with _errors("read", path):
            return int(obstore.head(store, key)["size"])

    def delete(self, path: str) -> None:
        """Remove a file if it exists."""
        store, key = self._at(path)
        with _errors("delete", path), suppress(FileNotFoundError):
            obstore.delete(store, key)

    def _at(self, path: str) -> tuple[Any, str]:
        """Return the store of a file, and its key there."""
        place = self.locate(path)
        if is_address(path):  # elsewhere in the same bucket: the option allows it
            *bucket, key = place.split("/", 3)
            return self._open("/".join(bucket)), key
        return self._open(self.uri), path


def translate_options(storage_options: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Convert deltalake's storage options to obstore's config, client_options and retry_config.

    >>> translate_options({"AWS_REGION": "eu-west-1", "aws_allow_http": "true", "max_retries": "3"})
    {'config': {'aws_region': 'eu-west-1'}, 'client_options': {'allow_http': 'true'},
     'retry_config': {'max_retries': 3}}
    """
    config: dict[str, Any] = {}
    client: dict[str, Any] = {}
    retry: dict[str, Any] = {}
    for name, value in storage_options.items():
        key = name.lower()
        bare = re.sub(r"^(aws|google|azure)_", "", key)
        if bare in _CLIENT:
            client[bare] = value
        elif key == "max_retries":
            retry[key] = int(_matched(name, value, r"\d+", "a whole number")[0])
        elif key == "retry_timeout":
            duration = _matched(name, value, r"(\d+) ?(ms|s|m|h)", "a duration like '30s'")
            retry[key] = timedelta(seconds=int(duration[1]) * _SECONDS[duration[2]])
        elif key not in _IGNORED:
            config[key] = value
    options = {"config": config, "client_options": client, "retry_config": retry}
    return {name: chosen for name, chosen in options.items() if chosen}


def _matched(name: str, value: str, pattern: str, what: str) -> re.Match[str]:
    match = re.fullmatch(pattern, str(value))
    if match is None:
        message = f"storage option {name!r} must be {what}, not {value!r}"
        raise InvalidInputError(message, argument="storage_options")
    return match


@contextmanager
def _errors(action: str, path: str) -> Generator[None]:
    try:
        yield
    except (FileNotFoundError, AlreadyExistsError):
        raise
    except (BaseError, OSError) as error:
        kept = " Whether it happened is unknown." if action == "delete" else ""
        reason = reason_of_failure(str(error))
        if reason is None:
            cause = str(error).splitlines()[0].rstrip(".")
            message = f"cannot {action} {path!r}: {cause}.{kept} Check the store and try again."
            raise StorageError(message, path=path) from shown_cause(error)
        message = f"cannot {action} {path!r}: {reason}.{kept}"
        argument = "storage_options" if "`" in reason else None
        raise StorageError(message, path=path, argument=argument) from shown_cause(error)
