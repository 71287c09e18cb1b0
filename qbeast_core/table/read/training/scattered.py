"""Shuffle any number of rows: scatter them to random buckets, in memory or in temporary files, then shuffle each."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.io.stores.temporary_folder import TemporaryFolder
from qbeast_core.resources import Resources, spill_folder_of
from qbeast_core.space.arrays import I64Array
from qbeast_core.support.runtime import LOG
from qbeast_core.support.sizing import sizing

# The number of a bucket is a byte: numpy sorts these fastest.
MAX_BUCKETS: Final = 1 << 8

_PREFIX: Final = "qbeast-shuffle-"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Rows by bucket, and where each bucket begins, and the last one ends.
_Run: TypeAlias = tuple[pl.DataFrame, I64Array]


class ScatteredRows:
    """Rows, each in any bucket with the same chance. They are in memory until `spill`, which `close` cleans up.

    The order of `shuffled` depends on the order of the rows, not on how frames divide them.
    """

    def __init__(
        self, buckets: int, random: np.random.Generator, *, memory_bytes: int, spill_dir: Path
    ) -> None:
        self._buckets, self._random, self._spill_dir = buckets, random, spill_dir
        self._run_bytes = run_bytes(memory_bytes)
        self._waiting, self._waiting_bytes = list[pl.DataFrame](), 0
        self._runs, self._schema = list[_Run](), pl.Schema()
        self._folder: TemporaryFolder | None = None
        self._files = list[tuple[Any, Any]]()  # with their readers
        self.memory_bytes = 0  # of the rows in memory

    def add(self, frame: pl.DataFrame) -> None:
        """Add the rows of a frame."""
        size = int(frame.estimated_size())
        self._waiting.append(frame)
        self._waiting_bytes += size
        self.memory_bytes += size
        if self._waiting_bytes > self._run_bytes:
            self._scatter()

    def spill(self) -> None:
        """Move the rows to temporary files. Later rows follow them."""
        if self._folder is None:
            LOG.info("rows to shuffle do not fit in the buffer: temporary files in %s", self._spill_dir)
            with self._using():
                self._folder = TemporaryFolder(self._spill_dir, _PREFIX)
        self._scatter()

    def shuffled(self) -> Iterator[pl.DataFrame]:
        """Yield the rows in a random order, and forget them."""
        self._scatter()
        runs, self._runs, self.memory_bytes = self._runs, list[_Run](), 0
        for number in range(self._buckets if runs or self._files else 0):
            rows = (self._stored(number) if self._files else _bucket(runs, number)).rechunk()
            if rows.height:
                yield rows[self._random.permutation(rows.height)]

    def close(self) -> None:
        """Remove the temporary files."""
        for file, _ in self._files:
            file.close()
        if self._folder is not None:
            self._folder.close()

    def _scatter(self) -> None:
        """Put waiting rows in the order of random buckets."""
        if self._waiting:
            rows = pl.concat(self._waiting).rechunk()
            self._waiting, self._waiting_bytes = [], 0
            # Of 32 bits: parts of a stream of bytes are not the stream of the parts.
            bucket = self._random.integers(self._buckets, size=rows.height, dtype=np.uint32).astype(np.uint8)
            starts = np.cumsum([0, *np.bincount(bucket, minlength=self._buckets)])
            self._runs.append((rows[np.argsort(bucket, kind="stable")], starts))
            self._schema = rows.schema
        if self._folder is not None:
            with self._using():
                while self._runs:
                    path = str(self._folder.path / str(len(self._files)))
                    self._files.append(_in_file(*self._runs.pop(0), path))
            self.memory_bytes = 0

    def _stored(self, number: int) -> pl.DataFrame:
        """Return the rows of a bucket that are in files."""
        import pyarrow as pa  # noqa: PLC0415 - slow to load, and rows in memory do without

        with self._using():
            frame = pl.DataFrame(
                pa.Table.from_batches([reader.get_batch(number) for _, reader in self._files])
            )
        other = {name: dtype for name, dtype in self._schema.items() if frame.schema[name] != dtype}
        return frame.cast(other)

    @contextmanager
    def _using(self) -> Generator[None]:
        """Convert errors of the system to a `StorageError` about the folder, not the table."""
        try:
            yield
        except OSError as error:
            problem = (
                "has no room left" if error.errno in _FULL else f"cannot be used: {error.strerror or error}"
            )
            msg = (
                f"the folder for rows to shuffle, {str(self._spill_dir)!r}, {problem}. The table is unchanged. Name "
                "another folder in the environment variable QBEAST_SPILL_DIR, or give a larger `buffer_bytes`"
            )
            raise StorageError(msg, path=str(self._spill_dir), argument="buffer_bytes") from error


def run_bytes(memory_bytes: int) -> int:
    """Return the size of rows that are scattered together. Each becomes an open file, so there are not many."""
    return max(min(memory_bytes // 2, sizing().batch_bytes), memory_bytes // 8, 1)


def spill_folder() -> Path:
    """Return the folder for temporary files, also one that cannot be used."""
    folder = spill_folder_of(Resources())
    if folder is None:
        with suppress(FileNotFoundError):  # no folder of the system can be written to
            folder = tempfile.gettempdir()
    return Path(folder or os.curdir)


def free_bytes(folder: Path) -> int:
    """Return how many bytes can be written to a folder. 0: it is not there, or is not ours to write to."""
    return shutil.disk_usage(folder).free if os.access(folder, os.W_OK | os.X_OK) else 0


def _bucket(runs: list[_Run], number: int) -> pl.DataFrame:
    return pl.concat([rows[starts[number] : starts[number + 1]] for rows, starts in runs])


def _in_file(rows: pl.DataFrame, starts: I64Array, path: str) -> tuple[Any, Any]:
    """Write rows to a file, a batch for each bucket. Return the file and its reader."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load, and rows in memory do without

    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    columns = [column.combine_chunks() for column in table.columns]
    batch = pa.RecordBatch.from_arrays(columns, schema=table.schema)
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        for first, end in pairwise(starts.tolist()):
            writer.write(batch.slice(first, end - first))
    stored = pa.OSFile(path)
    return stored, pa.ipc.open_file(stored)
