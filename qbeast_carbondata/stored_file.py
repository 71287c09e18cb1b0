"""Reads files of a store; errors of their bytes name the file and the place in it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from qbeast_carbondata.damage import Damaged, UnsupportedForm, damaged, unless_encrypted
from qbeast_core.errors import DamagedFileError, LostValuesWarning, StorageError, UnsupportedTableError
from qbeast_core.io.store import Range, Store

_T = TypeVar("_T")


@contextmanager
def inside(root: str, path: str, place: str = "") -> Generator[None]:
    """Turn `Damaged` into a public error that names the file."""
    try:
        yield
    except Damaged as error:
        where = ", ".join([*([place] if place else []), *reversed(error.places)])
        at = f" ({where})" if where else ""
        if isinstance(error, UnsupportedForm):
            cure = "Convert it with the release of CarbonData that wrote it, or leave its segment out."
            message = f"{path!r} of {root!r}{at} cannot be read: {error.reason}. {cure}"
            raise UnsupportedTableError(message, path=path, feature=error.reason) from error
        cure = "No part of it was used. Restore the file from a copy, or leave its segment out."
        message = f"{path!r} of {root!r} is damaged{at}: {error.reason}. {cure}"
        raise DamagedFileError(message, path=path, place=where) from error


@contextmanager
def must_exist(root: str, path: str) -> Generator[None]:
    """Turn `FileNotFoundError` into a `StorageError` that names the table."""
    try:
        yield
    except FileNotFoundError as error:
        cure = (
            "If it was just cleaned up, open the table again; else restore the file or leave its segment out."
        )
        message = f"{root!r} refers to {path!r}, which does not exist. None of its rows were used. {cure}"
        raise StorageError(message, path=path) from error


def read_file(store: Store, path: str, read: Callable[[bytes], _T]) -> _T:
    """Read a whole file with a function that raises `Damaged`; `FileNotFoundError` if it does not exist."""
    data = store.get(path)
    with inside(store.uri, path), unless_encrypted(data):
        return read(data)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store and its length."""

    store: Store
    path: str
    # Of a file that is still written: the length of the committed part.
    size_bytes: int

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Read ascending ranges; `Damaged` if one does not lie in the file."""
        for start, length in ranges:
            if start < 0 or length < 0 or start + length > self.size_bytes:
                damaged(f"bytes {start} to {start + length} lie outside of its {self.size_bytes} bytes")
        with must_exist(self.store.uri, self.path):
            return self.store.get_ranges(self.path, ranges)

    def read_one(self, start: int, length: int) -> bytes:
        """Read one range; see `read`."""
        return bytes(self.read([(start, length)])[0])

    def inside(self, place: str = "") -> AbstractContextManager[None]:
        """Turn `Damaged` into a public error that names the file."""
        return inside(self.store.uri, self.path, place)


def warn_of_lost_values(file: StoredFile, place: str, reason: str) -> None:
    """Issue a `LostValuesWarning`: the writer lost values."""
    message = (
        f"{file.path!r} of {file.store.uri!r} ({place}) has lost values: {reason}. The rest was read; "
        "compare with the source of the load."
    )
    warnings.warn(message, LostValuesWarning, stacklevel=2)
