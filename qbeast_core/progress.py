"""Progress of an operation: passed to a callback, or drawn as a bar in terminals and notebooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Final, ParamSpec, TypeAlias, TypeVar, cast

from qbeast_core.support.process import require
from qbeast_core.support.runtime import Progress, ProgressCallback, ProgressStage

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        from qbeast_core.support.html import bar  # noqa: PLC0415 - loads Polars

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
