"""Structs of ``carbondata.thrift`` that a file of version 3 consists of, and those it shares with older ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from qbeast_core.carbondata.fields import I32_MAX, Fields
from qbeast_core.carbondata.structs.schema import ColumnSchema
from qbeast_core.io.thrift import ThriftStruct

_MOST_ENUM: Final = 255


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """`cardinalities`: members of the dictionary of each dimension, children included; empty since 2.0."""

    cardinalities: tuple[int, ...]

    @classmethod
    def of(cls, struct: ThriftStruct) -> SegmentInfo:
        """Read one."""
        return cls(Fields(struct, "SegmentInfo").integers(2, least=-1, most=I32_MAX))


@dataclass(frozen=True, slots=True)
class MinMax:
    """BlockletMinMaxIndex: bounds of each column as stored bytes; a column that `present` denies has none."""

    least: tuple[bytes, ...] = ()
    most: tuple[bytes, ...] = ()
    present: tuple[bool, ...] = ()

    @classmethod
    def of(cls, struct: ThriftStruct) -> MinMax:
        """Read one."""
        f = Fields(struct, "BlockletMinMaxIndex")
        return cls(f.binaries(1), f.binaries(2), f.flags(3))

    def bounds(self, number: int) -> tuple[bytes, bytes] | None:
        """Return least and most of a column, None where nothing is known."""
        if number >= min(len(self.least), len(self.most)):
            return None
        if self.present and (number >= len(self.present) or not self.present[number]):
            return None
        return self.least[number], self.most[number]


@dataclass(frozen=True, slots=True)
class BlockletIndex:
    """Statistics of a blocklet or a block."""

    min_max: MinMax

    @classmethod
    def of(cls, struct: ThriftStruct) -> BlockletIndex:
        """Read one."""
        f = Fields(struct, "BlockletIndex")
        return cls(f.struct(1, MinMax.of) if f.has(1) else MinMax())


@dataclass(frozen=True, slots=True)
class ChunkCompressionMeta:
    """Who compressed a chunk: `compressor` as named, or snappy; sizes are 0 in versions 1 and 2."""

    compressor: str
    uncompressed_bytes: int
    compressed_bytes: int

    @classmethod
    def of(cls, struct: ThriftStruct) -> ChunkCompressionMeta:
        """Read one."""
        f = Fields(struct, "ChunkCompressionMeta")
        return cls(f.text(4, "snappy"), f.integer(2, 0), f.integer(3, 0))


@dataclass(frozen=True, slots=True)
class DataChunk2:
    """A page of version 3, or a column of a blocklet of version 2."""

    compression: ChunkCompressionMeta
    # Lengths of the data page, the row-id page and the run-length page that follow each other.
    data_bytes: int
    row_id_bytes: int
    run_bytes: int
    # The presence bit set, as stored: a set bit is a null. None if there is none.
    null_bits: bytes | None
    # Numbers of `Encoding` in their order; one meta for each encoder that has one.
    encoders: tuple[int, ...]
    encoder_meta: tuple[bytes, ...]
    min_max: MinMax
    # Rows of the page; -1 if it does not tell.
    rows: int

    @classmethod
    def of(cls, struct: ThriftStruct) -> DataChunk2:
        """Read one."""
        f = Fields(struct, "DataChunk2")
        return cls(
            compression=f.struct(1, ChunkCompressionMeta.of),
            data_bytes=f.integer(3, most=I32_MAX),
            row_id_bytes=f.integer(4, 0, most=I32_MAX),
            run_bytes=f.integer(5, 0, most=I32_MAX),
            null_bits=f.struct(6, _null_bits) if f.has(6) else None,
            encoders=f.integers(8, most=_MOST_ENUM),
            encoder_meta=f.binaries(9),
            min_max=f.struct(10, MinMax.of) if f.has(10) else MinMax(),
            rows=f.integer(11, -1, least=-1, most=I32_MAX),
        )


def _null_bits(struct: ThriftStruct) -> bytes:
    return Fields(struct, "PresenceMeta").binary(2)


@dataclass(frozen=True, slots=True)
class LocalDictionaryChunk:
    """Members of one column in one blocklet: a page of values, and which numbers they have."""

    encoders: tuple[int, ...]
    encoder_meta: tuple[bytes, ...]
    data: bytes
    used: bytes

    @classmethod
    def of(cls, struct: ThriftStruct) -> LocalDictionaryChunk:
        """Read one."""
        f = Fields(struct, "LocalDictionaryChunk")
        meta = f.struct(1, lambda one: Fields(one, "LocalDictionaryChunkMeta"))
        return cls(meta.integers(1, most=_MOST_ENUM), meta.binaries(2), f.binary(2), f.binary(3))


@dataclass(frozen=True, slots=True)
class DataChunk3:
    """A column of a blocklet of version 3: its pages, and where they begin behind this header."""

    pages: tuple[DataChunk2, ...]
    page_offsets: tuple[int, ...]
    dictionary: LocalDictionaryChunk | None

    @classmethod
    def of(cls, struct: ThriftStruct) -> DataChunk3:
        """Read one."""
        f = Fields(struct, "DataChunk3")
        return cls(
            pages=f.structs(1, DataChunk2.of),
            page_offsets=f.integers(2, most=I32_MAX),
            dictionary=f.struct(4, LocalDictionaryChunk.of) if f.has(4) else None,
        )


@dataclass(frozen=True, slots=True)
class BlockletInfo3:
    """Where the columns of a blocklet lie."""

    rows: int
    # Of the `DataChunk3` of each column: where it begins in the file, and its length without pages.
    offsets: tuple[int, ...]
    header_bytes: tuple[int, ...]
    # Where the last dimension and the last measure end.
    dimensions_end: int
    measures_end: int
    # Rows of each page; none if it does not tell.
    page_rows: tuple[int, ...]
    pages: int

    @classmethod
    def of(cls, struct: ThriftStruct) -> BlockletInfo3:
        """Read one."""
        f = Fields(struct, "BlockletInfo3")
        return cls(
            rows=f.integer(1, most=I32_MAX),
            offsets=f.integers(2),
            header_bytes=f.integers(3, most=I32_MAX),
            dimensions_end=f.integer(4, 0),
            measures_end=f.integer(5, 0),
            page_rows=f.integers(7, most=I32_MAX),
            pages=f.integer(6, 0, most=I32_MAX),
        )


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What files of version 3 and streaming files begin with."""

    version: int
    # Flat, depth first: dimensions, then measures.
    columns: tuple[ColumnSchema, ...]
    # False for files of streaming segments.
    has_footer: bool
    sync_marker: bytes
    compressor: str

    @classmethod
    def of(cls, struct: ThriftStruct) -> FileHeader:
        """Read one."""
        f = Fields(struct, "FileHeader")
        return cls(
            version=f.integer(1, most=_MOST_ENUM),
            columns=f.structs(2, ColumnSchema.of),
            has_footer=f.flag(3, default=True),
            sync_marker=f.binary(6, b""),
            compressor=f.text(7, "snappy"),
        )


@dataclass(frozen=True, slots=True)
class FileFooter3:
    """What a file of version 3 ends with; `extra` names the writer."""

    rows: int
    segment: SegmentInfo
    indexes: tuple[BlockletIndex, ...]
    blocklets: tuple[BlockletInfo3, ...]
    extra: dict[str, str]

    @classmethod
    def of(cls, struct: ThriftStruct) -> FileFooter3:
        """Read one."""
        f = Fields(struct, "FileFooter3")
        return cls(
            rows=f.integer(1),
            segment=f.struct(2, SegmentInfo.of),
            indexes=f.structs(3, BlockletIndex.of),
            blocklets=f.structs(4, BlockletInfo3.of),
            extra=f.texts(7),
        )
