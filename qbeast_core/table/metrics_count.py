"""Blocks of live files grouped by revision and by level of the tree: the sums and spreads of index metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import polars as pl

from qbeast_core.query.live_blocks import characters_per_level
from qbeast_core.spec.revision import Revision

__all__ = ["Counted", "count_blocks"]

Key: TypeAlias = tuple[Any, ...]
"""A revision's number; or with depth and whether cubes are inner ones."""

_REVISION: Final = ["revision"]
_LEVEL: Final = ["revision", "depth", "inner"]


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Sums and spreads; what holds nothing has no key.

    Attributes
    ----------
    totals : dict
        By revision, and by level: `blocks`, `rows`, `files`, `cubes`; copies are left out.
    spreads : dict
        By name (``rows_per_cube`` ...) and key: count, mean, std, min, q1, median, q3, max.
    trees : dict
        By revision: `nodes` (cubes with blocks, or with some below them), `inner` nodes, deepest `depth`.
    copies : dict
        By revision: `blocks` and `rows` of copies.
    """

    totals: dict[Key, dict[str, Any]]
    spreads: dict[str, dict[Key, dict[str, Any]]]
    trees: dict[Key, dict[str, Any]]
    copies: dict[Key, dict[str, Any]]


def count_blocks(blocks: pl.DataFrame, files: pl.DataFrame, revisions: Mapping[int, Revision]) -> Counted:
    """Group the blocks of live files.

    Parameters
    ----------
    blocks : polars.DataFrame
        As `qbeast_core.query.live_blocks` gives them.
    files : polars.DataFrame
        `file`, `bytes`, and the `revision` that counts each file (0: staging).
    revisions : mapping of int to Revision
        All that blocks name.
    """
    own = blocks.filter(~pl.col("replicated"))
    cubes = own.select("revision", "cube", "depth").unique()
    inner = _inner_nodes(cubes, revisions)
    marked = inner.with_columns(inner=pl.lit(value=True))
    own = own.join(marked, on=["revision", "cube"], how="left").with_columns(
        pl.col("inner").fill_null(value=False)
    )
    held = own.group_by("revision", "cube").agg(
        pl.col("depth", "inner").first(), pl.col("rows").sum(), pl.len().alias("blocks")
    )
    spreads: dict[str, dict[Key, dict[str, Any]]] = {}
    for by in (_REVISION, _LEVEL):
        packed = own.group_by(*by, "file").agg(pl.len().alias("blocks"))
        sized = files if by is _REVISION else packed.join(files.select("file", "bytes"), on="file")
        for name, frame, column in (
            ("rows_per_cube", held, "rows"),
            ("rows_per_block", own, "rows"),
            ("bytes_per_file", sized, "bytes"),
            ("blocks_per_cube", held, "blocks"),
            ("blocks_per_file", packed, "blocks"),
        ):
            spreads.setdefault(name, {}).update(_spread(frame, by, column))
    copies = (
        blocks.filter("replicated").group_by(_REVISION).agg(pl.len().alias("blocks"), pl.col("rows").sum())
    )
    return Counted(
        totals=_totals(own, held, _REVISION) | _totals(own, held, _LEVEL),
        spreads=spreads,
        trees=_trees(cubes, inner),
        copies=_keyed(copies, _REVISION),
    )


def _inner_nodes(cubes: pl.DataFrame, revisions: Mapping[int, Revision]) -> pl.DataFrame:
    """Give all proper ancestors of the cubes, once each, whether they have blocks or not."""
    parts = [cubes.select("revision", "cube").clear()]
    for number in cubes["revision"].unique():
        mine, width = cubes.filter(pl.col("revision") == number), characters_per_level(revisions[number])
        deepest = mine["depth"].max()
        for level in range(deepest if isinstance(deepest, int) else 0):
            below = mine.filter(pl.col("depth") > level)
            parts.append(below.select("revision", pl.col("cube").str.head(level * width)).unique())
    return pl.concat(parts)


def _trees(cubes: pl.DataFrame, inner: pl.DataFrame) -> dict[Key, dict[str, Any]]:
    every = pl.concat([inner, cubes.select("revision", "cube")]).unique()
    found = (
        every.group_by("revision")
        .agg(pl.len().alias("nodes"))
        .join(inner.group_by("revision").agg(pl.len().alias("inner")), on="revision", how="left")
        .join(cubes.group_by("revision").agg(pl.col("depth").max()), on="revision")
        .with_columns(pl.col("inner").fill_null(0))
    )
    return _keyed(found, _REVISION)


def _totals(own: pl.DataFrame, held: pl.DataFrame, by: list[str]) -> dict[Key, dict[str, Any]]:
    counts = own.group_by(by).agg(
        pl.len().alias("blocks"), pl.col("rows").sum(), pl.col("file").n_unique().alias("files")
    )
    return _keyed(counts.join(held.group_by(by).agg(pl.len().alias("cubes")), on=by), by)


def _spread(frame: pl.DataFrame, by: list[str], column: str) -> dict[Key, dict[str, Any]]:
    number = pl.col(column).cast(pl.Float64)
    found = frame.group_by(by).agg(
        number.len().cast(pl.Int64).alias("count"),
        number.mean().alias("mean"),
        number.std(ddof=0).alias("std"),
        number.min().alias("min"),
        number.quantile(0.25, "linear").alias("q1"),
        number.median().alias("median"),
        number.quantile(0.75, "linear").alias("q3"),
        number.max().alias("max"),
    )
    return _keyed(found, by)


def _keyed(frame: pl.DataFrame, by: list[str]) -> dict[Key, dict[str, Any]]:
    """Give a row a group, by its key and without it."""
    return {tuple(row.pop(name) for name in by): row for row in frame.iter_rows(named=True)}
