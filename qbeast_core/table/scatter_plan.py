"""Tree and files of rows that lie elsewhere, drawn from their summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.space.arrays import U64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.scatter_job import sort_keys
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.design_effect import design_effect
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.outline import Outline, draw_outline
from qbeast_core.tree.pack import pack_files, rows_per_file
from qbeast_core.tree.plan import grid_columns, smallest_block_rows
from qbeast_core.tree.summary import IndexSummary

__all__ = ["ScatterPlan", "guess_row_bytes", "plan_scatter"]

_TEXT_BYTES: Final = 24.0
_OTHER_BYTES: Final = 64.0


@dataclass(frozen=True, slots=True, eq=False)
class ScatterPlan:
    """Where rows go that workers will place.

    Attributes
    ----------
    outline : Outline
        The tree.
    file_starts : ndarray of uint64, shape (files,)
        Sort key of the first row that each file may hold, increasing, the first one 0.
    file_rows : int
        Rows that a file aims at.
    block_count : int
        Blocks that the sampled rows lie in, a cube that files share counted for each.
    design_effect : float
        Of the rows.
    """

    outline: Outline
    file_starts: U64Array
    file_rows: int
    block_count: int
    design_effect: float


def plan_scatter(
    summary: IndexSummary, revision: Revision, tree: ExistingTree | None, *, row_bytes: float
) -> ScatterPlan:
    """Draw the tree and cut it into files; of sampled rows alone, or of all of them where the sample is whole.

    Parameters
    ----------
    summary : IndexSummary
        Of the indexed columns, with a sample of the rows.
    revision : Revision
        To index them in.
    tree : ExistingTree or None
        Of the revision's blocks that stay.
    row_bytes : float
        Bytes of a row in memory, see `guess_row_bytes`.
    """
    size = revision.desired_cube_size
    weights = frame_weights(summary.sample, revision.columns)
    cells = grid_columns(summary.sample, revision)
    share = summary.sample.height / summary.rows if summary.rows else 1.0
    outline = draw_outline(
        cells,
        weights,
        rows_each=1.0 / share,
        cube_size=size,
        existing=tree,
        smallest_block_rows=smallest_block_rows(summary.rows, cube_size=size),
    )
    file_rows = rows_per_file(row_bytes)
    keys = np.sort(sort_keys(outline.place(cells, weights), weights))
    starts = _file_starts(keys, file_rows=file_rows * share)
    return ScatterPlan(
        outline=outline,
        file_starts=starts,
        file_rows=file_rows,
        block_count=_count_blocks(keys, starts),
        design_effect=design_effect(weights, share=share),
    )


def guess_row_bytes(schema: pl.Schema) -> float:
    """Return the bytes of a row in memory, guessed from the types.

    Examples
    --------
    >>> guess_row_bytes(pl.Schema({"id": pl.Int64(), "name": pl.String()}))
    32.0
    """
    return sum(_bytes_of(dtype) for dtype in schema.dtypes())


def _file_starts(keys: U64Array, *, file_rows: float) -> U64Array:
    """Cut the sampled rows into files, at the end of a cube where one is near; return where each begins."""
    if not len(keys):
        return np.zeros(0, np.uint64)
    cubes, counts = np.unique(keys >> np.uint64(32), return_counts=True)
    packed = pack_files(counts.astype(np.int64), file_rows=max(round(file_rows), 1))
    cuts = packed.file_starts[:-1]
    begins = np.cumsum(counts) - counts
    at = np.minimum(np.searchsorted(begins, cuts), len(begins) - 1)
    whole = begins[at] == cuts
    starts = np.where(whole, cubes[at] << np.uint64(32), keys[cuts])
    starts[0] = 0
    return np.unique(starts)


def _count_blocks(keys: U64Array, starts: U64Array) -> int:
    if not len(keys):
        return 0
    cubes, files = keys >> np.uint64(32), np.searchsorted(starts, keys, side="right")
    return 1 + int(((cubes[1:] != cubes[:-1]) | (files[1:] != files[:-1])).sum())


def _bytes_of(dtype: pl.DataType) -> float:
    if dtype == pl.String:
        return _TEXT_BYTES
    if dtype.is_nested() or dtype == pl.Binary:
        return _OTHER_BYTES
    return 16.0 if dtype.is_decimal() else 8.0
