"""Reads parts of files; whatever is wrong with their bytes is told with the file and the place."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from qbeast_core.carbondata.damage import Damaged, Unreadable, damaged
from qbeast_core.errors import DamagedFileError, LostValuesWarning, StorageError, UnsupportedTableError
from qbeast_core.io.store import Range, Store


@contextmanager
def inside(root: str, path: str, place: str = "") -> Generator[None]:
    """Turn what pure code says of bytes into an error that names their file."""
    try:
        yield
    except Damaged as error:
        where = ", ".join([*([place] if place else []), *reversed(error.places)])
        at = f" ({where})" if where else ""
        if isinstance(error, Unreadable):
            cure = "Convert it with the release of CarbonData that wrote it, or leave its segment out."
            message = f"{path!r} of {root!r}{at} cannot be read: {error.reason}. {cure}"
            raise UnsupportedTableError(message, path=path, feature=error.reason) from error
        cure = "Nothing of it was used. Restore the file from a copy, or leave its segment out."
        message = f"{path!r} of {root!r} is damaged{at}: {error.reason}. {cure}"
        raise DamagedFileError(message, path=path, place=where) from error


@contextmanager
def there(root: str, path: str) -> Generator[None]:
    """Turn a missing file into an error that says so of the table."""
    try:
        yield
    except FileNotFoundError as error:
        cure = "If it was cleaned up meanwhile open the table again, else restore the file or leave its segment out."
        message = f"{root!r} names {path!r}, and it is not there. None of its rows were used. {cure}"
        raise StorageError(message, path=path) from error


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store, and how long it is."""

    store: Store
    path: str
    # Its length, or that of the part which counts.
    size_bytes: int

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Read ascending ranges; `Damaged` if one does not lie in the file."""
        for start, length in ranges:
            if start < 0 or length < 0 or start + length > self.size_bytes:
                damaged(f"bytes {start} to {start + length} lie outside of its {self.size_bytes} bytes")
        with there(self.store.uri, self.path):
            return self.store.get_ranges(self.path, ranges)

    def inside(self, place: str = "") -> AbstractContextManager[None]:
        """Turn what pure code says of its bytes into an error that names it; see `inside`."""
        return inside(self.store.uri, self.path, place)

    def read_one(self, start: int, length: int) -> bytes:
        """Read one range; as `read`."""
        return bytes(self.read([(start, length)])[0])


def warn_of_lost_values(file: StoredFile, place: str, reason: str) -> None:
    """Say by `LostValuesWarning` that a file does not hold what it was given."""
    message = (
        f"{file.path!r} of {file.store.uri!r} ({place}) has lost values: {reason}. What is left of them was read; "
        "compare with the source of the load."
    )
    warnings.warn(message, LostValuesWarning, stacklevel=2)
