"""The memory budget of a call, and the sizes of batches, samples and files that follow from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.machine import memory_of_machine
from qbeast_core.table.data.frames import has_any_width
from qbeast_core.tree.summary import SampleLimits, domain_limits

# Minimum budget to move rows.
MIN_MEMORY_BYTES: Final = 4 << 20

_UNITS: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)

# Not for rows: code and threads of libraries, and freed memory that allocators keep.
_OTHER_BYTES: Final = 128 << 20
_MIN_LOAD_BYTES: Final = 24 << 20  # a third of a file: prefer fewer writers to smaller files
# Copies of the rows of a file: as read, apart, in order, encoded, and memory that is freed late.
_COPIES: Final = 8
_BATCHES: Final = 64
_MIN_BATCH_BYTES: Final = 1 << 17
_MAX_BATCH_BYTES: Final = 64 << 20
_TEXT_BYTES: Final = 24
_NESTED_BYTES: Final = 64
_SAMPLE_ROW_BYTES: Final = 1024  # memory per sampled row while a tree is drawn
_MIN_SAMPLE_ROWS: Final = 1 << 15


@dataclass(frozen=True, slots=True)
class Budget:
    """Memory that the rows of a call may use, and number of cores."""

    memory_bytes: int
    cores: int

    @staticmethod
    def of(memory_bytes: int | None = None) -> Budget:
        """Return the budget of a call that may add this memory, by default half of the machine's or cgroup's."""
        if memory_bytes is None:
            memory_bytes = memory_of_machine() // 2
        return Budget(max(memory_bytes - _OTHER_BYTES, memory_bytes // 2), pl.thread_pool_size())

    @property
    def writers(self) -> int:
        """Number of files that are written at the same time."""
        return max(min(self.cores, self.memory_bytes // (_COPIES * _MIN_LOAD_BYTES)), 1)

    @property
    def load_bytes(self) -> int:
        """Size of the rows that one writer may load into memory."""
        return self.memory_bytes // (_COPIES * self.writers)

    @property
    def batch_bytes(self) -> int:
        """Size of a batch of rows to read, place and spill."""
        return min(max(self.memory_bytes // _BATCHES, _MIN_BATCH_BYTES), _MAX_BATCH_BYTES)

    @property
    def sample(self) -> SampleLimits:
        """Limits of the sample that a tree is drawn from."""
        rows = max(self.memory_bytes // _SAMPLE_ROW_BYTES, _MIN_SAMPLE_ROWS)
        size_bytes = max(self.memory_bytes // 16, _MIN_BATCH_BYTES)
        return SampleLimits(min(rows, domain_limits().rows), min(size_bytes, domain_limits().size_bytes))


def guess_row_bytes(schema: pl.Schema) -> int:
    """Estimate the bytes of a row in memory from the types.

    >>> guess_row_bytes(pl.Schema({"id": pl.Int64(), "name": pl.String()}))
    32
    """
    return sum(_guess_bytes(dtype) for dtype in schema.dtypes())


def _guess_bytes(dtype: pl.DataType) -> int:
    if has_any_width(dtype):
        return _TEXT_BYTES if dtype == pl.String else _NESTED_BYTES
    return 16 if dtype.is_decimal() else 8


def bytes_of_text(text: str, *, argument: str) -> int:
    """Parse a size such as ``2GiB``, ``512 MB`` (also a power of 1,024) or a plain number of bytes.

    >>> bytes_of_text("1.5k", argument="memory_bytes"), bytes_of_text("2 GiB", argument="memory_bytes")
    (1536, 2147483648)
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        msg = f"{argument} is not a size: {text!r}. Give 2GiB, 512MB or a number of bytes."
        raise InvalidInputError(msg, argument=argument)
    return int(float(match[1]) * (1 << _UNITS[match[2].lower()]))
