# ruff: noqa: PLC0415 -- Polars must not be imported before its threads are set
"""The table functions of SQL.

Spark calls `analyze` with the constant arguments, in a Python process beside the driver, to get the columns. It passes
the answer to the one task that calls `eval`. So `analyze` finds the table and plans, and `eval` only reads: a name of a
catalog is not looked up in a task.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult
from pyspark.util import PythonEvalType

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.location import Location
from qbeast_spark_bridge.datasource.options import ReadOptions
from qbeast_spark_bridge.worker.call import use_task_cores

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType
    from pyspark.sql.udtf import UserDefinedTableFunction

    from qbeast_spark_bridge.worker.read_task import ReadTask

# A sample of a few rows at most: it has the columns of an estimate.
_FEWEST: Final = 1e-9

# The first Spark that takes Arrow batches from a table function.
_ARROW_SINCE: Final = (4, 1)


@dataclass
class PlannedRead(AnalyzeResult):
    """The columns of a function, and the pickled tasks that read its rows."""

    tasks: bytes = b""

    @staticmethod
    def of(schema: StructType, tasks: list[ReadTask]) -> PlannedRead:
        """Return the answer of `analyze`."""
        return PlannedRead(schema, tasks=pickle.dumps(tasks))


class ReadsTasks:
    """A function that returns the rows of planned tasks, as tuples."""

    def __init__(self, planned: PlannedRead) -> None:
        self._planned = planned.tasks

    def eval(self, *_: Any, **__: Any) -> Iterator[Any]:
        """Yield the rows. Spark repeats the arguments of `analyze`."""
        for task in self._tasks():
            for batch in task.batches():
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def _tasks(self) -> list[ReadTask]:
        use_task_cores()
        tasks: list[ReadTask] = pickle.loads(self._planned)  # noqa: S301 -- bytes of our own driver
        return tasks


class ReadsBatches(ReadsTasks):
    """The same, as Arrow batches."""

    def eval(self, *_: Any, **__: Any) -> Iterator[Any]:
        """Yield the batches."""
        for task in self._tasks():
            yield from task.batches()


class Sample(ReadsTasks):
    """``qbeast_sample(path, fraction, columns)``: the rows of a sample, see `qbeast_spark_bridge.read_table`."""

    @staticmethod
    def analyze(
        path: AnalyzeArgument, fraction: AnalyzeArgument, columns: AnalyzeArgument | None = None
    ) -> AnalyzeResult:
        """Return the chosen columns of the table."""
        use_task_cores()
        from qbeast_spark_bridge.datasource.plan import SourcePlan

        options = {"path": _constant(path, "path"), "sample": str(_constant(fraction, "fraction"))}
        if columns is not None:
            options["columns"] = _constant(columns, "columns")
        plan = SourcePlan.open(ReadOptions.of(options), None)
        return PlannedRead.of(plan.schema(), plan.tasks(plan.schema()))


class Changes(ReadsTasks):
    """``qbeast_changes(path, since)``: the rows that the versions after `since` changed, see `Table.changes`."""

    @staticmethod
    def analyze(path: AnalyzeArgument, since: AnalyzeArgument) -> AnalyzeResult:
        """Return the columns of the changes."""
        use_task_cores()
        from qbeast_core.api.table import open_version
        from qbeast_spark_bridge.read import change_tasks

        snapshot = open_version(_constant(path, "path")).snapshot
        return PlannedRead.of(*change_tasks(snapshot, _constant(since, "since"), None))


@dataclass
class FoundTable(AnalyzeResult):
    """The columns of a function, and the pickled location of its table."""

    location: bytes = b""


class ReadsTable:
    """A function that opens its table in the task."""

    def __init__(self, found: FoundTable) -> None:
        self._location = found.location

    def _found(self) -> Location:
        use_task_cores()
        location: Location = pickle.loads(self._location)  # noqa: S301 -- bytes of our own driver
        return location


class History(ReadsTable):
    """``qbeast_history(path)``: the versions of a table, newest first, see `Table.history`."""

    @staticmethod
    def analyze(path: AnalyzeArgument) -> AnalyzeResult:
        """Return the columns of the history."""
        location = Location.of(_constant(path, "path"))
        return FoundTable(_columns(_history(location)), location=pickle.dumps(location))

    def eval(self, *_: Any) -> Iterator[tuple[Any, ...]]:
        """Yield a row per version."""
        yield from _history(self._found()).iter_rows()


class Estimate(ReadsTable):
    """``qbeast_estimate(path, aggregates[, by[, error]])``: the frame of `qbeast.estimate`, with the same defaults."""

    @staticmethod
    def analyze(
        path: AnalyzeArgument,
        aggregates: AnalyzeArgument,
        by: AnalyzeArgument | None = None,
        error: AnalyzeArgument | None = None,
    ) -> AnalyzeResult:
        """Return the columns of the answers."""
        given = {"path": path, "aggregates": aggregates, "by": by, "error": error}
        values = {name: _constant(value, name) for name, value in given.items() if value is not None}
        values.pop("error", None)
        location = Location.of(values.pop("path"))
        columns = _columns(_estimate(location, **values, sample=_FEWEST))
        return FoundTable(columns, location=pickle.dumps(location))

    def eval(self, path: str, aggregates: str, by: str = "", error: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield a row per group."""
        del path  # found by `analyze`
        options: dict[str, Any] = {} if error is None else {"error": str(error)}
        yield from _estimate(self._found(), aggregates, by, **options).iter_rows()


