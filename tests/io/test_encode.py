"""Data files: what other readers see, where the pages are cut, what the tail says."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.encode import (
    EncodedFile,
    choose_dictionary,
    choose_larger_dictionaries,
    encode_data_file,
)
from qbeast_core.io.footer import (
    PagesUnavailable,
    indexes_by_group,
    parse_footer,
    read_page_locations,
)
from qbeast_core.io.thrift import ThriftError, read_struct
from tests.io.frames import every_type, page_cuts, weights

ROWS, PAGE_ROWS = 1000, 64


def encode(frame: pl.DataFrame | pa.Table, **options: object) -> EncodedFile:
    rows, page_rows, groups = len(frame), options.pop("page_rows", PAGE_ROWS), options.pop("groups", 1)
    return encode_data_file(
        frame, weights=weights(rows), cuts=page_cuts(rows, page_rows, groups=groups), **options
    )


def footer_bytes(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def cuts(data: bytes) -> list[list[int]]:
    """First row of every page by column chunk, from the OffsetIndexes by the generic reader."""
    groups = read_struct(footer_bytes(data)).fields[4]
    columns = [column for group in groups for column in group.fields[1]]
    indexes = [read_struct(data, column.fields[4]).fields[1] for column in columns]
    return [[page.fields[3] for page in pages] for pages in indexes]


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize(
    ("rows", "page_rows", "groups"),
    [(80, 1, 1), (ROWS, 64, 1), (ROWS, 500, 1), (ROWS, 1000, 1), (ROWS, 4096, 1), (ROWS, 64, 3)],
)
def test_all_columns_are_cut_at_same_rows(
    rows: int, page_rows: int, groups: int, *, dictionary: bool
) -> None:
    frame = every_type(rows)
    chosen = choose_dictionary(frame) if dictionary else []
    file = encode(frame, page_rows=page_rows, groups=groups, dictionary=chosen, statistics=["id"])
    expected, directory = page_cuts(rows, page_rows, groups=groups), file.directory
    assert directory.cuts == expected
    assert directory.pages == sum(
        -(-a // b) for a, b in zip(expected.group_rows, expected.page_rows, strict=True)
    )
    found = cuts(file.data)
    columns = len(found) // groups
    for group, (height, each) in enumerate(zip(expected.group_rows, expected.page_rows, strict=True)):
        of_group = found[group * columns : (group + 1) * columns]
        assert all(first_rows == list(range(0, height, each)) for first_rows in of_group)
    meta = pq.read_metadata(io.BytesIO(file.data))
    stored = [meta.row_group(number) for number in range(meta.num_row_groups)]
    assert [group.num_rows for group in stored] == list(expected.group_rows)
    first, last = stored[-1].column(0).statistics.min, stored[-1].column(0).statistics.max
    assert (first, last) == (rows - expected.group_rows[-1], rows - 1)


@pytest.mark.parametrize("groups", [1, 3])
def test_other_readers_see_rows_and_weights(tmp_path: Path, groups: int) -> None:
    frame, path = every_type(ROWS), tmp_path / "file.parquet"
    dictionary = choose_dictionary(frame)
    path.write_bytes(encode(frame, dictionary=dictionary, statistics=["id"], groups=groups).data)
    expected = frame.with_columns(pl.Series("_qbeast_weight", weights(ROWS) >> 16))
    assert_frame_equal(pl.read_parquet(path), expected)
    assert_frame_equal(pl.scan_parquet(path).filter(pl.col("id") >= 900).collect(), expected[900:])
    assert_frame_equal(pl.DataFrame(pl.from_arrow(pq.read_table(path))), expected)
    read = duckdb.sql(f"from '{path}'").pl()
    assert_frame_equal(read.cast(expected.schema), expected)


def test_file_is_one_row_group_with_statistics() -> None:
    meta = pq.read_metadata(io.BytesIO(encode(every_type(ROWS), statistics=["i64", "day"]).data))
    assert meta.num_row_groups == 1
    group = meta.row_group(0)
    chunks = [group.column(n) for n in range(meta.num_columns)]
    with_statistics = ["i64", "day", "_qbeast_weight"]
    assert [c.path_in_schema for c in chunks if c.is_stats_set] == with_statistics
    assert [c.path_in_schema for c in chunks if c.has_column_index] == with_statistics
    assert all(c.has_offset_index for c in chunks)
    # Zstd would make pages of one value larger.
    assert [c.compression for c in chunks] == ["ZSTD"] * (len(chunks) - 1) + ["UNCOMPRESSED"]
    assert chunks[-1].path_in_schema == "_qbeast_weight"
    assert chunks[-1].encodings[-1] == "RLE_DICTIONARY"  # files of ours hold one value per row group
    assert meta.metadata is None


@pytest.mark.parametrize("dtype", [pl.Float32, pl.Float64])
def test_nan_columns_have_no_statistics(dtype: type[pl.DataType]) -> None:
    frame = pl.DataFrame(
        {"x": [None, 1.0, float("nan")], "y": [None, 1.0, float("inf")]}, schema={"x": dtype, "y": dtype}
    )
    chunks = pq.read_metadata(io.BytesIO(encode(frame, statistics=["x", "y"]).data)).row_group(0)
    assert not chunks.column(0).is_stats_set
    assert chunks.column(1).statistics.max == float("inf")


def test_directory_is_smaller_than_page_indexes() -> None:
    frame = pl.DataFrame({f"c{n}": np.random.default_rng(n).integers(0, 10**6, 20_000) for n in range(10)})
    file = encode(frame, page_rows=100)
    assert file.directory_bytes < 2 * 200 * 11  # against 14 bytes for a page in an OffsetIndex
    first_index = min(c.offset_index[0] for c in parse_footer(footer_bytes(file.data)).chunks)
    assert len(file.data) - first_index > 6 * file.directory_bytes


@pytest.mark.parametrize("rows", [30, 215, 1000])
def test_page_indexes_lie_by_row_group(rows: int) -> None:
    """Only their places differ from Arrow's file. At 215 rows some take a byte more: those from 8,192 on."""
    frame, sink = every_type(rows).select("id", "i64", "day", "text"), io.BytesIO()
    options: dict[str, Any] = {
        "write_page_index": True,
        "write_statistics": ["id", "day"],
        "row_group_size": rows // 3,
    }
    pq.write_table(frame.to_arrow(), sink, max_rows_per_page=16, compression="none", **options)
    arrow = sink.getvalue()
    footer = footer_bytes(arrow)
    parts, tail = indexes_by_group(memoryview(arrow), len(arrow) - 8 - len(footer), read_struct(footer))
    data = b"".join((*parts, tail))
    groups, old = (read_struct(footer_bytes(file)).fields[4] for file in (data, arrow))
    chunks, old_chunks = (
        [chunk.fields for group in part for chunk in group.fields[1]] for part in (groups, old)
    )
    begin = min(chunk[6] for chunk in old_chunks if 6 in chunk)
    assert data[:begin] == arrow[:begin]
    for found, chunk in zip(chunks, old_chunks, strict=True):
        assert {key: value for key, value in found.items() if key not in {3, 4, 6}} == {
            key: value for key, value in chunk.items() if key not in {3, 4, 6}
        }
        for at in (4, 6):
            if at in chunk:
                assert data[found[at] :][: found[at + 1]] == arrow[chunk[at] :][: chunk[at + 1]]
    places = [
        (chunk.fields[at], chunk.fields[at + 1])
        for group in groups
        for at in (4, 6)
        for chunk in group.fields[1]
        if at in chunk.fields
    ]
    ends = begin + np.cumsum([size for _, size in places])
    assert [start for start, _ in places] == [begin, *ends[:-1].tolist()]
    metadata = [pq.read_metadata(io.BytesIO(file)).to_dict()["row_groups"] for file in (data, arrow)]
    assert metadata[0] == metadata[1]
    assert_frame_equal(pl.read_parquet(data), frame)


