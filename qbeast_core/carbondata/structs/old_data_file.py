"""Structs of ``carbondata.thrift`` that files of versions 1 and 2 consist of, and streaming files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from qbeast_core.carbondata.fields import I16_MAX, I32_MAX, Fields
from qbeast_core.carbondata.structs.data_file import BlockletIndex, DataChunk2, MinMax, SegmentInfo
from qbeast_core.carbondata.structs.schema import ColumnSchema
from qbeast_core.io.thrift import ThriftStruct

_MOST_ENUM: Final = 255


@dataclass(frozen=True, slots=True)
class DataChunk:
    """A column of a blocklet of version 1: its `page`, and where its parts lie in the file."""

    page: DataChunk2
    data_offset: int
    row_id_offset: int
    run_offset: int
    is_row_major: bool

    @classmethod
    def of(cls, struct: ThriftStruct) -> DataChunk:
        """Read one; what a chunk of version 2 has too becomes one of these."""
        f = Fields(struct, "DataChunk")
        numbers = {1: 1, 5: 3, 7: 4, 9: 5, 10: 6, 12: 8, 13: 9}
        later = {new: struct.fields[old] for old, new in numbers.items() if old in struct.fields}
        return cls(
            page=DataChunk2.of(ThriftStruct(later, struct.start, struct.end)),
            data_offset=f.integer(4),
            row_id_offset=f.integer(6, 0),
            run_offset=f.integer(8, 0),
            is_row_major=f.flag(2, default=False),
        )


@dataclass(frozen=True, slots=True)
class BlockletInfo:
    """A blocklet of version 1, or of rows in a streaming file, which has no `chunks`."""

    rows: int
    chunks: tuple[DataChunk, ...]

    @classmethod
    def of(cls, struct: ThriftStruct) -> BlockletInfo:
        """Read one."""
        f = Fields(struct, "BlockletInfo")
        return cls(f.integer(1, most=I32_MAX), f.structs(2, DataChunk.of))


@dataclass(frozen=True, slots=True)
class BlockletInfo2:
    """A blocklet of version 2: where the `DataChunk2` of each column begins, and its length without pages."""

    rows: int
    offsets: tuple[int, ...]
    header_bytes: tuple[int, ...]

    @classmethod
    def of(cls, struct: ThriftStruct) -> BlockletInfo2:
        """Read one."""
        f = Fields(struct, "BlockletInfo2")
        return cls(f.integer(1, most=I32_MAX), f.integers(2), f.integers(3, most=I16_MAX))


@dataclass(frozen=True, slots=True)
class BlockletHeader:
    """What stands before the rows of a blocklet in a streaming file."""

    # Of the rows, decompressed; what is compressed may be longer, and means nothing behind them.
    size_bytes: int
    rows: int
    is_insert: bool

    @classmethod
    def of(cls, struct: ThriftStruct) -> BlockletHeader:
        """Read one."""
        f = Fields(struct, "BlockletHeader")
        rows = f.struct(4, BlockletInfo.of).rows
        return cls(f.integer(1, most=I32_MAX), rows, f.integer(2, 0, most=_MOST_ENUM) == 0)


@dataclass(frozen=True, slots=True)
class FileFooter:
    """What a file of version 1 or 2 ends with: `blocklets` or `blocklets2`, and their statistics."""

    rows: int
    columns: tuple[ColumnSchema, ...]
    segment: SegmentInfo
    indexes: tuple[BlockletIndex, ...]
    blocklets: tuple[BlockletInfo, ...]
    blocklets2: tuple[BlockletInfo2, ...]

    @classmethod
    def of(cls, struct: ThriftStruct) -> FileFooter:
        """Read one."""
        f = Fields(struct, "FileFooter")
        return cls(
            rows=f.integer(2),
            columns=f.structs(3, ColumnSchema.of),
            segment=f.struct(4, SegmentInfo.of),
            indexes=f.structs(5, BlockletIndex.of),
            blocklets=f.structs(6, BlockletInfo.of),
            blocklets2=f.structs(7, BlockletInfo2.of),
        )

    def min_max(self, number: int) -> MinMax:
        """Return the statistics of a blocklet: of dimensions alone."""
        return self.indexes[number].min_max if number < len(self.indexes) else MinMax()
