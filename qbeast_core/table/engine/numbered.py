"""Sources whose rows get the numbers of identity columns: the order of the rows decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import polars as pl

from qbeast_core.log.columns.declared_rules import Identity
from qbeast_core.table.data.rules.identities import with_numbers
from qbeast_core.table.engine.protocol import Source
from qbeast_core.table.engine.stream import FrameSource, OneShotSource

# Size of the batches of rows that can be read once. They are cut again where they are stored.
_BATCH_BYTES: Final = 16 << 20


@runtime_checkable
class NumberingSource(Protocol):
    """A source that numbers its rows itself."""

    def numbered(self, identities: Sequence[Identity]) -> tuple[Source, int]:
        """Return the rows with numbers, and how many numbers they use up."""
        ...


def numbered(source: Source, identities: Sequence[Identity]) -> tuple[Source, int | None]:
    """Return the rows with numbers, and how many numbers they use up. None: one per row."""
    if isinstance(source, NumberingSource):
        return source.numbered(identities)
    if isinstance(source, FrameSource):
        return FrameSource(with_numbers(source.frame, identities)), None
    rows = _Numbered(source, tuple(identities))
    if isinstance(source, OneShotSource):
        return OneShotSource(rows.with_empty()), None
    return rows, None


@dataclass(frozen=True, slots=True, eq=False)
class _Numbered:
    """Rows in batches, with numbers. Each read counts from the first row."""

    source: Source
    identities: tuple[Identity, ...]

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        return with_numbers(self.source.empty, self.identities)

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `Source`."""
        drawn = [identity.column for identity in self.identities]
        read = None
        if columns is not None:
            read = [name for name in columns if name not in drawn] or self.source.empty.columns[:1]
        first_row = 0
        for rows in self.source.batches(read, size_bytes=size_bytes):
            frame = with_numbers(rows, self.identities, first_row)
            yield frame if columns is None else frame.select(columns)
            first_row += rows.height

    def with_empty(self) -> Iterator[pl.DataFrame]:
        """Yield a frame without rows, then all rows."""
        yield self.empty
        yield from self.batches(None, size_bytes=_BATCH_BYTES)
