"""Structs of index files and of the meta of dictionaries, and how such files are put together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from qbeast_carbondata.damage import damaged
from qbeast_carbondata.structs.data_file import BOUNDS, NO_BOUNDS, BlockletInfo3, MinMax
from qbeast_carbondata.structs.fields import (
    I32,
    I64,
    Struct,
    binary,
    integer,
    list_of,
    member,
    read_all,
    read_thrift,
    text,
)
from qbeast_carbondata.structs.schema import ColumnSchema


def _base_name(value: object) -> str:
    return text(value).replace("\\", "/").rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockIndex(Struct):
    """A blocklet of a data file, or (where `blocklet` is None) all of it."""

    rows: Annotated[int, 1, I64]
    file_name: Annotated[str, 2, _base_name]
    min_max: Annotated[MinMax, 4, BOUNDS] = NO_BOUNDS
    blocklet: Annotated[BlockletInfo3 | None, 5, BlockletInfo3.of] = None
    # Length of the file, or -1.
    file_bytes: Annotated[int, 6, integer(-1)] = -1


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
        return (), read_all(data, BlockIndex.of)
    return list_of(ColumnSchema.of)(header), read_all(data, BlockIndex.of, end)


def read_merged_index_file(data: bytes) -> dict[str, bytes]:
    """Read a ``.carbonindexmerge``: the bytes of each index file in it, by name."""
    names, end = read_thrift(data, member(1, list_of(binary), ()))
    files, _ = read_thrift(data, member(1, list_of(binary), ()), end)
    by_name = {name.decode(errors="replace"): file for name, file in zip(names, files, strict=False)}
    if not len(by_name) == len(names) == len(files):
        damaged(f"it has {len(names)} names, {len(by_name)} of them distinct, and {len(files)} index files")
    return by_name


def read_dictionary_meta(data: bytes) -> list[DictionaryLoad]:
    """Read a ``.dictmeta``: an entry for no load, then those of the loads."""
    loads = [DictionaryLoad(first=0, last=0, start=0, end=0), *read_all(data, DictionaryLoad.of)]
    for number, (before, load) in enumerate(pairwise(loads)):
        if load.first != before.last + 1 or load.start != before.end or load.last < load.first:
            damaged(f"entry {number} of a dictionary's meta does not follow the entry before it")
    return loads
