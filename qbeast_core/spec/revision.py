"""Revisions: the space of a generation of files, its columns and their transformations (format 3 and 4)."""

from __future__ import annotations

import hashlib
import math
import reprlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, get_args

from pydantic import AliasChoices, Field, PrivateAttr, model_validator

from qbeast_core.errors import InvalidColumnsError, InvalidInputError
from qbeast_core.spec.blocks import NamedModel, Number, SpecModel, read_text

# Types whose values have an order that a range can follow: all but strings.
OrderedDataType: TypeAlias = Literal[
    "DoubleDataType",
    "IntegerDataType",
    "LongDataType",
    "FloatDataType",
    "DecimalDataType",
    "TimestampDataType",
    "DateDataType",
]

# Every type a column can be indexed as.
DataType: TypeAlias = OrderedDataType | Literal["StringDataType"]

# Types whose bounds are JSON integers; timestamps and dates count milliseconds since 1970 UTC.
INTEGER_DATA_TYPES: Final[frozenset[DataType]] = frozenset(
    {"IntegerDataType", "LongDataType", "TimestampDataType", "DateDataType"}
)


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


TransformerKind: TypeAlias = Literal["linear", "hashing", "quantiles", "histogram", "empty"]


class _Request(NamedModel):
    column_name: str


class LinearTransformer(_Request):
    """Min-max scaling of an ordered column."""

    kind: ClassVar[TransformerKind] = "linear"
    data_type: DataType


class HashTransformer(_Request):
    """A hash of the value's text; order is lost."""

    kind: ClassVar[TransformerKind] = "hashing"
    data_type: DataType


class CDFNumericQuantilesTransformer(_Request):
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


class CDFStringQuantilesTransformer(_Request):
    """The rank among quantiles of a string column; no type is stored."""

    kind: ClassVar[TransformerKind] = "quantiles"
    data_type: ClassVar[DataType] = "StringDataType"


class StringHistogramTransformer(_Request):
    """The rank in a histogram of a string column; deprecated: read, never written."""

    kind: ClassVar[TransformerKind] = "histogram"
    data_type: DataType


class EmptyTransformer(_Request):
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


# The revision that owns every file without Qbeast tags.
STAGING_REVISION_ID: Final = 0

_DIGEST_DIGITS: Final = 32

# Kinds that users write otherwise than the log.
_SHORT: Final = {"hashing": "hash"}


