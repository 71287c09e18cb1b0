"""Page directories: what they say of a file. Those of others' making are bounded, or raise `PagesUnavailable`."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from qbeast_core.io.directory import PageDirectory, directory_of, dump_directory, parse_directory
from qbeast_core.io.encode import EncodedFile, choose_dictionary, encode_data_file
from qbeast_core.io.footer import FileFooter, PageCuts, PagesUnavailable, parse_footer, read_page_locations
from qbeast_core.io.pages import FilePart, PageReader, PageRequest, build_mini_file
from qbeast_core.io.store import LocalStore
from qbeast_core.io.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    field,
    read_struct,
    write_binary,
    write_list,
    write_zigzag,
)
from tests.helpers.examples import examples
from tests.io.frames import every_type, page_cuts, weights

ROWS, PAGE_ROWS = 96, 8
CUTS = PageCuts((40, 56), (PAGE_ROWS, PAGE_ROWS))
FRAME = pl.DataFrame({"id": range(ROWS), "xs": [[str(n)] * (n % 3) for n in range(ROWS)]})
FILE = encode_data_file(FRAME, weights=weights(ROWS), cuts=CUTS, dictionary=["id"])
SIZE = len(FILE.data)
END = SIZE - FILE.tail_bytes
STORED = FILE.data[END : END + FILE.directory_bytes]
FOOTER = FILE.data[END + FILE.directory_bytes : -8]
NUMBERS = struct.Struct("<7I")
STOP = b"\x00"


def parsed(data: bytes) -> PageDirectory:
    return parse_directory(data, tail_bytes=FILE.tail_bytes, size_bytes=SIZE)


def renamed(table: pa.Table) -> pa.Table:
    """The same columns under the names and ids of a table that maps columns."""
    fields = [
        each.with_name(f"col-{number}").with_metadata({"PARQUET:field_id": str(number + 1)})
        for number, each in enumerate(table.schema)
    ]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


def files() -> dict[str, EncodedFile]:
    frame = every_type(300)
    some = frame.select("id", "text", "list", "all_null", "i32")
    several, hidden = page_cuts(300, 32, groups=3), weights(300)
    few = choose_dictionary(frame)
    return {
        "every type": encode_data_file(frame, weights=hidden, cuts=several, dictionary=few),
        "no dictionary": encode_data_file(frame, weights=hidden, cuts=page_cuts(300, 32)),
        "no hidden weights": encode_data_file(some, weights=None, cuts=several, statistics=["id"]),
        "codecs": encode_data_file(some, weights=hidden, cuts=several, levels={"id": 0, "text": 9}),
        "one row": encode_data_file(pl.DataFrame({"a": [None]}), weights=None, cuts=PageCuts((1,), (1,))),
        "mapped names": encode_data_file(some, weights=hidden, cuts=several, stored=renamed),
        # One row group has a dictionary, the other one only nulls.
        "empty group": encode_data_file(
            pl.DataFrame({"a": ["x", "y"] * 40 + [None] * 80}),
            weights=weights(160),
            cuts=page_cuts(160, 16, groups=2),
            dictionary=["a"],
        ),
    }


FILES = files()


@pytest.mark.parametrize("name", FILES)
def test_directory_says_what_the_footer_says(name: str) -> None:
    file = FILES[name]
    directory, meta = file.directory, pq.read_metadata(io.BytesIO(file.data))
    footer = footer_of(file.data)
    generic = read_struct(footer).fields
    assert (directory.version, directory.root) == (generic[1], generic[2][0].fields[4])
    elements = [footer[part.start : part.end] for part in generic[2][1:]]
    assert [part for parts in directory.schema.values() for part in parts] == elements
    assert list(directory.schema) == meta.schema.to_arrow_schema().names
    groups = [meta.row_group(number) for number in range(meta.num_row_groups)]
    assert directory.cuts.group_rows == tuple(group.num_rows for group in groups)
    assert meta.num_columns == len(directory.leaves) == len(directory.repeated)
    firsts = np.cumsum([0, *directory.cuts.group_pages])
    page_starts = directory.page_starts(list(range(meta.num_columns)))
    for number, group in enumerate(groups):
        pages = slice(*firsts[number : number + 2].tolist())
        assert (directory.page_groups[pages] == number).all()
        for leaf in range(meta.num_columns):
            chunk, at = group.column(leaf), (number, leaf)
            assert chunk.path_in_schema.split(".")[0] == directory.leaves[leaf]
            assert directory.repeated[leaf] == (meta.schema.column(leaf).max_repetition_level > 0)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            assert directory.chunk_starts[at] == start
            assert directory.chunk_bytes[at] == chunk.total_compressed_size
            assert directory.uncompressed_bytes[at] == chunk.total_uncompressed_size
            assert directory.dictionary_bytes[at] == chunk.data_page_offset - start
            offsets, sizes, rows = read_page_locations(file.data[generic_index(generic, *at) :])
            assert page_starts[leaf, pages].tolist() == offsets.tolist()
            assert directory.page_bytes[leaf, pages].tolist() == sizes.tolist()
            assert (
                directory.cuts.starts()[:-1][pages] - sum(directory.cuts.group_rows[:number])
            ).tolist() == rows.tolist()
            check_constant(directory.constants[directory.constant_of[at]], chunk)


def generic_index(generic: dict[int, Any], group: int, leaf: int) -> int:
    """Where the OffsetIndex of a column chunk begins."""
    return int(generic[4][group].fields[1][leaf].fields[4])


def footer_of(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
CODECS = {0: "UNCOMPRESSED", 6: "ZSTD"}
ENCODINGS = {0: "PLAIN", 3: "RLE", 5: "DELTA_BINARY_PACKED", 8: "RLE_DICTIONARY"}


def check_constant(constant: bytes, chunk: pq.ColumnChunkMetaData) -> None:
    fields = read_struct(constant + STOP).fields
    assert sorted(fields) == [1, 2, 3, 4]
    assert TYPES[fields[1]] == chunk.physical_type
    assert sorted({ENCODINGS[number] for number in fields[2]}) == sorted(set(chunk.encodings))
    assert b".".join(fields[3]).decode() == chunk.path_in_schema
    assert CODECS[fields[4]] == chunk.compression


@pytest.mark.parametrize("name", FILES)
def test_directory_lies_before_the_footer(name: str) -> None:
    file = FILES[name]
    assert file.tail_bytes == file.directory_bytes + len(footer_of(file.data)) + 8
    places = [
        place
        for chunk in parse_footer(footer_of(file.data)).chunks
        for place in (chunk.offset_index, chunk.column_index)
        if place
    ]
    assert max(map(sum, places)) == len(file.data) - file.tail_bytes
    assert pl.read_parquet(file.data).height == file.directory.cuts.rows


@pytest.mark.parametrize("name", FILES)
def test_dumped_directory_is_read_again(name: str) -> None:
    file = FILES[name]
    directory, size = file.directory, len(file.data)
    again = parse_directory(dump_directory(directory), tail_bytes=file.tail_bytes, size_bytes=size)
    assert again.same_as(directory)
    start = size - file.tail_bytes
    assert dump_directory(directory) == file.data[start : start + file.directory_bytes]
    of_footer = directory_of(parse_footer(footer_of(file.data)), directory.page_bytes, directory.cuts)
    assert of_footer is not None
    assert of_footer.same_as(directory)


@pytest.mark.parametrize("name", FILES)
def test_pages_of_a_file_equal_a_read_by_polars(name: str, tmp_path: Path) -> None:
    file, store = FILES[name], LocalStore(tmp_path)
    (tmp_path / "f").write_bytes(file.data)
    whole, cuts = pl.read_parquet(tmp_path / "f"), file.directory.cuts
    for pages in (range(cuts.pages), range(0, cuts.pages, 3), [cuts.pages - 1]):
        chosen = np.array(pages, np.int64)
        request = PageRequest("f", len(file.data), cuts, file.tail_bytes, file.directory_bytes, chosen)
        read = PageReader(store).read([request], whole.columns, whole.schema)
        assert_frame_equal(read, whole[cuts.rows_in(chosen)])


def changed_chunk(**changes: Any) -> FileFooter:
    """The footer of the file with another first column chunk."""
    footer = parse_footer(FOOTER)
    first, *others = footer.groups[0]
    return replace(footer, groups=((replace(first, **changes), *others), *footer.groups[1:]))


def test_gaps_between_chunks_have_no_directory() -> None:
    directory = FILE.directory

    def made(footer: FileFooter, cuts: PageCuts = CUTS) -> PageDirectory | None:
        return directory_of(footer, directory.page_bytes, cuts)

    first = parse_footer(FOOTER).chunks[0]
    assert made(parse_footer(FOOTER)) is not None
    assert made(changed_chunk(start=first.start + 1)) is None
    assert made(changed_chunk(size=first.size - 1)) is None
    assert made(parse_footer(FOOTER), PageCuts((56, 40), (PAGE_ROWS, PAGE_ROWS))) is None
    other = made(changed_chunk(constant=b"another", uncompressed=1 << 40))
    assert other is not None
    assert not other.same_as(directory)
    again = parsed(dump_directory(other))
    assert set(again.constants) == {b"another", *directory.constants}
    assert again.constants[again.constant_of[0, 0]] == b"another"
    assert again.uncompressed_bytes[0, 0] == 1 << 40


@pytest.mark.parametrize(("rows", "leaves"), [(20_000, 9), (20_000, 18)])
def test_directory_is_small(rows: int, leaves: int) -> None:
    random = np.random.default_rng(1)
    frame = pl.DataFrame({f"column_{n}": random.integers(0, 10**6, rows) for n in range(leaves)})
    file = encode_data_file(frame, weights=None, cuts=page_cuts(rows, 100))
    assert file.directory_bytes < 1.2 * 200 * leaves + 30 * leaves  # a page takes 14 bytes of an OffsetIndex


def body() -> bytes:
    return zlib.decompress(STORED[16:])


def packed(unpacked: bytes, *, length: int | None = None, stored: bytes | None = None) -> bytes:
    """Build a directory whose checksum is right, whatever it holds."""
    length = len(unpacked) if length is None else length
    checked = length.to_bytes(4, "little") + (zlib.compress(unpacked) if stored is None else stored)
    return b"QBPAGES3" + zlib.crc32(checked).to_bytes(4, "little") + checked


NAMES = ("version", "groups", "columns", "leaves", "constants", "chunk_width", "page_width")


def numbered(data: bytes = STORED, **changes: int) -> bytes:
    """Build a directory that begins with other numbers."""
    unpacked = zlib.decompress(data[16:])
    numbers = dict(zip(NAMES, NUMBERS.unpack_from(unpacked), strict=True)) | changes
    return packed(NUMBERS.pack(*numbers.values()) + unpacked[NUMBERS.size :])


def listed(at: int, *values: int) -> bytes:
    """Build a directory with other numbers in its lists: rows, rows per page, elements, leaves, repeated, lengths."""
    start = NUMBERS.size + 4 * at
    put = struct.pack(f"<{len(values)}I", *values)
    return packed(body()[:start] + put + body()[start + len(put) :])


def other(**changes: Any) -> bytes:
    return dump_directory(replace(FILE.directory, **changes))


def sized(change: Callable[[np.ndarray], object]) -> bytes:
    sizes = FILE.directory.page_bytes.copy()
    change(sizes)
    return other(page_bytes=sizes)


def chunked(name: str, value: int) -> bytes:
    numbers = getattr(FILE.directory, name).copy()
    numbers[-1, 0] = value
    return other(**{name: numbers})


def zeros(mebibytes: int) -> bytes:
    """What zlib makes of so many mebibytes of zeros: packed once, for a full flush lets a part be repeated."""
    mebibyte, checksum = bytes(1 << 20), 1
    packer = zlib.compressobj(9)
    first, again = (packer.compress(mebibyte) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    for _ in range(mebibytes):
        checksum = zlib.adler32(mebibyte, checksum)
    return first + again * (mebibytes - 1) + packer.flush()[:-4] + checksum.to_bytes(4, "big")


def swapped(sizes: np.ndarray) -> None:
    sizes[0, 0] += sizes[0, 1]
    sizes[0, 1] = 0


MOST = 2**32 - 1
DAMAGED = {
    "nothing": lambda: b"",
    "a magic alone": lambda: b"QBPAGES3",
    "another magic": lambda: b"QBPAGES2" + STORED[8:],
    "the footer": lambda: FILE.data[-FILE.tail_bytes + FILE.directory_bytes :],
    "half of it": lambda: STORED[: len(STORED) // 2],
    "a byte more": lambda: STORED + b"\0",
    "a quarter of a gibibyte in little": lambda: packed(b"", length=SIZE, stored=zeros(1 << 8)),
    "a length of a quarter of a gibibyte": lambda: packed(b"", length=1 << 28, stored=zeros(1 << 8)),
    "a length without end": lambda: packed(body(), length=MOST),
    "no body": lambda: packed(b""),
    "no zlib": lambda: packed(body(), stored=b"garbage" * 100),
    "zlib without an end": lambda: packed(body(), stored=STORED[16:-3]),
    "bytes after zlib": lambda: packed(body(), stored=STORED[16:] + b"more"),
    "a body too short": lambda: packed(body()[:-1]),
    "a body too long": lambda: packed(body() + b"\0"),
    "a body too long for its length": lambda: packed(body() + b"\0", length=len(body())),
    "numbers alone": lambda: packed(body()[: NUMBERS.size]),
    "no groups": lambda: numbered(groups=0),
    "groups without number": lambda: numbered(groups=MOST),
    "no top-level columns": lambda: numbered(columns=0),
    "top-level columns without number": lambda: numbered(columns=MOST),
    "no columns": lambda: numbered(leaves=0),
    "columns without number": lambda: numbered(leaves=MOST),
    "everything without number": lambda: numbered(groups=MOST, columns=MOST, leaves=MOST, constants=MOST),
    "no constants": lambda: numbered(constants=0),
    "a constant less": lambda: numbered(constants=NUMBERS.unpack_from(body())[4] - 1),
    "constants without number": lambda: numbered(constants=MOST),
    "chunks of no bytes": lambda: numbered(chunk_width=0),
    "chunks of many bytes": lambda: numbered(chunk_width=MOST),
    "sizes of no bytes": lambda: numbered(page_width=0),
    "sizes of many bytes": lambda: numbered(page_width=MOST),
    "pages without number of no bytes": lambda: numbered(listed(0, MOST, MOST, 1, 1), page_width=0),
    "no rows": lambda: listed(0, 0),
    "rows without number": lambda: listed(0, MOST),
    "no rows a page": lambda: listed(2, 0),
    "one row a page": lambda: listed(2, 1, 1),
    "all rows in a page": lambda: listed(2, MOST, MOST),
    "elements without number": lambda: listed(4, MOST, MOST, MOST),
    "leaves of columns without number": lambda: listed(7, MOST, MOST, MOST),
    "a leaf more": lambda: listed(7, 2),
    "texts without number": lambda: listed(13, MOST, MOST),
    "a page of no bytes": lambda: sized(swapped),
    "pages of 4 GiB": lambda: sized(lambda sizes: sizes.fill(MOST)),
    "a page behind the end": lambda: sized(lambda sizes: sizes[-1].__setitem__(-1, END)),
    "a dictionary behind the end": lambda: chunked("dictionary_bytes", END),
    "a dictionary of 8 EiB": lambda: chunked("dictionary_bytes", 2**63 - 1),
    "bytes without end": lambda: chunked("uncompressed_bytes", 2**63 - 1),
    "a constant of another file": lambda: chunked("constant_of", len(FILE.directory.constants)),
    "a column twice": lambda: packed(body().replace(b"idxs_qbeast", b"idid_qbeast")),
    "a name of no letters": lambda: packed(body().replace(b"idxs_qbeast", b"id\xff\xfe_qbeast")),
}


def test_sample_directory_is_well_formed() -> None:
    assert packed(body(), stored=STORED[16:]) == STORED
    for same in (STORED, packed(body()), numbered(), listed(0, 40, 56, 8, 8), other(), sized(lambda _: None)):
        assert parsed(same).same_as(FILE.directory)
    assert b"schemaidxs_qbeast_weight" in body()


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_directory_raises_without_much_memory(name: str) -> None:
    damaged = DAMAGED[name]()
    tracemalloc.start()
    try:
        with pytest.raises(PagesUnavailable):
            parsed(damaged)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * SIZE + 2 * len(damaged)


@pytest.mark.parametrize("size", [0, 100, END - 1, SIZE + 7, 1 << 62])
def test_directory_of_a_file_of_another_size_is_bounded(size: int) -> None:
    """A longer file may hold these pages; a shorter one does not."""
    tail = min(FILE.tail_bytes, size)
    if size > SIZE:
        assert parse_directory(STORED, tail_bytes=tail, size_bytes=size).end <= END
    else:
        with pytest.raises(PagesUnavailable):
            parse_directory(STORED, tail_bytes=tail, size_bytes=size)


@st.composite
def edited(draw: st.DrawFn, data: bytes) -> bytes:
    """A few bytes changed, taken out or put in."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(changed) - 1))
        changed[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(changed)


@examples(50, sweep=10_000)
@given(edited(body()))
def test_any_body_is_read_or_raises(changed: bytes) -> None:
    try:
        actual = parsed(packed(changed))
    except PagesUnavailable:
        return
    starts = actual.page_starts(list(range(len(actual.leaves))))
    assert starts.min() >= 4
    assert (starts + actual.page_bytes).max() <= actual.end <= END
    assert (actual.page_bytes > 0).all()
    assert actual.constant_of.max() < len(actual.constants)
    assert len(actual.leaves) == len(actual.repeated)
    read_or_refuse(actual)


def read_or_refuse(directory: PageDirectory) -> None:
    """Build and read a file of all pages of the first row group."""
    leaves, rows = list(range(len(directory.leaves))), directory.cuts.group_rows[0]
    part = FilePart(directory, 0, leaves, rows, [])
    ends = directory.chunk_starts + directory.chunk_bytes
    chunks = [memoryview(FILE.data)[directory.chunk_starts[0, leaf] : ends[0, leaf]] for leaf in leaves]
    try:
        frame = pl.read_parquet(build_mini_file([part], [[[chunk] for chunk in chunks]]))
    except (PagesUnavailable, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return
    assert frame.height <= rows


@examples(30, sweep=5_000)
@given(edited(STORED))
def test_damage_is_found_by_the_checksum(changed: bytes) -> None:
    if changed != STORED:
        with pytest.raises(PagesUnavailable):
            parsed(changed)


def test_every_flipped_bit_is_found() -> None:
    for bit in range(8 * len(STORED)):
        flipped = bytearray(STORED)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PagesUnavailable):
            parsed(bytes(flipped))


def element(name: bytes, children: int) -> bytes:
    return field(4, BINARY) + write_binary(name) + field(1, I32) + write_zigzag(children) + STOP


def nested_columns(depth: int) -> bytes:
    elements = [element(b"schema", 1), *(element(b"x", 1) for _ in range(depth)), element(b"x", 0)]
    group = field(1, LIST) + write_list(STRUCT, []) + STOP
    return b"".join(
        (
            field(1, I32) + write_zigzag(2),
            field(1, LIST) + write_list(STRUCT, elements),
            field(1, I64) + write_zigzag(ROWS),
            field(1, LIST) + write_list(STRUCT, [group]) + STOP,
        )
    )


@pytest.mark.parametrize(
    "footer",
    [
        b"",
        STOP,
        b"\xff" * 200,
        FOOTER[:-30],
        b"\x19" * 5_000,
        b"\x1c" * 5_000,
        nested_columns(5_000),
    ],
    ids=["none", "empty", "garbage", "half", "lists in lists", "structs in structs", "columns in columns"],
)
def test_damaged_footer_raises_without_much_memory(footer: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PagesUnavailable):
            parse_footer(footer)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * len(footer) + (4 << 20)


@examples(50, sweep=10_000)
@given(edited(FOOTER))
def test_any_footer_is_read_or_raises(footer: bytes) -> None:
    try:
        actual = parse_footer(footer)
    except PagesUnavailable:
        return
    made = directory_of(actual, FILE.directory.page_bytes, CUTS)
    assert made is None or made.leaves == actual.leaves
    assert made is None or made.same_as(FILE.directory) == (dump_directory(made) == STORED)


def page_header(size: int, values: int) -> bytes:
    data_page = field(1, I32) + write_zigzag(values) + STOP
    return (
        field(1, I32)
        + write_zigzag(0)
        + field(1, I32)
        + write_zigzag(9)
        + field(1, I32)
        + write_zigzag(size)
        + field(2, STRUCT)
        + data_page
        + STOP
    )


@pytest.mark.parametrize(
    "page",
    [
        page_header(-9, 5),
        page_header(-1, 5),
        page_header(2**40, 5),
        page_header(0, -(2**40)),
        page_header(3, 5) + b"ab",
        field(3, BINARY) + write_binary(b"x") + STOP,
        STOP,
        b"\xff" * 9,
    ],
)
def test_page_headers_never_lead_backwards(page: bytes) -> None:
    leaf = FILE.directory.leaves.index("xs")
    with pytest.raises(PagesUnavailable):
        build_mini_file([FilePart(FILE.directory, 0, [leaf], PAGE_ROWS, [])], [[[memoryview(page)]]])
