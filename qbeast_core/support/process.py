"""The process: clock, random ids, the logger, memory, threads, optional packages, and progress.

The logger reports reads, plans, writes, commits and retries. It is silent without a handler.

Examples
--------
>>> import logging
>>> logging.getLogger("qbeast").setLevel(logging.INFO)  # changes and retries; DEBUG: reads and plans too
"""

from __future__ import annotations

import inspect
import logging
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeAlias, TypeVar, cast, get_args

from qbeast_core.errors import (
    MissingDependencyError,
    StorageError,
    check_choice,
    hints_arguments,
    invalid_argument,
)
from qbeast_core.support.sizing import sizing
from qbeast_core.support.text import for_people

if TYPE_CHECKING:
    from collections.abc import Mapping


# Each message is one line, without passwords of addresses and terminal codes.
LOG: Final = logging.getLogger("qbeast")


def _clean(record: logging.LogRecord) -> bool:
    record.msg, record.args = for_people(record.getMessage()), None
    return True


LOG.addHandler(logging.NullHandler())
LOG.addFilter(_clean)


def now_ms() -> int:
    """Return the current time in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """Return a new random UUID."""
    return str(uuid.uuid4())


_OUR_PACKAGES: Final = frozenset(
    {"pyspark_qbeast", "qbeast", "qbeast_carbondata", "qbeast_core", "qbeast_spark_bridge"}
)

ProgressStage: TypeAlias = Literal["read", "plan", "write", "commit", "done"]


def caller_stacklevel() -> int:
    """Return the `stacklevel` for a warning of the calling function: the nearest caller outside our packages.

    >>> caller_stacklevel() >= 1
    True
    """
    frame = inspect.currentframe()
    level = 0
    while frame is not None and (level == 0 or _is_ours(frame.f_globals.get("__name__"))):
        frame, level = frame.f_back, level + 1
    return max(level, 1)


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _OUR_PACKAGES


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a write.

    Parameters
    ----------
    stage : {"read", "plan", "write", "commit", "done"}
        The current step.
    files_done, files_total : int
        Data files written so far, and in total; the total is 0 until the write is planned.
    rows : int
        Rows of the write.
    engine : {"memory", "spill"}
        Whether the rows are in memory or go through temporary files.
    spilled_bytes : int
        Bytes written to temporary files so far.
    """

    stage: ProgressStage
    files_done: int = 0
    files_total: int = 0
    rows: int = 0
    engine: Literal["memory", "spill"] = "memory"
    spilled_bytes: int = 0


ProgressCallback: TypeAlias = Callable[[Progress], None]


def report(progress: ProgressCallback | None, step: Progress) -> None:
    """Call the progress callback, if there is one."""
    if progress is not None:
        progress(step)


FORKED: Final = (
    "this process was forked from one that had used the library, whose threads are missing here. Start processes "
    "with the method 'spawn': multiprocessing.get_context('spawn'), mp_context= of an executor, or "
    'multiprocessing_context="spawn" of a DataLoader'
)


class _Process:
    """State of this process."""

    used = False
    is_broken = False

    def forked(self) -> None:
        self.is_broken = self.used


_PROCESS: Final = _Process()

if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_PROCESS.forked)


def is_forked() -> bool:
    """Return whether this process was forked from one that had called `refuse_forked`."""
    return _PROCESS.is_broken


def refuse_forked(uri: str) -> None:
    """Raise in a process that was forked from one that had called this function."""
    if is_forked():
        msg = f"{uri} cannot be used here: {FORKED}."
        raise StorageError(msg, path=uri)
    _PROCESS.used = True


# The extra of each package, as in pyproject.toml.
_EXTRAS: Final = {
    "boto3": "glue",
    "click": "cli",
    "duckdb": "cli",
    "matplotlib": "plot",
    "pyspark": "spark",
    "rich": "cli",
}


def terminal_columns() -> int | None:
    """Return the width of the terminal in characters; None if the standard output is not a terminal."""
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else None


def require(package: str, what: str) -> None:
    """Raise `MissingDependencyError` if a package is not installed; nothing is imported.

    >>> require("polars", "everything")
    """
    if find_spec(package) is None:
        extra = _EXTRAS.get(package)
        part = "" if extra is None else f" (it is in qbeast's extra {extra!r}: pip install 'qbeast[{extra}]')"
        msg = f"{what} needs {package}, which is not installed: pip install {package}{part}"
        raise MissingDependencyError(msg, dependency=package, extra=extra)


EngineName: TypeAlias = Literal["auto", "memory", "spill"]

_FOLDER_VARIABLE: Final = "QBEAST_SPILL_DIR"


