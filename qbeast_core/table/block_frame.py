"""All blocks of a snapshot as a frame for people."""

from __future__ import annotations

import polars as pl

from qbeast_core.query.tags import decode_blocks, flat_blocks
from qbeast_core.table.snapshot import Snapshot

__all__ = ["block_frame"]

_BITS_PER_CHARACTER = 6


def block_frame(snapshot: Snapshot) -> pl.DataFrame:
    """Return one row per block of every live file, in the order of files and of rows in each.

    Parameters
    ----------
    snapshot : Snapshot
        The table. Files without readable tags have no blocks.

    Returns
    -------
    polars.DataFrame
        `path` (decoded), `revision_id`, `cube` (text form), `depth`, `min_weight`, `max_weight`, `element_count`,
        `replicated`.
    """
    files = snapshot.files.with_row_index("file").with_columns(pl.col("file").cast(pl.Int64))
    tagged, _ = decode_blocks(files.filter(pl.col("blocks").is_not_null()).select("file", "blocks"))
    old = files.filter(pl.col("blocks").is_null() & pl.col("cube").is_not_null())
    flat = flat_blocks(old).with_columns(old["max_weight"].alias("max_weight"))
    latest = snapshot.config.latest
    characters = max(-(-len(latest.columns) // _BITS_PER_CHARACTER), 1) if latest is not None else 1
    blocks = pl.concat([tagged, flat.select(tagged.columns).cast(tagged.schema)])
    named = pl.DataFrame(
        {
            "file": files["file"],
            "path": pl.Series(snapshot.data_paths, dtype=pl.String),
            "revision_id": files["revision"],
        }
    )
    return (
        blocks.sort("file", maintain_order=True)
        .join(named, on="file", how="left", maintain_order="left")
        .select(
            "path",
            "revision_id",
            "cube",
            (pl.col("cube").str.len_chars() // characters).cast(pl.Int64).alias("depth"),
            "min_weight",
            "max_weight",
            pl.col("rows").alias("element_count"),
            "replicated",
        )
    )
