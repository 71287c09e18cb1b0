"""Revision: the space that a generation of files is indexed in (format 3)."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Self

from pydantic import Field, PrivateAttr, model_validator

from qbeast_core.spec._base import SpecModel, read_text
from qbeast_core.spec.transformation import EmptyTransformation, EmptyTransformer, Transformation, Transformer

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
