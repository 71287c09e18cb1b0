"""Shuffle any number of rows: scatter them to random buckets, in memory or in temporary files, then shuffle each."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.io.machine import TemporaryFolder
from qbeast_core.support.process import LOG, Resources, spill_folder_of

# The number of a bucket is a byte: numpy sorts these fastest.
MAX_BUCKETS: Final = 1 << 8

# Rows that are scattered together: they fit the caches of the processor.
_RUN_BYTES: Final = 16 << 20

_WRITE_BYTES: Final = 1 << 20

_PREFIX: Final = "qbeast-shuffle-"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Returns the rows of a bucket.
_Run: TypeAlias = Callable[[int], pl.DataFrame]


class ScatteredRows:
    """Rows, each in any bucket with the same chance. After `spill`, further rows are in files until `close`.

    The order of `shuffled` depends on the order of the rows, not on how frames divide them.
    """

    def __init__(
        self, buckets: int, random: np.random.Generator, *, memory_bytes: int, spill_dir: Path
    ) -> None:
        self._buckets, self._random, self._spill_dir = buckets, random, spill_dir
        # Each run is an open file, so there are not many.
        self._run_bytes = max(min(memory_bytes // 2, _RUN_BYTES), memory_bytes // 16)
        self._waiting, self._waiting_bytes = list[pl.DataFrame](), 0
        self._runs = list[_Run]()
        self._folder: TemporaryFolder | None = None
        self._files = list[Any]()
        self.size_bytes = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Add the rows of a frame."""
        size = int(frame.estimated_size())
        self._waiting.append(frame)
        self._waiting_bytes += size
        self.size_bytes += size
        if self._waiting_bytes > self._run_bytes:
            self._scatter()

    def spill(self) -> None:
        """Put rows that follow into temporary files."""
        if self._folder is None:
            LOG.info("rows to shuffle do not fit in the buffer: temporary files in %s", self._spill_dir)
            with self._using():
                self._folder = TemporaryFolder(self._spill_dir, _PREFIX)

    def shuffled(self) -> Iterator[pl.DataFrame]:
        """Yield the rows in a random order, and forget them."""
        self._scatter()
        runs, self._runs, self.size_bytes = self._runs, list[_Run](), 0
        for number in range(self._buckets if runs else 0):
            with self._using():
                rows = pl.concat([bucket(number) for bucket in runs]).rechunk()
            if rows.height:
                yield rows[pl.Series(self._random.permutation(np.arange(rows.height, dtype=np.uint32)))]

    def close(self) -> None:
        """Remove the temporary files."""
        for file in self._files:
            file.close()
        if self._folder is not None:
            self._folder.close()

    def _scatter(self) -> None:
        """Put waiting rows in the order of random buckets."""
        if not self._waiting:
            return
        rows = pl.concat(self._waiting).rechunk()
        self._waiting, self._waiting_bytes = [], 0
        # Of 32 bits: parts of a stream of bytes are not the stream of the parts.
        bucket = self._random.integers(self._buckets, size=rows.height, dtype=np.uint32).astype(np.uint8)
        starts = np.cumsum([0, *np.bincount(bucket, minlength=self._buckets)]).tolist()
        rows = rows[pl.Series(np.argsort(bucket, kind="stable").astype(np.uint32))]
        if self._folder is None:
            self._runs.append(partial(_in_memory, rows, starts))
        else:
            self._runs.append(self._stored(rows, starts, self._folder.path / str(len(self._files))))

    def _stored(self, rows: pl.DataFrame, starts: list[int], path: Path) -> _Run:
        """Write rows to a file, a batch for each bucket."""
        import pyarrow as pa  # noqa: PLC0415 - slow to load, and rows in memory do without

        table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
        batch = pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in table.columns], schema=table.schema
        )
        with self._using():
            with (
                pa.output_stream(str(path), buffer_size=_WRITE_BYTES) as file,
                pa.ipc.new_file(file, table.schema) as to,
            ):
                for first, end in pairwise(starts):
                    to.write(batch.slice(first, end - first))
            self._files.append(pa.OSFile(str(path)))
            return partial(_from_file, pa.ipc.open_file(self._files[-1]), rows.schema)

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


def _in_memory(rows: pl.DataFrame, starts: list[int], bucket: int) -> pl.DataFrame:
    return rows[starts[bucket] : starts[bucket + 1]]


def _from_file(reader: Any, schema: pl.Schema, bucket: int) -> pl.DataFrame:
    frame = pl.DataFrame(reader.get_batch(bucket))
    return frame.cast({name: dtype for name, dtype in schema.items() if frame.schema[name] != dtype})
