"""The newest revision's tree and how it fares, read from a snapshot."""

from __future__ import annotations

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.query.tags import decode_blocks, flat_blocks
from qbeast_core.space.arrays import F64Array
from qbeast_core.space.columns import NumberColumn
from qbeast_core.space.coordinates import number_values
from qbeast_core.space.cubes import Cubes, decode_cubes
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformation import (
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
)
from qbeast_core.table.snapshot import Snapshot
from qbeast_core.tree.columns import to_index_column
from qbeast_core.tree.evolve import Growth
from qbeast_core.tree.existing import ExistingTree, existing_tree
from qbeast_core.tree.quantiles import KNOT_CHARACTERS

__all__ = ["growth_of", "live_tree"]

_Quantiles = CDFNumericQuantilesTransformation | CDFStringQuantilesTransformation


def live_tree(snapshot: Snapshot, revision: Revision) -> ExistingTree:
    """Return the tree of a revision's live blocks; copies (format 11) and unreadable tags do not count.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    revision : Revision
        One of its revisions.
    """
    files = snapshot.files.filter(pl.col("revision") == revision.revision_id)
    files = files.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("file"), pl.all())
    tagged, _ = decode_blocks(files.filter(pl.col("blocks").is_not_null()).select("file", "blocks"))
    flat = files.filter(pl.col("blocks").is_null() & pl.col("cube").is_not_null())
    # Thresholds of flat tags say nothing about rows, but the JVM stops descending at them all the same.
    old = flat_blocks(flat).with_columns(flat["max_weight"].alias("max_weight"))
    blocks = pl.concat([tagged, old.select(tagged.columns).cast(tagged.schema)]).drop_nulls()
    blocks, cubes = _decoded(blocks.filter(~pl.col("replicated")), len(revision.columns))
    return existing_tree(
        cubes,
        min_weights=blocks["min_weight"].cast(pl.Int32).to_numpy(),
        max_weights=blocks["max_weight"].cast(pl.Int32).to_numpy(),
        element_counts=blocks["rows"].to_numpy(),
    )


def _decoded(blocks: pl.DataFrame, dimensions: int) -> tuple[pl.DataFrame, Cubes]:
    """Decode the blocks' cubes and leave out blocks that name none."""
    try:
        return blocks, decode_cubes(blocks["cube"].to_list(), dimensions=dimensions)
    except InvalidMetadataError:
        texts = blocks["cube"].unique()
        good = texts.filter([_is_cube(text, dimensions) for text in texts])
        known = blocks.filter(pl.col("cube").is_in(good.implode()))
        return known, decode_cubes(known["cube"].to_list(), dimensions=dimensions)


def _is_cube(text: str, dimensions: int) -> bool:
    try:
        decode_cubes([text], dimensions=dimensions)
    except InvalidMetadataError:
        return False
    return True


def growth_of(snapshot: Snapshot, revision: Revision, tree: ExistingTree) -> Growth:
    """Return how a revision fares: the table's rows, those outside each column's quantiles, its cubes.

    Rows outside are estimated from the files' statistics: a file counts with the share of its range that
    lies outside.
    """
    files = snapshot.files
    rows = files["num_records"].fill_null(0)
    outside: dict[str, float] = {}
    for name, space in zip(revision.columns, revision.transformations, strict=False):
        if isinstance(space, _Quantiles):
            share = _share_outside(files, name, space)
            outside[name] = 0.0 if share is None else float((rows.to_numpy() * share).sum())
    return Growth(rows=int(rows.sum()), outside_rows=outside, cubes=tree.cube_count)


def _share_outside(files: pl.DataFrame, name: str, space: _Quantiles) -> F64Array | None:
    ends = [_statistic(files, side, name) for side in ("min", "max")]
    if ends[0] is None or ends[1] is None:
        return None
    low, high = ends[0], ends[1]
    known = (low.is_not_null() & high.is_not_null()).to_numpy()
    if isinstance(space, CDFStringQuantilesTransformation):
        if low.dtype != pl.String:
            return None
        beyond = (low.str.head(KNOT_CHARACTERS) > space.quantiles[-1]) | (high < space.quantiles[0])
        return np.where(known, beyond.fill_null(value=False).to_numpy(), 0.0).astype(np.float64)
    lowest, highest = _numbers(low), _numbers(high)
    if lowest is None or highest is None:
        return None
    share = _share_of_range(lowest, highest, space.quantiles[0], space.quantiles[-1])
    return np.where(known, share, 0.0)


def _share_of_range(lowest: F64Array, highest: F64Array, first: float, last: float) -> F64Array:
    """Return the share of each range that lies outside ``[first, last]``; a single point counts whole."""
    low, high = lowest / 2, highest / 2  # halved: the range of extreme doubles does not overflow
    span = high - low
    above = np.maximum(high - np.maximum(low, last / 2), 0.0)
    below = np.maximum(np.minimum(high, first / 2) - low, 0.0)
    share = ((lowest > last) | (highest < first)).astype(np.float64)
    np.divide(above + below, span, out=share, where=span > 0)
    return np.minimum(share, 1.0)


def _statistic(files: pl.DataFrame, side: str, name: str) -> pl.Series | None:
    dtype = files.schema.get(side)
    if not isinstance(dtype, pl.Struct) or name not in {field.name for field in dtype.fields}:
        return None
    return files[side].struct.field(name)


def _numbers(values: pl.Series) -> F64Array | None:
    if values.dtype == pl.String or values.dtype.is_nested() or values.dtype == pl.Boolean:
        return None
    column = to_index_column(values)
    return number_values(column) if isinstance(column, NumberColumn) else None
