"""Page directories and footers of others' making: bounded, and never more than `PagesUnavailable`."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.io.encode import encode_data_file
from qbeast_core.io.footer import FileTail, PageCuts, PagesUnavailable, parse_tail
from qbeast_core.io.pages import FilePart, build_mini_file
from qbeast_core.io.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    field,
    write_binary,
    write_list,
    write_zigzag,
)
from tests.helpers.examples import examples
from tests.io.frames import weights

ROWS, PAGE_ROWS = 96, 8
CUTS = PageCuts((40, 56), (PAGE_ROWS, PAGE_ROWS))
FRAME = pl.DataFrame({"id": range(ROWS), "tags": [[str(n)] * (n % 3) for n in range(ROWS)]})
FILE = encode_data_file(FRAME, weights=weights(ROWS), cuts=CUTS, dictionary=[])
TAIL = bytes(FILE.data[-FILE.tail_bytes :])
HEAD = struct.Struct("<8sIIII")
OLD_HEAD = struct.Struct("<8sIIIII")
Numbers = tuple[int, int, bytes]
STOP = b"\x00"


def parts() -> tuple[Numbers, bytes, bytes]:
    """Return row groups, leaves, rows and rows per page of the groups; the packed sizes; the footer."""
    _, _, groups, leaves, length = HEAD.unpack_from(TAIL)
    at = HEAD.size + 8 * groups
    return (groups, leaves, TAIL[HEAD.size : at]), TAIL[at : at + length], TAIL[at + length : -8]


def tail(numbers: Numbers, body: bytes, footer: bytes, *, length: int | None = None) -> bytes:
    """Build a tail whose checksum is right, whatever it holds."""
    groups, leaves, cuts = numbers
    head = HEAD.pack(b"QBPAGES2", 0, groups, leaves, len(body) if length is None else length)
    return checked(head + cuts + body, footer)


def checked(directory: bytes, footer: bytes) -> bytes:
    rest = footer + len(footer).to_bytes(4, "little") + b"PAR1"
    checksum = zlib.crc32(rest, zlib.crc32(directory[12:]))
    return directory[:8] + checksum.to_bytes(4, "little") + directory[12:] + rest


def old_tail(**changes: int) -> bytes:
    """Build a tail of the version for files of one row group."""
    file = encode_data_file(FRAME, weights=None, cuts=PageCuts((ROWS,), (PAGE_ROWS,)))
    tail = parse_tail(file.data[-file.tail_bytes :])
    body = zlib.compress(tail.page_sizes.astype("<u4").view(np.uint8).reshape(-1, 4).T.tobytes())
    report = {"page_rows": PAGE_ROWS, "pages": tail.pages, "leaves": 2, "length": len(body)} | changes
    footer = file.data[-8 - int.from_bytes(file.data[-8:-4], "little") : -8]
    return checked(OLD_HEAD.pack(b"QBPAGES1", 0, *report.values()) + body, footer)


def sized(change: Callable[[np.ndarray], object]) -> bytes:
    """Build a tail with other sizes of pages."""
    numbers, body, footer = parts()
    planes = np.frombuffer(zlib.decompress(body), np.uint8).reshape(4, -1)
    sizes = np.ascontiguousarray(planes.T).view("<u4").reshape(numbers[1], -1).copy()
    change(sizes)
    packed = np.ascontiguousarray(sizes).view(np.uint8).reshape(-1, 4).T.tobytes()
    return tail(numbers, zlib.compress(packed), footer)


def zeros(mebibytes: int) -> bytes:
    """What zlib makes of so many mebibytes of zeros: packed once, for a full flush lets a part be repeated."""
    mebibyte, checksum = bytes(1 << 20), 1
    packer = zlib.compressobj(9)
    first, again = (packer.compress(mebibyte) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    for _ in range(mebibytes):
        checksum = zlib.adler32(mebibyte, checksum)
    return first + again * (mebibytes - 1) + packer.flush()[:-4] + checksum.to_bytes(4, "big")


def packed(change: Callable[[bytes], bytes]) -> bytes:
    numbers, body, footer = parts()
    return tail(numbers, change(body), footer)


def numbered(**changes: int) -> bytes:
    (groups, leaves, cuts), body, footer = parts()
    report = {"groups": groups, "leaves": leaves, "length": len(body)} | changes
    return tail((report["groups"], report["leaves"], cuts), body, footer, length=report["length"])


def grouped(*numbers: int) -> bytes:
    """Build a tail with other rows and rows per page of the row groups."""
    (_, leaves, _), body, footer = parts()
    return tail((len(numbers) // 2, leaves, np.array(numbers, "<u4").tobytes()), body, footer)


def footed(footer: bytes) -> bytes:
    numbers, body, _ = parts()
    return tail(numbers, body, footer)


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


def swapped(sizes: np.ndarray) -> None:
    sizes[0, 0] += sizes[0, 1]
    sizes[0, 1] = 0


DAMAGED = {
    "a quarter of a gibibyte in little": lambda: packed(lambda _: zeros(1 << 8)),
    "no sizes": lambda: packed(lambda _: b""),
    "no zlib": lambda: packed(lambda _: b"garbage"),
    "zlib without an end": lambda: packed(lambda body: body[:-3]),
    "bytes after zlib": lambda: packed(lambda body: body + b"more"),
    "sizes too few": lambda: packed(lambda body: zlib.compress(zlib.decompress(body)[:-4])),
    "a size cut": lambda: packed(lambda body: zlib.compress(zlib.decompress(body)[:-3])),
    "sizes too many": lambda: packed(lambda body: zlib.compress(zlib.decompress(body) + b"four")),
    "a page of no bytes": lambda: sized(swapped),
    "pages of 4 GiB": lambda: sized(lambda sizes: sizes.fill(2**32 - 1)),
    "no rows a page": lambda: grouped(40, 0, 56, 8),
    "all rows in a page": lambda: grouped(40, 2**32 - 1, 56, 8),
    "one row a page": lambda: grouped(40, 1, 56, 1),
    "one group of two": lambda: grouped(96, 8),
    "other rows in groups": lambda: grouped(56, 8, 40, 8),
    "no groups": lambda: numbered(groups=0),
    "groups without number": lambda: numbered(groups=2**32 - 1),
    "old: no rows a page": lambda: old_tail(page_rows=0),
    "old: all rows in a page": lambda: old_tail(page_rows=2**32 - 1),
    "old: no pages": lambda: old_tail(pages=0),
    "old: pages without number": lambda: old_tail(pages=2**32 - 1),
    "old: columns without number": lambda: old_tail(leaves=2**32 - 1),
    "old: sizes without end": lambda: old_tail(length=2**32 - 1),
    "no columns": lambda: numbered(leaves=0),
    "columns without number": lambda: numbered(leaves=2**32 - 1),
    "sizes without end": lambda: numbered(length=2**32 - 1),
    "no footer": lambda: footed(b""),
    "an empty footer": lambda: footed(STOP),
    "garbage": lambda: footed(b"\xff" * 200),
    "half a footer": lambda: footed(parts()[2][:-30]),
    "lists in lists": lambda: footed(b"\x19" * 5_000),
    "structs in structs": lambda: footed(b"\x1c" * 5_000),
    "columns in columns": lambda: footed(nested_columns(5_000)),
}


def test_sample_tail_is_well_formed() -> None:
    assert tail(*parts()) == TAIL
    assert parse_tail(TAIL).pages == 5 + 7
    assert sized(lambda _: None)[HEAD.size + 4 :] != b""
    assert parse_tail(sized(lambda _: None)).cuts == CUTS
    assert parse_tail(old_tail()).cuts == PageCuts((ROWS,), (PAGE_ROWS,))


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_tail_raises_without_much_memory(name: str) -> None:
    damaged = DAMAGED[name]()
    tracemalloc.start()
    try:
        with pytest.raises(PagesUnavailable):
            parse_tail(damaged)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * len(damaged) + (4 << 20)


@st.composite
def edits(draw: st.DrawFn) -> bytes:
    """A footer with a few bytes changed, taken out or put in."""
    footer = bytearray(parts()[2])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(footer) - 1))
        footer[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(footer)


def read_or_refuse(data: bytes) -> None:
    try:
        actual = parse_tail(data)
    except PagesUnavailable:
        return
    assert isinstance(actual, FileTail)
    assert (actual.page_starts >= 0).all()
    assert (actual.page_sizes > 0).all()


@examples(50, sweep=10_000)
@given(edits())
def test_any_footer_is_read_or_raises(footer: bytes) -> None:
    read_or_refuse(footed(footer))


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
    actual = parse_tail(TAIL)
    leaf = actual.footer.leaves.index("tags")
    with pytest.raises(PagesUnavailable):
        build_mini_file([FilePart(actual.footer, 0, [leaf], PAGE_ROWS, [])], [[[memoryview(page)]]])
