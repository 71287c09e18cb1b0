"""Whom a warning is for: the code that called this library, however deep inside it the warning is given."""

from __future__ import annotations

import inspect
from typing import Final

__all__ = ["caller_stacklevel"]

_OURS: Final = frozenset({"qbeast", "qbeast_core", "qbeast_spark_bridge", "pyspark_qbeast"})


def caller_stacklevel() -> int:
    """Return the `stacklevel` of a warning given by whoever calls this: the nearest caller outside our packages.

    Examples
    --------
    >>> caller_stacklevel() >= 1
    True
    """
    frame = inspect.currentframe()
    level = 0
    while frame is not None and (level == 0 or _is_ours(frame.f_globals.get("__name__"))):
        frame, level = frame.f_back, level + 1
    return max(level, 1)


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _OURS
