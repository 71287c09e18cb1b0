"""The Python workers of a session: whether they can run our tasks, their errors, and settings for a job."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

import orjson
from pyspark.errors import PySparkException
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

from qbeast_core import errors
from qbeast_core.errors import InvalidInputError, QbeastError, SessionLostError
from qbeast_spark_bridge.worker.call import NOTE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PYTHON: Final = "spark.sql.execution.pyspark.python"

_READY: WeakSet[SparkSession] = WeakSet()

_SESSION_LOST: Final = re.compile(r"RETRIES_EXCEEDED|StatusCode\.UNAVAILABLE|INVALID_HANDLE\.SESSION_")

_HERE: Final = f"{sys.version_info.major}.{sys.version_info.minor}"

# Facts about the Python of the workers, by the error of Spark that shows them.
_PYTHON_FACTS: Final = {
    r"different (?:minor )?version:? \(?'?(\d+)[., ]+(\d+)": f"workers run Python {{}}.{{}}, this process runs {_HERE}",
    r'Cannot run program "([^"]+)"': "workers do not find the program {!r}",
    r"(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'": "workers run a Python without the module {!r}",
}

_CURE: Final = (
    "Install qbeast and pandas on every node, for the Python in spark.pyspark.python (or PYSPARK_PYTHON), or "
    'set PYSPARK_PYTHON to a Python with both before the session starts (docs/spark-reference.md, "On a cluster").'
)

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


def ready_workers(spark: SparkSession) -> None:
    """Check once per session that the Python of the workers can run our tasks.

    Local workers run this process's Python, unless another one is configured. A configured Python is checked by a
    task that imports nothing from this package.
    """
    if spark not in _READY:
        if not use_own_python(spark):
            _check_python(spark)
        _READY.add(spark)


def use_own_python(spark: SparkSession) -> bool:
    """Make workers of a local session use this process's Python unless one is configured; return whether they do.

    Data sources of a classic session use the Python of its context at the time of their registration.
    """
    if not _is_local(spark):
        return False
    configured = os.environ.get("PYSPARK_PYTHON") or spark.conf.get(_PYTHON, None)
    # PySpark ignores this setting if the process was not started by spark-submit.
    python = configured or spark.conf.get("spark.pyspark.python", None) or sys.executable
    if not configured:
        spark.conf.set(_PYTHON, python)
        if not is_connect(spark):
            spark.sparkContext.pythonExec = python
    return python == sys.executable


@contextmanager
def worker_errors(spark: SparkSession) -> Generator[None]:
    """Check the workers, and raise the errors of our tasks, with Spark's error as the cause."""
    try:
        ready_workers(spark)
        yield
    except QbeastError:
        raise
    except Exception as error:
        note = NOTE.search(str(error))
        if note is not None:
            raise _rebuild(orjson.loads(note[1])) from error
        problem = _python_problem(str(error))
        if problem is not None:
            raise InvalidInputError(problem, argument="spark") from None
        if not _has_ended(spark, str(error)):
            raise
        msg = (
            "the Spark session ended during the operation, and the table is unchanged. Files "
            "of its workers are in no version, and Table.vacuum removes them. Start a session and repeat."
        )
        raise SessionLostError(msg) from error


def unpickled(rows: DataFrame) -> list[Any]:
    """Return the objects that our tasks pickled into the last column."""
    return [pickle.loads(bytes(row[-1])) for row in rows.collect()]  # noqa: S301 -- bytes of our own tasks


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect, whose server may be another engine."""
    return hasattr(type(spark), "is_stopped")


def _is_local(spark: SparkSession) -> bool:
    """Return whether this process, or a Connect server that it started, starts the workers."""
    try:
        master = spark.conf.get("spark.master", None) or ""
    except PySparkException:  # a service that hides the setting is not local
        return False
    return master.startswith("local") and (not is_connect(spark) or "SPARK_LOCAL_REMOTE" in os.environ)


def _check_python(spark: SparkSession) -> None:
    try:
        # One row in the oldest format: newer formats need pyarrow in the worker.
        row = spark.range(1).select(F.udf(_describe_python, "string", useArrow=False)("id")).first()
    except PySparkException as error:
        problem = _python_problem(str(error))
        if problem is None:
            raise
        raise InvalidInputError(problem, argument="spark") from None
    worker: dict[str, Any] = json.loads(row[0]) if row else {}
    lacking = worker.get("lacking")
    if lacking:
        msg = f"Spark's workers run {worker['python']}, which lacks {', '.join(lacking)}. {_CURE}"
        raise InvalidInputError(msg, argument="spark")
    with suppress(PackageNotFoundError):
        here, there = version("qbeast"), worker.get("version")
        if there not in (None, here):
            msg = (
                f"Spark's workers have qbeast {there}, this process has {here}, and workers run only tasks of their "
                f"own version. Install the same version on every node."
            )
            raise InvalidInputError(msg, argument="spark")


def _describe_python(_: int) -> str:
    """Describe a worker's Python, in a worker that may have only the standard library."""
    import json  # noqa: PLC0415 -- sent by value, without this module's names
    import sys  # noqa: PLC0415
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415
    from importlib.util import find_spec  # noqa: PLC0415

    needed = (
        "qbeast_spark_bridge qbeast_core numpy pandas polars pyarrow obstore deltalake pydantic orjson mmh3 "
        "pyroaring"
    )
    try:
        installed = version("qbeast")
    except PackageNotFoundError:
        installed = None
    lacking = [name for name in needed.split() if find_spec(name) is None]
    return json.dumps({"python": sys.executable, "lacking": lacking, "version": installed})


_describe_python.__module__ = "__main__"  # pickled by value: workers may not have this package


def _python_problem(message: str) -> str | None:
    """Return the problem of the workers' Python from an error of Spark; None for other errors."""
    for pattern, fact in _PYTHON_FACTS.items():
        match = re.search(pattern, message)
        if match is not None:
            return f"Spark's {fact.format(*match.groups())}. {_CURE}"
    return None


def _has_ended(spark: SparkSession, message: str) -> bool:
    """Return whether the session has ended; errors differ by the way it ended."""
    if is_connect(spark):
        return bool(spark.is_stopped) or _SESSION_LOST.search(message) is not None  # type: ignore[attr-defined]
    try:
        spark.sparkContext.defaultParallelism  # noqa: B018 -- calls the JVM, which must be alive and have a context
    except Exception:  # noqa: BLE001 -- errors of py4j, the system or Python
        return True
    return False


def _rebuild(note: dict[str, Any]) -> QbeastError:
    kind: type[QbeastError] = getattr(errors, note["class"], QbeastError)
    error = kind.__new__(kind, note["message"])
    error.args = (note["message"],)
    facts = note["facts"].items()
    error.__dict__.update({name: tuple(fact) if isinstance(fact, list) else fact for name, fact in facts})
    return error


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
