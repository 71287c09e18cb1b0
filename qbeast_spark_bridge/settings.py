"""Settings of a session that a call chooses for itself, and puts back when it is done."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql import functions as F  # noqa: N812 -- the name everybody gives it
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
_USUAL_ROWS: Final = "10000"
_MOST_BYTES: Final = 256 << 20
_UNCOUNTED: Final = (1 << 31) - 1
_SHORT: Final = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType)
_LONG: Final = (StringType, BinaryType)
_TOO_LONG: Final = (
    "qbeast: rows are too long for batches that are not counted; the job is repeated with a count"
)


@contextmanager
def chosen(spark: SparkSession, settings: Mapping[str, int]) -> Generator[None]:
    """Let settings have other values for a while."""
    with ExitStack() as stack:
        for name, value in settings.items():
            before = spark.conf.get(name, None)
            spark.conf.set(name, str(value))
            stack.callback(_put_back, spark, name, before)
        yield


def with_uncounted_batches(df: DataFrame, job: Callable[[DataFrame], _AnswerT]) -> _AnswerT:
    """Run a job that hands rows to Python, while Spark does not add up the bytes of every one of them.

    Batches end after a number of rows alone then. So Spark refuses rows with so much text that a batch of them could
    have more than 256 MB, and the job is run again with batches that are counted; so are rows with nested columns, and
    those of a session in which somebody chose how many bytes a batch may have.
    """
    spark = df.sparkSession
    guarded = _guarded(df) if spark.conf.get(_BATCH_BYTES, None) is None else None
    if guarded is None:
        return job(df)
    try:
        with chosen(spark, {_BATCH_BYTES: _UNCOUNTED}):
            return job(guarded)
    except Exception as error:  # of Spark, Connect or Py4J; all but this one is raised again
        if _TOO_LONG not in str(error):
            raise
    return job(df)


def _guarded(df: DataFrame) -> DataFrame | None:
    """Return the same rows, of which those that are too long raise an error, or None where nobody can tell."""
    rows = int(df.sparkSession.conf.get(_BATCH_ROWS, None) or _USUAL_ROWS)
    kinds = {field.name: field.dataType for field in df.schema.fields}
    texts = [name for name, kind in kinds.items() if isinstance(kind, _LONG)]
    if rows <= 0 or not all(isinstance(kind, _SHORT + _LONG) for kind in kinds.values()):
        return None
    if not texts:
        return df
    length = reduce(add, (F.coalesce(F.octet_length(name).cast("long"), F.lit(0)) for name in texts))
    first, *_ = texts
    is_long = length > _MOST_BYTES // rows
    return df.withColumn(first, F.when(is_long, F.raise_error(F.lit(_TOO_LONG))).otherwise(F.col(first)))


def _put_back(spark: SparkSession, name: str, before: str | None) -> None:
    if before is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, before)
