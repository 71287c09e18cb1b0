"""Index metrics of a snapshot, from the tags of its live files alone."""

from __future__ import annotations

from typing import Final, Literal

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.query.live_blocks import live_blocks
from qbeast_core.spec.revision import STAGING_REVISION_ID, Revision
from qbeast_core.table.design import table_design_effect
from qbeast_core.table.metrics import Distribution, LevelMetrics, Metrics, RevisionMetrics
from qbeast_core.table.metrics_count import Counted, count_blocks
from qbeast_core.table.snapshot import Snapshot

__all__ = ["build_metrics", "fewest_levels"]

_KINDS: Final[dict[bool, Literal["inner", "leaf"]]] = {True: "inner", False: "leaf"}


def build_metrics(snapshot: Snapshot, revision: int | None = None) -> Metrics:
    """Count what every revision holds; see `Table.metrics`.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    revision : int, optional
        This revision alone.

    Raises
    ------
    InvalidInputError
        If the table has no such revision.
    """
    known = dict(snapshot.config.revisions)
    blocks = live_blocks(snapshot.files, known, snapshot.schema).blocks
    counting = blocks.group_by("file").agg(pl.col("revision").first())
    files = (
        snapshot.files.select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
            pl.col("size_bytes").cast(pl.Int64).alias("bytes"),
            pl.col("num_records").cast(pl.Int64),
        )
        .join(counting, on="file", how="left", maintain_order="left")
        .with_columns(pl.col("revision").fill_null(STAGING_REVISION_ID))
    )
    numbers = sorted({*known, *files["revision"].unique()})
    if revision is not None and revision not in numbers:
        msg = f"{snapshot.uri!r} has no revision {revision}; its revisions are {numbers}"
        raise InvalidInputError(msg, argument="revision")
    counted = count_blocks(blocks, files, known)
    return Metrics(
        version=snapshot.version,
        revisions=tuple(
            _revision(number, known.get(number, snapshot.config.latest), counted, files)
            for number in numbers
            if revision in {None, number}
        ),
        design_effect=table_design_effect(snapshot),
    )


def fewest_levels(rows: int, cube_size: int, dimensions: int) -> int:
    """Return the height that a full tree of so many rows has: ``ceil(log_r(ceil(n / c) * (r - 1) + 1))``.

    Examples
    --------
    >>> fewest_levels(1000, 100, 2), fewest_levels(500, 100, 2), fewest_levels(0, 100, 2)
    (3, 2, 0)
    """
    cubes = -(-rows // cube_size)
    levels = room = 0
    while room < cubes:  # in whole numbers: a logarithm in floats may step over a power
        room += 1 << dimensions * levels
        levels += 1
    return levels


def _revision(
    number: int, revision: Revision | None, counted: Counted, files: pl.DataFrame
) -> RevisionMetrics:
    mine = files.filter(pl.col("revision") == number)
    key = (number,)
    totals, tree = counted.totals.get(key, {}), counted.trees.get(key, {})
    copies = counted.copies.get(key, {})
    staging = number == STAGING_REVISION_ID
    rows = int(mine["num_records"].fill_null(0).sum()) if staging else totals.get("rows", 0)
    columns = () if revision is None else revision.columns
    size = 1 if revision is None else revision.desired_cube_size
    return RevisionMetrics(
        revision_id=number,
        columns=columns,
        dimensions=len(columns),
        rows=rows,
        cubes=totals.get("cubes", 0),
        blocks=totals.get("blocks", 0),
        files=mine.height,
        bytes=int(mine["bytes"].sum()),
        uncounted_files=mine["num_records"].null_count() if staging else 0,
        replicated_blocks=copies.get("blocks", 0),
        replicated_rows=copies.get("rows", 0),
        desired_cube_size=size,
        height=tree["depth"] + 1 if tree else 0,
        min_height=fewest_levels(rows, size, len(columns)) if tree else 0,
        # All nodes but the root are children.
        fan_out=(tree["nodes"] - 1) / tree["inner"] if tree and tree["inner"] else None,
        max_fan_out=1 << len(columns),
        levels=_levels(number, counted),
        **_spreads(key, counted),
    )


def _levels(number: int, counted: Counted) -> tuple[LevelMetrics, ...]:
    keys = sorted(key for key in counted.totals if len(key) == 3 and key[0] == number)
    in_order = sorted(keys, key=lambda key: (key[1], not key[2]))
    return tuple(
        LevelMetrics.model_validate(
            {"depth": key[1], "kind": _KINDS[key[2]], **counted.totals[key], **_spreads(key, counted)}
        )
        for key in in_order
    )


def _spreads(key: tuple[object, ...], counted: Counted) -> dict[str, Distribution | None]:
    return {
        name: Distribution(**found[key]) if key in found else None for name, found in counted.spreads.items()
    }
