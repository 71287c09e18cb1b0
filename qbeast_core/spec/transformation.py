"""Column transformations: what the data turned a transformer into; values here, arithmetic in `space` (format 4)."""

from __future__ import annotations

import math
import struct
from itertools import pairwise
from typing import Annotated, ClassVar, Final, TypeAlias

from pydantic import Field, model_validator

from qbeast_core.errors import InvalidInputError
from qbeast_core.spec._base import NamedModel, Number
from qbeast_core.spec.data_type import INTEGER_DATA_TYPES, DataType, OrderedDataType

_LARGEST_FLOAT32: Final = 3.4028234663852886e38


class _Stored(NamedModel):
    """Properties of every transformation."""

    @property
    def knots(self) -> tuple[Number, ...] | tuple[str, ...]:
        """The values at coordinates from 0 to 1 in equal steps; none if a coordinate does not give a value."""
        return ()

    @property
    def holds_texts(self) -> bool | None:
        """Whether it is made of texts, or else of numbers; None: it takes both."""
        values = self.knots or self.limits
        return isinstance(values[0], str) if values else None

    @property
    def limits(self) -> tuple[Number | str, ...] | None:
        """The least and the greatest value that need no other space, () where all values do; None: no value does."""
        return None


class LinearTransformation(_Stored):
    """``min_number`` maps to 0 and ``max_number`` to 1.

    Numbers are in the units of format 4: timestamps and dates count milliseconds since 1970 UTC. A null takes
    the coordinate of ``null_value``, which was drawn from the range when the revision was made.
    """

    min_number: Number
    max_number: Number
    null_value: Number
    ordered_data_type: OrderedDataType

    @property
    def knots(self) -> tuple[Number, ...]:
        """The values at coordinates in equal steps."""
        return self.min_number, self.max_number

    @property
    def limits(self) -> tuple[Number, ...]:
        """The least and the greatest value that need no other space."""
        return tuple(typed_number(end, self.ordered_data_type) for end in self.knots)

    @model_validator(mode="after")
    def _range_is_open(self) -> LinearTransformation:
        if not self.min_number < self.max_number:
            message = f"minNumber must be below maxNumber, got {self.min_number} and {self.max_number}"
            raise ValueError(message)
        return self


class IdentityTransformation(_Stored):
    """A column seen with a single value: every row has coordinate 0; None: only nulls were seen."""

    identity_value: Number | None
    ordered_data_type: OrderedDataType

    @property
    def holds_texts(self) -> bool:
        """Whether it is made of texts."""
        return False

    @property
    def limits(self) -> tuple[Number, ...]:
        """The least and the greatest value that need no other space."""
        value = self.identity_value
        return () if value is None else (typed_number(value, self.ordered_data_type),) * 2


class HashTransformation(_Stored):
    """The JVM's byte hash of the value's text; a null hashes ``null_value``, drawn once and stored."""

    null_value: int | str


class CDFNumericQuantilesTransformation(_Stored):
    """At least two finite numbers that never decrease, in the units of format 4; a null has coordinate 0."""

    quantiles: Annotated[tuple[float, ...], Field(min_length=2)]
    data_type: OrderedDataType

    @property
    def knots(self) -> tuple[float, ...]:
        """The values at coordinates in equal steps."""
        return self.quantiles

    @model_validator(mode="after")
    def _never_decreasing(self) -> CDFNumericQuantilesTransformation:
        # Repeats are valid; ranks among unsorted numbers would have no meaning.
        for low, high in pairwise(self.quantiles):
            if low > high:
                message = f"quantiles must not decrease, got {high} after {low}"
                raise ValueError(message)
        return self


class CDFStringQuantilesTransformation(_Stored):
    """At least two strings; a null has coordinate 0.

    Their order is not checked: the JVM sorts by UTF-16 units, others by UTF-8 bytes.
    """

    quantiles: Annotated[tuple[str, ...], Field(min_length=2)]

    @property
    def knots(self) -> tuple[str, ...]:
        """The values at coordinates in equal steps."""
        return self.quantiles


class EmptyTransformation(_Stored):
    """No space is known yet, as of the columns of the staging revision: every row has coordinate 0."""


