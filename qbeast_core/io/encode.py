"""Write data files: choose encodings, cut all columns into pages at the same rows, and add a page directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.directory import PageDirectory, directory_of, dump_directory, parse_directory
from qbeast_core.io.footer import (
    ColumnChunk,
    FileFooter,
    PageCuts,
    indexes_by_group,
    parse_footer,
    read_page_locations,
    usual_page_locations,
)
from qbeast_core.io.thrift import ThriftStruct, read_struct
from qbeast_core.space.values import BoolArray, I32Array, I64Array, U8Array, U64Array, distinct
from qbeast_core.spec.blocks import WEIGHT_COLUMN
from qbeast_core.support.sizing import sizing

# In the order of Spark. Spark reads only variants whose binaries are required.
_BINARIES: Final = ("value", "metadata")


def in_files(array: Any, dtype: Any) -> Any:
    """Return an array of a type of a Delta schema as files store it; None: files do not store it.

    >>> rows = pa.array([{"metadata": b"m", "value": b"v"}, None])
    >>> in_files(rows, "variant").type
    StructType(struct<value: binary not null, metadata: binary not null>)
    >>> in_files(pa.nulls(2), "void") is None
    True
    """
    kind = dtype["type"] if isinstance(dtype, dict) else dtype
    match kind:
        case "void":
            return None
        case "variant":
            return _variant(array)
        case "struct":
            return _struct(array, dtype["fields"])
        case "array":
            whole = _from_zero(array)
            values = in_files(whole.values, dtype["elementType"])
            return type(whole).from_arrays(whole.offsets, values, mask=whole.is_null())
        case "map":
            whole = _from_zero(array)
            keys, items = in_files(whole.keys, dtype["keyType"]), in_files(whole.items, dtype["valueType"])
            return pa.MapArray.from_arrays(whole.offsets, keys, items, mask=whole.is_null())
        case _:
            return array


def _struct(array: Any, delta_fields: list[dict[str, Any]]) -> Any:
    # By position: names in files may be others.
    parts = [in_files(array.field(i), field["type"]) for i, field in enumerate(delta_fields)]
    kept = [(array.type.field(i), part) for i, part in enumerate(parts) if part is not None]
    fields = [field.with_type(part.type) for field, part in kept]
    return pa.StructArray.from_arrays([part for _, part in kept], fields=fields, mask=array.is_null())


def _from_zero(array: Any) -> Any:
    """Return the same lists without an offset, with which Arrow builds no lists that may be null."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _variant(array: Any) -> Any:
    valid, parts = array.is_valid(), []
    for name in _BINARIES:
        part = array.field(name)
        if part.null_count and part.filter(valid).null_count:
            msg = f"a variant has no {name!r}: it has to be null, or have both binaries."
            raise InvalidInputError(msg, argument="df")
        parts.append(pc.fill_null(part, b"") if part.null_count else part)
    fields = [pa.field(name, part.type, nullable=False) for name, part in zip(_BINARIES, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())


# Every page read fetches the dictionary too; larger dictionaries are dropped.
_DICTIONARY_BYTES: Final = 128 << 10
# Only rows cut pages: a cut by bytes in one column would break the alignment of pages.
_NO_PAGE_LIMIT: Final = (1 << 31) - 1
_ALL_ROWS: Final = 1 << 40
_ZSTD_LEVEL: Final = 1
# Decimals of up to these digits are stored as integers of 32 and of 64 bits.
_SHORT_DIGITS: Final = 9
_LONG_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A Parquet file in memory."""

    data: bytes
    # How many bytes before the end the page directory begins, and its length, for `PageReader`. 0 if single pages
    # cannot be read, for example because the file has no rows; it is still an ordinary Parquet file.
    tail_bytes: int = 0
    directory_bytes: int = 0

    @property
    def directory(self) -> PageDirectory:
        """The page directory of a file with pages."""
        start, size = len(self.data) - self.tail_bytes, len(self.data)
        stored = self.data[start : start + self.directory_bytes]
        return parse_directory(stored, tail_bytes=self.tail_bytes, size_bytes=size)


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
    >>> pl.read_parquet(file.data)["city"].to_list()
    ['Oslo', 'Rome', 'Oslo']
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
        return EncodedFile(data.to_pybytes())
    file, thrift, found = _encode_aligned(table, cuts, bounded, set(dictionary), compression)
    parts, footer = indexes_by_group(file, _footer_at(file), thrift)
    if found is None:
        return EncodedFile(b"".join((*parts, footer)))
    directory = dump_directory(found)
    data = b"".join((*parts, directory, footer))
    return EncodedFile(data, len(directory) + len(footer), len(directory))


def _encode_aligned(
    table: Any, cuts: PageCuts, statistics: list[str], dictionary: set[str], compression: Mapping[str, Any]
) -> tuple[memoryview, ThriftStruct, PageDirectory | None]:
    """Encode a file. Return it, its footer, and its directory; None if its pages are not aligned."""
    while True:
        file = memoryview(_encode(table, cuts, statistics, dictionary, compression))
        text = bytes(file[_footer_at(file) : -8])
        thrift = read_struct(text)
        footer = parse_footer(text, thrift)
        sizes, misaligned = _page_sizes(file, footer, cuts)
        if not misaligned:
            return file, thrift, directory_of(footer, sizes, cuts)
        if dictionary.isdisjoint(misaligned):
            return file, thrift, None
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
        stored = _as_stored_integers(dictionary.to_arrow(compat_level=pl.CompatLevel.oldest()))
        column = pa.DictionaryArray.from_arrays(codes, stored)
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
    return pa.table({name: _as_stored_integers(column) for name, column in columns.items()})


def _as_stored_integers(array: Any) -> Any:
    """Return decimals of few digits as narrow as files store them, others as they are: the writer is slow to do it."""
    kind = array.type
    if not pa.types.is_decimal128(kind) or kind.precision > _LONG_DIGITS:
        return array
    mask, words = array.buffers()
    low = np.frombuffer(words or b"", np.int64)[::2][array.offset : array.offset + len(array)]
    is_short = kind.precision <= _SHORT_DIGITS
    narrow = pa.decimal32 if is_short else pa.decimal64
    values = low.astype(np.int32 if is_short else np.int64)  # copies
    mask = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(
        narrow(kind.precision, kind.scale), len(array), [mask, pa.py_buffer(values)], array.null_count
    )


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
    if integers or (pa.types.is_decimal(kind) and kind.precision <= _LONG_DIGITS):
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


def _page_sizes(file: memoryview, footer: FileFooter, cuts: PageCuts) -> tuple[I64Array, set[str]]:
    """Return the page sizes by (leaf, page), and the leaves that are not cut as they have to be."""
    locations = _usual_locations(file, footer.chunks)
    sizes: I64Array = np.zeros((len(footer.leaves), cuts.pages), np.int64)
    misaligned, first, each, done = set[str](), 0, cuts.page_rows[0], 0
    for group, pages in zip(footer.groups, cuts.group_pages, strict=True):
        expected = np.arange(pages, dtype=np.int64) * each
        for row, chunk in zip(sizes[:, first : first + pages], group, strict=True):
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


_SAMPLE_ROWS: Final = 16_384
_MAX_NUMBERS: Final = 256  # above it, DELTA_BINARY_PACKED is as small and needs no dictionary
_MAX_VALUES: Final = 1_024
_MAX_BYTES: Final = 16 << 10  # every page read fetches the dictionary too
_MIN_REPEATS: Final = 8
# The same for texts of which a trial shows that a dictionary saves bytes. All rows have more values than those tried,
# so the values of these are much smaller than the largest dictionary.
_MAX_TRIED_VALUES: Final = 4_096
_MAX_TRIED_BYTES: Final = 48 << 10
_MIN_TRIED_REPEATS: Final = 4
# How often a trial counts the bytes of the dictionary.
_COUNTED: Final = 4

_MIN_SAVED_SHARE: Final = 0.05
_VALUE_BYTES: Final = 64 << 10  # the start of a text or binary value is enough for a trial

_PAGE_BYTES: Final = 16 << 20
_MAX_PAGE_BYTES: Final = 1 << 30
_PREFIX_BYTES: Final = 4
_FIXED_BYTES: Final = 8


def choose_dictionary(frame: pl.DataFrame) -> list[str]:
    """Return the leaf columns with few distinct values in a sample of the rows.

    >>> frame = pl.DataFrame({"id": range(100), "kind": ["a", "b"] * 50, "tags": [["x"], ["y"]] * 50})
    >>> choose_dictionary(frame)
    ['kind', 'tags.list.element']
    """
    step = max(1, frame.height // _SAMPLE_ROWS)
    sample = frame if step == 1 else frame.gather_every(step)
    leaves = (
        leaf for column in sample.get_columns() for leaf in _sampled_leaves(column.name, _sample(column))
    )
    return [path for path, leaf in leaves if _repeats(leaf)]


def choose_larger_dictionaries(
    rows: pl.DataFrame, *, page_rows: int, dictionary: Sequence[str], codec: str = "zstd"
) -> list[str]:
    """Return other columns of texts that a dictionary of a few thousand values makes smaller, measured on some rows.

    A read of few pages fetches the whole dictionary, so it counts several times: with four, a read of a quarter of the
    pages becomes smaller.

    >>> rows = pl.DataFrame({"path": [f"/shop/item-{row * row % 2_003}" for row in range(8_192)]})
    >>> choose_larger_dictionaries(rows, page_rows=512, dictionary=[])
    ['path']
    """
    names: list[str] = []
    for part in (column.to_frame() for column in rows.get_columns() if column.name not in dictionary):
        if not _may_gain(part.to_series()):
            continue
        cuts, sizes = PageCuts((part.height,), (page_rows,)), list[int]()
        for coded in ([], part.columns):
            trial = encode_data_file(part, weights=None, cuts=cuts, dictionary=coded, codec=codec)
            chunk = pq.read_metadata(pa.BufferReader(trial.data)).row_group(0).column(0)
            fetched = (
                chunk.data_page_offset - chunk.dictionary_page_offset if chunk.has_dictionary_page else 0
            )
            sizes.append(chunk.total_compressed_size + (_COUNTED - 1) * fetched)
        if sizes[1] < sizes[0]:
            names += part.columns
    return names


def _may_gain(texts: pl.Series) -> bool:
    if texts.dtype != pl.String or texts.estimated_size() > sizing().sample_bytes:
        return False
    values = texts.unique()
    most = min((len(texts) - texts.null_count()) // _MIN_TRIED_REPEATS, _MAX_TRIED_VALUES)
    return len(values) <= most and int(_value_bytes(values).sum()) <= _MAX_TRIED_BYTES


def choose_uncompressed(
    rows: pl.DataFrame, *, page_rows: int, dictionary: Sequence[str], codec: str = "zstd"
) -> list[str]:
    """Return the leaf columns that a compression makes less than 5 % smaller, measured on some rows.

    Packed numbers without a pattern do not shrink. Compressing them would take half of the encoding time of a
    file, and slow down every scan. A trial uses about 64 MiB at a time, however large the values are.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = pl.DataFrame({"noise": rng.integers(0, 2**62, 4096), "step": range(4096)})
    >>> choose_uncompressed(rows, page_rows=2048, dictionary=[])
    ['noise']
    """
    names: list[str] = []
    for part in _trials(rows):
        cuts = PageCuts((part.height,), (page_rows,))
        trial = encode_data_file(part, weights=None, cuts=cuts, dictionary=dictionary, codec=codec)
        group = pq.read_metadata(pa.BufferReader(trial.data)).row_group(0)
        chunks = [group.column(number) for number in range(group.num_columns)]
        names += [
            chunk.path_in_schema
            for chunk in chunks
            if chunk.total_compressed_size > (1 - _MIN_SAVED_SHARE) * chunk.total_uncompressed_size
        ]
    return names


def with_short_values(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows whose texts and binary values are cut to the bytes that matter to the choice of encodings."""
    if rows.estimated_size() <= _VALUE_BYTES:
        return rows
    texts, binaries = pl.selectors.string(), pl.selectors.binary()
    return rows.with_columns(texts.str.head(_VALUE_BYTES), binaries.bin.head(_VALUE_BYTES))


def _sampled_leaves(path: str, column: pl.Series) -> Iterator[tuple[str, pl.Series]]:
    if isinstance(column.dtype, pl.List | pl.Array):
        yield from _sampled_leaves(f"{path}.list.element", column.drop_nulls().explode())
    elif isinstance(column.dtype, pl.Struct):
        for child in column.dtype.fields:
            yield from _sampled_leaves(f"{path}.{child.name}", column.struct.field(child.name))
    else:
        yield path, column


def _sample(column: pl.Series) -> pl.Series:
    # Nested values are copied later, so their sample is limited in bytes.
    return _rows_within(column, sizing().sample_bytes) if column.dtype.is_nested() else column


def _repeats(leaf: pl.Series) -> bool:
    # Methods of the column, no query: starting a query costs more than the work on a few thousand values.
    dtype, values = leaf.dtype, len(leaf) - leaf.null_count()
    if not values or isinstance(dtype, pl.Boolean | pl.Null):
        return False
    is_text = isinstance(dtype, pl.String | pl.Binary)
    if (
        is_text
        and leaf.estimated_size() > sizing().sample_bytes
        and not (_bytes_each(leaf) <= _MAX_BYTES).all()
    ):
        return False  # comparing large values takes too long
    is_packed = dtype.is_integer() or dtype.is_temporal() or dtype.is_decimal()
    max_values = _MAX_NUMBERS if is_packed else _MAX_VALUES
    if leaf.head(2 * max_values).n_unique() > max_values + 1:  # null may be one of them
        return False  # looking at all values takes ten times as long
    distinct = leaf.n_unique() - (leaf.null_count() > 0)
    if distinct * _MIN_REPEATS > values or distinct > max_values:
        return False
    return not is_text or _are_short(leaf)


def _are_short(texts: pl.Series) -> bool:
    """Return whether the distinct values fit into a dictionary."""
    stored = texts.to_arrow(compat_level=pl.CompatLevel.oldest()).buffers()[2]
    if stored is None or stored.size <= _MAX_BYTES:  # repeated values too
        return True
    return bool(_bytes_each(texts.unique()).sum() <= _MAX_BYTES)


def _bytes_each(texts: pl.Series) -> pl.Series:
    return texts.str.len_bytes() if texts.dtype == pl.String else texts.bin.size()


def _trials(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield non-empty frames of some columns each, with as many rows as fit into a trial."""
    group: list[pl.Series] = []
    size = 0
    for column in rows.get_columns():
        values = _beginnings(column)
        if not len(values):
            continue
        if group and (len(values) != len(group[0]) or size > sizing().trial_bytes):
            yield pl.DataFrame(group)
            group, size = [], 0
        group.append(values)
        size += int(values.estimated_size())
    if group:
        yield pl.DataFrame(group)


def _beginnings(column: pl.Series) -> pl.Series:
    if column.estimated_size() <= sizing().sample_bytes:
        return column
    if isinstance(column.dtype, pl.String | pl.Binary):
        column = column.cast(pl.Binary).bin.head(_VALUE_BYTES)
    return _rows_within(column, sizing().sample_bytes)


def _rows_within(column: pl.Series, max_bytes: int) -> pl.Series:
    """Return the first values of a column that take at most `max_bytes` together.

    Single values of more than `max_bytes` are left out.

    >>> _rows_within(pl.Series(["a" * 100, "b", "c", "d"]), 12).to_list()
    ['b', 'c']
    """
    if column.estimated_size() <= max_bytes:
        return column
    sizes = _value_bytes(column)
    alone: BoolArray = sizes <= max_bytes
    kept: BoolArray = alone & (np.cumsum(np.where(alone, sizes, 0)) <= max_bytes)
    return column.filter(pl.Series(kept))


def page_rows_within(frame: pl.DataFrame, page_rows: int) -> int:
    """Return the number of rows per page: `page_rows`, or fewer if values are large.

    >>> page_rows_within(pl.DataFrame({"scan": ["x" * (1 << 20)] * 64}), 256)
    8
    """
    for _, sizes in _large_columns(frame, _PAGE_BYTES):
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        largest = int(sizes.max())
        max_bytes = max(_PAGE_BYTES, min(2 * largest, _MAX_PAGE_BYTES), largest)
        while page_rows > 1 and _largest_page(ends, page_rows) > max_bytes:
            page_rows = -(-page_rows // 2)
    return page_rows


def refuse_huge_values(frame: pl.DataFrame) -> None:
    """Raise if a value is too large for Parquet."""
    for name, sizes in _large_columns(frame, sizing().max_value_bytes):
        row = int(sizes.argmax())
        if sizes[row] > sizing().max_value_bytes:
            msg = (
                f"row {row:,} has a value of {int(sizes[row]):,} bytes in column {name!r}, and Parquet holds "
                f"values up to {sizing().max_value_bytes:,}. Split it over several rows, or keep "
                "it in a file of its own and its place in the table."
            )
            raise InvalidInputError(msg, argument="df")


def _value_bytes(column: pl.Series) -> I64Array:
    """Return the approximate bytes of each value in a plain Parquet page: 8 for a number.

    >>> _value_bytes(pl.Series(["abc", None, ""])).tolist()
    [7, 4, 4]
    >>> _value_bytes(pl.Series([[1, 2], [], None, [3]])).tolist()
    [16, 0, 0, 8]
    """
    dtype = column.dtype
    if isinstance(dtype, pl.String | pl.Binary):
        lengths = column.str.len_bytes() if isinstance(dtype, pl.String) else column.bin.size()
        return lengths.fill_null(0).cast(pl.Int64).to_numpy() + _PREFIX_BYTES
    total = np.zeros(len(column), np.int64)
    if isinstance(dtype, pl.Struct):
        for child in dtype.fields:
            total += _value_bytes(column.struct.field(child.name))
        return total
    if isinstance(dtype, pl.Array):
        return _value_bytes(column.arr.to_list())
    if isinstance(dtype, pl.List):
        counts = column.list.len().fill_null(0).cast(pl.Int64).to_numpy()
        filled = counts > 0
        if filled.any():
            inner = _value_bytes(column.filter(pl.Series(filled)).explode())
            total[filled] = np.add.reduceat(inner, np.cumsum(counts[filled]) - counts[filled])
        return total
    return total + _FIXED_BYTES


def _large_columns(frame: pl.DataFrame, min_bytes: int) -> Iterator[tuple[str, I64Array]]:
    """Yield the name and the bytes of each value of columns of more bytes whose values differ in size."""
    for column in frame.get_columns():
        varies = column.dtype.is_nested() or isinstance(column.dtype, pl.String | pl.Binary)
        if varies and column.estimated_size() > min_bytes:
            yield column.name, _value_bytes(column)


def _largest_page(ends: I64Array, page_rows: int) -> int:
    cuts = ends[np.append(np.arange(0, len(ends) - 1, page_rows), len(ends) - 1)]
    return int(np.diff(cuts).max())


_MAX_FEW_VALUES: Final = 1 << 8
# Texts up to this length are stored in the view itself, so equal views are equal texts.
_INLINE_BYTES: Final = 12
_ROUNDS: Final = 3

_MAX_BITS: Final = 16
_FACTORS: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)
_NEXT_FACTOR: Final = 0xD1342543DE82EF95
_TRIALS: Final = 8
_WORD: Final = (1 << 64) - 1


def place_values(column: pl.Series, sample: pl.Series) -> tuple[pl.Series, pl.Series] | None:
    """Return the code of each row and the sorted distinct values; None if there are too many values.

    A perfect hash of two multiplications gives the code, and the value at that code is compared. This takes a third
    of the time of pyarrow's `dictionary_encode`, which costs as much as the codes save: 7 % of the CPU time of a write.

    >>> column = pl.Series(["b", "a", None, "b"])
    >>> places, values = place_values(column, column[:1])
    >>> places.to_list(), values.to_list()
    ([1, 0, None, 1], ['a', 'b'])
    """
    if not (column.dtype == pl.String or column.dtype.is_decimal()):
        return None
    values = sample.drop_nulls().unique().sort()
    for _ in range(_ROUNDS):
        table = _HashTable.of(values)
        if table is None:
            return None
        positions, missed = table.places(column)
        if not len(missed):
            codes = pl.Series(column.name, positions)
            nulls = column.null_count()
            return codes.set(column.is_null(), None) if nulls else codes, values
        values = pl.concat([values, column[pl.Series(missed)].unique()]).sort()
    return None


def used_values(places: pl.Series, values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the same rows with codes for only the values that occur in them.

    >>> rows, values = used_values(pl.Series([2, None, 0], dtype=pl.UInt8), pl.Series(["a", "b", "c"]))
    >>> rows.to_list(), values.to_list()
    ([1, None, 0], ['a', 'c'])
    """
    used = np.zeros(len(values), np.bool_)
    used[places.drop_nulls().to_numpy()] = True
    if used.all():
        return places, values
    codes = pl.Series(places.name, (np.cumsum(used) - 1).astype(np.uint8)[places.fill_null(0).to_numpy()])
    if places.null_count():
        codes = codes.set(places.is_null(), None)
    return codes, values.filter(pl.Series(used))


def outer_texts(frame: pl.DataFrame) -> dict[str, pl.Series]:
    """Return of each column of texts the rows that may have its first and its last value; of few rows, nothing.

    The first four bytes of each text lie in one array of Arrow, and numbers are compared faster than texts.
    """
    found: dict[str, pl.Series] = {}
    for column in frame.get_columns() if frame.height > sizing().chunk_rows else ():
        if column.dtype == pl.String and column.null_count() < len(column):
            texts = column.drop_nulls()
            heads = np.concatenate([words.view(">u4")[:, 1] for words, _ in _words(texts)]).astype(np.uint32)
            found[column.name] = texts.filter(pl.Series((heads == heads.min()) | (heads == heads.max())))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _HashTable:
    """A perfect hash of values: the upper bits of a sum of products are different for each value."""

    words: U64Array
    factors: tuple[np.uint64, np.uint64]
    shift: np.uint64
    table: U8Array

    @classmethod
    def of(cls, values: pl.Series) -> Self | None:
        if not 0 < len(values) <= _MAX_FEW_VALUES:
            return None
        if values.dtype == pl.String and int(values.str.len_bytes().to_numpy().max()) > _INLINE_BYTES:
            return None
        words = next(_words(values.rechunk()))[0]
        factors = _FACTORS
        for bits in range(len(words).bit_length(), _MAX_BITS + 1):
            shift = np.uint64(64 - bits)
            for _ in range(_TRIALS):
                both = np.uint64(factors[0]), np.uint64(factors[1])
                slots = _slots(words, both, shift)
                if len(distinct(slots)) == len(slots):
                    table = np.zeros(1 << bits, np.uint8)
                    table[slots] = np.arange(len(slots))
                    return cls(words, both, shift, table)
                factors = (factors[1], (factors[0] * _NEXT_FACTOR | 1) & _WORD)
        return None

    def places(self, column: pl.Series) -> tuple[U8Array, I64Array]:
        """Return the codes of all rows, and the rows whose value is neither null nor in the table."""
        places = np.empty(len(column), np.uint8)
        missed = [np.zeros(0, np.int64)]
        # One 16-byte item per value, so `take` copies whole values.
        whole = self.words.view(np.complex128).ravel()
        start, step = 0, max(sizing().chunk_rows >> 2, 1)
        for words, nulls in _words(column):
            for first in range(0, len(words), step):
                chunk = words[first : first + step]
                out = places[start : start + len(chunk)]
                self.table.take(_slots(chunk, self.factors, self.shift), out=out, mode="clip")
                same = whole.take(out).view(np.uint64).reshape(-1, 2) == chunk
                if not same.all():
                    differs = ~same.all(axis=1)
                    if nulls is not None:
                        differs &= ~nulls[first : first + step]
                    missed.append(np.flatnonzero(differs) + start)
                start += len(chunk)
        return places, np.concatenate(missed)


def _slots(words: U64Array, factors: tuple[np.uint64, np.uint64], shift: np.uint64) -> I64Array:
    slots = words[:, 0] * factors[0]
    slots += words[:, 1] * factors[1]
    slots >>= shift
    return slots.view(np.int64)


def _words(column: pl.Series) -> Iterator[tuple[U64Array, npt.NDArray[np.bool_] | None]]:
    """Yield per chunk the 16 bytes of each value, and a mask of nulls."""
    for chunk in column.get_chunks():
        array: Any = chunk.to_arrow(compat_level=pl.CompatLevel.newest())
        words = np.frombuffer(array.buffers()[1] or b"", np.uint64).reshape(-1, 2)
        nulls = chunk.is_null().to_numpy() if chunk.null_count() else None
        yield words[array.offset : array.offset + len(array)], nulls
