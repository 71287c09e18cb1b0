"""Structs of ``dictionary_metadata.thrift``: what each load added to a global dictionary."""

from __future__ import annotations

from dataclasses import dataclass

from qbeast_core.carbondata.damage import damaged
from qbeast_core.carbondata.fields import I32_MAX, Fields, read_fields
from qbeast_core.io.thrift import ThriftStruct


@dataclass(frozen=True, slots=True)
class ColumnDictionaryChunkMeta:
    """What one load added to a dictionary: surrogates `first` to `last`, written until byte `end` of it."""

    first: int
    last: int
    start: int
    end: int

    @classmethod
    def of(cls, struct: ThriftStruct) -> ColumnDictionaryChunkMeta:
        """Read one."""
        f = Fields(struct, "ColumnDictionaryChunkMeta")
        return cls(f.integer(1, most=I32_MAX), f.integer(2, most=I32_MAX), f.integer(3), f.integer(4))


def read_dictionary_meta(data: bytes) -> tuple[ColumnDictionaryChunkMeta, ...]:
    """Read a ``.dictmeta``: what each load added."""
    found: list[ColumnDictionaryChunkMeta] = []
    at = 0
    while at < len(data):
        entry, at = read_fields(data, ColumnDictionaryChunkMeta.of, at=at)
        before = found[-1] if found else ColumnDictionaryChunkMeta(0, 0, 0, 0)
        if entry.first != before.last + 1 or entry.start != before.end or entry.last < entry.first:
            damaged(f"entry {len(found)} of a dictionary's meta does not follow the one before")
        found.append(entry)
    return tuple(found)
