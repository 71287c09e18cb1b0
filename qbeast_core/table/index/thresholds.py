"""Which new files keep the order of weights beside the blocks that live when they land (format 8.3 and 8.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.space.arrays import BoolArray
from qbeast_core.space.cubes import Cubes, decode_cubes
from qbeast_core.space.weights import MAX_WEIGHT
from qbeast_core.spec.block import Block
from qbeast_core.tree.layout.order import broken_order
from qbeast_core.tree.space.columns import text_column

_LIVE: Final = -1
_BLOCKS: Final = pl.Schema(
    {"file": pl.Int64, "cube": pl.String, "min_weight": pl.Int32, "max_weight": pl.Int32}
)


def blocks_in_order(
    files: Sequence[Sequence[Block]], live: pl.DataFrame, *, dimensions: int
) -> list[tuple[Block, ...] | None]:
    """Return the blocks to publish of each new file; None: it has to be published without index.

    Plans that do not know of each other may not go together: a cube that no row of one plan stopped in has no
    threshold there, and the other plan's may be too large for the rows below. The file that has to do without
    index is the one that reaches below a live threshold, or whose own threshold live blocks reach below.
    Cubes that break the order without these files (tables of the JVM have some) are not held against them.

    A cube whose descendants are gone is a leaf: new blocks of it get the threshold of a leaf.

    >>> live = pl.DataFrame({"cube": ["", "ww"], "min_weight": [-9, 3], "max_weight": [2, 2147483647]})
    >>> low, high = [Block("A", 2, 2147483647, 2)], [Block("w", 1, 3, 2)]
    >>> blocks_in_order([low, high], live, dimensions=2)
    [None, None]
    >>> blocks_in_order([high], live[:1], dimensions=2)
    [None]
    >>> blocks_in_order([high], live[:0], dimensions=2)
    [(Block(cube='w', min_weight=1, max_weight=2147483647, element_count=2, replicated=False),)]
    """
    ours = [(at, b.cube, b.min_weight, b.max_weight) for at, blocks in enumerate(files) for b in blocks]
    theirs = live.select(pl.lit(_LIVE, pl.Int64).alias("file"), "cube", "min_weight", "max_weight")
    blocks = pl.concat([theirs.cast(_BLOCKS), pl.DataFrame(ours, schema=_BLOCKS, orient="row")])
    cubes = decode_cubes(text_column(blocks["cube"]), dimensions=dimensions)
    stays = np.ones(blocks.height, np.bool_)
    while True:
        faults = _faults(blocks, cubes, stays)
        unfit = _unfit(faults)
        if not len(unfit):
            break
        # What relied on their thresholds shows in the next round.
        stays &= ~blocks["file"].is_in(unfit.implode()).to_numpy()
    left = set(blocks["file"].filter(pl.Series(stays, dtype=pl.Boolean)))
    leaves = set(blocks["cube"][faults.filter("leaf")["block"]])
    return [_raised(own, leaves) if at in left or not own else None for at, own in enumerate(files)]


def _faults(blocks: pl.DataFrame, cubes: Cubes, stays: BoolArray) -> pl.DataFrame:
    """Give the blamed blocks: whose `file` they are, and of their faulty cube, which sides live already."""
    at = np.flatnonzero(stays)
    found = broken_order(
        Cubes(cubes.depth[at], cubes.cells[at]),
        min_weights=blocks["min_weight"].to_numpy()[at],
        max_weights=blocks["max_weight"].to_numpy()[at],
    )
    placed = found.with_columns(pl.Series("block", at[found["block"].to_numpy()], dtype=pl.Int64))
    is_live = pl.col("file") == _LIVE
    return placed.with_columns(blocks["file"][placed["block"]]).with_columns(
        (~pl.col("above")).any().not_().over("cube").alias("leaf"),
        (is_live & pl.col("above")).any().over("cube").alias("live_above"),
        (is_live & ~pl.col("above")).any().over("cube").alias("live_below"),
    )


def _unfit(faults: pl.DataFrame) -> pl.Series:
    """Return the new files to leave out: the side of a cube that is not live, the lower one if neither is."""
    goes_above = pl.col("live_below") & ~pl.col("live_above")
    guilty = (pl.col("file") != _LIVE) & ~pl.col("leaf") & (pl.col("above") == goes_above)
    return faults.filter(guilty)["file"].unique()


def _raised(blocks: Sequence[Block], leaves: set[str]) -> tuple[Block, ...]:
    return tuple(replace(one, max_weight=MAX_WEIGHT) if one.cube in leaves else one for one in blocks)
