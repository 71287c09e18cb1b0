"""Change settings of a session temporarily."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql import functions as F  # noqa: N812 -- the usual name
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AnswerT = TypeVar("_AnswerT")

_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_DEFAULT_ROWS: Final = "10000"
_MAX_BATCH_BYTES: Final = 256 << 20
_NO_LIMIT: Final = (1 << 31) - 1
_FIXED_SIZE: Final = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType)
_VARIABLE_SIZE: Final = (StringType, BinaryType)
_TOO_LONG: Final = (
    "qbeast: rows are too long for batches that are not counted; the job is repeated with a count"
)


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, int]) -> Generator[None]:
    """Set settings within the block, and restore them afterwards."""
    with ExitStack() as stack:
        for name, value in settings.items():
            before = spark.conf.get(name, None)
            if before == str(value):  # perhaps by a concurrent call, which restores it
                continue
            spark.conf.set(name, str(value))
            restore = spark.conf.unset if before is None else partial(spark.conf.set, value=before)
            stack.callback(restore, name)
        yield


def with_uncounted_batches(df: DataFrame, job: Callable[[DataFrame], _AnswerT]) -> _AnswerT:
    """Run a job that sends rows to Python, without Spark counting the bytes of every row.

    Batches are then limited by rows only. Rows with so much text that a batch could exceed 256 MB raise an error in
    Spark, and the job is repeated with counting. Rows with nested columns, and sessions with their own limit of bytes,
    always use counting.
    """
    spark = df.sparkSession
    checked = _with_length_check(df) if spark.conf.get(_BATCH_BYTES, None) is None else None
    if checked is None:
        return job(df)
    try:
        with session_settings(spark, {_BATCH_BYTES: _NO_LIMIT}):
            return job(checked)
    except Exception as error:  # of Spark, Connect or Py4J; other errors are raised again
        if _TOO_LONG not in str(error):
            raise
    return job(df)


def _with_length_check(df: DataFrame) -> DataFrame | None:
    """Return the same rows, where rows that are too long raise an error; None if their length cannot be computed."""
    rows = int(df.sparkSession.conf.get(_BATCH_ROWS, None) or _DEFAULT_ROWS)
    kinds = {field.name: field.dataType for field in df.schema.fields}
    texts = [name for name, kind in kinds.items() if isinstance(kind, _VARIABLE_SIZE)]
    if rows <= 0 or not all(isinstance(kind, _FIXED_SIZE + _VARIABLE_SIZE) for kind in kinds.values()):
        return None
    if not texts:
        return df
    length = sum((F.coalesce(F.octet_length(name).cast("long"), F.lit(0)) for name in texts), F.lit(0))
    first, *_ = texts
    is_long = length > _MAX_BATCH_BYTES // rows
    return df.withColumn(first, F.when(is_long, F.raise_error(F.lit(_TOO_LONG))).otherwise(F.col(first)))