def test_overflowing_dictionary_is_dropped() -> None:
    frame = pl.DataFrame({"a": [f"{n:08d}" for n in range(20_000)], "b": ["x", "y"] * 10_000})
    file = encode(frame, page_rows=2048, dictionary=["a", "b"])
    assert file.tail_bytes
    assert all(first_rows == list(range(0, 20_000, 2048)) for first_rows in cuts(file.data))
    encodings = [pq.read_metadata(io.BytesIO(file.data)).row_group(0).column(n).encodings for n in (0, 1)]
    assert ["RLE_DICTIONARY" in actual for actual in encodings] == [False, True]


def test_empty_frame_writes_file_without_pages() -> None:
    file = encode(every_type(10)[:0])
    assert (file.tail_bytes, file.directory_bytes) == (0, 0)
    assert pl.read_parquet(file.data).height == 0


@pytest.mark.parametrize("swapped", [False, True])
def test_column_is_not_taken_for_field_of_same_text(*, swapped: bool) -> None:
    numbers, texts = range(2_000), [f"{number * 7919:x}" for number in range(2_000)]
    whole, inner = (texts, numbers) if swapped else (numbers, texts)
    frame = pl.DataFrame({"a.b": whole, "a": [{"b": value} for value in inner]})
    assert_frame_equal(pl.read_parquet(bytes(encode(frame).data)).select(frame.columns), frame)