@hints_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Memory and temporary files of this machine that a call may use.

    Attributes
    ----------
    memory_bytes : int, optional
        Memory that the call may add to the process, 4 MiB or more. By default the environment variable
        ``QBEAST_MEMORY_BYTES`` (such as ``2GiB``), or half of the memory of the machine or its cgroup. It includes what
        Python and the libraries need, about 140 MiB, so a smaller budget is exceeded. It does not include the memory
        of a query that filters, sorts or joins before it returns the rows.
    spill_dir : path-like, optional
        Folder for temporary files, which need at most twice the size of the rows. By default the environment variable
        ``QBEAST_SPILL_DIR``, or the temporary folder of the system. The files are removed when the call ends. Files of
        a killed process are removed by the next call that spills.
    engine : {"auto", "memory", "spill"}, default "auto"
        ``"memory"`` keeps the rows in memory, ``"spill"`` sorts them through temporary files, ``"auto"`` uses memory
        if the estimated need fits `memory_bytes`. The tables are equally good.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> small = qbeast.Resources(memory_bytes=64 << 20, engine="spill")
    >>> rows = pl.DataFrame({"id": range(1000)})
    >>> qbeast.write_table(rows, "ids", columns=["id"], resources=small).engine
    'spill'
    """

    memory_bytes: int | None = None
    spill_dir: str | os.PathLike[str] | None = None
    engine: EngineName = "auto"


def checked_resources(resources: Resources | None) -> Resources:
    """Return the resources of a call, or raise if they are invalid.

    >>> checked_resources(None)
    Resources(memory_bytes=None, spill_dir=None, engine='auto')
    """
    if not isinstance(cast("object", resources), Resources | None):
        problem = "must be a qbeast.Resources, such as qbeast.Resources(memory_bytes=2 << 30)"
        invalid_argument("resources", problem, value=resources)
    chosen = resources or Resources()
    check_choice("engine", chosen.engine, get_args(EngineName))
    if not isinstance(cast("object", chosen.spill_dir), str | os.PathLike | None):
        invalid_argument("spill_dir", "must be a folder", value=chosen.spill_dir)
    size = cast("object", chosen.memory_bytes)  # callers without a type checker pass anything
    is_number = isinstance(size, int) and not isinstance(size, bool) and size >= sizing().min_memory_bytes
    if size is not None and not is_number:
        problem = f"must be a whole number of bytes, at least {sizing().min_memory_bytes:,} (4 MiB)"
        invalid_argument("memory_bytes", problem, value=size)
    return chosen


def spill_folder_of(resources: Resources) -> str | os.PathLike[str] | None:
    """Return the folder for temporary files. None: the folder of the system."""
    return (
        resources.spill_dir if resources.spill_dir is not None else os.environ.get(_FOLDER_VARIABLE) or None
    )


# A callback, True for a bar in terminals and notebooks, None or False for no progress.
ProgressLike: TypeAlias = ProgressCallback | bool | None

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")

_STAGES: Final[Mapping[ProgressStage, str]] = {
    "read": "reading",
    "plan": "planning",
    "write": "writing files",
    "commit": "committing",
    "done": "done",
}


def shows_progress(doing: str) -> Callable[[Callable[_Params, _Result]], Callable[_Params, _Result]]:
    """Accept ``progress=True``: draw a bar while the call runs, and remove it when the call ends.

    rich draws it if the standard error is a terminal; notebooks show HTML without widgets. Elsewhere nothing is drawn.
    """

    def decorate(call: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
        @wraps(call)
        def with_bar(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
            if not isinstance(kwargs.get("progress"), bool):
                return call(*args, **kwargs)
            untyped, rest = cast("Callable[..., _Result]", call), {**kwargs}
            with progress_bar(doing) if rest.pop("progress") else nullcontext() as report:
                return untyped(*args, **rest, progress=report)

        return with_bar

    return decorate


def callback_of(progress: ProgressLike) -> ProgressCallback | None:
    """Return the callback of a function decorated by `shows_progress`.

    >>> callback_of(print) is print, callback_of(None)
    (True, None)
    """
    return progress if callable(progress) else None


def progress_bar(doing: str) -> AbstractContextManager[ProgressCallback | None]:
    """Return a context in which a bar is drawn, in terminals and notebooks."""
    display = _notebook_display()
    if display is not None:
        return nullcontext(_notebook_bar(display, doing))
    return _terminal_bar(doing) if sys.stderr.isatty() else nullcontext()


@contextmanager
def _terminal_bar(doing: str) -> Generator[ProgressCallback]:
    """Draw a bar on the standard error, and remove it at the end."""
    require("rich", "a progress bar")
    from rich import progress as bars  # noqa: PLC0415 - slow to load, only for terminals
    from rich.console import Console  # noqa: PLC0415 - slow to load too

    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.fields[count]}"),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as screen:
        task = screen.add_task(doing, total=None, count="")

        def report(step: Progress) -> None:
            screen.update(
                task,
                description=f"{doing}: {_STAGES[step.stage]}",
                completed=step.files_done,
                total=step.files_total or None,
                count=_count(step),
            )

        yield report


class _NotebookStep:
    """A step, shown in a notebook."""

    def __init__(self, doing: str, step: Progress | None = None) -> None:
        self.text = doing if step is None else f"{doing}: {_STAGES[step.stage]}, {_count(step)}"
        self.share = step.files_done / step.files_total if step is not None and step.files_total else 0.0

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from qbeast_core.support.frames import bar  # noqa: PLC0415 - loads Polars

        return f"<div>{bar(self.share)} {escape(self.text)}</div>"


def _notebook_bar(display: Callable[..., object], doing: str) -> ProgressCallback:
    handle = display(_NotebookStep(doing), display_id=True)

    def report(step: Progress) -> None:
        update = getattr(handle, "update", None)
        if callable(update):
            update(_NotebookStep(doing, step))

    return report


def _notebook_display() -> Callable[..., object] | None:
    """Return the function that shows values in a cell; None outside notebooks, also in IPython in a terminal."""
    shell = sys.modules.get("IPython")
    session = None if shell is None else shell.get_ipython()
    if session is None or not hasattr(session, "kernel"):
        return None
    display: Callable[..., object] = import_module("IPython.display").display
    return display


def _count(step: Progress) -> str:
    if step.files_total:
        return f"{step.files_done:,} of {step.files_total:,} files"
    return f"{step.rows:,} rows" if step.rows else ""
