"""Structs of ``carbondata_index.thrift`` and ``carbondata_index_merge.thrift``, and how such files are put together."""

from __future__ import annotations

from dataclasses import dataclass

from qbeast_core.carbondata.damage import damaged
from qbeast_core.carbondata.fields import I32_MAX, Fields, read_fields
from qbeast_core.carbondata.structs.data_file import BlockletIndex, BlockletInfo3, SegmentInfo
from qbeast_core.carbondata.structs.schema import ColumnSchema
from qbeast_core.io.thrift import ThriftStruct


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """What an index file begins with; those of streaming segments have none."""

    version: int
    columns: tuple[ColumnSchema, ...]
    segment: SegmentInfo

    @classmethod
    def of(cls, struct: ThriftStruct) -> IndexHeader:
        """Read one."""
        f = Fields(struct, "IndexHeader")
        return cls(f.integer(1, most=I32_MAX), f.structs(2, ColumnSchema.of), f.struct(3, SegmentInfo.of))


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """A blocklet of a data file, or (where `blocklet` is None) all of it."""

    rows: int
    # Of the data file, without its folder.
    file_name: str
    # Where its footer begins; -1 in streaming segments.
    footer_offset: int
    index: BlockletIndex
    blocklet: BlockletInfo3 | None
    # Length of the file; -1 if it does not tell.
    file_bytes: int

    @classmethod
    def of(cls, struct: ThriftStruct) -> BlockIndex:
        """Read one."""
        f = Fields(struct, "BlockIndex")
        return cls(
            rows=f.integer(1),
            file_name=f.text(2).replace("\\", "/").rpartition("/")[2],
            footer_offset=f.integer(3, least=-1),
            index=f.struct(4, BlockletIndex.of) if f.has(4) else BlockletIndex.of(_EMPTY),
            blocklet=f.struct(5, BlockletInfo3.of) if f.has(5) else None,
            file_bytes=f.integer(6, -1, least=-1),
        )


_EMPTY = ThriftStruct({}, 0, 0)


def read_index_file(data: bytes) -> tuple[IndexHeader | None, tuple[BlockIndex, ...]]:
    """Read a ``.carbonindex``: its header, None in a streaming segment, and its entries."""
    header, at = read_fields(data, lambda one: one)
    known = (
        IndexHeader.of(header) if isinstance(header.fields.get(2), list) else None
    )  # an entry has a name there
    at = 0 if known is None else at
    entries: list[BlockIndex] = []
    while at < len(data):
        entry, at = read_fields(data, BlockIndex.of, at=at)
        entries.append(entry)
    return known, tuple(entries)


def read_merged_index_file(data: bytes) -> dict[str, bytes]:
    """Read a ``.carbonindexmerge``: the bytes of each index file in it, by name."""
    names, at = read_fields(data, lambda one: Fields(one, "MergedBlockIndexHeader").binaries(1))
    files, _ = read_fields(data, lambda one: Fields(one, "MergedBlockIndex").binaries(1), at=at)
    found = {name.decode(errors="replace"): file for name, file in zip(names, files, strict=False)}
    if not len(found) == len(names) == len(files):
        damaged(f"{len(found)} of {len(names)} names are those of its {len(files)} index files")
    return found
