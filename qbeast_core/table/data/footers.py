"""Footers of data files, read by their last bytes alone."""

from __future__ import annotations

import io
from typing import Any, Final

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.io.parquet.footer import MAGIC
from qbeast_core.io.stores.store import Store

_END: Final = 8
_GUESS: Final = 1 << 16


def stored_size(store: Store, path: str) -> int | None:
    """Return the bytes of a data file; None if it does not exist or must not be opened."""
    try:
        return store.size(path)
    except (FileNotFoundError, UnsupportedTableError):
        return None


def read_footer(store: Store, path: str, size: int) -> Any:
    """Return the footer of a data file as pyarrow knows it, without opening the rest."""
    from pyarrow import ArrowInvalid  # noqa: PLC0415 - slow to load, and few reads need it
    from pyarrow import parquet as pq  # noqa: PLC0415 - the same

    footer = read_footer_bytes(store, path, size)
    try:
        return pq.read_metadata(io.BytesIO(footer))
    except (ArrowInvalid, OSError) as error:
        message = f"its footer cannot be understood: {error}"
        raise Unreadable(message) from error


def read_footer_bytes(store: Store, path: str, size: int) -> bytes:
    """Return the end of a file that readers of metadata need, after the bytes that every Parquet file begins with."""
    tail = store.get_range(path, max(0, size - _GUESS), min(size, _GUESS))
    if len(tail) < _END or tail[-4:] != MAGIC:
        message = f"it does not end as a Parquet file does; it has {size:,} bytes"
        raise Unreadable(message)
    length = int.from_bytes(tail[-8:-4], "little") + _END
    if length > size:
        message = f"it ends with a footer of {length:,} bytes, and has {size:,} in all"
        raise Unreadable(message)
    if length > len(tail):
        tail = store.get_range(path, size - length, length)
    return MAGIC + tail[-length:]


class Unreadable(Exception):  # noqa: N818 - it says what the file is; the check goes on
    """A data file is not a Parquet file."""
