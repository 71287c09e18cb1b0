"""Errors of damaged and of encrypted bytes; knows no file.

The format of CarbonData has no keys. Tables are encrypted by the layer below: zones of a file system, object stores,
volumes. A copy that bypasses this layer has bytes of which each is as common as any other, from the first to the last.
Files of CarbonData do not: they begin or end with names in plain text.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import numpy as np


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


# Bytes at the begin and the end of a file that are tested.
SAMPLE_BYTES: Final = 2048

_MIN_BYTES: Final = 256  # fewer prove nothing
_MAX_UNEVEN: Final = 60.0  # chi-square of 16 classes: even bytes exceed it once in a million times
_REASON: Final = (
    "it looks encrypted: its bytes are spread more evenly than in any file that CarbonData writes, and CarbonData "
    "itself does not encrypt. Copy it again through the file system or object store that holds the key"
)


@contextmanager
def unless_encrypted(*samples: bytes) -> Generator[None]:
    """Turn `Damaged` into `UnsupportedForm` where all samples look encrypted."""
    try:
        yield
    except Damaged as error:
        if not isinstance(error, UnsupportedForm) and all(
            looks_encrypted(sample[:SAMPLE_BYTES]) for sample in samples
        ):
            raise UnsupportedForm(_REASON) from error
        raise


def looks_encrypted(data: bytes) -> bool:
    r"""Return whether every value of a byte is about as common as any other.

    >>> looks_encrypted(bytes(range(256))), looks_encrypted(b"Metadata/schema" * 40)
    (True, False)
    """
    if len(data) < _MIN_BYTES:
        return False
    values = np.frombuffer(data, np.uint8)
    return max(_unevenness(values >> 4), _unevenness(values & 15)) < _MAX_UNEVEN


def _unevenness(nibbles: Any) -> float:
    """Return the chi-square of 16 classes against an even spread."""
    expected = len(nibbles) / 16
    counts = np.bincount(nibbles, minlength=16)
    return float(np.sum((counts - expected) ** 2) / expected)
