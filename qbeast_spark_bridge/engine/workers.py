"""The Python workers of a session: whether they can run our tasks, and the errors that they raise."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 -- the name everybody gives it

from qbeast_core import errors
from qbeast_core.errors import InvalidInputError, QbeastError, SessionLostError
from qbeast_spark_bridge.worker.call import NOTE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PYTHON: Final = "spark.sql.execution.pyspark.python"

_READY: WeakSet[SparkSession] = WeakSet()

_GONE: Final = re.compile(r"RETRIES_EXCEEDED|StatusCode\.UNAVAILABLE|INVALID_HANDLE\.SESSION_")

_MISSING: Final = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'")

_OTHER: Final = re.compile(r"different (?:minor )?version:? \(?'?(\d+)[., ]+(\d+)")

_ABSENT: Final = re.compile(r'Cannot run program "([^"]+)"')

_CURE: Final = (
    "Install qbeast and pandas on every node, for the Python that spark.pyspark.python (or PYSPARK_PYTHON) names, or "
    'set PYSPARK_PYTHON to a Python that has them before the session starts (docs/spark-reference.md, "On a cluster").'
)


def ready_workers(spark: SparkSession) -> None:
    """Check once per session that the Python of the workers can run our tasks.

    On this machine they run this Python, unless another was chosen. A task that imports nothing of this package checks
    any other one.
    """
    if spark not in _READY:
        if not use_own_python(spark):
            _look(spark)
        _READY.add(spark)


def use_own_python(spark: SparkSession) -> bool:
    """Set this process's Python for the workers of a local session, unless one was chosen; return whether they run it.

    A classic session's data sources take the Python that its context names when they are registered.
    """
    if not _is_local(spark):
        return False
    set_before = os.environ.get("PYSPARK_PYTHON") or spark.conf.get(_PYTHON, None)
    # PySpark itself ignores this one where no spark-submit started the process.
    python = set_before or spark.conf.get("spark.pyspark.python", None) or sys.executable
    if not set_before:
        spark.conf.set(_PYTHON, python)
        if not _is_connect(spark):
            spark.sparkContext.pythonExec = python
    return python == sys.executable


@contextmanager
def own_errors(spark: SparkSession) -> Generator[None]:
    """Check the workers, and raise the error of a worker of ours, with Spark's error as its cause."""
    try:
        ready_workers(spark)
        yield
    except QbeastError:
        raise
    except Exception as error:
        noted = NOTE.search(str(error))
        if noted is not None:
            raise _rebuilt(orjson.loads(noted[1])) from error
        unfit = _unfit(str(error))
        if unfit is not None:
            raise InvalidInputError(unfit, argument="spark") from None
        if not _has_ended(spark, str(error)):
            raise
        msg = (
            "the Spark session ended while it moved rows; nothing was committed, and the table is as it was. Files "
            "that its workers wrote are in no version, and Table.vacuum removes them. Start a session and repeat."
        )
        raise SessionLostError(msg) from error


def unpickled(rows: DataFrame) -> list[Any]:
    """Return the objects that tasks of ours pickled into the last column."""
    return [pickle.loads(bytes(row[-1])) for row in rows.collect()]  # noqa: S301 -- bytes of our own tasks


def _is_local(spark: SparkSession) -> bool:
    """Return whether workers are started by this process, or by a Connect server that this process started."""
    try:
        master = spark.conf.get("spark.master", None) or ""
    except PySparkException:  # a service that hides it is elsewhere
        return False
    return master.startswith("local") and (not _is_connect(spark) or "SPARK_LOCAL_REMOTE" in os.environ)


def _is_connect(spark: SparkSession) -> bool:
    return hasattr(type(spark), "is_stopped")


def _look(spark: SparkSession) -> None:
    try:
        # A task of one row, in the oldest format: others need pyarrow before they call anything.
        found = spark.range(1).select(F.udf(_described, "string", useArrow=False)("id")).first()
    except PySparkException as error:
        unfit = _unfit(str(error))
        if unfit is None:
            raise
        raise InvalidInputError(unfit, argument="spark") from None
    worker: dict[str, Any] = json.loads(found[0]) if found else {}
    lacking = worker.get("lacking")
    if lacking:
        msg = f"Spark's workers run {worker['python']}, which lacks {', '.join(lacking)}; no job was sent. {_CURE}"
        raise InvalidInputError(msg, argument="spark")
    with suppress(PackageNotFoundError):
        here, there = version("qbeast"), worker.get("version")
        if there not in (None, here):
            msg = (
                f"Spark's workers have qbeast {there}, this process has {here}, and workers only run tasks of their "
                f"own version; no job was sent. Install the same version on every node."
            )
            raise InvalidInputError(msg, argument="spark")


def _described(_: int) -> str:
    """Describe a worker's Python, in a worker that may know nothing but Python."""
    import json  # noqa: PLC0415 -- sent by value: names of this module are not there
    import sys  # noqa: PLC0415
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415
    from importlib.util import find_spec  # noqa: PLC0415

    needed = (
        "qbeast_spark_bridge qbeast_core numpy pandas polars pyarrow obstore deltalake pydantic orjson mmh3"
    )
    try:
        installed = version("qbeast")
    except PackageNotFoundError:
        installed = None
    lacking = [name for name in needed.split() if find_spec(name) is None]
    return json.dumps({"python": sys.executable, "lacking": lacking, "version": installed})


_described.__module__ = "__main__"  # pickled by value: workers may lack this package


def _unfit(said: str) -> str | None:
    """Return what is wrong with the Python of the workers, from an error of Spark; None for other errors."""
    other, absent, missing = _OTHER.search(said), _ABSENT.search(said), _MISSING.search(said)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if other is not None:
        fact = f"Spark's workers run Python {other[1]}.{other[2]}, this process runs {here}"
    elif absent is not None:
        fact = f"Spark's workers do not find the program {absent[1]!r}"
    elif missing is not None:
        fact = f"Spark's executors run a Python without the module {missing[1]!r}"
    else:
        return None
    return f"{fact}; nothing was written. {_CURE}"


def _has_ended(spark: SparkSession, said: str) -> bool:
    """Return whether the session of an error has ended; each kind of end raises another error."""
    if _is_connect(spark):
        return bool(spark.is_stopped) or _GONE.search(said) is not None  # type: ignore[attr-defined]
    try:
        spark.sparkContext.defaultParallelism  # noqa: B018 -- asks the JVM, which has to be there and to run a context
    except Exception:  # noqa: BLE001 -- py4j's, of the operating system, of Python: whatever happens
        return True
    return False


def _rebuilt(said: dict[str, Any]) -> QbeastError:
    found = getattr(errors, said["class"], QbeastError)
    kind: type[QbeastError] = found
    error = kind.__new__(kind, said["message"])
    error.args = (said["message"],)
    facts = said["facts"].items()
    error.__dict__.update({name: tuple(fact) if isinstance(fact, list) else fact for name, fact in facts})
    return error
