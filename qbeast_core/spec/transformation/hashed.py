"""Hash transformation: a hash of the value's text (format 4)."""

from __future__ import annotations

from typing import Literal

from qbeast_core.spec._base import SpecModel

__all__ = ["HashTransformation"]


class HashTransformation(SpecModel):
    """The JVM's byte hash of the value's text; a null hashes ``null_value``, drawn once and stored."""

    class_name: Literal["io.qbeast.core.transform.HashTransformation"] = (
        "io.qbeast.core.transform.HashTransformation"
    )
    null_value: int | str
