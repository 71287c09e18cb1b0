"""Progress on the standard error, where it is a terminal; elsewhere none."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from qbeast_core.table.runtime import Progress, ProgressCallback

__all__ = ["progress_bar"]

_STAGES: Final = {
    "read": "reading",
    "plan": "planning",
    "write": "writing files",
    "commit": "committing",
    "done": "done",
}


@contextmanager
def progress_bar(what: str) -> Generator[ProgressCallback | None]:
    """Show that something is going on, and how far it is; nothing is left on the screen.

    Yields
    ------
    callable or None
        For `progress=` of the library; None where nobody looks.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as bars  # noqa: PLC0415 - slow to load, and of use on terminals alone
    from rich.console import Console  # noqa: PLC0415 - the same

    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.fields[count]}"),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as screen:
        task = screen.add_task(what, total=None, count="")

        def report(step: Progress) -> None:
            screen.update(
                task,
                description=f"{what}: {_STAGES[step.stage]}",
                completed=step.files_done,
                total=step.files_total or None,
                count=_count(step),
            )

        yield report


def _count(step: Progress) -> str:
    if step.files_total:
        return f"{step.files_done:,} of {step.files_total:,} files"
    return f"{step.rows:,} rows" if step.rows else ""