class StringHistogramTransformation(_Stored):
    """The rank among at least two strings; a null is read as the text ``null``. Older writers': never written."""

    histogram: Annotated[tuple[str, ...], Field(min_length=2)]

    @property
    def knots(self) -> tuple[str, ...]:
        """The values at coordinates in equal steps."""
        return self.histogram


class IdentityToZeroTransformation(_Stored):
    """A column seen with a single value: every row has coordinate 0. Older writers': never written."""

    identity_value: Number | str | None

    @property
    def limits(self) -> tuple[Number | str, ...]:
        """The least and the greatest value that need no other space."""
        return () if self.identity_value is None else (self.identity_value,) * 2


class NullToZeroTransformation(_Stored):
    """A column seen with nulls only: every row has coordinate 0. Written in dialect ``"qbeast-spark"`` alone.

    The JVM's name really ends in ``$``.
    """

    class_names: ClassVar[tuple[str, ...]] = (
        "io.qbeast.core.transform.NullToZeroTransformation$",
        "io.qbeast.core.transform.NullToZeroTransformation",
    )

    @property
    def limits(self) -> tuple[()]:
        """The least and the greatest value that need no other space."""
        return ()


# Of columns seen with one value, or with none.
OneValueTransformation: TypeAlias = (
    IdentityTransformation | IdentityToZeroTransformation | NullToZeroTransformation
)

# By ranks among quantiles that are drawn again when the data outgrows them.
QuantilesTransformation: TypeAlias = CDFNumericQuantilesTransformation | CDFStringQuantilesTransformation

# By ranks among texts.
TextTransformation: TypeAlias = CDFStringQuantilesTransformation | StringHistogramTransformation

# Any stored transformation, with its `className` as discriminator.
Transformation: TypeAlias = Annotated[
    LinearTransformation
    | IdentityTransformation
    | HashTransformation
    | CDFNumericQuantilesTransformation
    | CDFStringQuantilesTransformation
    | EmptyTransformation
    | StringHistogramTransformation
    | IdentityToZeroTransformation
    | NullToZeroTransformation,
    Field(discriminator="class_name"),
]


def linear_transformation(
    data_type: OrderedDataType, *, min_number: Number, max_number: Number, null_value: Number
) -> LinearTransformation:
    """Return a new linear transformation, its numbers written as the JVM needs them.

    >>> linear_transformation("LongDataType", min_number=0.0, max_number=9.0, null_value=4).model_dump_json()
    '{"className":"io.qbeast.core.transform.LinearTransformation","minNumber":0,"maxNumber":9,"nullValue":4,"orderedDataType":"LongDataType"}'
    """
    low, high = _stored_number(min_number, data_type), _stored_number(max_number, data_type)
    if not low < high:
        message = f"a linear range must have min_number below max_number, got {low} and {high}"
        raise InvalidInputError(message)
    return LinearTransformation(
        min_number=low,
        max_number=high,
        null_value=_stored_number(null_value, data_type),
        ordered_data_type=data_type,
    )


def identity_transformation(data_type: OrderedDataType, *, value: Number | None) -> IdentityTransformation:
    """Return a new identity transformation; `value` is written as in `linear_transformation`.

    >>> identity_transformation("IntegerDataType", value=42.0).identity_value
    42
    """
    number = None if value is None else _stored_number(value, data_type)
    return IdentityTransformation(identity_value=number, ordered_data_type=data_type)


def _stored_number(value: Number, data_type: OrderedDataType) -> Number:
    """Return `value` as the plain int or float that is stored for a column of this type."""
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
    """Return the number that a stored one represents: of a float column, the nearest float32.

    The JVM writes such bounds in the few digits that identify a float32, and computes with the float32.
    Numbers beyond float32 become its largest.

    >>> typed_number(12.337821, "FloatDataType"), typed_number(12.337821, "DoubleDataType")
    (12.337821006774902, 12.337821)
    """
    if data_type != "FloatDataType":
        return value
    inside = min(max(value, -_LARGEST_FLOAT32), _LARGEST_FLOAT32)
    (number,) = struct.unpack("<f", struct.pack("<f", inside))
    return float(number)
