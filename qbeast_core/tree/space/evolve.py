"""Decide whether data needs a new revision, and build it (format 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.column_spec import ColumnKind, ColumnSpec
from qbeast_core.spec.revision import Revision
from qbeast_core.tree.space.fit import ColumnBounds, Fitted, Growth, fit_column, quantile_count, refit_column
from qbeast_core.tree.space.summary import ColumnSummary, IndexSummary

# A tree with more cubes gets a larger cube size at the next append.
MAX_CUBES: Final = 65_000

_MIN_CUBE_SIZE: Final = 4096

_DEFAULT_CUBE_SIZE: Final = 16_384

_CUBES_OF_SMALL_TABLE: Final = 16

_CUBES_OF_LARGE_TABLE: Final = 32_768


@dataclass(frozen=True, slots=True)
class IndexWish:
    """Options of a write for the index: columns, cube size (None: keep or choose), bounds, dialect."""

    specs: tuple[ColumnSpec, ...]
    cube_size: int | None
    dialect: BlocksDialect
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict[str, ColumnBounds])

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [spec.name for spec in self.specs]

    def bounds_of(self, name: str) -> ColumnBounds:
        """Return the bounds of a column from the caller."""
        return self.bounds.get(name, ColumnBounds())


def default_cube_size(rows: int) -> int:
    """Return the cube size for a table with `rows` rows in its first write.

    Small cubes make filters precise; cubes are larger in large tables, to limit their number to some tens of thousands.

    >>> default_cube_size(28_000), default_cube_size(6_000_000), default_cube_size(10**9)
    (4096, 16384, 30517)
    """
    small = min(max(rows // _CUBES_OF_SMALL_TABLE, _MIN_CUBE_SIZE), _DEFAULT_CUBE_SIZE)
    return max(small, rows // _CUBES_OF_LARGE_TABLE)


def first_revision(wish: IndexWish, summary: IndexSummary, *, table_id: str, timestamp_ms: int) -> Revision:
    """Return revision 1 of a table whose first rows are summarised."""
    size = wish.cube_size or default_cube_size(summary.rows)
    knots = quantile_count(summary.rows, cube_size=size)
    fitted = [
        _fit(wish, spec, column, summary, knots)
        for spec, column in zip(wish.specs, summary.columns, strict=True)
    ]
    return _revision(1, fitted, cube_size=size, table_id=table_id, timestamp_ms=timestamp_ms)


def next_revision(
    current: Revision, wish: IndexWish, summary: IndexSummary, *, growth: Growth, timestamp_ms: int
) -> Revision:
    """Return the revision for an append: `current`, or a new revision that supersedes it."""
    size = wish.cube_size or _kept_cube_size(current, growth)
    knots = quantile_count(growth.rows + summary.rows, cube_size=size)
    pairs = list(zip(current.column_transformers, current.transformations, strict=False))
    fitted: list[Fitted] = []
    for i, (spec, column) in enumerate(zip(wish.specs, summary.columns, strict=True)):
        pair = pairs[i] if i < len(pairs) else None
        if pair is None or not _is_kept(spec.kind, pair[0].kind):
            fitted.append(_fit(wish, spec, column, summary, knots))
        else:
            transformation = refit_column(
                pair,
                column,
                summary.values(column.name),
                rows=summary.rows,
                bounds=wish.bounds_of(column.name),
                dialect=wish.dialect,
                growth=growth,
                knots=knots,
            )
            fitted.append((pair[0], transformation))
    if size == current.desired_cube_size and fitted == pairs:
        return current
    return _revision(
        current.revision_id + 1, fitted, cube_size=size, table_id=current.table_id, timestamp_ms=timestamp_ms
    )


def _is_kept(requested: ColumnKind, stored: str) -> bool:
    """Return whether a column keeps its kind; a requested histogram is stored as quantiles."""
    return requested in {"auto", stored} or (requested, stored) == ("histogram", "quantiles")


def _kept_cube_size(current: Revision, growth: Growth) -> int:
    return current.desired_cube_size * (4 if growth.cubes > MAX_CUBES else 1)


def _fit(
    wish: IndexWish, spec: ColumnSpec, column: ColumnSummary, summary: IndexSummary, knots: int
) -> Fitted:
    bounds, values = wish.bounds_of(spec.name), summary.values(column.name)
    empty = 0 < summary.rows == column.nulls
    return fit_column(
        spec.kind, column, values, bounds=bounds, dialect=wish.dialect, knots=knots, only_nulls=empty
    )


def _revision(
    number: int, fitted: Sequence[Fitted], *, cube_size: int, table_id: str, timestamp_ms: int
) -> Revision:
    return Revision(
        revision_id=number,
        timestamp_ms=timestamp_ms,
        table_id=table_id,
        desired_cube_size=cube_size,
        column_transformers=tuple(transformer for transformer, _ in fitted),
        transformations=tuple(transformation for _, transformation in fitted),
    )
