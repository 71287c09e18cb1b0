"""The schema and the tasks of a read by ``format("qbeast")``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from qbeast_core.errors import InvalidInputError, unknown_columns
from qbeast_core.table.read.planner import Planner, sampled_by
from qbeast_core.table.read.stream import Offset, TableStream, version_since
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot
from qbeast_spark_bridge.datasource.options import FeedOptions, ReadOptions, StreamReadOptions
from qbeast_spark_bridge.engine.engine import arrow_schema, tasks_of
from qbeast_spark_bridge.predicates.conditions import polars_filter
from qbeast_spark_bridge.read import change_tasks, with_feed_columns
from qbeast_spark_bridge.spark_types import collated_columns, nullable_schema, spark_schema
from qbeast_spark_bridge.worker.read_task import NewestTask, ReadTask


@dataclass(frozen=True, slots=True, eq=False)
class SourcePlan:
    """A version of a table, and the options of a read."""

    planner: Planner
    options: ReadOptions
    whole: StructType
    predicate: pl.Expr | None

    @staticmethod
    def open(options: ReadOptions, version: int | None) -> SourcePlan:
        """Open the table."""
        snapshot = load_snapshot(options.location, version=options.version if version is None else version)
        planner = sampled_by(Planner(snapshot), options.sample_by)
        planner.names_of(options.columns)  # invalid options fail when the table is loaded
        whole = nullable_schema(spark_schema(snapshot.schema_json))
        predicate = polars_filter(options.where, snapshot.schema, collated_columns(whole))
        planner.weights_of(options.sample)
        return SourcePlan(planner, options, whole, predicate)

    @property
    def version(self) -> int:
        """The version to read."""
        return self.planner.snapshot.version

    def schema(self) -> StructType:
        """Return the chosen columns."""
        return StructType([self.whole[name] for name in self.planner.names_of(self.options.columns)])

    def kept_tasks(self, schema: StructType | pa.Schema) -> Sequence[ReadTask | NewestTask]:
        """Return the tasks that Spark keeps, and runs for all queries of a view or a frame."""
        tasks = self.tasks(schema)
        refuses = self.options.refuses_stale
        return NewestTask.of(tasks, self.options.location, self.version) if refuses else tasks

    def tasks(self, schema: StructType | pa.Schema) -> list[ReadTask]:
        """Split the read into tasks. Spark passes its own schema; Sail passes Arrow's, and casts to its types."""
        names = self.planner.names_of(schema.names)
        if not isinstance(schema, StructType):
            schema = StructType([self.whole[name] for name in names])
        _refuse_types(schema, self.whole)
        plans = self.planner.plans(self.predicate, self.options.sample)
        return [task for part, job in plans for task in tasks_of(part, job, columns=names, schema=schema)]


@dataclass(frozen=True, slots=True, eq=False)
class FeedPlan:
    """The newest version of a table, and the options of a read of its changed rows."""

    snapshot: Snapshot
    options: FeedOptions

    @staticmethod
    def open(options: FeedOptions, version: int | None) -> FeedPlan:
        """Open the table."""
        plan = FeedPlan(load_snapshot(options.location, version=version), options)
        plan.schema()  # invalid options fail when the table is loaded
        return plan

    @property
    def version(self) -> int:
        """The version whose columns the changes have."""
        return self.snapshot.version

    def schema(self) -> StructType:
        """Return the chosen columns of the changes."""
        whole, names = self._whole, self.options.columns
        unknown = [name for name in names or () if name not in whole.names]
        if unknown:
            unknown_columns("columns", unknown, whole.names)
        return whole if names is None else StructType([whole[name] for name in names])

    def kept_tasks(self, schema: StructType | pa.Schema) -> list[ReadTask]:
        """Return the tasks of the commits between two versions, both included."""
        names = tuple(schema.names)
        if not isinstance(schema, StructType):
            schema = StructType([self._whole[name] for name in names])
        _refuse_types(schema, self._whole)
        since, until = self._range()
        return change_tasks(self.snapshot, since, until, names)[1]

    @property
    def _whole(self) -> StructType:
        return with_feed_columns(nullable_schema(spark_schema(self.snapshot.schema_json)))

    def _range(self) -> tuple[int, int | str | None]:
        """Return the version before the first one, and the last one."""
        options, newest = self.options, self.snapshot.version
        first, last = options.starting_version, options.ending_version
        if options.starting_timestamp is not None:
            first = version_since(self.snapshot, options.starting_timestamp)
        if first is None:
            msg = (
                'changes need their first version: .option("startingVersion", 0), or a time: '
                f'.option("startingTimestamp", "2026-11-28"). The newest version is {newest}.'
            )
            raise InvalidInputError(msg, argument="startingVersion")
        if first > newest + 1:
            msg = f"startingVersion must be at most {newest + 1}, one more than the newest version; it is {first}"
            raise InvalidInputError(msg, argument="startingVersion")
        if last is not None and last < first:
            msg = f"endingVersion, {last}, must not be before the first version, {first}"
            raise InvalidInputError(msg, argument="endingVersion")
        return first - 1, options.ending_timestamp if last is None else min(last, newest)


def _refuse_types(schema: StructType, whole: StructType) -> None:
    other = [
        f"{field.name!r} is {whole[field.name].dataType.simpleString()}, not {field.dataType.simpleString()}"
        for field in schema.fields
        if _bare(field) != _bare(whole[field.name])
    ]
    if other:
        msg = f"the schema of a read may leave out columns, but not change them: {'; '.join(other)}. Cast afterwards."
        raise InvalidInputError(msg, argument="schema")


def open_stream(options: StreamReadOptions) -> TableStream:
    """Open a table to read it as a stream."""
    return TableStream(
        snapshot=load_snapshot(options.location),
        starting_version=options.starting_version,
        starting_time=options.starting_timestamp,
        skips_changes=options.skip_change_commits,
        ignores_deletes=options.ignore_deletes,
        reads_feed=options.read_change_feed,
    )


def stream_schema(stream: TableStream) -> StructType:
    """Return the columns of a stream, all nullable."""
    whole = nullable_schema(spark_schema(stream.snapshot.schema_json))
    return with_feed_columns(whole) if stream.reads_feed else whole


def stream_tasks(stream: TableStream, start: Offset, end: Offset, schema: StructType) -> list[ReadTask]:
    """Return the tasks of a batch."""
    if [_bare(field) for field in schema.fields] != [_bare(field) for field in stream_schema(stream).fields]:
        msg = (
            f"the columns of {stream.snapshot.uri!r} are not those of the stream. Start the query again: it continues "
            "from its checkpoint, with the columns that the table has now."
        )
        raise InvalidInputError(msg, argument="schema")
    special = stream.snapshot.columns.special_types
    return [ReadTask(task, arrow_schema(schema), special) for task in stream.tasks(start, end)]


def _bare(field: StructField) -> StructField:
    (bare,) = nullable_schema(StructType([StructField(field.name, field.dataType)])).fields
    return bare
