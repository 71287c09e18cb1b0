"""Transformations of older writers: read, never written (format 4)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qbeast_core.spec._base import Number, SpecModel

__all__ = ["IdentityToZeroTransformation", "NullToZeroTransformation", "StringHistogramTransformation"]


class StringHistogramTransformation(SpecModel):
    """The rank among at least two strings; a null is read as the text ``null``."""

    class_name: Literal["io.qbeast.core.transform.StringHistogramTransformation"] = (
        "io.qbeast.core.transform.StringHistogramTransformation"
    )
    histogram: Annotated[tuple[str, ...], Field(min_length=2)]


class IdentityToZeroTransformation(SpecModel):
    """A column seen with a single value: every row has coordinate 0."""

    class_name: Literal["io.qbeast.core.transform.IdentityToZeroTransformation"] = (
        "io.qbeast.core.transform.IdentityToZeroTransformation"
    )
    identity_value: Number | str | None


class NullToZeroTransformation(SpecModel):
    """A column seen with nulls only: every row has coordinate 0. The JVM's name really ends in ``$``."""

    class_name: Literal[
        "io.qbeast.core.transform.NullToZeroTransformation$",
        "io.qbeast.core.transform.NullToZeroTransformation",
    ] = "io.qbeast.core.transform.NullToZeroTransformation$"
