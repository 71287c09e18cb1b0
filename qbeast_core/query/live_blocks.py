"""The blocks of live files with the cube each names, and the files whose index cannot be used, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import polars as pl

from qbeast_core.query.fitting import fits_schema
from qbeast_core.query.tags import decode_tags, misnamed_cubes
from qbeast_core.space.weights import MAX_WEIGHT
from qbeast_core.spec.revision import Revision

__all__ = ["LiveBlocks", "Unusable", "characters_per_level", "live_blocks"]

Unusable: TypeAlias = Literal["unreadable", "incomplete", "unknown revision", "other types", "no cube"]
"""Why a file that names an index is read as though it had none."""

_BITS_PER_CHARACTER: Final = 6
_UNPLACED: Final = pl.Schema({"file": pl.Int64, "reason": pl.String})


@dataclass(frozen=True, slots=True, eq=False)
class LiveBlocks:
    """What the tags of a snapshot's files say, in the order of files and of each tag.

    Attributes
    ----------
    blocks : polars.DataFrame
        `file` (number of the file), `revision`, `cube`, `depth`, `min_weight`, `max_weight` (as the tag has it),
        `rows`, `replicated` (copies), `legacy` (a layout before 0.6.0) and `ours`.
    unplaced : polars.DataFrame
        `file` and `reason` (`Unusable`) of files that name an index which cannot be used.
    """

    blocks: pl.DataFrame
    unplaced: pl.DataFrame


def live_blocks(
    files: pl.DataFrame,
    revisions: Mapping[int, Revision],
    schema: pl.Schema,
    tags: tuple[pl.DataFrame, list[int]] | None = None,
) -> LiveBlocks:
    """Return what the index tags of a snapshot's files say, as far as it can be used.

    Parameters
    ----------
    files : polars.DataFrame
        As a snapshot has them.
    revisions : mapping of int to Revision
        The table's revisions.
    schema : polars.Schema
        The table's columns: files of a revision indexed with other types are unplaced.
    tags : tuple of polars.DataFrame and list of int, optional
        What `qbeast_core.query.tags.decode_tags` gives, where it is there already.

    Examples
    --------
    >>> from qbeast_core.spec.revision import Revision
    >>> files = pl.DataFrame({"revision": [1, None], "rules": ["1", None], "layout": [None, None],
    ...     "blocks": ['[{"cube":"","minWeight":-9,"maxWeight":9,"elementCount":3}]', "oops"],
    ...     "state": [None, None], "cube": [None, None], "min_weight": [None, None],
    ...     "max_weight": [None, None], "element_count": [None, None]})
    >>> found = live_blocks(files, {}, pl.Schema())
    >>> found.blocks.height, found.unplaced.rows()
    (0, [(0, 'unknown revision'), (1, 'unreadable')])
    """
    found, unread = decode_tags(files) if tags is None else tags
    # Readers must not use the threshold of an old layout; here it is shown.
    found = found.with_columns(pl.col("max_weight").fill_null(MAX_WEIGHT))
    numbered = files.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
        pl.col("revision").cast(pl.Int64),
        pl.col("rules").cast(pl.String).eq("1").fill_null(value=False).alias("ours"),
        pl.col("blocks", "cube", "layout"),
    )
    fitting = {n: r for n, r in revisions.items() if fits_schema(r, schema)}
    reasons = _reasons(numbered, unread, found, revisions, list(fitting))
    placed = found.join(numbered.select("file", "revision", "ours"), on="file", how="left")
    if reasons.height:
        placed = placed.filter(~pl.col("file").is_in(reasons["file"].implode()))
    blocks, misnamed = _with_depth(placed, fitting)
    return LiveBlocks(
        blocks.sort("file", maintain_order=True),
        pl.concat([reasons, misnamed]).unique("file", keep="first").sort("file"),
    )


def characters_per_level(revision: Revision) -> int:
    """Return how many characters of a cube's text name one level of it (format 5)."""
    return -(-len(revision.columns) // _BITS_PER_CHARACTER)


def _reasons(
    files: pl.DataFrame,
    unread: Sequence[int],
    found: pl.DataFrame,
    revisions: Mapping[int, Revision],
    fitting: Sequence[int],
) -> pl.DataFrame:
    """Give the files whose index cannot be used, as far as their cubes need not be looked at."""
    tagged = pl.col("blocks").is_not_null() | pl.col("cube").is_not_null()
    named = tagged | pl.any_horizontal(pl.col("revision", "layout").is_not_null()) | pl.col("ours")
    filled = pl.col("file").is_in(found["file"].unique().implode())
    reason = (
        pl.when(pl.col("file").is_in(list(unread)))
        .then(pl.lit("unreadable"))
        .when(~tagged | ~filled | pl.col("revision").is_null())
        .then(pl.lit("incomplete"))
        .when(~pl.col("revision").is_in(list(revisions)))
        .then(pl.lit("unknown revision"))
        .when(~pl.col("revision").is_in(list(fitting)))
        .then(pl.lit("other types"))
    )
    return files.select("file", pl.when(named).then(reason).alias("reason")).drop_nulls()


def _with_depth(blocks: pl.DataFrame, revisions: Mapping[int, Revision]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add every cube's depth; leave out the files that name a cube which is none, and name them."""
    good = [blocks.clear().with_columns(depth=pl.lit(0, pl.Int64))]
    bad = [pl.DataFrame(schema=_UNPLACED)]
    for number, revision in revisions.items():
        mine = blocks.filter(pl.col("revision") == number)
        wrong = misnamed_cubes(mine["cube"], dimensions=len(revision.columns))
        if len(wrong):
            faulty = mine.filter(pl.col("cube").is_in(wrong.implode()))["file"].unique()
            bad.append(faulty.to_frame().with_columns(reason=pl.lit("no cube")))
            mine = mine.filter(~pl.col("file").is_in(faulty.implode()))
        depth = pl.col("cube").str.len_bytes().cast(pl.Int64) // characters_per_level(revision)
        good.append(mine.with_columns(depth=depth))
    order = ["file", "revision", "cube", "depth", "min_weight", "max_weight", "rows"]
    return pl.concat(good).select(*order, "replicated", "legacy", "ours"), pl.concat(bad)