class Revision(SpecModel):
    """Indexed columns, what each became, and the size of a cube; immutable.

    Two revisions are equal if they write the same JSON. One that was read writes the very text it was read
    from, whatever the form of its numbers and the position of unknown keys.

    >>> revision = staging_revision(["x"], timestamp_ms=0, table_id="/t", cube_size=500)
    >>> Revision.from_json(revision.to_json()) == revision
    True
    >>> revision.with_id(3).columns
    ('x',)
    """

    # 0 (staging) or more; ids grow by one.
    revision_id: Annotated[int, Field(alias="revisionID", ge=0)]
    timestamp_ms: Annotated[int, Field(alias="timestamp")]
    # Path or URI of the table.
    table_id: Annotated[str, Field(alias="tableID")]
    # Rows per cube, a soft limit.
    desired_cube_size: Annotated[int, Field(ge=1)]
    column_transformers: Annotated[tuple[Transformer, ...], Field(min_length=1)]
    # As many as transformers, or none: a table without rows may have no space yet.
    transformations: tuple[Transformation, ...]
    _text: str | None = PrivateAttr(default=None)  # only where it differs from what the fields would write
    # Sampling key of the table, which the configuration has, not this JSON. Empty: the indexed columns.
    _sample_by: tuple[str, ...] = PrivateAttr(default=())

    @classmethod
    @lru_cache(maxsize=64)  # a table's revisions are read with each of its versions
    def from_json(cls, text: str) -> Self:
        """Return the revision stored as `text`."""
        revision = read_text(cls.model_validate_json, text, what="a revision")
        if revision.model_dump_json() != text:
            revision._text = text  # noqa: SLF001 -- its own class
        return revision

    def to_json(self) -> str:
        """Return the text it was read from, or else compact JSON in the key order of the format."""
        return self.model_dump_json() if self._text is None else self._text

    @property
    def transformer_kinds(self) -> dict[str, str]:
        """How each column is indexed, in order: ``linear``, ``quantiles``, ``hash`` or ``empty``, as users write it."""
        return {t.column_name: _SHORT.get(t.kind, t.kind) for t in self.column_transformers}

    @property
    def column_specs(self) -> tuple[str, ...]:
        """The indexed columns as a user writes them, ``name:kind``, in order; `TransformerKind` empty has no kind.

        >>> staging_revision(["x"], timestamp_ms=0, table_id="/t", cube_size=500).column_specs
        ('x',)
        """
        kinds = self.transformer_kinds
        return tuple(name if kind == "empty" else f"{name}:{kind}" for name, kind in kinds.items())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the indexed columns, in order."""
        return tuple(transformer.column_name for transformer in self.column_transformers)

    @property
    def sample_by(self) -> tuple[str, ...]:
        """Sampling key of the table. Empty: it has none."""
        return self._sample_by

    @property
    def hashed(self) -> tuple[str, ...]:
        """Columns whose hash is the weight of a row, in order: the sampling key, or else the indexed columns."""
        return self._sample_by or self.columns

    @property
    def key_columns(self) -> tuple[str, ...]:
        """All columns that the place of a row depends on: the indexed columns, then others of the sampling key.

        >>> revision = staging_revision(["x", "y"], timestamp_ms=0, table_id="/t", cube_size=500)
        >>> revision.with_sample_by(["user", "y"]).key_columns
        ('x', 'y', 'user')
        """
        return tuple(dict.fromkeys((*self.columns, *self.hashed)))

    def with_sample_by(self, names: Sequence[str]) -> Self:
        """Return the same space in a table with this sampling key. Empty: the table has none."""
        if self._sample_by == tuple(names):
            return self
        copied = self.model_copy()
        copied._sample_by = tuple(names)  # noqa: SLF001 -- its own class
        return copied

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Return what `repr` shows: a table may have many revisions, and their list should fit a screen."""
        yield "revision_id", self.revision_id
        yield "desired_cube_size", self.desired_cube_size
        kinds = self.transformer_kinds
        spans = [_span(space.knots) for space in self.transformations] or [""] * len(kinds)
        yield "columns", {name: kind + span for (name, kind), span in zip(kinds.items(), spans, strict=True)}

    def with_id(self, revision_id: int) -> Self:
        """Return the same space under another id, 0 or more."""
        return self.model_copy(update={"revision_id": revision_id})

    @property
    def digest(self) -> str:
        """Digest of the compact JSON without the number, which may change when a write is committed.

        >>> revision = staging_revision(["x"], timestamp_ms=0, table_id="/t", cube_size=500)
        >>> revision.digest, revision.with_id(3).digest == revision.digest
        ('f392955bc6d9393ca47cc45b9c87148a', True)
        """
        text = self.with_id(STAGING_REVISION_ID).model_dump_json()
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]

    def staging(self) -> Revision:
        """Return revision 0 of the same table, which is a millisecond older."""
        return staging_revision(
            self.columns,
            timestamp_ms=self.timestamp_ms - 1,
            table_id=self.table_id,
            cube_size=self.desired_cube_size,
        ).with_sample_by(self._sample_by)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy; one with other fields forgets the text it was read from. Fields are not checked."""
        copied = super().model_copy(update=update, deep=deep)
        if update:
            copied._text = None  # noqa: SLF001 -- its own class
        return copied

    @model_validator(mode="after")
    def _one_transformation_per_column(self) -> Self:
        columns, spaces = len(self.column_transformers), len(self.transformations)
        if spaces not in (0, columns):
            message = f"there must be as many transformations as columns ({columns}) or none, got {spaces}"
            raise ValueError(message)
        if len(set(self.columns)) != columns:
            message = f"a column is indexed twice: {', '.join(self.columns)}"
            raise ValueError(message)
        return self


def staging_revision(columns: Sequence[str], *, timestamp_ms: int, table_id: str, cube_size: int) -> Revision:
    """Return revision 0 of a table: its columns are known, its space is not.

    >>> staging_revision(["x"], timestamp_ms=0, table_id="/t", cube_size=500).transformations
    (EmptyTransformation(),)
    """
    return Revision(
        revision_id=STAGING_REVISION_ID,
        timestamp_ms=timestamp_ms,
        table_id=table_id,
        desired_cube_size=cube_size,
        column_transformers=tuple(EmptyTransformer(column_name=column) for column in columns),
        transformations=tuple(EmptyTransformation() for _ in columns),
    )


def _span(knots: Sequence[object]) -> str:
    return f" from {reprlib.repr(knots[0])} to {reprlib.repr(knots[-1])}" if knots else ""


ColumnKind: TypeAlias = Literal["auto", "linear", "hashing", "quantiles", "histogram"]

_COLUMN_KINDS: Final[tuple[ColumnKind, ...]] = get_args(ColumnKind)
_KINDS: Final[dict[str, ColumnKind]] = {
    **{kind: kind for kind in _COLUMN_KINDS},
    "hash": "hashing",
    "quantile": "quantiles",
}

# Kinds as the documentation writes them behind the colon of `name:kind`; older names work too.
KINDS: Final = ("linear", "quantiles", "hash")


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column to index and how; ``"auto"`` leaves the choice to the writer.

    >>> str(ColumnSpec("price", "quantiles")), str(ColumnSpec("price"))
    ('price:quantiles', 'price')
    """

    name: str
    kind: ColumnKind = "auto"

    def __str__(self) -> str:
        """Return the text that parses to this spec."""
        plain = self.kind == "auto" and parse_column_spec(self.name).name == self.name
        return self.name if plain else f"{self.name}:{self.kind}"


def parse_column_spec(text: str) -> ColumnSpec:
    """Return the column and the kind of a text.

    What follows the last colon is a kind only if it is a known one (``hash`` and ``quantile`` are accepted
    too); else the colon belongs to the name.

    >>> parse_column_spec("price:quantile")
    ColumnSpec(name='price', kind='quantiles')
    >>> parse_column_spec("ns:price")
    ColumnSpec(name='ns:price', kind='auto')
    """
    head, colon, tail = text.rpartition(":")
    has_kind = colon and tail in _KINDS
    name = head if has_kind else text
    if not name:
        message = f"a column to index has no name: {text!r}. Write 'name' or 'name:kind'."
        raise InvalidColumnsError(message, columns=[text])
    return ColumnSpec(name, _KINDS[tail] if has_kind else "auto")
