"""Write data files: row groups whose columns are cut into pages at the same rows, and a page directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.parquet.footer import ColumnChunk, parse_footer, read_page_locations, usual_page_locations
from qbeast_core.io.parquet.special_arrays import in_files
from qbeast_core.io.parquet.tail import PageCuts, dump_directory
from qbeast_core.space.values import I32Array, I64Array
from qbeast_core.spec.blocks import WEIGHT_COLUMN

# Every page read fetches the dictionary too; larger dictionaries are dropped.
_DICTIONARY_BYTES: Final = 64 << 10
# Only rows cut pages: a cut by bytes in one column would break the alignment of pages.
_NO_PAGE_LIMIT: Final = (1 << 31) - 1
_ALL_ROWS: Final = 1 << 40
_ZSTD_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A Parquet file in memory."""

    data: bytes
    size_bytes: int
    # Length of the page directory and footer at the end, for `PageReader`. 0 if single pages cannot be read, for
    # example because the file has no rows; it is still an ordinary Parquet file.
    tail_bytes: int


def encode_data_file(
    frame: pl.DataFrame | Any,
    *,
    weights: I32Array | None,
    cuts: PageCuts,
    statistics: Sequence[str] = (),
    dictionary: Sequence[str] = (),
    levels: Mapping[str, int] | None = None,
    codec: str = "zstd",
    values: Mapping[str, pl.Series] | None = None,
    stored: Callable[[Any], Any] | None = None,
    metadata: Mapping[str, str] | None = None,
    special_types: Mapping[str, Any] | None = None,
) -> EncodedFile:
    """Encode rows as a data file, in their order, cut into row groups, and these into pages of the same rows.

    Columns that are not dictionary encoded are stored as DELTA_BINARY_PACKED (integers, dates, timestamps,
    decimals of up to 18 digits), smaller than PLAIN and faster to write and to scan, or else as PLAIN. Strings
    and binaries are always PLAIN or dictionary encoded: Spark 3.5.3 and 4.0.0 misread DELTA_LENGTH_BYTE_ARRAY.
    The same holds for values in structs, lists and maps. `codec` is a compression of Arrow, or "none". `levels` are
    levels of zstd for columns that need another one; 0 leaves a column uncompressed, with any codec. `special_types`
    are types in the Delta schema of columns that are or contain variants or voids. `stored` returns the Arrow table
    with other names and ids of fields inside of columns. `metadata` are key-value pairs of the footer.

    >>> frame = pl.DataFrame({"city": ["Oslo", "Rome", "Oslo"]})
    >>> file = encode_data_file(frame, weights=np.array([-5, 7, 9], dtype=np.int32), cuts=PageCuts((3,), (2,)))
    >>> pl.read_parquet(file.data)["city"].to_list(), file.size_bytes == len(file.data)
    (['Oslo', 'Rome', 'Oslo'], True)
    """
    table = _with_values(_with_weights(frame, weights), {} if values is None else values)
    table = _with_special(table, special_types or {})
    table = table if stored is None else stored(table)
    table = table.replace_schema_metadata(dict(metadata or {}))
    bounded = [name for name in statistics if not _has_nan(table.column(name))]
    if weights is not None:  # one value per row group
        bounded.append(WEIGHT_COLUMN)
        dictionary = [*dictionary, WEIGHT_COLUMN]
    compression = _compression(table, codec, {WEIGHT_COLUMN: 0, **(levels or {})})
    if len(table) == 0:
        data = _encode(table, PageCuts((0,), (1,)), bounded, set(dictionary), compression)
        return EncodedFile(data.to_pybytes(), data.size, 0)
    file, sizes, is_aligned = _encode_aligned(table, cuts, bounded, set(dictionary), compression)
    at, directory = _footer_at(file), b""
    if is_aligned:
        directory = dump_directory(sizes, cuts=cuts, parquet_tail=bytes(file[at:]))
    data = b"".join((file[:at], directory, file[at:]))
    return EncodedFile(data, len(data), len(data) - at if is_aligned else 0)


def _encode_aligned(
    table: Any, cuts: PageCuts, statistics: list[str], dictionary: set[str], compression: Mapping[str, Any]
) -> tuple[memoryview, I64Array, bool]:
    """Encode a file. Return it, its page sizes by (leaf, page), and whether its pages are aligned."""
    while True:
        file = memoryview(_encode(table, cuts, statistics, dictionary, compression))
        sizes, misaligned = _page_sizes(file, cuts)
        if not misaligned or dictionary.isdisjoint(misaligned):
            return file, sizes, not misaligned
        dictionary -= misaligned  # a dictionary that overflows cuts a page short


def _with_weights(frame: pl.DataFrame | Any, weights: I32Array | None) -> Any:
    table = _to_arrow(frame) if isinstance(frame, pl.DataFrame) else frame
    if WEIGHT_COLUMN in table.column_names:
        message = f"the column name {WEIGHT_COLUMN!r} is reserved; rename the column"
        raise InvalidInputError(message, argument="frame")
    if weights is None:
        return table
    high = np.ascontiguousarray(weights >> 16, dtype=np.int32)
    # Built from a buffer: pa.array of an ndarray imports pandas.
    column: Any = pa.Array.from_buffers(pa.int32(), len(high), [None, pa.py_buffer(high)])
    return table.append_column(WEIGHT_COLUMN, column)


