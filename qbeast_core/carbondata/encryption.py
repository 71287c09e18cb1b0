"""Encrypted files: told from damaged ones by their bytes, for CarbonData has no mark of encryption.

Its format knows no keys. Tables are encrypted by what lies below: zones of a file system, object stores, volumes. A
copy made beside these holds bytes of which each is as common as any other, from the first to the last, as in no file
of CarbonData: they begin or end with names in plain text.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from qbeast_core.carbondata.damage import Damaged, Unreadable

# Bytes at the begin and the end of a file that are looked at.
SAMPLE_BYTES: Final = 2048

_LEAST_BYTES: Final = 256  # fewer tell nothing
_MOST_UNEVEN: Final = 60.0  # chi-square of 16 classes: even bytes stay below it but once in a million times
_REASON: Final = (
    "it looks encrypted: its bytes are spread as evenly as those of no file that CarbonData writes, and CarbonData "
    "itself encrypts nothing. Copy it once more through the file system or object store that holds the key"
)


@contextmanager
def unless_encrypted(*samples: bytes) -> Generator[None]:
    """Turn damage into a refusal by name where the bytes look encrypted."""
    try:
        yield
    except Damaged as error:
        if not isinstance(error, Unreadable) and all(looks_encrypted(one[:SAMPLE_BYTES]) for one in samples):
            raise Unreadable(_REASON) from error
        raise


def looks_encrypted(data: bytes) -> bool:
    r"""Tell whether every value of a byte is about as common as any other.

    >>> looks_encrypted(bytes(range(256))), looks_encrypted(b"Metadata/schema" * 40)
    (True, False)
    """
    if len(data) < _LEAST_BYTES:
        return False
    values = np.frombuffer(data, np.uint8)
    return max(_unevenness(values >> 4), _unevenness(values & 15)) < _MOST_UNEVEN


def _unevenness(nibbles: Any) -> float:
    """Return the chi-square of 16 classes against an even spread."""
    expected = len(nibbles) / 16
    counts = np.bincount(nibbles, minlength=16)
    return float(np.sum((counts - expected) ** 2) / expected)
