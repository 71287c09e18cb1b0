"""Errors of code that reads bytes and knows no file."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn


class Damaged(Exception):  # noqa: N818 - what the bytes are
    """The bytes do not follow the format; `places` leads from the inside out, the caller adds the file."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.places: list[str] = []
        super().__init__(reason)


class UnsupportedForm(Damaged):
    """The bytes have a form that CarbonData writes and this reader does not support."""


def damaged(reason: str) -> NoReturn:
    """Raise `Damaged`."""
    raise Damaged(reason)


def unreadable(reason: str) -> NoReturn:
    """Raise `UnsupportedForm`."""
    raise UnsupportedForm(reason)


@contextmanager
def place(name: str) -> Generator[None]:
    """Add a place to `Damaged`."""
    try:
        yield
    except Damaged as error:
        error.places.append(name)
        raise
