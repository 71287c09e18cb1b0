"""Live files of a table as rows: read in frames of bounded size, and how many bytes they will take in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.query.weights import ALL_WEIGHTS
from qbeast_core.space.arrays import I64Array
from qbeast_core.table.data.footers import Unreadable, read_footer
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.read.scan_task import FileParts, RowFilter, read_parts

_WIDE: Final = 48

_NARROW: Final = 8

_FOOTERS_AT_ONCE: Final = 16

_UNPACKED: Final = 4  # bytes in memory per byte stored, for files that do not tell their rows


def read_files(reader: Reader, numbers: I64Array, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the rows of some live files, in the table's types; rows that a deletion vector hides are left out."""
    names = list(reader.snapshot.schema) if columns is None else list(columns)
    none = pl.DataFrame(schema={name: reader.snapshot.schema[name] for name in names})
    return pl.concat([none, *file_frames(reader, numbers, names)], rechunk=False)


def file_frames(reader: Reader, numbers: I64Array, names: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield the rows of some live files as `read_files` returns them, in frames of bounded size."""
    snapshot = reader.snapshot
    paths = [(reader.paths[number], reader.deleted_rows.get(number)) for number in numbers.tolist()]
    parts = FileParts(
        whole=tuple(path for path, hidden in paths if hidden is None),
        hiding=tuple((path, hidden) for path, hidden in paths if hidden is not None),
        others=reader.others(numbers.tolist()),
    )
    wanted = RowFilter(tuple(names), snapshot.schema, reader.indexed, ALL_WEIGHTS)
    yield from read_parts(parts, wanted, reader.files)


def rows_and_bytes(reader: Reader, numbers: I64Array) -> tuple[I64Array, I64Array]:
    """Return the rows of some files, and about how many bytes they take in memory."""
    dtypes = reader.snapshot.schema.dtypes()
    row_bytes = sum(_WIDE if _is_wide(dtype) else _NARROW for dtype in dtypes)
    guess = pl.col("size_bytes") * _UNPACKED // max(row_bytes, 1)
    counted = reader.snapshot.files.select(pl.coalesce("num_records", guess).cast(pl.Int64)).to_series()
    rows: I64Array = counted.to_numpy()[numbers]
    sizes = rows * row_bytes
    if any(_is_wide(dtype) for dtype in dtypes):
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            held = list(pool.map(partial(_uncompressed_bytes, reader), numbers.tolist()))
        sizes = np.maximum(sizes, np.array(held, np.int64))
    return rows, sizes


def _uncompressed_bytes(reader: Reader, number: int) -> int:
    """Return the bytes of a file's values; texts may be long, and be stored in a fraction of their length."""
    path, size = reader.paths[number], int(reader.snapshot.files["size_bytes"][number])
    try:
        footer = read_footer(reader.store, path, size)
    except (Unreadable, FileNotFoundError):  # whoever reads the rows will say so
        return size * _UNPACKED
    return sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))


def _is_wide(dtype: pl.DataType) -> bool:
    return dtype.is_nested() or isinstance(dtype, pl.String | pl.Binary)
