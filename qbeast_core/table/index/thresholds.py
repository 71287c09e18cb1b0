"""Fit an append to the version it follows: the thresholds of cubes, and files that are staged to keep the order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from qbeast_core.log.actions import AddFile, Metadata
from qbeast_core.log.columns import StoredColumns, named_revision, stored_revision
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.space.values import MAX_WEIGHT
from qbeast_core.spec.blocks import Block, FilePath
from qbeast_core.spec.revision import Revision
from qbeast_core.table.index.live_index import Index, broken_blocks, new_blocks
from qbeast_core.table.snapshot.snapshot import Snapshot


def fit_blocks(intent: WriteIntent, snapshot: Snapshot) -> WriteIntent:
    """Adapt an intent to `snapshot`, which is newer than the version it was planned on.

    New files that have no place in the tree (format 8.3), or lack a sample column that the table has by now, are
    staged, and optimize indexes them later, so an append does not fail. Changes that replace files are returned as they
    are.
    """
    if intent.mode == "append" and not intent.removes and snapshot.sample_column is not None:
        adds = (add.without_index() if add.has_hidden_weights else add for add in intent.adds)
        intent = replace(intent, adds=tuple(adds))
    revision = intent.revision
    indexed = [add for add in intent.adds if add.blocks is not None]
    if intent.mode != "append" or intent.removes or intent.new_revision or revision is None or not indexed:
        return intent
    files = [add.blocks or () for add in indexed]
    state = Index(snapshot)
    live = state.binding(revision)
    live = live if _knows(snapshot, revision) else live.clear()
    trees = state.with_partitions(indexed)[1].tolist()
    fitting = blocks_in_order(files, live, trees=trees, dimensions=len(revision.columns))
    if fitting == files:
        return intent
    fitted = {add.path: _fitted(add, blocks) for add, blocks in zip(indexed, fitting, strict=True)}
    return replace(intent, adds=tuple(fitted.get(add.path, add) for add in intent.adds))


def with_new_names(intent: WriteIntent, planned: Metadata | None, snapshot: Snapshot) -> WriteIntent:
    """Return an intent with the names that columns have in `snapshot`, which may be newer than its plan."""
    if intent.revision is None or planned is None or planned.schema_string == snapshot.schema_json:
        return intent
    stored = stored_revision(intent.revision, StoredColumns.of(planned))
    return replace(intent, revision=named_revision(stored, snapshot.columns))


def breaks_order(intent: WriteIntent, snapshot: Snapshot) -> bool:
    """Return whether blocks of `snapshot` rely on thresholds that the change removes (format 8.3)."""
    removed = {FilePath.of_log(remove.path).text for remove in intent.removes}
    gone = pl.Series(snapshot.data_paths, dtype=pl.String).is_in(list(removed)).to_numpy()
    revision = intent.revision
    beside = not intent.new_revision and _knows(snapshot, revision)
    state = Index(snapshot)
    new = new_blocks(intent.adds, state.with_partitions(intent.adds)[1])
    return bool(state.disorder(gone, new, revision if beside else None))


def _knows(snapshot: Snapshot, revision: Revision | None) -> bool:
    """Return whether the table has this revision. Otherwise the commit publishes it with a new id."""
    return revision is not None and snapshot.config.revisions.get(revision.revision_id) == revision


def _fitted(add: AddFile, blocks: tuple[Block, ...] | None) -> AddFile:
    return add.without_index() if blocks is None else add.model_copy(update={"blocks": blocks})


_LIVE: Final = -1
_BLOCKS: Final = pl.Schema(
    {
        "file": pl.Int64,
        "tree": pl.Int64,
        "cube": pl.String,
        "min_weight": pl.Int64,
        "max_weight": pl.Int64,
    }
)


def blocks_in_order(
    files: Sequence[Sequence[Block]],
    live: pl.DataFrame,
    *,
    trees: Sequence[int] | None = None,
    dimensions: int,
) -> list[tuple[Block, ...] | None]:
    """Return the blocks to publish for each new file. None: the file has to be published without index.

    `trees` are the numbers of the files' trees, by default 0; each tree has an order of its own.

    Two plans on the same version may conflict: a cube without rows in one plan has no threshold there, and its
    threshold in the other plan may be too large for the rows below. A new file loses its index if its rows are below a
    live threshold, or if live blocks are below its threshold. Breaks between live blocks only (of the JVM) are ignored.

    A cube without descendants is a leaf: its new blocks get the threshold of a leaf.

    >>> weights = {"min_weight": [-9, 3], "max_weight": [2, 2147483647]}
    >>> live = pl.DataFrame({"tree": [0, 0], "cube": ["", "ww"], **weights})
    >>> low, high = [Block("A", 2, 2147483647, 2)], [Block("w", 1, 3, 2)]
    >>> blocks_in_order([low, high], live, dimensions=2)
    [None, None]
    >>> blocks_in_order([high], live[:1], dimensions=2)
    [None]
    >>> blocks_in_order([high], live, trees=[1], dimensions=2)
    [(Block(cube='w', min_weight=1, max_weight=2147483647, element_count=2, replicated=False),)]
    """
    trees = [0] * len(files) if trees is None else trees
    new = [
        (file, tree, block.cube, block.min_weight, block.max_weight)
        for file, (blocks, tree) in enumerate(zip(files, trees, strict=True))
        for block in blocks
    ]
    old = live.select(pl.lit(_LIVE, pl.Int64).alias("file"), *_BLOCKS.names()[1:])
    blocks = pl.concat([old.cast(_BLOCKS), pl.DataFrame(new, schema=_BLOCKS, orient="row")])
    faults = _faults(blocks, dimensions)
    while len(unfit := _unfit(faults)):
        # Blocks that relied on thresholds of these files show up in the next round.
        blocks = blocks.filter(~pl.col("file").is_in(unfit.implode()))
        faults = _faults(blocks, dimensions)
    fitting, leaves = set(blocks["file"]), set(faults.filter("leaf").select("tree", "text").iter_rows())
    return [
        _raised(file_blocks, tree, leaves) if file in fitting or not file_blocks else None
        for file, (file_blocks, tree) in enumerate(zip(files, trees, strict=True))
    ]


def _faults(blocks: pl.DataFrame, dimensions: int) -> pl.DataFrame:
    """Return the blocks that cause breaks, and which sides of the cube have live blocks."""
    is_live = pl.col("file") == _LIVE
    return broken_blocks(blocks, dimensions).with_columns(
        (~pl.col("above")).any().not_().over("cube").alias("leaf"),
        (is_live & pl.col("above")).any().over("cube").alias("live_above"),
        (is_live & ~pl.col("above")).any().over("cube").alias("live_below"),
    )


def _unfit(faults: pl.DataFrame) -> pl.Series:
    """Return the new files to stage: the side of a cube without live blocks, the lower side if neither has any."""
    stages_above = pl.col("live_below") & ~pl.col("live_above")
    is_unfit = (pl.col("file") != _LIVE) & ~pl.col("leaf") & (pl.col("above") == stages_above)
    return faults.filter(is_unfit)["file"].unique()


def _raised(blocks: Sequence[Block], tree: int, leaves: set[tuple[int, str]]) -> tuple[Block, ...]:
    return tuple(
        replace(block, max_weight=MAX_WEIGHT) if (tree, block.cube) in leaves else block for block in blocks
    )
