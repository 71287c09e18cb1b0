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
from qbeast_core.spec.transformation import CDFStringQuantilesTransformation
from qbeast_core.table.snapshot import Snapshot
from qbeast_core.tree.columns import to_index_column
from qbeast_core.tree.existing import ExistingTree, existing_tree
from qbeast_core.tree.quantiles import KNOT_CHARACTERS
from qbeast_core.tree.requantile import Growth, QuantilesTransformation, Range

__all__ = ["growth_of", "live_tree"]


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
    outside: dict[str, float] = {}
    ranges: dict[str, Range] = {}
    for name, space in zip(revision.columns, revision.transformations, strict=False):
        files = _known_files(snapshot.files, name)
        if files is None or not isinstance(space, QuantilesTransformation):
            continue
        texts = isinstance(space, CDFStringQuantilesTransformation)
        if texts != (files["low"].dtype == pl.String):
            continue  # another writer changed the type
        share, ends = _of_texts(files, space) if texts else _of_numbers(files, space)
        outside[name] = float((files["rows"].to_numpy() * share).sum())
        ranges[name] = ends
    rows = int(snapshot.files["num_records"].fill_null(0).sum())
    return Growth(rows=rows, outside_rows=outside, ranges=ranges, cubes=tree.cube_count)


def _known_files(files: pl.DataFrame, name: str) -> pl.DataFrame | None:
    """Give rows, lowest and highest value of the files that tell; None where none does."""
    bounds: dict[str, pl.Series] = {}
    for side, alias in (("min", "low"), ("max", "high")):
        dtype = files.schema.get(side)
        if not isinstance(dtype, pl.Struct) or name not in {field.name for field in dtype.fields}:
            return None
        bounds[alias] = files[side].struct.field(name)
    known = pl.DataFrame({"rows": files["num_records"].fill_null(0), **bounds}).drop_nulls()
    return known if known.height else None


def _of_texts(files: pl.DataFrame, space: QuantilesTransformation) -> tuple[F64Array, Range]:
    """Give the share of each file outside, all of it or nothing: a range of texts has no length."""
    first, last = str(space.quantiles[0]), str(space.quantiles[-1])
    low, high = files["low"], files["high"]
    beyond = (low.str.head(KNOT_CHARACTERS) > last) | (high < first)
    lows = low.sort()  # the upper bounds may be cut and raised, so they are no values
    return beyond.to_numpy().astype(np.float64), (str(lows[0]), str(lows[-1]))


def _of_numbers(files: pl.DataFrame, space: QuantilesTransformation) -> tuple[F64Array, Range]:
    """Give the share of each file's range outside; a single point counts whole."""
    lowest, highest = _numbers(files["low"]), _numbers(files["high"])
    first, last = float(space.quantiles[0]), float(space.quantiles[-1])
    low, high = lowest / 2, highest / 2  # halved: the range of extreme doubles does not overflow
    span = high - low
    above = np.maximum(high - np.maximum(low, last / 2), 0.0)
    below = np.maximum(np.minimum(high, first / 2) - low, 0.0)
    share = ((lowest > last) | (highest < first)).astype(np.float64)
    np.divide(above + below, span, out=share, where=span > 0)
    return np.minimum(share, 1.0), (float(lowest.min()), float(highest.max()))


def _numbers(values: pl.Series) -> F64Array:
    column = to_index_column(values)
    if not isinstance(column, NumberColumn):
        msg = f"the statistics of {values.name!r} are no numbers"
        raise TypeError(msg)
    return number_values(column)
