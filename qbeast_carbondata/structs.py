"""The Thrift structs of CarbonData as values: data files, index files, schemas, named as in its format module.

A reader takes a value as `read_struct` returns it, and raises `Damaged` where it has another type or lies out of range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from enum import IntEnum
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Final, Self, TypeVar, cast, get_type_hints

from qbeast_carbondata.damage import Damaged, damaged, unreadable
from qbeast_core.io.thrift import ThriftError, ThriftStruct, read_struct

_T = TypeVar("_T")
Reader = Callable[[object], _T]


class Struct:
    """Base of the dataclasses."""

    __slots__ = ()

    @classmethod
    def of(cls, value: object) -> Self:
        """Read a struct; fields that it lacks get their defaults, and `Damaged` where there is none."""
        stored = _struct(value).fields
        values: dict[str, Any] = {}
        for name, number, read, is_required in _layout(cast("type", cls)):
            if number in stored:
                try:
                    values[name] = read(stored[number])
                except Damaged as error:
                    error.places.append(f"{cls.__name__}.{name}")
                    raise
            elif is_required:
                damaged(f"{cls.__name__} has no {name}")
        return cls(**values)


@cache
def _layout(kind: type) -> list[tuple[str, int, Reader[Any], bool]]:
    """Return name, number and reader of each field, and whether it is required."""
    hints = get_type_hints(kind, include_extras=True)
    layout: list[tuple[str, int, Reader[Any], bool]] = []
    for entry in fields(kind):
        number, read = hints[entry.name].__metadata__
        is_required = entry.default is MISSING and entry.default_factory is MISSING
        layout.append((entry.name, number, read, is_required))
    return layout


def _integer(least: int = 0, most: int = 2**63 - 1) -> Reader[int]:
    """Return a reader of integers in a range."""

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            damaged(f"{value!r:.40} is not an integer in [{least}, {most}]")
        return value

    return read


I16: Final = _integer(most=2**15 - 1)
I32: Final = _integer(most=2**31 - 1)
I64: Final = _integer()
ENUM: Final = _integer(most=255)


def _of_type(kind: type[_T]) -> Reader[_T]:
    """Return a reader of values of a type."""

    def read(value: object) -> _T:
        if not isinstance(value, kind):
            damaged(f"not of type {kind.__name__}")
        return value

    return read


flag: Final = _of_type(bool)
binary: Final = _of_type(bytes)
_struct: Final = _of_type(ThriftStruct)
_list: Final[Reader[list[Any]]] = _of_type(list)
_map: Final[Reader[dict[Any, Any]]] = _of_type(dict)


def _text(value: object) -> str:
    """Read a text."""
    try:
        return binary(value).decode()
    except UnicodeDecodeError:
        damaged("not UTF-8 text")


def _texts(value: object) -> dict[str, str]:
    """Read a map of texts."""
    return {_text(key): _text(item) for key, item in _map(value).items()}


def _list_of(read: Reader[_T]) -> Reader[tuple[_T, ...]]:
    """Return a reader of lists."""

    def read_list(value: object) -> tuple[_T, ...]:
        return tuple([read(item) for item in _list(value)])

    return read_list


def member(number: int, read: Reader[_T], default: Any = None) -> Reader[_T]:
    """Return a reader of one field of a struct; without a default it is required."""

    def read_member(value: object) -> _T:
        stored = _struct(value).fields
        if number in stored:
            return read(stored[number])
        if default is None:
            damaged(f"it has no field {number}")
        fallback: _T = default
        return fallback

    return read_member


def read_thrift(data: bytes, read: Reader[_T], at: int = 0) -> tuple[_T, int]:
    """Read the struct that begins at a byte; return where it ends, too."""
    try:
        struct = read_struct(data, at)
    except ThriftError as error:
        damaged(str(error))
    return read(struct), struct.end


def _read_all(data: bytes, read: Reader[_T], at: int = 0) -> list[_T]:
    """Read the structs that follow each other from a byte to the end."""
    values: list[_T] = []
    while at < len(data):
        value, at = read_thrift(data, read, at)
        values.append(value)
    return values


_SIGNED: Final = _integer(-(2**31) + 1, 2**31 - 1)
_OR_NONE: Final = _integer(-1, 2**31 - 1)


class DataType(IntEnum):
    """Type of a column; encoder meta number types in another way."""

    STRING = 0
    SHORT = 1
    INT = 2
    LONG = 3
    DOUBLE = 4
    DECIMAL = 5
    TIMESTAMP = 6
    DATE = 7
    BOOLEAN = 8
    ARRAY = 20
    STRUCT = 21
    VARCHAR = 22
    MAP = 23
    FLOAT = 24
    BYTE = 25
    BINARY = 26
    UNKNOWN = -1

    @classmethod
    def _missing_(cls, value: object) -> DataType:  # noqa: ARG003 - the name that enum gives it
        return cls.UNKNOWN


class Encoding(IntEnum):
    """How a column, or a page of it, is encoded."""

    DICTIONARY = 0
    DELTA = 1
    RLE = 2
    INVERTED_INDEX = 3
    BIT_PACKED = 4
    DIRECT_DICTIONARY = 5
    DIRECT_COMPRESS = 6
    ADAPTIVE_INTEGRAL = 7
    ADAPTIVE_DELTA_INTEGRAL = 8
    RLE_INTEGRAL = 9
    DIRECT_STRING = 10
    ADAPTIVE_FLOATING = 11
    BOOL_BYTE = 12
    ADAPTIVE_DELTA_FLOATING = 13
    DIRECT_COMPRESS_VARCHAR = 14
    INT_LENGTH_COMPLEX_CHILD_BYTE_ARRAY = 15


def _data_type(value: object) -> DataType:
    return DataType(ENUM(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSchema(Struct):
    """A column, or a node of a complex one."""

    # A nested column is followed by `num_child` children in its list.
    data_type: Annotated[DataType, 1, _data_type]
    # Lower case.
    name: Annotated[str, 2, _text]
    # Identifies the column through renames: a UUID, or the name in files of the SDK.
    column_id: Annotated[str, 3, _text] = ""
    # `DICTIONARY` alone: it has a global dictionary; with `DIRECT_DICTIONARY`: its numbers are computed.
    encoders: Annotated[tuple[int, ...], 5, _list_of(ENUM)] = ()
    # Whether its pages are a dimension's; a measure's otherwise.
    is_dimension: Annotated[bool, 6, flag]
    scale: Annotated[int, 8, _SIGNED] = 0
    precision: Annotated[int, 9, _SIGNED] = 0
    num_child: Annotated[int, 10, I32] = 0
    # The value of rows that were written before the column was added; its form depends on the type.
    default_value: Annotated[bytes | None, 12, binary] = None
    properties: Annotated[dict[str, str], 13, _texts] = field(default_factory=dict[str, str])
    invisible: Annotated[bool, 14, flag] = False
    # Its place in the user's CREATE TABLE, or -1.
    ordinal: Annotated[int, 16, _OR_NONE] = -1
    is_columnar: Annotated[bool, 4, flag] = True
    column_group: Annotated[int, 7, _OR_NONE] = -1

    def __post_init__(self) -> None:
        if self.data_type == DataType.UNKNOWN:
            unreadable(f"column {self.name!r} has a type that is not supported")
        if self.column_group >= 0 and not self.is_columnar:
            unreadable(f"column {self.name!r} lies in a column group")
        if not self.column_id:
            object.__setattr__(self, "column_id", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnList(Struct):
    """The columns that partition a table, or that hash its rows into buckets."""

    columns: Annotated[tuple[ColumnSchema, ...], 1, _list_of(ColumnSchema.of)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema(Struct):
    """A table's columns and properties."""

    # Flat, depth first, dropped ones too.
    columns: Annotated[tuple[ColumnSchema, ...], 2, _list_of(ColumnSchema.of)] = ()
    properties: Annotated[dict[str, str], 4, _texts] = field(default_factory=dict[str, str])
    partitioning: Annotated[ColumnList, 6, ColumnList.of] = ColumnList()
    bucketing: Annotated[ColumnList, 5, ColumnList.of] = ColumnList()


