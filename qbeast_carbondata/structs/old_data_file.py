"""Structs of ``carbondata.thrift`` in files of versions 1 and 2, and in streaming files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from qbeast_carbondata.structs.data_file import BOUNDS, CARDINALITIES, NO_BOUNDS, DataChunk2, MinMax
from qbeast_carbondata.structs.fields import ENUM, I16, I32, I64, Struct, binary, flag, list_of, member
from qbeast_carbondata.structs.schema import ColumnSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChunk(DataChunk2):
    """A column of a blocklet of version 1: the same fields under other numbers, and where its parts lie."""

    data_bytes: Annotated[int, 5, I32]
    data_offset: Annotated[int, 4, I64]
    row_id_bytes: Annotated[int, 7, I32] = 0
    row_id_offset: Annotated[int, 6, I64] = 0
    run_bytes: Annotated[int, 9, I32] = 0
    run_offset: Annotated[int, 8, I64] = 0
    null_bits: Annotated[bytes | None, 10, member(2, binary)] = None
    encoders: Annotated[tuple[int, ...], 12, list_of(ENUM)] = ()
    encoder_meta: Annotated[tuple[bytes, ...], 13, list_of(binary)] = ()
    # Version 1 has no bounds here; no field has the number 0.
    min_max: Annotated[MinMax, 0, MinMax.of] = NO_BOUNDS
    is_row_major: Annotated[bool, 2, flag] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockletInfo(Struct):
    """A blocklet of version 1."""

    rows: Annotated[int, 1, I32]
    chunks: Annotated[tuple[DataChunk, ...], 2, list_of(DataChunk.of)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockletInfo2(Struct):
    """A blocklet of version 2: where the `DataChunk2` of each column begins, and its length without pages."""

    rows: Annotated[int, 1, I32]
    offsets: Annotated[tuple[int, ...], 2, list_of(I64)] = ()
    header_bytes: Annotated[tuple[int, ...], 3, list_of(I16)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockletHeader(Struct):
    """The header of a blocklet of rows in a streaming file."""

    # Of the rows, decompressed; bytes behind them mean nothing.
    size_bytes: Annotated[int, 1, I32]
    rows: Annotated[int, 4, member(1, I32)]
    # 0: the rows are inserted.
    mutation: Annotated[int, 2, ENUM] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFileFooter(Struct):
    """The footer of a file of version 1 (`blocklets`) or 2 (`blocklets2`)."""

    rows: Annotated[int, 2, I64]
    columns: Annotated[tuple[ColumnSchema, ...], 3, list_of(ColumnSchema.of)] = ()
    cardinalities: Annotated[tuple[int, ...], 4, CARDINALITIES]
    # Of the dimensions of each blocklet.
    min_max: Annotated[tuple[MinMax, ...], 5, list_of(BOUNDS)] = ()
    blocklets: Annotated[tuple[BlockletInfo, ...], 6, list_of(BlockletInfo.of)] = ()
    blocklets2: Annotated[tuple[BlockletInfo2, ...], 7, list_of(BlockletInfo2.of)] = ()
