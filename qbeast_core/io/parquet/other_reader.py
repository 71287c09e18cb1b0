"""Read files with pyarrow that Polars refuses: Spark annotates variants, which Polars does not support."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl
from polars.io.plugins import register_io_source

from qbeast_core.errors import StorageError
from qbeast_core.io.stores.store import Store

_BATCH_ROWS: Final = 8_192


def arrow_schema(footer: bytes) -> pl.Schema | None:
    """Return the types of a file that pyarrow reads; None if it does not.

    >>> file = io.BytesIO()
    >>> pl.DataFrame({"x": [1]}).write_parquet(file)
    >>> arrow_schema(file.getvalue())
    Schema([('x', Int64)])
    """
    from pyarrow import ArrowException  # noqa: PLC0415 - slow to load, and few reads need it
    from pyarrow import parquet as pq  # noqa: PLC0415 - the same

    try:
        return pl.Schema(pq.read_schema(io.BytesIO(footer)))
    except (ArrowException, OSError, pl.exceptions.PolarsError):
        return None


def scan_by_arrow(store: Store, path: str, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """Return a scan of some columns of a file in the types that it has."""

    def batches(
        names: list[str] | None, predicate: pl.Expr | None, limit: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        from pyarrow import ArrowException  # noqa: PLC0415 - slow to load, and few reads need it
        from pyarrow import parquet as pq  # noqa: PLC0415 - the same

        wanted = names or list(schema)  # at least one column, because a frame without columns has no rows
        try:
            with pq.ParquetFile(_StoredFile(store, path)) as file:
                rows = 0
                for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
                    frame = pl.DataFrame(batch).select(wanted)
                    frame = frame if limit is None else frame.head(limit - rows)
                    rows += frame.height
                    yield frame if predicate is None else frame.filter(predicate)
                    if limit is not None and rows >= limit:
                        return
        except ArrowException as error:
            message = f"data file {path!r} of {store.uri!r} cannot be read: {error}."
            raise StorageError(message, path=path) from error

    return register_io_source(batches, schema=pl.Schema(schema))


@dataclass(slots=True)
class _StoredFile:
    """A file of a store, as pyarrow reads it."""

    store: Store
    path: str
    at: int = 0
    size: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        self.size = self.store.size(self.path)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def read(self, length: int | None = -1) -> bytes:
        left = max(self.size - self.at, 0)
        length = left if length is None or length < 0 else min(length, left)
        data = bytes(self.store.get_range(self.path, self.at, length)) if length else b""
        self.at += len(data)
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True
