"""A task of a read: return the rows of its files and pages as Arrow batches for Spark.

Workers import only this module: importing the planner of a read would double the time.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import polars as pl
import pyarrow as pa

from qbeast_core.errors import InvalidInputError, StorageError
from qbeast_core.io.encode import in_files
from qbeast_core.io.location import Location
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.schema import LOG_DIRECTORY
from qbeast_spark_bridge.worker.call import grouped

_BATCH_ROWS: Final = 1 << 17
# A commit or a checkpoint: a log that was cleaned up may lack the next commit, but not all later ones. Temporary files,
# checksums and files in folders of the log have other names: they come without a new version.
_VERSION: Final = re.compile(
    rf"{LOG_DIRECTORY}/(\d{{20}})\.(?:json|checkpoint\.(?:[0-9a-f-]{{36}}\.|\d{{10}}\.\d{{10}}\.)?(?:parquet|json))"
)
# The stage of the last task in this process that is neither the first nor the last of its read.
_STAGES: Final[dict[str, int | None]] = {}


class _AnyScanTask(Protocol):
    """A `qbeast_core.table.read.tasks.ScanTask`, a task of another kind of table, or `SentPart`."""

    def read(self) -> Iterator[pl.DataFrame]: ...


@dataclass(frozen=True, slots=True, eq=False)
class ReadTask:
    """A picklable task of a scan, with the Arrow types of its rows for Spark."""

    task: _AnyScanTask
    schema: pa.Schema = field(repr=False)
    # Types in the Delta schema of columns that are or contain variants or voids.
    special_types: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches; no batch is empty."""
        size_bytes = sizing().source_batch_bytes
        row_bytes = size_bytes // _BATCH_ROWS  # a row counts as at least this size
        sizes = ((frame, max(_bytes(frame), frame.height * row_bytes)) for frame in self.task.read())
        for group in grouped(sizes, size_bytes):
            yield from self._cut(pl.concat(group))

    def _cut(self, frame: pl.DataFrame) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches of limited size, in Spark's types."""
        row_bytes = _bytes(frame) // max(frame.height, 1) + 1
        for rows in frame.iter_slices(min(_BATCH_ROWS, max(sizing().source_batch_bytes // row_bytes, 1))):
            table = self._for_spark(rows.to_arrow(compat_level=pl.CompatLevel.oldest())).cast(self.schema)
            yield from table.combine_chunks().to_batches()

    def _for_spark(self, table: pa.Table) -> pa.Table:
        """Return the rows with variants as Spark has them: their binaries are never null."""
        for name, dtype in self.special_types.items():
            index = table.column_names.index(name)
            column = in_files(table.column(index).combine_chunks(), dtype)
            if column is not None:
                table = table.set_column(index, name, column)
        return table


@dataclass(frozen=True, slots=True, eq=False)
class SentPart:
    """Rows that the driver sends with the task."""

    frame: pl.DataFrame

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the rows."""
        yield self.frame


@dataclass(frozen=True, slots=True, eq=False)
class NewestTask:
    """A task of a read that fails if the table has a newer version than the one it was planned for.

    Spark plans a view once, and runs the tasks of this plan for all later queries of it. So only a task can notice that
    the table has changed. It lists the names after the planned version, and does not read the log. The first task
    does so for each query: it starts first, and a query with a limit has no other. `DataFrame.tail` runs the last task
    alone, so that one does it too. But in a long query it starts late, when a commit does not matter any more: it does
    nothing if its process has already run another task of the stage.
    """

    task: ReadTask | None
    location: Location
    version: int
    is_first: bool
    is_last: bool

    @staticmethod
    def of(tasks: Sequence[ReadTask], location: Location, version: int) -> list[NewestTask]:
        """Return the tasks of a read of the newest version; one without rows if there are none."""
        parts: Sequence[ReadTask | None] = tasks or [None]
        return [
            NewestTask(task, location, version, number == 0, number == len(parts) - 1)
            for number, task in enumerate(parts)
        ]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, if the version is still the newest."""
        stage = _stage()
        if self.is_first or (self.is_last and (stage is None or _STAGES.get("between") != stage)):
            self._refuse_newer()
        elif not self.is_last:
            _STAGES["between"] = stage
        if self.task is None:
            return
        try:
            yield from self.task.batches()
        except StorageError:  # a vacuum removes files of old versions
            self._refuse_newer()
            raise

    def _refuse_newer(self) -> None:
        after = f"{LOG_DIRECTORY}/{self.version:020d}.json"
        paths = (entry.path for entry in self.location.store.entries(LOG_DIRECTORY, after=after))
        newest = max((int(m[1]) for path in paths if (m := _VERSION.fullmatch(path))), default=self.version)
        if newest <= self.version:
            return
        msg = (
            f"the table at {self.location.uri} has version {newest}, and this name, view or frame was planned for "
            f"version {self.version}. No row was returned. For a name of register_table, call "
            "qbeast_spark_bridge.refresh(spark, name); make other views and frames again. With the option stale = "
            "'allow', a view by hand returns the rows of the version that it was planned for."
        )
        raise InvalidInputError(msg, argument="stale")


def _stage() -> int | None:
    """Return the number of this task's stage; None: another engine runs it."""
    from pyspark import TaskContext  # noqa: PLC0415 -- only workers of the data source have it

    context = TaskContext.get()
    return None if context is None else context.stageId()


def run_tasks(_: None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read tasks in a worker, for ``mapInArrow``; see `qbeast_spark_bridge.worker.call.WorkerCall`."""
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield from pickle.loads(task).batches()  # noqa: S301 -- bytes of our own driver


def _bytes(frame: pl.DataFrame) -> int:
    return int(frame.estimated_size())
