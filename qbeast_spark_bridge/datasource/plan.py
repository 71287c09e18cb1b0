"""The schema and the tasks of a read by ``format("qbeast")``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from qbeast_core.errors import InvalidInputError
from qbeast_core.table.read.planner import Planner, sampled_by
from qbeast_core.table.read.stream import Offset, TableStream
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_spark_bridge.datasource.options import ReadOptions, StreamReadOptions
from qbeast_spark_bridge.engine.engine import arrow_schema, tasks_of
from qbeast_spark_bridge.predicates.conditions import polars_filter
from qbeast_spark_bridge.read import with_feed_columns
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
        self._refuse_types(schema)
        job = self.planner.plan(self.predicate, self.options.sample)
        return tasks_of(self.planner, job, columns=names, schema=schema)

    def _refuse_types(self, schema: StructType) -> None:
        whole = self.whole
        other = [
            f"{field.name!r} is {whole[field.name].dataType.simpleString()}, not {field.dataType.simpleString()}"
            for field in schema.fields
            if _bare(field) != _bare(whole[field.name])
        ]
        if other:
            msg = (
                "the schema of a read may leave out columns, but not change them: "
                f"{'; '.join(other)}. Cast afterwards."
            )
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
