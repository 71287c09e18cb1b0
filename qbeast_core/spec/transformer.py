"""Column transformers: the request of the user, one class per class of the JVM (format 3 and 4)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import AliasChoices, Field

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.spec._base import NamedModel
from qbeast_core.spec.data_type import DataType, OrderedDataType

TransformerKind: TypeAlias = Literal["linear", "hashing", "quantiles", "histogram", "empty"]


class _Stored(NamedModel):
    column_name: str


class LinearTransformer(_Stored):
    """Min-max scaling of an ordered column."""

    kind: ClassVar[TransformerKind] = "linear"
    data_type: DataType


class HashTransformer(_Stored):
    """A hash of the value's text; order is lost."""

    kind: ClassVar[TransformerKind] = "hashing"
    data_type: DataType


class CDFNumericQuantilesTransformer(_Stored):
    """The rank among quantiles of an ordered column; its type is stored as ``orderedDataType``."""

    kind: ClassVar[TransformerKind] = "quantiles"
    # NOTE: the one transformer that the JVM names differently; the common name is read too.
    data_type: Annotated[
        OrderedDataType,
        Field(
            validation_alias=AliasChoices("orderedDataType", "dataType"),
            serialization_alias="orderedDataType",
        ),
    ]


class CDFStringQuantilesTransformer(_Stored):
    """The rank among quantiles of a string column; no type is stored."""

    kind: ClassVar[TransformerKind] = "quantiles"
    data_type: ClassVar[DataType] = "StringDataType"


class StringHistogramTransformer(_Stored):
    """The rank in a histogram of a string column; deprecated: read, never written."""

    kind: ClassVar[TransformerKind] = "histogram"
    data_type: DataType


class EmptyTransformer(_Stored):
    """A column of the staging revision; neither a type nor a space is known."""

    kind: ClassVar[TransformerKind] = "empty"
    data_type: ClassVar[DataType | None] = None


# Any stored transformer, with its `className` as discriminator; all have `kind`, `column_name`, `data_type`.
Transformer: TypeAlias = Annotated[
    LinearTransformer
    | HashTransformer
    | CDFNumericQuantilesTransformer
    | CDFStringQuantilesTransformer
    | StringHistogramTransformer
    | EmptyTransformer,
    Field(discriminator="class_name"),
]

# Key of a transformer of a decimal column whose type was widened: the type whose hashes are the weights. Other changes
# of types show in the data type.
DECIMAL_TYPE: Final = "decimalType"

_NOT_HASHED: Final = ("DateDataType", "TimestampDataType")


def transformer_for(
    column: str, *, kind: Literal["linear", "hashing", "quantiles", "histogram"], data_type: DataType
) -> Transformer:
    """Return the transformer that the writer stores for a column.

    >>> type(transformer_for("brand", kind="quantiles", data_type="StringDataType")).__name__
    'CDFStringQuantilesTransformer'
    """
    if kind == "hashing" and data_type not in _NOT_HASHED:
        return HashTransformer(column_name=column, data_type=data_type)
    if data_type == "StringDataType":
        if kind in ("quantiles", "histogram"):
            return CDFStringQuantilesTransformer(column_name=column)
    elif kind == "linear":
        return LinearTransformer(column_name=column, data_type=data_type)
    elif kind == "quantiles":
        return CDFNumericQuantilesTransformer(column_name=column, data_type=data_type)
    fitting = ("quantiles", "hash") if data_type == "StringDataType" else ("linear", "quantiles")
    cure = " or ".join(repr(f"{column}:{kind}") for kind in fitting)
    message = (
        f"column {column!r} of type {data_type.removesuffix('DataType').lower()} cannot be indexed by "
        f"{'hash' if kind == 'hashing' else kind}. Write {cure}."
    )
    raise InvalidColumnsError(message, columns=[column])
