"""The Spark engine: executors read rows in tasks of about equal bytes, summarise them, and write files."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 -- the usual name
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.log.actions import AddFile
from qbeast_core.support.process import ProgressCallback
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.files import FileTarget, RowShape
from qbeast_core.table.data.frames import SparkFrame, is_spark_frame
from qbeast_core.table.data.rules import refuse_exhausted
from qbeast_core.table.engine.distributed import DistributedRows
from qbeast_core.table.engine.engine import AnswerT, ItemT, ResultT, Rows, Source
from qbeast_core.table.engine.files import PlacedFile, PlaceTask, SummaryTask
from qbeast_core.table.engine.row_change import AddedRows
from qbeast_core.table.engine.sources import FilesSource, RowsLike, all_rows, needs_row_ids, open_source
from qbeast_core.table.index.revision import refuse_collations
from qbeast_core.table.read.planner import TASK_BYTES, Planner, ScanPlan, scan_tasks, scans_of
from qbeast_core.table.read.tasks import ScanTask
from qbeast_core.tree.summary import IndexSummary, domain_limits, load_summary
from qbeast_spark_bridge.engine.first_pass import summarise_rows
from qbeast_spark_bridge.engine.workers import ready_workers, unpickled, with_uncounted_batches, worker_errors
from qbeast_spark_bridge.spark_types import (
    collated_columns,
    empty_frame,
    nullable_schema,
    numbered,
    quoted,
    schema_of_frame,
    spark_schema,
    variant_columns,
)
from qbeast_spark_bridge.worker.call import WorkerCall
from qbeast_spark_bridge.worker.read_task import ReadTask, SentPart, run_tasks
from qbeast_spark_bridge.worker.tasks import (
    ANSWERS,
    BUFFER_BYTES,
    FILES,
    ITEMS,
    PACKS,
    SUMMARIES,
    ReadPart,
    answer_items,
    complete_rows,
    decimals_as_longs,
    merge_partition,
    pack_files,
    pack_partition,
    short_decimals,
    summarise_files,
    task_keys,
    write_partition,
    write_plain_files,
    write_plain_partition,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from qbeast_core.log.rules import Identity


_MAX_TASKS: Final = 1 << 12

_PARTITION_SHIFT: Final = 33  # of monotonically_increasing_id


@dataclass(frozen=True, slots=True, eq=False)
class SparkSource:
    """The rows of a Spark DataFrame, which must be the same when they are read twice."""

    # From a classic session or Spark Connect.
    df: DataFrame
    drawn: tuple[Identity, ...] = ()
    reserved: int | None = None

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        return empty_frame(self.df.schema)

    def numbered(self, drawn: tuple[Identity, ...]) -> SparkSource:
        """See `NumberingSource`."""
        return SparkSource(*_with_numbers(self.df, drawn))

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """Raise: only executors read these rows."""
        del columns, size_bytes
        msg = "only Spark can read the rows of a Spark DataFrame"
        raise InvalidInputError(msg, argument="source")


@dataclass(frozen=True, slots=True, eq=False)
class SparkEngine:
    """Process rows by Spark tasks; see `qbeast_core.table.engine.engine.Engine`."""

    spark: SparkSession

    @property
    def shares_memory(self) -> bool:
        """Return False: calls run on the executors; see `Engine`."""
        return False

    def open(self, source: Source, target: FileTarget, progress: ProgressCallback | None) -> Rows:
        """Return the rows of a DataFrame or of files; tasks that read files change their rows."""
        if isinstance(source, SparkSource):
            _refuse_new_variants(source.df, target)
            return DistributedRows(_FramePasses(source.df, target), target, progress)
        if isinstance(source, FilesSource):
            return DistributedRows(_FilePasses(self.spark, source), target, progress)
        msg = f"{type(source).__name__} is not a source of rows for Spark"
        raise InvalidInputError(msg, argument="source")

    def map(
        self, call: Callable[[ItemT], AnswerT], items: Sequence[ItemT], *, at_once: int
    ) -> Sequence[AnswerT]:
        """Call a function for each item on the executors, one item per task at a time; see `Engine`."""
        del at_once
        if not items:
            return []
        with worker_errors(self.spark):
            rows = spread(self.spark, items).mapInArrow(WorkerCall.of(answer_items, call), ANSWERS)
            by_number: dict[int, AnswerT] = dict(unpickled(rows))
        return [by_number[number] for number in range(len(items))]

    @staticmethod
    def report_progress(progress: ProgressCallback | None) -> ProgressCallback | None:
        """Return the callback; see `CallEngine`."""
        return progress

    @staticmethod
    def report(result: ResultT) -> ResultT:
        """Return the result with the engine; see `CallEngine`."""
        return replace(result, engine="spark")

    def has_room(self, size_bytes: int) -> bool:
        """Return True: workers hold one file at a time; see `Engine`."""
        del size_bytes
        return True


@dataclass(frozen=True, slots=True, eq=False)
class _FramePasses:
    """Executors that read a DataFrame; see `qbeast_core.table.engine.distributed.Passes`."""

    df: DataFrame
    target: FileTarget

    @property
    def advice(self) -> str:
        return "The input is read twice: persist it first (`df.persist()`), or remove random and unordered parts."

    def count(self) -> int:
        return self.df.count()

    def write_plain(self, target: FileTarget) -> Sequence[AddFile]:
        """Write the rows of each partition; see `place`."""
        with worker_errors(self.df.sparkSession):
            decimals = short_decimals(self.df.schema)
            call = WorkerCall.of(
                write_plain_partition, (target, sizing().max_partition_bytes, self.df.columns, decimals)
            )
            rows = decimals_as_longs(numbered(self.df), decimals)
            return with_uncounted_batches(rows, lambda df: unpickled(df.mapInArrow(call, FILES)))

    def summarise(self, task: SummaryTask) -> IndexSummary:
        refuse_collations(list(task.schema), collated_columns(self.df.schema))
        with worker_errors(self.df.sparkSession):
            rows = _with_computed(self.df, list(task.schema), self.target.shape)
            return summarise_rows(rows, task, self.target.shape.schema_json)

    def place(self, task: PlaceTask) -> Sequence[PlacedFile]:
        """Return each file once, even if Spark repeated its task; files of other attempts are orphans."""
        if not task.file_count:
            return []
        spark = self.df.sparkSession
        with worker_errors(spark):
            decimals = short_decimals(self.df.schema)
            argument = task, task_keys(task.file_count), self.df.columns, decimals
            pack = WorkerCall.of(pack_partition, argument)
            rows = decimals_as_longs(numbered(self.df), decimals)
            return with_uncounted_batches(rows, lambda df: _write_files(df.mapInArrow(pack, PACKS), task))


@dataclass(frozen=True, slots=True, eq=False)
class _FilePasses:
    """Executors that read live files and change their rows."""

    spark: SparkSession
    source: FilesSource

    @property
    def advice(self) -> str:
        return "Do all machines read the same files, and does the change depend only on the rows?"

    def count(self) -> int:
        return _rows_of(self.source)

    def write_plain(self, target: FileTarget) -> Sequence[AddFile]:
        """Write the rows of each task."""
        tasks = _tasks(self.source, list(self.source.empty.columns))
        if not tasks:
            return []
        with worker_errors(self.spark):
            call = WorkerCall.of(write_plain_files, (target, sizing().max_partition_bytes))
            return unpickled(spread(self.spark, tasks).mapInArrow(call, FILES))

    def summarise(self, task: SummaryTask) -> IndexSummary:
        """Summarise the rows: each task returns one summary, and further tasks merge them."""
        tasks = _tasks(self.source, list(task.read_schema))
        empty = task.summarise(task.read_schema.to_frame(), first_row=0)
        if not tasks:
            return empty
        share = min(domain_limits().rows / max(_rows_of(self.source), 1), 1.0)
        with worker_errors(self.spark):
            call = WorkerCall.of(summarise_files, (task, share))
            summaries = spread(self.spark, tasks).mapInArrow(call, SUMMARIES)
            merge = WorkerCall.of(merge_partition, None)
            # Adaptive execution sets the number of tasks of this shuffle by the size of the summaries.
            partial_summaries = summaries.repartition("part").mapInArrow(merge, SUMMARIES)
            rows = partial_summaries.repartition(1).mapInArrow(merge, SUMMARIES).collect()
        return load_summary(bytes(rows[0]["summary"])) if rows else empty

    def place(self, task: PlaceTask) -> Sequence[PlacedFile]:
        """Write the new files: tasks read and pack rows, then one task per file writes it."""
        if not task.file_count:
            return []
        tasks = _tasks(self.source, list(self.source.empty.columns))
        with worker_errors(self.spark):
            pack = WorkerCall.of(pack_files, (task, task_keys(task.file_count)))
            return _write_files(spread(self.spark, tasks).mapInArrow(pack, PACKS), task)


def spread(spark: SparkSession, items: Sequence[object]) -> DataFrame:
    """Send each item to its own task, always the same one; above `_MAX_TASKS`, items share tasks."""
    keys = task_keys(min(len(items), _MAX_TASKS)).tolist()
    rows = [
        (keys[number % len(keys)], number, bytearray(pickle.dumps(item, protocol=5)))
        for number, item in enumerate(items)
    ]
    return spark.createDataFrame(rows, ITEMS).repartition(len(keys), "key")


def _write_files(packs: DataFrame, task: PlaceTask) -> list[PlacedFile]:
    """Shuffle the packs to one task per file, which writes it."""
    by_file = packs.repartition(task.file_count, "key")
    return unpickled(by_file.mapInArrow(WorkerCall.of(write_partition, task), FILES))


def _tasks(source: FilesSource, columns: list[str]) -> list[ReadPart | AddedRows]:
    """Split the read of files into tasks of about equal bytes; added rows are separate tasks."""
    planner = Planner(source.snapshot)
    whole = planner.plan(None, None)
    tasks: list[ReadPart | AddedRows] = []
    uniform: object = source.change
    for change, files in source.by_change():
        read = source.columns_of(change, columns)
        # A change may load rows for its file, once per task. Ids of rows depend on their index in the file.
        apart = change is not uniform or needs_row_ids(source.snapshot, read)
        alone = [file for file in files.tolist() if apart or file in source.only]
        tasks += [ReadPart(task, change) for task in _by_file(source, planner, whole, alone, read)]
        together = np.setdiff1d(files, alone)
        if not len(together):
            continue
        opened = whole.selection.opened & np.isin(np.arange(len(whole.selection.opened)), together)
        plan = replace(whole, selection=replace(whole.selection, opened=opened))
        tasks += [
            ReadPart(task, change) for task in scan_tasks(planner, plan, read, task_bytes=sizing().task_bytes)
        ]
    return [*tasks, *source.added.pieces(columns, size_bytes=BUFFER_BYTES)]


def _by_file(
    source: FilesSource, planner: Planner, plan: ScanPlan, files: Sequence[int], columns: Sequence[str]
) -> Iterator[ScanTask]:
    """Yield a task for each file."""
    has_ids = needs_row_ids(planner.snapshot, columns)
    apart = [file for file in files if has_ids or file in source.only]
    others = [file for file in files if file not in set(apart)]
    scans = dict(zip(apart, source.scans(apart, columns), strict=True))
    scans |= dict(zip(others, scans_of(planner, plan, others), strict=True))
    for file in files:
        yield ScanTask(
            uri=planner.store.uri,
            version=planner.snapshot.version,
            parts=(scans[file],),
            keep=all_rows(planner, columns),
            columns=planner.snapshot.columns,
            storage_options=planner.snapshot.location.storage_options,
            allow_absolute_paths=planner.store.allow_absolute_paths,
        )


def _rows_of(source: FilesSource) -> int:
    """Return the number of rows before the change, from the counts in the log."""
    counts = source.snapshot.files["num_records"].fill_null(0).to_numpy()
    rows = sum(len(source.only.get(file, range(counts[file]))) for file in source.files.tolist())
    return rows + source.added.height


def _refuse_new_variants(df: DataFrame, target: FileTarget) -> None:
    new = [name for name in variant_columns(df.schema) if name not in target.columns.special_types]
    if new:
        problems = [f"column {name!r} has type variant" for name in new]
        msg = (
            f"{len(new)} column(s) cannot be added to a table: {'; '.join(problems)}. Spark with "
            "Delta can make tables with such columns, which qbeast converts, reads and writes then; or drop them, or "
            "make texts of them (to_json)."
        )
        raise SchemaMismatchError(msg, problems=problems)


@contextmanager
def persisted(df: DataFrame, *, enabled: bool) -> Generator[DataFrame]:
    """Persist a DataFrame within the block, unless it is persisted already."""
    level = df.storageLevel if enabled else None
    if level is None or level.useMemory or level.useDisk:
        yield df
        return
    persisted_df = df.persist()
    try:
        yield persisted_df
    except BaseException:  # also on an interrupt: executors get their memory back
        with suppress(Exception):  # a lost session has released the rows, and its error is already raised
            persisted_df.unpersist()
        raise
    persisted_df.unpersist()


def _with_computed(df: DataFrame, names: Sequence[str], shape: RowShape) -> DataFrame:
    """Return the rows with the columns among `names` that the table computes, and that they lack.

    The workers compute them as they do when they write rows, so that both passes have the same values.
    """
    if shape.rules is None or shape.rules.optional.isdisjoint(set(names).difference(df.columns)):
        return df
    narrow = shape.of_columns(names)
    used = df.select([quoted(name) for name in df.columns if name in narrow.schema] or df.columns[:1])
    table, decimals = spark_schema(shape.schema_json), short_decimals(used.schema)
    types = StructType([StructField(f"c{number}", table[name].dataType) for number, name in enumerate(names)])
    call = WorkerCall.of(complete_rows, (narrow, used.columns, list(names), decimals))
    return decimals_as_longs(numbered(used), decimals).mapInArrow(call, types).toDF(*names)


def _with_numbers(
    df: DataFrame, identities: tuple[Identity, ...]
) -> tuple[DataFrame, tuple[Identity, ...], int]:
    """Return the rows with numbers in identity columns, these columns, and how many numbers they use up.

    Row i of partition p gets number i * partitions + p, so that tasks draw numbers without each other.
    """
    counts = df.groupBy(F.spark_partition_id().alias("part")).count()
    counted = counts.agg(F.max("part"), F.max("count")).first()
    partitions, most = (0, 0) if counted is None or counted[0] is None else (counted[0] + 1, counted[1])
    for identity in identities:
        refuse_exhausted(identity, partitions * most)
    number = _number(partitions, most)
    columns = {identity.column: number * identity.step + identity.first for identity in identities}
    rows = df.select("*", *(column.alias(name) for name, column in columns.items()))
    return rows, identities, partitions * most


def _number(partitions: int, most: int) -> Column:
    """Return the number of a row, from 0; raise in a task if the partitions differ from the counted ones."""
    row = F.monotonically_increasing_id()
    place, part = row.bitwiseAND((1 << _PARTITION_SHIFT) - 1), F.shiftright(row, _PARTITION_SHIFT)
    changed = F.raise_error(F.lit("the rows changed while identity values were drawn. Persist them first."))
    fits = (part < partitions) & (place < most)
    return F.when(fits, place * partitions + part).otherwise(changed.cast(LongType()))


_COLUMN: Final = "task"


def tasks_of(
    planner: Planner,
    job: ScanPlan,
    *,
    columns: Sequence[str] | None = None,
    task_bytes: int = TASK_BYTES,
    schema: StructType | None = None,
    weight_column: str | None = None,
) -> list[ReadTask]:
    """Split a planned read into tasks of about equal bytes.

    `weight_column` adds a column with the weights of rows; `schema` has it too.
    """
    whole = schema or nullable_schema(spark_schema(planner.snapshot.schema_json))
    added = [] if weight_column is None else [weight_column]
    types = arrow_schema(StructType([whole[name] for name in [*planner.names_of(columns), *added]]))
    tasks = scan_tasks(planner, job, columns, task_bytes=task_bytes, weight_column=weight_column)
    special = planner.snapshot.columns.special_types
    special = {name: dtype for name, dtype in special.items() if name in types.names}
    return [ReadTask(task, types, special) for task in tasks]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow types of rows from and to Spark; timestamps are in UTC."""
    has_zone = "timezone" in inspect.signature(to_arrow_schema).parameters  # from Spark 4.2 on; UTC before
    options: dict[str, Any] = {"timezone": "UTC"} if has_zone else {}
    return to_arrow_schema(schema, **options)


def rows_of_tasks(spark: SparkSession, tasks: Sequence[ReadTask], schema: StructType) -> DataFrame:
    """Return the rows of tasks; each runs as a separate Spark task."""
    if not tasks:
        return spark.createDataFrame([], schema)
    ready_workers(spark)
    rows = [(bytearray(pickle.dumps(task, protocol=5)),) for task in tasks]
    spread = spark.createDataFrame(rows, f"{_COLUMN} binary").repartition(len(rows))
    return spread.mapInArrow(WorkerCall.of(run_tasks, None), schema)


def frame_of_rows(spark: SparkSession, rows: RowsLike | SparkFrame) -> DataFrame:
    """Return rows as a DataFrame. Those of this process are sent with the tasks, in pieces of limited size."""
    if is_spark_frame(rows):
        return cast("DataFrame", rows)
    with open_source(rows) as source:
        schema = schema_of_frame(source.empty.schema)
        types = arrow_schema(schema)
        pieces = source.batches(None, size_bytes=sizing().source_batch_bytes)
        tasks = [ReadTask(SentPart(piece), types) for piece in pieces]
    return rows_of_tasks(spark, tasks, schema)
