"""The order of weights along the branches of each revision's tree (format 8.3 and 8.4), all blocks at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from qbeast_core.query.live_blocks import characters_per_level
from qbeast_core.space.weights import MAX_WEIGHT
from qbeast_core.spec.revision import Revision
from qbeast_core.table.check_faults import FAULT_SCHEMA, faults_at

__all__ = ["branch_faults"]

_ROOT: Final = "the root"


def branch_faults(
    blocks: pl.DataFrame, revisions: Mapping[int, Revision], *, whole: bool
) -> tuple[pl.DataFrame, list[str]]:
    """Find blocks that reach below a threshold above them, and thresholds that fall on the way down.

    These are faults in revisions that we alone wrote to; elsewhere a note tells how many there are, and
    revisions with copies of rows are not looked at.

    Parameters
    ----------
    blocks : polars.DataFrame
        As `qbeast_core.query.live_blocks` gives them, with the `path` of each file.
    revisions : mapping of int to Revision
        The table's.
    whole : bool
        Whether every live file has blocks. Else a cube may be a leaf only because what lay below it is staged now,
        which is no fault.

    Returns
    -------
    faults : polars.DataFrame
        Of `FAULT_SCHEMA`.
    notes : list of str
        About revisions that others wrote to.
    """
    found, notes = [pl.DataFrame(schema=FAULT_SCHEMA)], list[str]()
    for number in blocks["revision"].unique().sort():
        mine = blocks.filter(pl.col("revision") == number)
        if mine["replicated"].any():
            notes.append(f"revision {number} holds copies of rows: the order of its weights is not checked")
            continue
        faults = _of_revision(mine, characters_per_level(revisions[number]))
        if not whole:
            faults = faults.filter(pl.col("code") != "leaf-threshold")
        if mine["ours"].all():
            found.append(faults)
        elif faults.height:
            notes.append(
                f"revision {number}, written by others in part or whole, has {faults.height:,} block(s) out of the "
                "order of weights: our reads are right, samples of the JVM may lack rows"
            )
    return pl.concat(found), notes


def _of_revision(blocks: pl.DataFrame, width: int) -> pl.DataFrame:
    cubes = blocks.group_by("cube").agg(
        pl.col("depth").first(),
        pl.col("max_weight").min().alias("least"),
        pl.col("max_weight").max().alias("most"),
    )
    above, inner = _thresholds_above(cubes, width)
    branches = blocks.join(above, on="cube", how="left")
    named = pl.when(pl.col("nearest_cube") == "").then(pl.lit(_ROOT)).otherwise(pl.col("nearest_cube"))
    low = branches.filter(pl.col("min_weight") <= pl.col("highest"))
    falling = branches.filter(pl.col("least") < pl.col("nearest"))
    leaves = branches.filter(~pl.col("cube").is_in(inner.implode()) & (pl.col("most") < MAX_WEIGHT))
    return pl.concat(
        [
            faults_at(
                "weight-order",
                low,
                pl.format(
                    "its smallest weight {} is not above {}, the threshold of a cube over it",
                    "min_weight",
                    "highest",
                ),
            ),
            faults_at(
                "threshold-order",
                falling.unique("cube", keep="first", maintain_order=True),
                pl.format(
                    "the cube's threshold {} is below that of {} over it, {}", "least", named, "nearest"
                ),
            ),
            faults_at(
                "leaf-threshold",
                leaves.unique("cube", keep="first", maintain_order=True),
                pl.format("no cube lies below it, and yet its threshold is {}", "most"),
            ),
        ]
    )


def _thresholds_above(cubes: pl.DataFrame, width: int) -> tuple[pl.DataFrame, pl.Series]:
    """Give the highest and the nearest threshold over each cube; and the cubes that lie over others."""
    found = cubes.with_columns(
        highest=pl.lit(None, pl.Int64),
        nearest=pl.lit(None, pl.Int64),
        nearest_cube=pl.lit(None, pl.String),
    )
    inner = [pl.Series("cube", [], pl.String)]
    thresholds = cubes.select(pl.col("cube").alias("above"), pl.col("least").alias("threshold"))
    deepest = cubes["depth"].max()
    for level in range(deepest if isinstance(deepest, int) else 0):
        prefix = pl.when(pl.col("depth") > level).then(pl.col("cube").str.head(level * width))
        found = found.with_columns(prefix.alias("above")).join(thresholds, on="above", how="left")
        inner.append(found.filter(pl.col("threshold").is_not_null())["above"].unique().alias("cube"))
        found = found.with_columns(
            pl.max_horizontal("highest", "threshold").alias("highest"),
            pl.coalesce("threshold", "nearest").alias("nearest"),
            pl.when(pl.col("threshold").is_not_null())
            .then("above")
            .otherwise("nearest_cube")
            .alias("nearest_cube"),
        ).drop("above", "threshold")
    return found, pl.concat(inner)
