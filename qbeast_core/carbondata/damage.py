"""What is wrong with bytes, said by code that knows no file."""

from __future__ import annotations

from typing import Any, NoReturn


class Damaged(Exception):  # noqa: N818 - what the bytes are
    """The bytes are not what the format says; whoever read them from a file says which file."""

    def __init__(self, reason: str, *places: str) -> None:
        self.reason = reason
        self.places = list(places)
        super().__init__(reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, *self.places)


class Unreadable(Damaged):
    """The bytes are of a form that CarbonData has and this reader does not understand: refused, never guessed."""


def damaged(reason: str) -> NoReturn:
    """Raise `Damaged`."""
    raise Damaged(reason)
