"""Empty transformation: a column of the staging revision (format 4)."""

from __future__ import annotations

from typing import Literal

from qbeast_core.spec._base import SpecModel

__all__ = ["EmptyTransformation"]


class EmptyTransformation(SpecModel):
    """No space is known yet: every row has coordinate 0."""

    class_name: Literal["io.qbeast.core.transform.EmptyTransformation"] = (
        "io.qbeast.core.transform.EmptyTransformation"
    )
