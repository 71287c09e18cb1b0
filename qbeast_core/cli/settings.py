"""What every command is told: JSON or text, tracebacks, and how to reach the store."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(slots=True)
class Settings:
    """Filled in while the command line is read, by options that every command has.

    Attributes
    ----------
    json : bool
        One JSON document on the standard output instead of text.
    traceback : bool
        Show where errors come from.
    """

    json: bool = False
    traceback: bool = False
