# ruff: noqa: PLC0415 -- Polars must not be imported before its threads are set
"""Table functions for SQL: a sample of a table, and its changes.

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
    from pyspark.sql.types import StructType

    from qbeast_spark_bridge.worker.read_task import ReadTask


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
    """``qbeast_changes(path, since)``: the rows that the versions after `since` changed, see `read_changes`."""

    @staticmethod
    def analyze(path: AnalyzeArgument, since: AnalyzeArgument) -> AnalyzeResult:
        """Return the columns of the changes."""
        return AnalyzeResult(_changes(_literal(path, "path"), _literal(since, "since"))[0])

    def eval(self, path: str, since: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows."""
        yield from _rows(_changes(path, since)[1])


FUNCTIONS: Final = {"qbeast_sample": QbeastSample, "qbeast_changes": QbeastChanges}


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


def _rows(tasks: list[ReadTask]) -> Iterator[tuple[Any, ...]]:
    for task in tasks:
        for batch in task.batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
