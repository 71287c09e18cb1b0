"""The design effect of a table, from what its writes measured."""

from __future__ import annotations

import polars as pl

from qbeast_core.table.snapshot import Snapshot

__all__ = ["table_design_effect"]


def table_design_effect(snapshot: Snapshot) -> float | None:
    """Return the mean design effect of the writes behind the live files, weighted by rows.

    Keys that repeat across writes are not seen, so with them the truth is larger.

    Parameters
    ----------
    snapshot : Snapshot
        The table.

    Returns
    -------
    float or None
        At least 1.0; None where no live file tells.
    """
    measured = snapshot.files.select(
        pl.col("num_records").fill_null(0).alias("rows"),
        pl.col("layout")
        .str.extract(r'"deff":\s*([0-9.eE+-]+)')
        .cast(pl.Float64, strict=False)
        .alias("effect"),
    ).filter(pl.col("effect").is_finite() & (pl.col("rows") > 0))
    if not measured.height:
        return None
    rows, effect = measured["rows"].to_numpy(), measured["effect"].to_numpy()
    return float((rows * effect).sum() / rows.sum())
