"""Where work in Spark's Python workers begins: on the cores of its task, with errors that find their way back."""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from qbeast_core.errors import QbeastError
from qbeast_spark_bridge.errors import note_of

__all__ = ["WorkerCall", "use_task_cores"]

_THREADS: Final = "POLARS_MAX_THREADS"


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
            yield from function(pickle.loads(self.argument), batches)  # noqa: S301 -- bytes of our own driver
        except QbeastError as error:
            error.add_note(note_of(error))
            raise


def use_task_cores() -> None:
    """Let Polars and Arrow work on the cores of a task (``spark.task.cpus``), not on all of the machine's.

    A worker that imported Polars before keeps the threads it has.
    """
    cores = os.environ.setdefault(_THREADS, os.environ.get("OMP_NUM_THREADS", "1"))  # Spark sets the latter
    importlib.import_module("pyarrow").set_cpu_count(int(cores))
