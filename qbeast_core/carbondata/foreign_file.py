"""Files of added segments: Parquet and ORC, read as data files of the table's columns."""

from __future__ import annotations

import io
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.damage import Unreadable, damaged
from qbeast_core.carbondata.data_file import Blocklet, StoredBounds
from qbeast_core.carbondata.inside import StoredFile
from qbeast_core.errors import StorageError

_KINDS: Final = frozenset({"parquet", "orc"})


@dataclass(frozen=True, slots=True, eq=False)
class ForeignFile:
    """A `DataFile` of Parquet or ORC: a row group or stripe is a blocklet of one page."""

    file: StoredFile
    version: str
    # Of the table, those that it has by name.
    columns: tuple[Column, ...]
    # What it calls each of them.
    names: tuple[str, ...]
    blocklets: tuple[Blocklet, ...]
    reader: Any

    @classmethod
    def open(cls, file: StoredFile, kind: str, wanted: Sequence[Column]) -> ForeignFile:
        """Open a file; `Damaged` if it is none, `Unreadable` if its format is not read."""
        if kind not in _KINDS:
            message = f"its segment was added in the format {kind!r}"
            raise Unreadable(message)
        with _no_file_of(kind):
            reader, rows = _opened(file, kind)
            schema = reader.schema_arrow if kind == "parquet" else reader.schema
        known = {name.lower(): name for name in schema.names}
        found = [column for column in wanted if column.schema.name.lower() in known]
        names = tuple(known[column.schema.name.lower()] for column in found)
        blocklets = tuple(Blocklet(number, (count,)) for number, count in enumerate(rows))
        return cls(file, kind, tuple(found), names, blocklets, reader)

    @property
    def writer(self) -> str:
        """See `DataFile`."""
        return ""

    def page_bounds(self, blocklet: Blocklet, columns: Sequence[Column]) -> list[list[StoredBounds]]:
        """See `DataFile`."""
        return [[None] * len(blocklet.page_rows) for _ in columns]

    def read(self, blocklet: Blocklet, columns: Sequence[Column], pages: Sequence[int]) -> list[Any]:
        """See `DataFile`."""
        names = [self.names[self.columns.index(column)] for column in columns]
        if not pages or not names:
            return [pa.nulls(0, column.arrow_type) for column in columns]
        with self.file.inside(f"row group {blocklet.number}"), _no_file_of(self.version):
            if self.version == "parquet":
                table = self.reader.read_row_group(blocklet.number, columns=names, use_threads=False)
            else:
                table = pa.Table.from_batches([self.reader.read_stripe(blocklet.number, columns=names)])
            return [
                _array(table[name], column.arrow_type) for name, column in zip(names, columns, strict=True)
            ]


@contextmanager
def _no_file_of(kind: str) -> Generator[None]:
    """Turn what pyarrow says of bytes into `Damaged`; what the store says goes through."""
    try:
        yield
    except StorageError:
        raise
    except (OSError, pa.ArrowException) as error:  # pyarrow tells damage by either
        if "crypt" in str(error).lower():
            message = f"it is encrypted, and its keys are not told to this reader: {error}"
            raise Unreadable(message) from error
        damaged(f"it is no file of {kind}: {error}")


class _Bytes(io.RawIOBase):
    """A stored file as pyarrow reads files."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._file.size_bytes)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(self._file.size_bytes - self._at, 0)
        length = left if size < 0 else min(size, left)
        data = self._file.read_one(self._at, length)
        self._at += length
        return data


def _opened(file: StoredFile, kind: str) -> tuple[Any, list[int]]:
    """Return pyarrow's reader, and the rows of each of its parts."""
    source = pa.PythonFile(_Bytes(file), mode="r")
    if kind == "parquet":
        import pyarrow.parquet as pq  # noqa: PLC0415 - for tables with such segments alone

        parquet = pq.ParquetFile(source)
        meta = parquet.metadata
        return parquet, [meta.row_group(number).num_rows for number in range(meta.num_row_groups)]
    from pyarrow import orc  # noqa: PLC0415 - the same

    stripes = orc.ORCFile(source)
    return stripes, [stripes.read_stripe(number, columns=[]).num_rows for number in range(stripes.nstripes)]


def _array(column: Any, kind: Any) -> Any:
    """Return a column in one array of the table's type; times without a zone are UTC."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    if pa.types.is_timestamp(array.type) and array.type.tz is None and pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp(array.type.unit, tz="UTC"))
    if pa.types.is_timestamp(kind):
        return array.cast(kind, safe=False)
    return array if array.type == kind else array.cast(kind)
