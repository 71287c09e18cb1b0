"""Identity transformation: a column of one value, or of nulls only (format 4)."""

from __future__ import annotations

from typing import Literal

from qbeast_core.spec._base import Number, SpecModel
from qbeast_core.spec.data_type import OrderedDataType
from qbeast_core.spec.transformation.linear import stored_number

__all__ = ["IdentityTransformation", "identity_transformation"]


class IdentityTransformation(SpecModel):
    """A column seen with a single value: every row has coordinate 0; None: only nulls were seen."""

    class_name: Literal["io.qbeast.core.transform.IdentityTransformation"] = (
        "io.qbeast.core.transform.IdentityTransformation"
    )
    identity_value: Number | None
    ordered_data_type: OrderedDataType


def identity_transformation(data_type: OrderedDataType, *, value: Number | None) -> IdentityTransformation:
    """Return a new identity transformation; `value` is spelled as in `linear_transformation`.

    Examples
    --------
    >>> identity_transformation("IntegerDataType", value=42.0).identity_value
    42
    """
    number = None if value is None else stored_number(value, data_type)
    return IdentityTransformation(identity_value=number, ordered_data_type=data_type)
