"""Read rows once in a random order, in bounded memory, from any place again: shuffled training batches."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import numpy as np
import polars as pl

from qbeast_core.errors import (
    InvalidInputError,
    SmallBufferWarning,
    StorageError,
    check_whole_number,
    invalid_argument,
)
from qbeast_core.io.machine import TemporaryFolder
from qbeast_core.plan.nodes import named_columns
from qbeast_core.plan.select import Pieces, Share, cut, deal, in_space, share_of
from qbeast_core.plan.weights import Sample
from qbeast_core.space.values import I64Array
from qbeast_core.support.frames import own_column, with_types
from qbeast_core.support.process import LOG, Resources, caller_stacklevel, spill_folder_of
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.expressions import Predicate, evaluating
from qbeast_core.table.data.frames import ahead, has_any_width
from qbeast_core.table.data.scan import FileScan
from qbeast_core.table.read.planner import Planner, ScanPlan, all_pages, log_read, scans_of
from qbeast_core.table.read.scan import SAMPLING_WEIGHT, heights, sampling_weight
from qbeast_core.table.read.tasks import RowFilter, read_scans

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

    def shuffled(self) -> Generator[pl.DataFrame]:
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


def _spill_folder() -> Path:
    """Return the folder for temporary files, also one that cannot be used."""
    folder = spill_folder_of(Resources())
    if folder is None:
        with suppress(FileNotFoundError):  # no folder of the system can be written to
            folder = tempfile.gettempdir()
    return Path(folder or os.curdir)


def _free_bytes(folder: Path) -> int:
    """Return how many bytes can be written to a folder. 0: it is not there, or is not ours to write to."""
    return shutil.disk_usage(folder).free if os.access(folder, os.W_OK | os.X_OK) else 0


def _in_memory(rows: pl.DataFrame, starts: list[int], bucket: int) -> pl.DataFrame:
    return rows[starts[bucket] : starts[bucket + 1]]


def _from_file(reader: Any, schema: pl.Schema, bucket: int) -> pl.DataFrame:
    return with_types(pl.DataFrame(reader.get_batch(bucket)), schema)


# What `ShuffledBatches.state_dict` returns: numbers and texts, for JSON.
State: TypeAlias = Mapping[str, int | str]

BATCH_BYTES: Final = 64 << 20
BUFFER_BYTES: Final = 256 << 20
SHUFFLED_ROWS: Final = 1024  # of a batch

# A round has at most this many buffers of rows, through temporary files: sixteen, as sizes of rows are estimates.
_BUFFERS: Final = 20
_ROOM: Final = 2  # times their size has to be free
# A buffer has about this many pieces: as many places of the table are in it.
_PIECES: Final = 512
# Rows of a bucket, if there are enough, and number of buckets in a buffer.
_BUCKET_ROWS: Final = 1 << 16
_BUCKETS: Final = 8
_PROBES: Final = 4
_EXPANSION: Final = 4  # of stored bytes in memory, where no page can be measured
_PLACE: Final = own_column("place")


@dataclass(frozen=True, slots=True)
class Order:
    """Which order, and which part of the rows."""

    seed: int
    epoch: int
    rank: int
    world_size: int

    @staticmethod
    def checked(seed: int, epoch: int, rank: int, world_size: int) -> Order:
        """Return an order; raise unless its numbers are in their ranges."""
        for name, value in {"seed": seed, "epoch": epoch, "rank": rank}.items():
            check_whole_number(name, value, 0)
        check_whole_number("world_size", world_size, 1)
        if rank >= world_size:
            invalid_argument("rank", f"must be a whole number below world_size={world_size}", value=rank)
        return Order(seed, epoch, rank, world_size)

    def part(self, epoch: int, number: int, parts: int) -> Order:
        """Return the order of one of some equal parts of this rank."""
        return Order(self.seed, epoch, self.rank * parts + number, self.world_size * parts)

    def random(self, *of: int) -> np.random.Generator:
        """Return random numbers of this order."""
        return np.random.default_rng([self.seed, self.epoch, *of])


class ShuffledBatches(Iterator[pl.DataFrame]):
    """Batches of rows in a random order, which `Read.shuffled` returns."""

    def __init__(self, read: ShuffledRead, batch_rows: int, resume: State | None) -> None:
        self._read = read
        self._round, self._row = (0, 0) if resume is None else read.place_of(resume)
        # Without a reference to this object: its last one ends the read, which removes temporary files.
        self._batches = _batches_from(read, batch_rows, self._round, self._row)

    def __next__(self) -> pl.DataFrame:
        """Return the next batch."""
        batch, self._round, self._row = next(self._batches)
        return batch

    def state_dict(self) -> dict[str, int | str]:
        """Return where the next batch begins, for ``shuffled(resume=)``. It can be written as JSON."""
        return {**self._read.identity, "spills": self._read.spills, "round": self._round, "row": self._row}


class ShuffledRead:
    """The rounds of one order: each is read as a whole, and its rows are shuffled in memory."""

    def __init__(
        self,
        planner: Planner,
        plan: ScanPlan,
        columns: list[str],
        sample: Sample | None,
        order: Order,
        *,
        where: Predicate | None,
        buffer_bytes: int,
        expand: bool,
    ) -> None:
        self._order, self._buffer_bytes, self._where = order, buffer_bytes, where
        self._sample, self._spill_dir = sample, _spill_folder()
        log_read(planner, plan, sample)
        snapshot = planner.snapshot
        opened = snapshot.with_files(snapshot.files[in_space(plan.selection)])
        planner = self._planner = Planner(opened, planner.sample_by)
        self._plan = planner.of_filter(plan.predicate).within(plan.weights)
        self._keep = planner.row_filter(self._plan, columns)
        # Value of the column that `expand` adds.
        self._weight = sampling_weight(planner, sample) if expand else None

    @cached_property
    def identity(self) -> dict[str, int | str]:
        """What must be equal to continue: the version, the order and the read."""
        keep, metadata = self._keep, self._planner.snapshot.metadata
        read = (
            keep.columns,
            str(keep.predicate),
            keep.weights,
            keep.indexed,
            self._buffer_bytes,
            self._weight,
        )
        digest = hashlib.sha256(repr(read).encode()).hexdigest()[:16]
        version = self._planner.snapshot.version
        return {"table": metadata.id, "version": version, "read": digest, **asdict(self._order)}

    def place_of(self, state: State) -> tuple[int, int]:
        """Return the round and the row of a state. Raise unless it is of this read."""
        untyped = cast("object", state)  # callers without a type checker may pass its JSON
        values = state if isinstance(untyped, Mapping) else {}
        number, row, spills = (values.get(name) for name in ("round", "row", "spills"))
        if (
            not (isinstance(number, int) and isinstance(row, int) and isinstance(spills, bool))
            or min(number, row) < 0
        ):
            msg = (
                "`resume` must be the dict that state_dict() of the batches returned (json.loads of its JSON)"
            )
            raise InvalidInputError(msg, argument="resume", value=state)
        other = [name for name, value in self.identity.items() if state.get(name) != value]
        if other:
            then = {name: state.get(name) for name in other}
            now = {name: self.identity[name] for name in other}
            msg = (
                f"`resume` is of another read: its {then}, here {now}. Nothing was read. Give the arguments of the "
                "first read, and open its version: qbeast.open_table(path, version=...)"
            )
            raise InvalidInputError(msg, argument="resume", value=state)
        self.spills = spills
        return number, row

    def chunks(self, number: int) -> Iterator[pl.DataFrame]:
        """Yield the rows of a round, shuffled. Without room for files, rows beyond the buffer are by themselves."""
        random = self._order.random(self._order.rank, number)
        scattered = ScatteredRows(
            self._buckets, random, memory_bytes=self._buffer_bytes, spill_dir=self._spill_dir
        )
        with closing(scattered):
            waiting_bytes = min(self._buffer_bytes // 16, _RUN_BYTES)
            with closing(ahead(self._frames(number), size_bytes=waiting_bytes)) as frames:
                for frame in frames:
                    scattered.add(frame)
                    if self.spills and scattered.size_bytes + waiting_bytes > self._buffer_bytes:
                        scattered.spill()
                    elif scattered.size_bytes > self._buffer_bytes:
                        yield from scattered.shuffled()
            yield from ahead(scattered.shuffled(), size_bytes=0)

    def _frames(self, number: int) -> Generator[pl.DataFrame]:
        for scans in self._scans(number):
            for frame in self._read(scans, self._keep):
                weight = [] if self._weight is None else [pl.lit(self._weight).alias(SAMPLING_WEIGHT)]
                yield frame.with_columns(weight)

    def _read(self, scans: Sequence[FileScan], keep: RowFilter) -> Iterator[pl.DataFrame]:
        with evaluating(self._where):
            yield from read_scans(scans, keep, self._planner.files)

    def _scans(self, number: int) -> Iterator[list[FileScan]]:
        """Yield what to read of a round at a time: pages or files, and parts of pieces, which are read one by one."""
        share, pieces = self._share, self._pieces
        mine = share.round == number
        whole = np.sort(share.piece[mine & (share.first < 0)])
        sizes = np.cumsum(np.maximum(pieces.rows[whole], 0)) * self._row_bytes
        loads = sizes // max(min(self._buffer_bytes // 2, sizing().batch_bytes), 1)
        for load in np.split(whole, np.flatnonzero(np.diff(loads)) + 1):
            runs = zip(*_runs(pieces.file[load]), strict=True)
            if len(load):
                yield [self._scan(file, load[first:end]) for file, first, end in runs]
        for at in np.flatnonzero(mine & (share.first >= 0)).tolist():
            yield [self._part(share, at)]

    def _scan(self, file: int, whole: I64Array) -> FileScan:
        """Return the scan of some pieces of a file."""
        scan = self._scan_of[file]
        first, end = self._pieces.first[whole], self._pieces.end[whole]
        if scan.pages is None or (end - first).sum() == len(scan.pages.pages):
            return self._whole_scan_of[file]
        chosen = np.concatenate([np.arange(*bounds) for bounds in zip(first, end, strict=True)])
        return replace(scan, pages=scan.pages.at(np.sort(chosen)))

    def _part(self, share: Share, at: int) -> FileScan:
        """Return the scan of a part of a piece."""
        scan = self._scan(int(self._pieces.file[share.piece[at]]), share.piece[at : at + 1])
        return replace(scan, only=self._places(scan)[share.first[at] : share.end[at]])

    def _places(self, scan: FileScan) -> I64Array:
        """Return which rows of a file the read returns, ascending."""
        keep = self._keep
        column = next(
            iter([*named_columns(keep.predicate), *(keep.indexed if keep.hashes_rows else ()), *keep.columns])
        )
        frames = self._read([scan], replace(keep, columns=(column,), place_column=_PLACE))
        places = [frame[_PLACE] for frame in frames]
        return np.sort(pl.concat(places).to_numpy()) if places else np.empty(0, np.int64)

    @cached_property
    def _whole_scan_of(self) -> dict[int, FileScan]:
        numbers = np.flatnonzero(self._plan.selection.opened).tolist()
        return dict(zip(numbers, scans_of(self._planner, self._plan, numbers), strict=True))

    @cached_property
    def _scan_of(self) -> dict[int, FileScan]:
        """The scan of each file by pages, if they are known."""
        snapshot, blocks = self._planner.snapshot, self._plan.selection.table
        return {
            number: replace(scan, pages=scan.pages or all_pages(snapshot, blocks, number))
            for number, scan in self._whole_scan_of.items()
        }

    @cached_property
    def spills(self) -> bool:
        """Whether rows beyond the buffer go to temporary files. A read that continues does as it began."""
        size = min(self._opened_bytes, _BUFFERS * self._buffer_bytes)
        return _free_bytes(self._spill_dir) > _ROOM * size

    @cached_property
    def _opened_bytes(self) -> float:
        """Bytes in memory of the rows of this rank, also of those that a filter leaves out."""
        return float(self._plan.selection.rows_opened.sum()) * self._row_bytes / self._order.world_size

    @cached_property
    def _rounds_and_pieces(self) -> tuple[int, Pieces]:
        fitting = (_BUFFERS if self.spills else sizing().filled_share) * self._buffer_bytes
        size, keep = self._opened_bytes, self._keep
        if size > fitting and (keep.predicate is not None or keep.hashes_rows):
            with evaluating(self._where):
                rows = sum(heights(self._planner, keep.predicate, self._sample))
            size = rows * self._row_bytes / self._order.world_size
        if size > fitting:
            self._warn(size, math.ceil(size / fitting * self._buffer_bytes))
        pieces = cut(
            self._plan.selection,
            piece_rows=max(int(sizing().filled_share * self._buffer_bytes / self._row_bytes) // _PIECES, 1),
            whole_bands=self._planner.store.local_root is None,
        )
        return max(min(math.ceil(size / fitting), len(pieces)), 1), pieces

    def _warn(self, size: float, enough: int) -> None:
        if self.spills:
            why, cure = "holds less than a sixteenth of the rows", ""
        else:
            why = f"does not hold the rows, and {str(self._spill_dir)!r} has no room for temporary files of them"
            cure = ", or name a folder with room in the environment variable QBEAST_SPILL_DIR"
        msg = (
            f"the buffer of {self._buffer_bytes:,} bytes {why} (about {size:,.0f} bytes): the table is shuffled in "
            "parts, and batches of one part may be alike. Every row is returned once. Give "
            f"buffer_bytes={enough} or more{cure}"
        )
        warnings.warn(msg, SmallBufferWarning, stacklevel=caller_stacklevel())

    @cached_property
    def _buckets(self) -> int:
        """Number of buckets of a round: they fit the caches of the processor, and the buffer several times."""
        size = self._opened_bytes / self.rounds
        buckets = max(size / self._row_bytes / _BUCKET_ROWS, _BUCKETS * size / self._buffer_bytes)
        return max(min(math.ceil(buckets), MAX_BUCKETS), 1)  # a log may count no rows where a file has some

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return self._rounds_and_pieces[0]

    @property
    def _pieces(self) -> Pieces:
        return self._rounds_and_pieces[1]

    @cached_property
    def _share(self) -> Share:
        order, pieces = self._order, self._pieces
        dealt = deal(len(pieces), self.rounds * order.world_size, order.random())
        rows = np.ones(len(pieces), np.int64) if order.world_size == 1 else self._returned_rows
        return share_of(dealt, rows, rank=order.rank, world_size=order.world_size, rounds=self.rounds)

    @cached_property
    def _returned_rows(self) -> I64Array:
        """Rows of each piece that the read returns. They are counted if the log does not know them."""
        keep, pieces = self._keep, self._pieces
        filters = keep.predicate is not None or keep.hashes_rows
        counts = pieces.rows.copy()
        for file, first, end in zip(*_runs(pieces.file), strict=True):
            scan, of_file = self._scan_of[file], slice(first, end)
            if not (filters or scan.needs_places or (counts[of_file] < 0).any()):
                continue
            places = self._places(self._whole_scan_of[file])
            if scan.pages is None:
                counts[of_file] = len(places)
                continue
            starts = scan.pages.cuts.starts()
            pages = scan.pages.pages
            firsts = starts[pages[pieces.first[of_file]]]
            ends = starts[pages[pieces.end[of_file] - 1] + 1]
            counts[of_file] = np.searchsorted(places, ends) - np.searchsorted(places, firsts)
        return counts

    @cached_property
    def _row_bytes(self) -> float:
        """Bytes in memory of a row: known for types of fixed width, else those of some pages."""
        types = [self._keep.schema[name] for name in self._keep.columns]
        if not any(map(has_any_width, types)):
            nulls = [pl.repeat(None, 8, dtype=dtype, eager=True) for dtype in types]
            return max(sum(int(column.estimated_size()) for column in nulls) / 8, 1.0)
        files = self._plan.selection.table.files
        rows, size = int(self._plan.selection.rows_opened.sum()), _EXPANSION * int(files["size_bytes"].sum())
        probes = list(self._probes())
        if probes:
            frames = list(self._read(probes, replace(self._keep, predicate=None)))
            rows, size = sum(frame.height for frame in frames), sum(int(f.estimated_size()) for f in frames)
        return max(size / max(rows, 1), 1.0)

    def _probes(self) -> Iterator[FileScan]:
        """Yield a page of a few files."""
        numbers = list(self._scan_of)
        for number in numbers[:: max(len(numbers) // _PROBES, 1)][:_PROBES]:
            scan = self._scan_of[number]
            if scan.pages is not None:
                middle = len(scan.pages.pages) // 2
                yield replace(scan, pages=scan.pages.split([scan.pages.pages[middle : middle + 1]])[0])


def _batches_from(
    read: ShuffledRead, batch_rows: int, first_round: int, first_row: int
) -> Iterator[tuple[pl.DataFrame, int, int]]:
    """Yield batches with the round and the row in it where the next batch begins."""
    waiting, skipped = pl.DataFrame(), first_row
    for number in range(first_round, read.rounds):
        row = 0
        for chunk in read.chunks(number):
            new = chunk[max(skipped - row, 0) :]
            row += chunk.height
            frame = pl.concat([waiting, new]) if waiting.height else new
            full = frame.height - frame.height % batch_rows
            for at in range(batch_rows, full + 1, batch_rows):
                yield frame.slice(at - batch_rows, batch_rows), number, row - (frame.height - at)
            waiting = frame[full:]
        if skipped > row:
            msg = f"`resume` is at row {skipped:,} of a round of {row:,} rows: it was changed. Give it as "
            msg += "state_dict() returned it"
            raise InvalidInputError(msg, argument="resume")
        skipped = 0
    if waiting.height:
        yield waiting, read.rounds, 0


def _runs(values: I64Array) -> tuple[list[int], list[int], list[int]]:
    """Return the different values of an ascending array, and where each begins and ends.

    >>> _runs(np.array([3, 3, 7]))
    ([3, 7], [0, 2], [2, 3])
    """
    different, firsts = np.unique(values, return_index=True)
    return different.tolist(), firsts.tolist(), [*firsts[1:].tolist(), len(values)][: len(firsts)]
