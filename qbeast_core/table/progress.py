"""Where a long write stands, told to whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Progress", "ProgressCallback", "ProgressStage"]

ProgressStage: TypeAlias = Literal["read", "plan", "write", "commit", "done"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a write.

    Parameters
    ----------
    stage : {"read", "plan", "write", "commit", "done"}
        What is under way.
    files_done, files_total : int
        Data files written so far, and in all once the plan stands.
    rows : int
        Rows of the write.
    """

    stage: ProgressStage
    files_done: int = 0
    files_total: int = 0
    rows: int = 0


ProgressCallback: TypeAlias = Callable[[Progress], None]
