"""Structs of ``carbondata.thrift`` in files of version 3, some of them in older files too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

from qbeast_carbondata.structs.fields import (
    ENUM,
    I32,
    I64,
    Struct,
    binary,
    flag,
    integer,
    list_of,
    member,
    text,
    texts,
)
from qbeast_carbondata.structs.schema import ColumnSchema

# Of a SegmentInfo: the members of the dictionary of each dimension, children included; none since 2.0.
CARDINALITIES: Final = member(2, list_of(integer(-1, 2**31 - 1)), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class MinMax(Struct):
    """BlockletMinMaxIndex: bounds of each column as stored bytes; a column that `present` denies has none."""

    least: Annotated[tuple[bytes, ...], 1, list_of(binary)] = ()
    most: Annotated[tuple[bytes, ...], 2, list_of(binary)] = ()
    present: Annotated[tuple[bool, ...], 3, list_of(flag)] = ()

    def bounds(self, number: int) -> tuple[bytes, bytes] | None:
        """Return minimum and maximum of a column, None where they are unknown."""
        if number >= min(len(self.least), len(self.most)):
            return None
        if self.present and (number >= len(self.present) or not self.present[number]):
            return None
        return self.least[number], self.most[number]


NO_BOUNDS: Final = MinMax()
# Of a BlockletIndex.
BOUNDS: Final = member(1, MinMax.of, NO_BOUNDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChunk2(Struct):
    """A page of version 3, or a column of a blocklet of version 2."""

    codec: Annotated[str, 1, member(4, text, "snappy")]
    # Lengths of the data page, the row-id page and the run-length page, which follow each other.
    data_bytes: Annotated[int, 3, I32]
    row_id_bytes: Annotated[int, 4, I32] = 0
    run_bytes: Annotated[int, 5, I32] = 0
    # The presence bits as stored: a set bit is a null.
    null_bits: Annotated[bytes | None, 6, member(2, binary)] = None
    # Numbers of `Encoding` in their order; one meta for each encoder that has one.
    encoders: Annotated[tuple[int, ...], 8, list_of(ENUM)] = ()
    encoder_meta: Annotated[tuple[bytes, ...], 9, list_of(binary)] = ()
    min_max: Annotated[MinMax, 10, MinMax.of] = NO_BOUNDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDictionaryChunk(Struct):
    """Members of one column in one blocklet: a page of values, and which numbers they have."""

    encoders: Annotated[tuple[int, ...], 1, member(1, list_of(ENUM), ())]
    encoder_meta: Annotated[tuple[bytes, ...], 1, member(2, list_of(binary), ())]
    data: Annotated[bytes, 2, binary]
    used: Annotated[bytes, 3, binary]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChunk3(Struct):
    """A column of a blocklet of version 3: its pages, and where they begin behind this header."""

    pages: Annotated[tuple[DataChunk2, ...], 1, list_of(DataChunk2.of)] = ()
    page_offsets: Annotated[tuple[int, ...], 2, list_of(I32)] = ()
    dictionary: Annotated[LocalDictionaryChunk | None, 4, LocalDictionaryChunk.of] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockletInfo3(Struct):
    """Where the columns of a blocklet lie."""

    rows: Annotated[int, 1, I32]
    # Of the `DataChunk3` of each column: where it begins in the file, and its length without pages.
    offsets: Annotated[tuple[int, ...], 2, list_of(I64)] = ()
    header_bytes: Annotated[tuple[int, ...], 3, list_of(I32)] = ()
    # Where the last dimension and the last measure end.
    dimensions_end: Annotated[int, 4, I64] = 0
    measures_end: Annotated[int, 5, I64] = 0
    # Rows of each page; empty in old files.
    page_rows: Annotated[tuple[int, ...], 7, list_of(I32)] = ()
    pages: Annotated[int, 6, I32] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader(Struct):
    """The begin of files of version 3 and of streaming files."""

    version: Annotated[int, 1, ENUM]
    # Flat, depth first: dimensions, then measures.
    columns: Annotated[tuple[ColumnSchema, ...], 2, list_of(ColumnSchema.of)] = ()
    # False for files of streaming segments.
    has_footer: Annotated[bool, 3, flag] = True
    sync_marker: Annotated[bytes, 6, binary] = b""
    compressor: Annotated[str, 7, text] = "snappy"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFooter3(Struct):
    """The footer of a file of version 3; `extra` names the writer."""

    rows: Annotated[int, 1, I64]
    cardinalities: Annotated[tuple[int, ...], 2, CARDINALITIES]
    min_max: Annotated[tuple[MinMax, ...], 3, list_of(BOUNDS)] = ()
    blocklets: Annotated[tuple[BlockletInfo3, ...], 4, list_of(BlockletInfo3.of)] = ()
    extra: Annotated[dict[str, str], 7, texts] = field(default_factory=dict[str, str])