# Of a SegmentInfo: the members of the dictionary of each dimension, children included; none since 2.0.
CARDINALITIES: Final = member(2, _list_of(_integer(-1, 2**31 - 1)), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class MinMax(Struct):
    """BlockletMinMaxIndex: bounds of each column as stored bytes; a column that `present` denies has none."""

    least: Annotated[tuple[bytes, ...], 1, _list_of(binary)] = ()
    most: Annotated[tuple[bytes, ...], 2, _list_of(binary)] = ()
    present: Annotated[tuple[bool, ...], 3, _list_of(flag)] = ()

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

    codec: Annotated[str, 1, member(4, _text, "snappy")]
    # Lengths of the data page, the row-id page and the run-length page, which follow each other.
    data_bytes: Annotated[int, 3, I32]
    row_id_bytes: Annotated[int, 4, I32] = 0
    run_bytes: Annotated[int, 5, I32] = 0
    # The presence bits as stored: a set bit is a null.
    null_bits: Annotated[bytes | None, 6, member(2, binary)] = None
    # Numbers of `Encoding` in their order; one meta for each encoder that has one.
    encoders: Annotated[tuple[int, ...], 8, _list_of(ENUM)] = ()
    encoder_meta: Annotated[tuple[bytes, ...], 9, _list_of(binary)] = ()
    min_max: Annotated[MinMax, 10, MinMax.of] = NO_BOUNDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDictionaryChunk(Struct):
    """Members of one column in one blocklet: a page of values, and which numbers they have."""

    encoders: Annotated[tuple[int, ...], 1, member(1, _list_of(ENUM), ())]
    encoder_meta: Annotated[tuple[bytes, ...], 1, member(2, _list_of(binary), ())]
    data: Annotated[bytes, 2, binary]
    used: Annotated[bytes, 3, binary]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChunk3(Struct):
    """A column of a blocklet of version 3: its pages, and where they begin behind this header."""

    pages: Annotated[tuple[DataChunk2, ...], 1, _list_of(DataChunk2.of)] = ()
    page_offsets: Annotated[tuple[int, ...], 2, _list_of(I32)] = ()
    dictionary: Annotated[LocalDictionaryChunk | None, 4, LocalDictionaryChunk.of] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockletInfo3(Struct):
    """Where the columns of a blocklet lie."""

    rows: Annotated[int, 1, I32]
    # Of the `DataChunk3` of each column: where it begins in the file, and its length without pages.
    offsets: Annotated[tuple[int, ...], 2, _list_of(I64)] = ()
    header_bytes: Annotated[tuple[int, ...], 3, _list_of(I32)] = ()
    # Where the last dimension and the last measure end.
    dimensions_end: Annotated[int, 4, I64] = 0
    measures_end: Annotated[int, 5, I64] = 0
    # Rows of each page; empty in old files.
    page_rows: Annotated[tuple[int, ...], 7, _list_of(I32)] = ()
    pages: Annotated[int, 6, I32] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader(Struct):
    """The begin of files of version 3 and of streaming files."""

    version: Annotated[int, 1, ENUM]
    # Flat, depth first: dimensions, then measures.
    columns: Annotated[tuple[ColumnSchema, ...], 2, _list_of(ColumnSchema.of)] = ()
    # False for files of streaming segments.
    has_footer: Annotated[bool, 3, flag] = True
    sync_marker: Annotated[bytes, 6, binary] = b""
    compressor: Annotated[str, 7, _text] = "snappy"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFooter3(Struct):
    """The footer of a file of version 3; `extra` names the writer."""

    rows: Annotated[int, 1, I64]
    cardinalities: Annotated[tuple[int, ...], 2, CARDINALITIES]
    min_max: Annotated[tuple[MinMax, ...], 3, _list_of(BOUNDS)] = ()
    blocklets: Annotated[tuple[BlockletInfo3, ...], 4, _list_of(BlockletInfo3.of)] = ()
    extra: Annotated[dict[str, str], 7, _texts] = field(default_factory=dict[str, str])


def _base_name(value: object) -> str:
    return _text(value).replace("\\", "/").rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockIndex(Struct):
    """A blocklet of a data file, or (where `blocklet` is None) all of it."""

    rows: Annotated[int, 1, I64]
    file_name: Annotated[str, 2, _base_name]
    min_max: Annotated[MinMax, 4, BOUNDS] = NO_BOUNDS
    blocklet: Annotated[BlockletInfo3 | None, 5, BlockletInfo3.of] = None
    # Length of the file, or -1.
    file_bytes: Annotated[int, 6, _integer(-1)] = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DictionaryLoad(Struct):
    """The surrogates `first` to `last` that one load added, in the bytes `start` to `end` of the dictionary."""

    first: Annotated[int, 1, I32]
    last: Annotated[int, 2, I32]
    start: Annotated[int, 3, I64]
    end: Annotated[int, 4, I64]


def read_index_file(data: bytes) -> tuple[tuple[ColumnSchema, ...], list[BlockIndex]]:
    """Read a ``.carbonindex``: the columns of its header, which a streaming segment lacks, and its entries."""
    header, end = read_thrift(data, member(2, lambda value: value))
    if not isinstance(header, list):  # the name in an entry
        return (), _read_all(data, BlockIndex.of)
    return _list_of(ColumnSchema.of)(header), _read_all(data, BlockIndex.of, end)


def read_merged_index_file(data: bytes) -> dict[str, bytes]:
    """Read a ``.carbonindexmerge``: the bytes of each index file in it, by name."""
    names, end = read_thrift(data, member(1, _list_of(binary), ()))
    files, _ = read_thrift(data, member(1, _list_of(binary), ()), end)
    by_name = {name.decode(errors="replace"): file for name, file in zip(names, files, strict=False)}
    if not len(by_name) == len(names) == len(files):
        damaged(f"it has {len(names)} names, {len(by_name)} of them distinct, and {len(files)} index files")
    return by_name


def read_dictionary_meta(data: bytes) -> list[DictionaryLoad]:
    """Read a ``.dictmeta``: an entry for no load, then those of the loads."""
    loads = [DictionaryLoad(first=0, last=0, start=0, end=0), *_read_all(data, DictionaryLoad.of)]
    for number, (before, load) in enumerate(pairwise(loads)):
        if load.first != before.last + 1 or load.start != before.end or load.last < load.first:
            damaged(f"entry {number} of a dictionary's meta does not follow the entry before it")
    return loads


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
    encoders: Annotated[tuple[int, ...], 12, _list_of(ENUM)] = ()
    encoder_meta: Annotated[tuple[bytes, ...], 13, _list_of(binary)] = ()
    # Version 1 has no bounds here; no field has the number 0.
    min_max: Annotated[MinMax, 0, MinMax.of] = NO_BOUNDS
    is_row_major: Annotated[bool, 2, flag] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockletInfo(Struct):
    """A blocklet of version 1."""

    rows: Annotated[int, 1, I32]
    chunks: Annotated[tuple[DataChunk, ...], 2, _list_of(DataChunk.of)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockletInfo2(Struct):
    """A blocklet of version 2: where the `DataChunk2` of each column begins, and its length without pages."""

    rows: Annotated[int, 1, I32]
    offsets: Annotated[tuple[int, ...], 2, _list_of(I64)] = ()
    header_bytes: Annotated[tuple[int, ...], 3, _list_of(I16)] = ()


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
    columns: Annotated[tuple[ColumnSchema, ...], 3, _list_of(ColumnSchema.of)] = ()
    cardinalities: Annotated[tuple[int, ...], 4, CARDINALITIES]
    # Of the dimensions of each blocklet.
    min_max: Annotated[tuple[MinMax, ...], 5, _list_of(BOUNDS)] = ()
    blocklets: Annotated[tuple[BlockletInfo, ...], 6, _list_of(BlockletInfo.of)] = ()
    blocklets2: Annotated[tuple[BlockletInfo2, ...], 7, _list_of(BlockletInfo2.of)] = ()
