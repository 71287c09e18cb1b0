"""Build a small Parquet file in memory from pages of many files: one row group per row group of a source file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qbeast_core.io.parquet.footer import MAGIC, ColumnChunk, FileFooter, PagesUnavailable
from qbeast_core.io.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    ThriftError,
    field,
    read_struct,
    write_binary,
    write_list,
    write_zigzag,
)

_STOP = b"\x00"
_MAX_SIZE = 1 << 31


@dataclass(frozen=True, slots=True)
class FilePart:
    """Pages of one row group of a file, fetched."""

    footer: FileFooter
    # Number of the row group.
    group: int
    # Numbers of the chosen leaf columns, ascending; all leaves of a top-level column or none.
    leaves: Sequence[int]
    # Rows in the chosen pages: the same pages in every leaf.
    rows: int
    # Per leaf: its dictionary page, if any, and its data pages, in file order.
    buffers: Sequence[Sequence[memoryview]]


def schema_key(footer: FileFooter, leaves: Sequence[int]) -> tuple[bytes, ...]:
    """Return a key that is equal for files whose pages fit into one mini file."""
    columns = dict.fromkeys(footer.leaves[leaf] for leaf in leaves)
    return tuple(element for column in columns for element in footer.schema[column])


def build_mini_file(parts: Sequence[FilePart]) -> bytes:
    """Build a Parquet file from pages."""
    pieces: list[bytes | memoryview] = [MAGIC]
    groups: list[bytes] = []
    at = len(MAGIC)
    for part in parts:
        chunks: list[bytes] = []
        start = at
        for leaf, buffers in zip(part.leaves, part.buffers, strict=True):
            size = sum(map(len, buffers))
            chunk = part.footer.groups[part.group].chunks[leaf]
            chunks.append(_chunk(chunk, at, size, part.rows, buffers))
            pieces += buffers
            at += size
        columns = field(1, LIST) + write_list(STRUCT, chunks)
        groups.append(columns + _long(at - start) + _long(part.rows) + _STOP)
    footer = _footer(parts, groups)
    return b"".join((*pieces, footer, len(footer).to_bytes(4, "little"), MAGIC))


def _footer(parts: Sequence[FilePart], groups: list[bytes]) -> bytes:
    first = parts[0]
    top_level = {first.footer.leaves[leaf] for leaf in first.leaves}
    root = field(4, BINARY) + write_binary(first.footer.root) + field(1, I32) + write_zigzag(len(top_level))
    schema = [root + _STOP, *schema_key(first.footer, first.leaves)]
    return b"".join(
        (
            field(1, I32) + write_zigzag(first.footer.version),
            field(1, LIST) + write_list(STRUCT, schema),
            _long(sum(part.rows for part in parts)),
            field(1, LIST) + write_list(STRUCT, groups),
            _STOP,
        )
    )


def _chunk(chunk: ColumnChunk, at: int, size: int, rows: int, buffers: Sequence[memoryview]) -> bytes:
    """Encode a ColumnChunk: its fields 2 and 3, with fields 1 to 7, 9 and (for a dictionary) 11 of ColumnMetaData."""
    dictionary = chunk.data_start - chunk.start
    values = _num_values(buffers) if chunk.repeated else rows
    uncompressed = -(-chunk.uncompressed * size // chunk.size)  # readers take it as a hint
    places = _long(at + dictionary, step=2) + (_long(at, step=2) if dictionary else b"")
    meta = chunk.constant + _long(values) + _long(uncompressed) + _long(size) + places + _STOP
    return _long(at, step=2) + field(1, STRUCT) + meta + _STOP


def _long(value: int, *, step: int = 1) -> bytes:
    return field(step, I64) + write_zigzag(value)


def _num_values(buffers: Sequence[memoryview]) -> int:
    """Sum the values of the data pages: for lists, only the page headers have the counts."""
    data = b"".join(buffers)
    at = total = 0
    try:
        while at < len(data):
            header = read_struct(data, at)
            values = header.fields.get(5) or header.fields.get(8)  # data page of version 1 or 2
            total += _size(values.fields[1]) if values else 0
            at = header.end + _size(header.fields[3])
    except (ThriftError, LookupError, AttributeError, TypeError) as error:
        reason = f"a page header cannot be read ({error})"
        raise PagesUnavailable(reason) from error
    if at != len(data):
        reason = "the pages do not end where the page directory says"
        raise PagesUnavailable(reason)
    return total


def _size(number: int) -> int:
    """Raise if a size is out of range: a negative one would lead to an endless loop."""
    if not 0 <= number < _MAX_SIZE:
        message = f"a page of {number} bytes or values"
        raise ThriftError(message)
    return number
