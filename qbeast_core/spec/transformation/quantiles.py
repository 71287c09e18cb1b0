"""Quantile transformations: the rank of a value among stored quantiles (format 4)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from qbeast_core.spec._base import SpecModel
from qbeast_core.spec.data_type import OrderedDataType

__all__ = ["CDFNumericQuantilesTransformation", "CDFStringQuantilesTransformation"]


class CDFNumericQuantilesTransformation(SpecModel):
    """At least two finite numbers that never decrease, in the units of format 4; a null has coordinate 0."""

    class_name: Literal["io.qbeast.core.transform.CDFNumericQuantilesTransformation"] = (
        "io.qbeast.core.transform.CDFNumericQuantilesTransformation"
    )
    quantiles: Annotated[tuple[float, ...], Field(min_length=2)]
    data_type: OrderedDataType

    @model_validator(mode="after")
    def _never_decreasing(self) -> CDFNumericQuantilesTransformation:
        # Repeats are read as they stand; ranks among unsorted numbers would have no meaning.
        for low, high in pairwise(self.quantiles):
            if low > high:
                message = f"quantiles must not decrease, got {high} after {low}"
                raise ValueError(message)
        return self


class CDFStringQuantilesTransformation(SpecModel):
    """At least two strings; a null has coordinate 0.

    Their order is not checked: the JVM sorts by UTF-16 units, others by UTF-8 bytes.
    """

    class_name: Literal["io.qbeast.core.transform.CDFStringQuantilesTransformation"] = (
        "io.qbeast.core.transform.CDFStringQuantilesTransformation"
    )
    quantiles: Annotated[tuple[str, ...], Field(min_length=2)]
