"""Where work in Spark's Python workers begins: on the cores of its task, with errors that find their way back."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import orjson

from qbeast_core import errors
from qbeast_core.errors import InvalidInputError, QbeastError, SessionLostError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OwnErrors", "WorkerCall", "freeze_modules", "note_of", "use_task_cores"]


_THREADS: Final = "POLARS_MAX_THREADS"

_MARK: Final = "qbeast-error:"

_NOTE: Final = re.compile(re.escape(_MARK) + r" (\{.*\})")

_GONE: Final = re.compile(r"RETRIES_EXCEEDED|StatusCode\.UNAVAILABLE|INVALID_HANDLE\.SESSION_")

_MISSING: Final = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'")


@dataclass(frozen=True, slots=True)
class WorkerCall:
    """A function of this package with its first argument, to be given to ``DataFrame.mapInArrow``.

    Names and bytes are all that is sent: a worker must know how many threads to start before it imports
    Polars, and what is pickled with a class of ours would import it.

    Parameters
    ----------
    module, function : str
        Where the function is; it takes the argument and the batches, and yields batches.
    argument : bytes
        The pickled argument.
    """

    module: str
    function: str
    argument: bytes

    @staticmethod
    def of(function: Callable[..., Iterator[Any]], argument: object) -> WorkerCall:
        """Return the call ``function(argument, batches)``.

        Parameters
        ----------
        function : callable
            Importable by its name.
        argument : object
            Picklable.
        """
        return WorkerCall(function.__module__, function.__name__, pickle.dumps(argument))

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Make the call, in a worker."""
        use_task_cores()
        function = getattr(importlib.import_module(self.module), self.function)
        try:
            argument = pickle.loads(self.argument)  # noqa: S301 -- bytes of our own driver
            freeze_modules()
            yield from function(argument, batches)
        except QbeastError as error:
            error.add_note(note_of(error))
            raise


def use_task_cores() -> None:
    """Let Polars and Arrow work on the cores of a task (``spark.task.cpus``), not on all of the machine's.

    A worker that imported Polars before keeps the threads it has.
    """
    cores = os.environ.setdefault(_THREADS, os.environ.get("OMP_NUM_THREADS", "1"))  # Spark sets the latter
    importlib.import_module("pyarrow").set_cpu_count(int(cores))


def freeze_modules() -> None:
    """Leave what is loaded out of all later garbage collections, to be called once a task's modules are there.

    PySpark collects garbage after every task of a worker that it keeps: to walk through the modules of Polars,
    Arrow and this package takes longer than a small task. What dies is still freed, unless it is in a circle by then.
    """
    _freeze(len(sys.modules))


@cache
def _freeze(modules: int) -> None:
    """Freeze once for that many modules; further ones come with further kinds of tasks."""
    del modules
    gc.collect()
    gc.freeze()


class OwnErrors:
    """A context that raises what a worker of ours raised, with Spark's error as the cause.

    Parameters
    ----------
    spark : SparkSession
        Whose workers they are.

    Raises
    ------
    QbeastError
        The worker's own, facts and all.
    InvalidInputError
        If workers lack a module that they need.
    SessionLostError
        If the session ended.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look for an error of ours in the text of Spark's."""
        if not isinstance(error, Exception) or isinstance(error, QbeastError):
            return
        own = _own(str(error))
        if own is not None:
            raise own from error
        if _has_ended(self._spark, str(error)):
            msg = (
                "the Spark session ended while it moved rows; nothing was committed, and the table is as it was. Files "
                "that its workers wrote are in no version, and Table.vacuum removes them. Start a session and repeat."
            )
            raise SessionLostError(msg) from error


def _has_ended(spark: SparkSession, said: str) -> bool:
    """Tell whether the session of an error is over; each way to end raises something else."""
    is_stopped: bool | None = getattr(spark, "is_stopped", None)  # of Spark Connect alone
    if is_stopped is not None:
        return is_stopped or _GONE.search(said) is not None
    try:
        spark.sparkContext.defaultParallelism  # noqa: B018 -- asks the JVM, which has to be there and to run a context
    except Exception:  # noqa: BLE001 -- py4j's, of the operating system, of Python: whatever happens
        return True
    return False


def note_of(error: QbeastError) -> str:
    """Return a line that says all of an error; a worker leaves it in the trace that it hands to Spark.

    Examples
    --------
    >>> note_of(InvalidInputError("no rows", argument="df"))
    'qbeast-error: {"class":"InvalidInputError","message":"no rows","facts":{"argument":"df"}}'
    """
    facts = {name: fact for name, fact in vars(error).items() if not name.startswith("__")}
    said = {"class": type(error).__name__, "message": str(error), "facts": facts}
    return f"{_MARK} {orjson.dumps(said, default=str).decode()}"


def _own(trace: str) -> QbeastError | None:
    noted = _NOTE.search(trace)
    if noted is not None:
        return _rebuilt(orjson.loads(noted[1]))
    missing = _MISSING.search(trace)
    if missing is not None:
        msg = (
            f"Spark's executors run a Python without the module {missing[1]!r}; nothing was written. Install "
            "qbeast and pandas on every node, for the Python that spark.pyspark.python (or PYSPARK_PYTHON) names."
        )
        return InvalidInputError(msg)
    return None


def _rebuilt(said: dict[str, Any]) -> QbeastError:
    found = getattr(errors, said["class"], QbeastError)
    kind: type[QbeastError] = found
    error = kind.__new__(kind, said["message"])
    error.args = (said["message"],)
    facts = said["facts"].items()
    error.__dict__.update({name: tuple(fact) if isinstance(fact, list) else fact for name, fact in facts})
    return error
