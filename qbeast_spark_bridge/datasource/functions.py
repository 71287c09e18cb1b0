# ruff: noqa: PLC0415 -- Polars must not be imported before its threads are set
"""Table functions for SQL: a sample of a table, its changes, and estimates of aggregates.

Spark asks `analyze` for the columns, with the literal arguments, and calls `eval` in one task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge.datasource.source_options import ReadOptions
from qbeast_spark_bridge.worker.call import use_task_cores

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql.types import StructType

    from qbeast_spark_bridge.worker.read_task import ReadTask

# A sample of a few rows at most: it has the columns of an estimate.
_FEWEST: Final = 1e-9


class QbeastSample:
    """``qbeast_sample(path, fraction)``: the rows of a sample, as `qbeast_spark_bridge.read_table` returns them."""

    @staticmethod
    def analyze(path: AnalyzeArgument, fraction: AnalyzeArgument) -> AnalyzeResult:
        """Return the columns of the table."""
        return AnalyzeResult(_sample(_literal(path, "path"), _literal(fraction, "fraction"))[0])

    def eval(self, path: str, fraction: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows."""
        yield from _rows(_sample(path, fraction)[1])


class QbeastChanges:
    """``qbeast_changes(path, since)``: the rows that the versions after `since` changed, see `Table.changes`."""

    @staticmethod
    def analyze(path: AnalyzeArgument, since: AnalyzeArgument) -> AnalyzeResult:
        """Return the columns of the changes."""
        return AnalyzeResult(_changes(_literal(path, "path"), _literal(since, "since"))[0])

    def eval(self, path: str, since: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows."""
        yield from _rows(_changes(path, since)[1])


class QbeastEstimate:
    """``qbeast_estimate(path, aggregates, by, error)``: the frame of `qbeast.estimate`, of as few rows as it needs."""

    @staticmethod
    def analyze(
        path: AnalyzeArgument, aggregates: AnalyzeArgument, by: AnalyzeArgument, error: AnalyzeArgument
    ) -> AnalyzeResult:
        """Return the columns of the answers."""
        names = ("path", "aggregates", "by", "error")
        values = [
            _literal(value, name) for value, name in zip((path, aggregates, by, error), names, strict=True)
        ]
        return AnalyzeResult(_columns(_estimate(*values[:3], sample=_FEWEST)))

    def eval(self, path: str, aggregates: str, by: str, error: Any) -> Iterator[tuple[Any, ...]]:
        """Yield a row per group."""
        yield from _estimate(path, aggregates, by, error=str(error)).iter_rows()


FUNCTIONS: Final = {
    "qbeast_sample": QbeastSample,
    "qbeast_changes": QbeastChanges,
    "qbeast_estimate": QbeastEstimate,
}


def _literal(argument: AnalyzeArgument, name: str) -> Any:
    if argument.value is None or argument.isTable:
        msg = f"the argument {name} must be a constant: the columns of the table have to be known before it is read"
        raise InvalidInputError(msg, argument=name)
    return argument.value


def _sample(path: str, fraction: Any) -> tuple[StructType, list[ReadTask]]:
    use_task_cores()
    from qbeast_spark_bridge.datasource.source_plan import SourcePlan

    plan = SourcePlan.open(ReadOptions.of({"path": path, "sample": str(fraction)}), None)
    schema = plan.schema()
    return schema, plan.tasks(schema)


def _changes(path: str, since: Any) -> tuple[StructType, list[ReadTask]]:
    use_task_cores()
    from qbeast_core.table.table import open_version
    from qbeast_spark_bridge.changes import change_tasks

    return change_tasks(open_version(path, None, None).snapshot, since, None)


def _estimate(path: str, aggregates: str, by: str, **options: Any) -> pl.DataFrame:
    use_task_cores()
    import polars as pl

    from qbeast_core.api import estimate

    frame = estimate(path, aggregates, by=by or None, **options).frame
    return frame.with_columns(pl.col(pl.Int128).cast(pl.Int64))  # groups such as id % 3, as in Spark


def _columns(frame: pl.DataFrame) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(frame.to_arrow().schema, prefer_timestamp_ntz=True)


def _rows(tasks: list[ReadTask]) -> Iterator[tuple[Any, ...]]:
    for task in tasks:
        for batch in task.batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
