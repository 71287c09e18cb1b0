"""Settings of a session that a call chooses for itself, and puts back when it is done."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import BooleanType, DateType, NumericType, TimestampNTZType, TimestampType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["chosen", "uncounted_batches"]

_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNCOUNTED: Final = (1 << 31) - 1
_SHORT: Final = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType)


@contextmanager
def chosen(spark: SparkSession, settings: Mapping[str, int]) -> Generator[None]:
    """Let settings have other values for a while.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    settings : mapping of str to int
        Values, of settings that a running session takes.
    """
    with ExitStack() as stack:
        for name, value in settings.items():
            before = spark.conf.get(name, None)
            spark.conf.set(name, str(value))
            stack.callback(_put_back, spark, name, before)
        yield


def uncounted_batches(spark: SparkSession, schema: StructType) -> dict[str, int]:
    """Return settings under which Spark does not add up the bytes of every row that it hands to Python.

    Batches end after a number of rows alone then. So rows that may be long, by text, binary or nested columns, are left
    to be counted, as are those of a session in which somebody chose how many bytes a batch may have.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    schema : StructType
        Of the rows.
    """
    is_short = all(isinstance(field.dataType, _SHORT) for field in schema.fields)
    return {_BATCH_BYTES: _UNCOUNTED} if is_short and spark.conf.get(_BATCH_BYTES, None) is None else {}


def _put_back(spark: SparkSession, name: str, before: str | None) -> None:
    if before is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, before)