class SampleBatches(ReadsBatches, Sample):
    """`Sample` as Arrow batches."""


class ChangesBatches(ReadsBatches, Changes):
    """`Changes` as Arrow batches."""


_BY_ROWS: Final = {"qbeast_history": History, "qbeast_estimate": Estimate}
_BY_TASKS: Final[dict[str, type[ReadsTasks]]] = {"qbeast_sample": Sample, "qbeast_changes": Changes}
_BY_BATCHES: Final[dict[str, type[ReadsTasks]]] = {
    "qbeast_sample": SampleBatches,
    "qbeast_changes": ChangesBatches,
}


def register_functions(spark: SparkSession) -> None:
    """Register the functions with a session. Those of many rows return Arrow batches where Spark takes them."""
    for name, function in _BY_ROWS.items():
        spark.udtf.register(name, _function(function))
    major, minor = spark.version.split(".")[:2]
    takes_arrow = hasattr(PythonEvalType, "SQL_ARROW_UDTF") and (int(major), int(minor)) >= _ARROW_SINCE
    for name, reader in (_BY_BATCHES if takes_arrow else _BY_TASKS).items():
        made = _function(reader)
        if takes_arrow:
            # PySpark's `arrow_udtf` refuses functions with `analyze` (SPARK-53286), which Spark itself runs.
            made.evalType = PythonEvalType.SQL_ARROW_UDTF
        spark.udtf.register(name, made)


def _function(handler: type) -> UserDefinedTableFunction:
    from pyspark.sql.functions import udtf

    return cast("UserDefinedTableFunction", udtf(handler))


def _constant(argument: AnalyzeArgument, name: str) -> Any:
    if argument.value is None or argument.isTable:
        msg = f"the argument {name} must be a constant: the columns of the table have to be known before it is read"
        raise InvalidInputError(msg, argument=name)
    return argument.value


def _history(location: Location) -> pl.DataFrame:
    use_task_cores()
    import polars as pl

    from qbeast_core.api.table import open_version

    # Entries that no commit has are texts: Spark has no values of type void in Arrow.
    return open_version(location).history().with_columns(pl.col(pl.Null).cast(pl.String))


def _estimate(
    location: Location, aggregates: str, by: str = "", sample: float | None = None, **options: Any
) -> pl.DataFrame:
    use_task_cores()
    import polars as pl

    from qbeast_core.api.table import open_version

    frame = open_version(location).rows(sample=sample).estimate(aggregates, by=by or None, **options).frame
    return frame.with_columns(pl.col(pl.Int128).cast(pl.Int64))  # groups such as id % 3, as in Spark


def _columns(frame: pl.DataFrame) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(frame.to_arrow().schema, prefer_timestamp_ntz=True)
