"""Files of added segments: Parquet and ORC, read as data files of the table's columns."""

from __future__ import annotations

import io
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from qbeast_carbondata.columns import Column
from qbeast_carbondata.damage import damaged, unreadable
from qbeast_carbondata.files.data_file import Blocklet, DataFile
from qbeast_carbondata.stored_file import StoredFile
from qbeast_core.errors import StorageError


@dataclass(frozen=True, eq=False, kw_only=True)
class ForeignFile(DataFile):
    """A Parquet or ORC file: a row group or stripe is a blocklet of one page."""

    # Its names by those of the table, lower case.
    names: dict[str, str]
    reader: Any

    @classmethod
    def open(cls, file: StoredFile, kind: str, wanted: Sequence[Column]) -> ForeignFile:
        """Open a file; `Damaged` if it is not one, `UnsupportedForm` if its format is not supported."""
        if kind not in ("parquet", "orc"):
            unreadable(f"its segment was added in the format {kind!r}")
        with _pyarrow_errors(kind):
            reader, names, rows = (_parquet if kind == "parquet" else _orc)(_Bytes(file))
        by_name = {name.lower(): name for name in names}
        return cls(
            file=file,
            version=kind,
            columns=tuple(column for column in wanted if column.schema.name.lower() in by_name),
            blocklets=tuple(Blocklet(number, (count,)) for number, count in enumerate(rows)),
            names=by_name,
            reader=reader,
        )

    def read(self, blocklet: Blocklet, columns: Sequence[Column], pages: Sequence[int]) -> list[Any]:
        """See `DataFile`."""
        names = [self.names[column.schema.name.lower()] for column in columns]
        if not pages or not names:
            return [pa.nulls(0, column.arrow_type) for column in columns]
        with self.file.inside(f"row group {blocklet.number}"), _pyarrow_errors(self.version):
            if self.version == "parquet":
                table = self.reader.read_row_group(blocklet.number, columns=names, use_threads=False)
            else:
                table = pa.Table.from_batches([self.reader.read_stripe(blocklet.number, columns=names)])
            return [
                _array(table[name], column.arrow_type) for name, column in zip(names, columns, strict=True)
            ]


@contextmanager
def _pyarrow_errors(kind: str) -> Generator[None]:
    """Turn pyarrow's errors into `Damaged`; errors of the store pass."""
    try:
        yield
    except StorageError:
        raise
    except (OSError, pa.ArrowException) as error:  # pyarrow raises either on damage
        if "crypt" in str(error).lower():
            unreadable(f"it is encrypted, and this reader has no keys: {error}")
        damaged(f"it is not a {kind} file: {error}")


class _Bytes(io.RawIOBase):
    """A stored file in the form that pyarrow reads."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._file.size_bytes)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(self._file.size_bytes - self._at, 0)
        length = left if size < 0 else min(size, left)
        data = self._file.read_one(self._at, length)
        self._at += length
        return data


def _parquet(source: _Bytes) -> tuple[Any, list[str], list[int]]:
    """Return pyarrow's reader, the names of the columns, and the rows of each row group."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - only for tables with such segments

    reader = pq.ParquetFile(pa.PythonFile(source, mode="r"))
    groups = range(reader.metadata.num_row_groups)
    return reader, reader.schema_arrow.names, [reader.metadata.row_group(group).num_rows for group in groups]


def _orc(source: _Bytes) -> tuple[Any, list[str], list[int]]:
    """Return the same of a file of ORC."""
    from pyarrow import orc  # noqa: PLC0415 - only for tables with such segments

    reader = orc.ORCFile(pa.PythonFile(source, mode="r"))
    rows = [reader.read_stripe(stripe, columns=[]).num_rows for stripe in range(reader.nstripes)]
    return reader, reader.schema.names, rows


def _array(column: Any, kind: Any) -> Any:
    """Return a column in one array of the table's type; times without a zone are UTC."""
    is_time = pa.types.is_timestamp(kind)
    if is_time and pa.types.is_timestamp(column.type) and column.type.tz is None:
        column = column.cast(pa.timestamp(column.type.unit, tz="UTC"))
    return column.cast(kind, safe=not is_time).combine_chunks()
