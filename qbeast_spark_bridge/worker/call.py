"""Call functions in Spark's Python workers: with the task's cores, and with errors that the driver can rebuild.

It imports little, because every worker loads it.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

import orjson

from qbeast_core.errors import QbeastError

_THREADS: Final = "POLARS_MAX_THREADS"

_MARK: Final = "qbeast-error:"

NOTE: Final = re.compile(re.escape(_MARK) + r" (\{.*\})")

_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class WorkerCall:
    """A function of this package with its first argument, for ``DataFrame.mapInArrow``.

    It pickles as names and bytes only: a worker must set the number of threads before it imports Polars, and
    unpickling a class of ours would import it.
    """

    module: str
    function: str
    argument: bytes

    @staticmethod
    def of(function: Callable[..., Iterator[Any]], argument: object) -> WorkerCall:
        """Return the call ``function(argument, batches)``."""
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
    """Limit Polars and Arrow to the cores of a task (``spark.task.cpus``).

    A worker that has already imported Polars keeps its threads.
    """
    cores = os.environ.setdefault(_THREADS, os.environ.get("OMP_NUM_THREADS", "1"))  # Spark sets the latter
    importlib.import_module("pyarrow").set_cpu_count(int(cores))


def batches_of_task(pickled: bytes | None) -> Iterator[Any]:
    """Read the rows of a task of the data source. Spark passes None for a read without tasks."""
    use_task_cores()
    if pickled is not None:
        task = pickle.loads(pickled)  # noqa: S301 -- bytes of our own driver
        freeze_modules()
        yield from task.batches()


def freeze_modules() -> None:
    """Exempt all loaded modules from garbage collection; call it after the imports of a task.

    PySpark collects garbage after every task of a reused worker, and walking the modules of Polars, Arrow and this
    package takes longer than a small task. Objects are still freed, unless they are now in a reference cycle.
    """
    _freeze(len(sys.modules))


@cache
def _freeze(modules: int) -> None:
    """Freeze once for each number of modules: later tasks may import more."""
    del modules
    gc.collect()
    gc.freeze()


def note_of(error: QbeastError) -> str:
    """Return a line with all fields of an error, which a worker adds to its traceback.

    >>> from qbeast_core.errors import InvalidInputError
    >>> note_of(InvalidInputError("no rows", argument="df"))
    'qbeast-error: {"class":"InvalidInputError","message":"no rows","facts":{"argument":"df","value":null,"known":[]}}'
    """
    facts = {name: fact for name, fact in vars(error).items() if not name.startswith("__")}
    note = {"class": type(error).__name__, "message": str(error), "facts": facts}
    return f"{_MARK} {orjson.dumps(note, default=str).decode()}"


def grouped(parts: Iterable[tuple[_Part, int]], size_bytes: int) -> Iterator[list[_Part]]:
    """Group parts with their sizes. A group ends when it has `size_bytes`, and is emptied before the next one.

    >>> [list(group) for group in grouped([("a", 2), ("b", 3), ("c", 1)], 4)]
    [['a', 'b'], ['c']]
    """
    group: list[_Part] = []
    total = 0
    for part, size in parts:
        group.append(part)
        total += size
        if total >= size_bytes:
            yield group
            group.clear()  # the caller still has the list: its parts would stay in memory
            total = 0
    if group:
        yield group
