"""The clock, random ids, the reports of progress, and the logger ``qbeast``.

The logger reports reads, plans, writes, commits and retries. It is silent without a handler.

Examples
--------
>>> import logging
>>> logging.getLogger("qbeast").setLevel(logging.INFO)  # changes and retries; DEBUG: reads and plans too
"""

from __future__ import annotations

import inspect
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from qbeast_core.support.plain_text import for_people

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