def _with_values(table: Any, values: Mapping[str, pl.Series]) -> Any:
    """Return the same table with columns of codes and their values as dictionary columns."""
    for name, dictionary in values.items():
        codes = table.column(name).combine_chunks()
        column = pa.DictionaryArray.from_arrays(
            codes, dictionary.to_arrow(compat_level=pl.CompatLevel.oldest())
        )
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _with_special(table: Any, special_types: Mapping[str, Any]) -> Any:
    """Return the same table with variants and voids in the form that files have."""
    for name, dtype in special_types.items():
        index = table.column_names.index(name)
        column = in_files(table.column(index).combine_chunks(), dtype)
        table = table.remove_column(index) if column is None else table.set_column(index, name, column)
    return table


def _has_nan(column: Any) -> bool:
    return pa.types.is_floating(column.type) and bool(pl.Series(column).is_nan().any())


def _to_arrow(frame: pl.DataFrame) -> Any:
    """Convert a frame. Flat strings become views without a copy; pyarrow cannot write views inside structs."""
    views, copies = pl.CompatLevel.newest(), pl.CompatLevel.oldest()
    columns = {c.name: c.to_arrow(compat_level=copies if c.dtype.is_nested() else views) for c in frame}
    return pa.table(columns)


def _encode(
    table: Any, cuts: PageCuts, statistics: list[str], dictionary: set[str], compression: Mapping[str, Any]
) -> Any:
    leaves = [path for column in table.schema for path in _leaves(column.name, column.type)]
    # Nested numbers are PLAIN: Polars up to 1.4 refuses the delta encoding inside a struct.
    # The writer knows leaves by their texts: a column "a.b" and the field b of a column "a" have one encoding.
    own = {name for name, count in Counter(leaves).items() if count == 1} - dictionary
    encodings = {column.name: _encoding(column.type) for column in table.schema if column.name in own}
    sink = pa.BufferOutputStream()
    options: dict[str, Any] = {
        "max_rows_per_page": cuts.page_rows[0],
        "data_page_size": _NO_PAGE_LIMIT,
        "write_page_index": True,
        "write_statistics": statistics,
        "use_dictionary": sorted(dictionary) or False,
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "column_encoding": {path: encoding for path, encoding in encodings.items() if encoding},
        **compression,
        "store_schema": False,
        "store_decimal_as_integer": True,
    }
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        first = 0
        for rows in cuts.group_rows:
            writer.write_table(table.slice(first, rows), _ALL_ROWS)
            first += rows
        if table.schema.metadata:  # the writer leaves it out with the schema of Arrow
            writer.add_key_value_metadata(table.schema.metadata)
    return sink.getvalue()


def _compression(table: Any, codec: str, levels: Mapping[str, int]) -> dict[str, Any]:
    """Return the options of the writer for a codec; `levels` as in `encode_data_file`."""
    leaves = [path for column in table.schema for path in _leaves(column.name, column.type)]
    options: dict[str, Any] = {
        "compression": {path: codec if levels.get(path, _ZSTD_LEVEL) else "none" for path in leaves}
    }
    if codec == "zstd":
        chosen = {path: levels.get(path, _ZSTD_LEVEL) for path in leaves}
        options["compression_level"] = {path: level for path, level in chosen.items() if level}
    return options


def _encoding(kind: Any) -> str | None:
    integers = pa.types.is_integer(kind) or pa.types.is_temporal(kind)
    if integers or (pa.types.is_decimal(kind) and kind.precision <= 18):
        return "DELTA_BINARY_PACKED"
    return None  # PLAIN: older Sparks misread strings in the delta encodings


def _leaves(path: str, kind: Any) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for child in kind.fields:
            yield from _leaves(f"{path}.{child.name}", child.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _page_sizes(file: memoryview, cuts: PageCuts) -> tuple[I64Array, set[str]]:
    """Return the page sizes by (leaf, page), and the leaves that are not cut as they have to be."""
    footer = parse_footer(bytes(file[_footer_at(file) : -8]))
    locations = _usual_locations(file, footer.chunks)
    sizes: I64Array = np.zeros((len(footer.leaves), cuts.pages), np.int64)
    misaligned, first, each, done = set[str](), 0, cuts.page_rows[0], 0
    for group, pages in zip(footer.groups, cuts.group_pages, strict=True):
        expected = np.arange(pages, dtype=np.int64) * each
        for row, chunk in zip(sizes[:, first : first + pages], group.chunks, strict=True):
            start, length = chunk.offset_index or (0, 0)
            if locations is None:
                offsets, page_bytes, first_rows = read_page_locations(bytes(file[start : start + length]))
            else:
                offsets, page_bytes, first_rows = locations[done]
                done += 1
            ends = offsets + page_bytes
            fills = offsets[:1] == chunk.data_start and ends[-1:] == chunk.start + chunk.size
            if fills and np.array_equal(first_rows, expected) and np.array_equal(offsets[1:], ends[:-1]):
                row[:] = page_bytes
            else:
                misaligned.add(chunk.path)
        first += pages
    return sizes, misaligned


def _usual_locations(file: memoryview, chunks: Sequence[ColumnChunk]) -> list[I64Array] | None:
    """Return the offsets, sizes and first rows of the pages of each chunk, parsed together; None: they are unusual."""
    places = [chunk.offset_index for chunk in chunks if chunk.offset_index is not None]
    if len(places) < len(chunks) or not places:
        return None
    starts = np.array([start for start, _ in places])
    order, begin = np.argsort(starts), int(starts.min())
    found = usual_page_locations(bytes(file[begin : max(map(sum, places))]), starts[order] - begin)
    if found is None:
        return None
    parts = np.split(found[0].T, np.cumsum(found[1])[:-1], axis=1)
    return [parts[at] for at in np.argsort(order)]


def _footer_at(file: memoryview) -> int:
    """Return where the footer of a file begins."""
    return len(file) - 8 - int.from_bytes(file[-8:-4], "little")