def test_map_columns_of_arrow_tables_are_written() -> None:
    values = [[("a", 1), ("b", None)], [], None] * 100
    table = pa.table({"m": pa.array(values, type=pa.map_(pa.string(), pa.int64()))})
    file = encode(table, page_rows=32, dictionary=["m.key_value.key"])
    assert pq.read_table(io.BytesIO(file.data))["m"].to_pylist() == values
    assert pq.read_metadata(io.BytesIO(file.data)).row_group(0).column(1).encodings[-1] == "PLAIN"


def test_name_of_hidden_column_is_refused() -> None:
    with pytest.raises(InvalidInputError) as caught:
        encode_data_file(pl.DataFrame({"_qbeast_weight": [1]}), weights=weights(1), cuts=page_cuts(1, 2))
    assert caught.value.argument == "frame"


def test_weights_of_other_rows_are_refused() -> None:
    with pytest.raises(pa.ArrowInvalid, match="length"):
        encode_data_file(pl.DataFrame({"a": [1]}), weights=weights(2), cuts=page_cuts(1, 2))


def test_dictionaries_go_to_columns_with_few_values() -> None:
    frame = every_type(20_000)
    chosen = choose_dictionary(frame)
    assert {"i8", "i32", "text", "dec15", "utc", "list.list.element", "struct.b"} <= set(chosen)
    assert {"deep.list.element.x.list.element", "binary", "dec38"} <= set(chosen)
    assert {"id", "i64", "f64", "unique_text", "bool", "all_null"}.isdisjoint(chosen)
    assert choose_dictionary(frame[:0]) == []
    wide = pl.DataFrame({"n": np.arange(20_000) % 300, "t": [f"{n % 100:0200d}" for n in range(20_000)]})
    assert choose_dictionary(wide) == []  # delta encoding is as good; too many bytes


def test_larger_dictionaries_make_arrows_files_smaller_too() -> None:
    random = np.random.default_rng(2)
    places, few = np.minimum(random.zipf(1.3, 16_384), 3_000), random.integers(0, 3_000, 16_384)
    texts = {
        "path": [f"/shop/{place % 37}/item-{place}" for place in places],
        "agent": [f"Mozilla/5.0 (X11; Linux x86_64) Engine/{place % 900}" for place in places],
        "short": few.astype(str),  # the dictionary saves bytes of a whole read, and costs a small one more
        "repeated": np.sort(few).astype(str),  # compresses well as it is
        "large": [f"{number:040d}" for number in few],  # too many bytes
        "unique": [f"{number:040d}" for number in random.permutation(16_384)],
        "chosen": [f"kind {number:030d}" for number in few % 7],
    }
    frame = pl.DataFrame({**texts, "number": few})
    chosen = choose_larger_dictionaries(frame, page_rows=512, dictionary=["chosen"])
    assert chosen == ["path", "agent"]
    for name in chosen:
        sizes = []
        for coded in (False, True):
            sink, pages = io.BytesIO(), {"max_rows_per_page": 512, "data_page_size": 1 << 30}
            pq.write_table(
                frame.select(name).to_arrow(), sink, compression="zstd", use_dictionary=coded, **pages
            )
            sizes.append(len(sink.getvalue()))
        assert sizes[1] < 0.8 * sizes[0]


def test_offset_index_lists_all_pages() -> None:
    data = encode(every_type(ROWS), page_rows=7).data
    for column in read_struct(footer_bytes(data)).fields[4][0].fields[1]:
        start, length = column.fields[4], column.fields[5]
        offsets, sizes, first_rows = read_page_locations(data[start : start + length])
        assert offsets[1:].tolist() == (offsets + sizes)[:-1].tolist()
        assert first_rows.tolist() == list(range(0, ROWS, 7))


def test_long_form_offset_index_is_read() -> None:
    long_form = b"\x06\x02\x08\x05\x04\x0a\x06\x06\x0c\x00"  # every field number written in full
    actual = read_page_locations(b"\x19\x1c" + long_form + b"\x00")
    assert [part.tolist() for part in actual] == [[4], [5], [6]]
    with pytest.raises(ThriftError):
        read_page_locations(b"\x19\x2c" + long_form)


def test_unusual_files_have_no_pages() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": range(10)}), sink, row_group_size=5)
    assert parse_footer(footer_bytes(sink.getvalue())).group_rows == (5, 5)
    for broken in (b"", b"\x00", b"\x15\x04\x00", footer_bytes(sink.getvalue())[:50]):
        with pytest.raises(PagesUnavailable):
            parse_footer(broken)
