"""Linear transformation: min-max scaling of an ordered column (format 4)."""

from __future__ import annotations

import math
import struct
from typing import Final, Literal

from pydantic import model_validator

from qbeast_core.errors import InvalidInputError
from qbeast_core.spec._base import Number, SpecModel
from qbeast_core.spec.data_type import INTEGER_DATA_TYPES, DataType, OrderedDataType

__all__ = ["LinearTransformation", "linear_transformation", "stored_number", "typed_number"]

_LARGEST_FLOAT32: Final = 3.4028234663852886e38


class LinearTransformation(SpecModel):
    """``min_number`` maps to 0 and ``max_number`` to 1.

    Numbers are in the units of format 4: timestamps and dates count milliseconds since 1970 UTC. A null takes
    the coordinate of ``null_value``, which was drawn from the range when the revision was made.
    """

    class_name: Literal["io.qbeast.core.transform.LinearTransformation"] = (
        "io.qbeast.core.transform.LinearTransformation"
    )
    min_number: Number
    max_number: Number
    null_value: Number
    ordered_data_type: OrderedDataType

    @model_validator(mode="after")
    def _range_is_open(self) -> LinearTransformation:
        if not self.min_number < self.max_number:
            message = f"minNumber must be below maxNumber, got {self.min_number} and {self.max_number}"
            raise ValueError(message)
        return self


def linear_transformation(
    data_type: OrderedDataType, *, min_number: Number, max_number: Number, null_value: Number
) -> LinearTransformation:
    """Return a new linear transformation, its numbers spelled as the JVM needs them.

    Parameters
    ----------
    data_type : OrderedDataType
        The column's stored type.
    min_number, max_number, null_value : int or float
        Finite, in the units of format 4, ``min_number < max_number``; NumPy scalars will do. Of integer types
        (dates and timestamps included) they are whole and stored as JSON integers, else as floats.

    Raises
    ------
    InvalidInputError
        If the range is empty, a number is not finite, or not whole where the type is an integer.

    Examples
    --------
    >>> linear_transformation("LongDataType", min_number=0.0, max_number=9.0, null_value=4).model_dump_json()
    '{"className":"io.qbeast.core.transform.LinearTransformation","minNumber":0,"maxNumber":9,"nullValue":4,"orderedDataType":"LongDataType"}'
    """
    low, high = stored_number(min_number, data_type), stored_number(max_number, data_type)
    if not low < high:
        message = f"a linear range must have min_number below max_number, got {low} and {high}"
        raise InvalidInputError(message)
    return LinearTransformation(
        min_number=low,
        max_number=high,
        null_value=stored_number(null_value, data_type),
        ordered_data_type=data_type,
    )


def stored_number(value: Number, data_type: OrderedDataType) -> Number:
    """Return `value` as the plain int or float that is stored for a column of this type.

    Raises
    ------
    InvalidInputError
        If it is not finite, or not whole where the type is an integer.

    Examples
    --------
    >>> stored_number(3.0, "DateDataType"), stored_number(3, "DecimalDataType")
    (3, 3.0)
    """
    try:
        number = int(value) if data_type in INTEGER_DATA_TYPES else float(value)
    except (OverflowError, ValueError):  # infinite, NaN, or an integer beyond float64
        number = math.nan
    # NOTE: an integer may be of any size, and isinf would turn it into a float.
    if number != value or (isinstance(number, float) and math.isinf(number)):
        kind = "a whole" if data_type in INTEGER_DATA_TYPES else "a finite float64"
        message = f"a column of {data_type} needs {kind} number here, got {value}"
        raise InvalidInputError(message)
    return number


def typed_number(value: Number, data_type: DataType) -> Number:
    """Return the number that a stored one stands for: of a float column, the nearest float32.

    The JVM writes such bounds in the few digits that tell float32 apart, and computes with the float32.
    Numbers beyond float32 become its largest.

    Examples
    --------
    >>> typed_number(12.337821, "FloatDataType"), typed_number(12.337821, "DoubleDataType")
    (12.337821006774902, 12.337821)
    """
    if data_type != "FloatDataType":
        return value
    inside = min(max(value, -_LARGEST_FLOAT32), _LARGEST_FLOAT32)
    (number,) = struct.unpack("<f", struct.pack("<f", inside))
    return float(number)
