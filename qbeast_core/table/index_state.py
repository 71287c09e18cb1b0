"""Where the rows of every live file are indexed, and what becomes of the order of weights when files go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.query.live_blocks import live_blocks
from qbeast_core.query.tags import contradicted_files
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.space.cubes import Cubes, decode_cubes
from qbeast_core.spec.block import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.table.snapshot import Snapshot
from qbeast_core.tree.existing import ExistingTree, existing_tree
from qbeast_core.tree.order import broken_order, open_where_broken

__all__ = ["NEW_FILE", "STAGED", "Disorder", "IndexState", "blocks_frame"]

STAGED: Final = -1
"""Instead of a revision: the file has no index that can be used."""

NEW_FILE: Final = -1
"""Instead of a file's number: the block is in a file that is not live yet."""

_BLOCKS: Final = pl.Schema(
    {"file": pl.Int64, "cube": pl.String, "min_weight": pl.Int64, "max_weight": pl.Int64, "rows": pl.Int64}
)


@dataclass(frozen=True, slots=True, eq=False)
class Disorder:
    """What breaks the order of weights (format 8.3) when files go and blocks come.

    Attributes
    ----------
    files : ndarray of int64
        Live files to take out as well, ascending.
    is_stuck : bool
        Whether somewhere only new blocks are to blame: taking files out cannot mend that.
    """

    files: I64Array
    is_stuck: bool

    @property
    def is_none(self) -> bool:
        """Whether all is well."""
        return not self.is_stuck and not len(self.files)


@dataclass(frozen=True, eq=False)  # no slots: what is derived is kept
class IndexState:
    """A snapshot's files by revision; pure once the snapshot is there.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    """

    snapshot: Snapshot

    @cached_property
    def blocks(self) -> pl.DataFrame:
        """Blocks that can be true, as `qbeast_core.query.live_blocks` gives them."""
        snapshot = self.snapshot
        found = live_blocks(snapshot.files, snapshot.config.revisions, snapshot.schema).blocks
        return found.filter(~pl.col("file").is_in(contradicted_files(snapshot.files, found).implode()))

    @cached_property
    def revision_of(self) -> I64Array:
        """Revision that each live file is indexed in, or `STAGED`; shape (files,)."""
        found = np.full(self.snapshot.files.height, STAGED, np.int64)
        found[self.blocks["file"].to_numpy()] = self.blocks["revision"].to_numpy()
        return found

    @property
    def has_copies(self) -> bool:
        """Whether live blocks repeat rows of others (format 11)."""
        return bool(self.blocks["replicated"].any())

    def tree(
        self, revision: Revision, gone: BoolArray, new: pl.DataFrame, *, keeps_places: bool = False
    ) -> ExistingTree:
        """Return the tree that rows are put back into.

        Parameters
        ----------
        revision : Revision
            Of the table.
        gone : ndarray of bool, shape (files,)
            Files that are taken out.
        new : polars.DataFrame
            Blocks already put back, see `blocks_frame`.
        keeps_places : bool
            Whether rows are put back by the thresholds that their cubes had, so that those that did not change
            find the cubes they came from; else by those of a fresh tree.
        """
        mine = self.blocks.filter(pl.col("revision") == revision.revision_id).select(_BLOCKS.names())
        taken = gone[mine["file"].to_numpy()]
        both = pl.concat([mine if keeps_places else mine.filter(~pl.Series(taken, dtype=pl.Boolean)), new])
        tree = existing_tree(
            _cubes(both, revision),
            **_bounds(both),
            element_counts=both["rows"].to_numpy(),
            gone=np.append(taken, np.zeros(new.height, np.bool_)) if keeps_places else None,
        )
        return open_where_broken(tree)

    def disorder(self, gone: BoolArray, new: Mapping[int, pl.DataFrame]) -> Disorder:
        """Return what breaks the order of weights, cubes aside that did before (tables of the JVM have some).

        Where a cube is at fault, the cheaper side is to go: its own files, or those of its descendants.

        Parameters
        ----------
        gone : ndarray of bool, shape (files,)
            Files that are taken out.
        new : mapping of int to polars.DataFrame
            Blocks put back, per revision, see `blocks_frame`.
        """
        touched = set(self.revision_of[gone].tolist()) | set(new)
        found, is_stuck = [np.zeros(0, np.int64)], False
        for number in sorted(touched & set(self.snapshot.config.revisions)):
            revision = self.snapshot.config.revisions[number]
            mine = self.blocks.filter(pl.col("revision") == number).select(_BLOCKS.names())
            staying = mine.filter(~pl.Series(gone[mine["file"].to_numpy()], dtype=pl.Boolean))
            broken = _broken(pl.concat([staying, new.get(number, staying.clear())]), revision)
            if broken.height:
                before = _broken(mine, revision).filter("above")["text"]
                known = broken.filter(pl.col("above") & pl.col("text").is_in(before.implode()))["cube"]
                broken = broken.filter(~pl.col("cube").is_in(known.implode()))
            sides = self._cheaper_sides(broken)
            found.append(sides["file"].to_numpy())
            is_stuck = is_stuck or sides["cube"].n_unique() < broken["cube"].n_unique()
        return Disorder(np.unique(np.concatenate(found)), is_stuck)

    def _cheaper_sides(self, broken: pl.DataFrame) -> pl.DataFrame:
        """Return the files of one side of each faulty cube, where a side has live files alone."""
        sizes = self.snapshot.files.select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("file"), pl.col("size_bytes").alias("bytes")
        )
        sides = broken.unique(["cube", "above", "file"]).join(sizes, on="file", how="left")
        cheapest = (
            sides.group_by("cube", "above")
            .agg(pl.col("bytes").sum(), (pl.col("file") == NEW_FILE).any().alias("fixed"))
            .filter(~pl.col("fixed"))
            .sort("cube", "bytes", "above", descending=[False, False, True])
            .unique("cube", keep="first", maintain_order=True)
        )
        return sides.join(cheapest, on=["cube", "above"], how="semi")


def blocks_frame(blocks: list[Block]) -> pl.DataFrame:
    """Return blocks of files that are not live yet, as `IndexState` wants them.

    Examples
    --------
    >>> blocks_frame([Block("w", -5, 7, 2)]).rows()
    [(-1, 'w', -5, 7, 2)]
    """
    rows = [(NEW_FILE, b.cube, b.min_weight, b.max_weight, b.element_count) for b in blocks]
    return pl.DataFrame(rows, schema=_BLOCKS, orient="row")


def _broken(blocks: pl.DataFrame, revision: Revision) -> pl.DataFrame:
    """Blame blocks: `cube`, `above`, and the block's `file` and cube as `text`."""
    found = broken_order(_cubes(blocks, revision), **_bounds(blocks))
    return found.select(
        "cube",
        "above",
        blocks["file"][found["block"]].alias("file"),
        blocks["cube"][found["block"]].alias("text"),
    )


def _cubes(blocks: pl.DataFrame, revision: Revision) -> Cubes:
    return decode_cubes(blocks["cube"].to_list(), dimensions=len(revision.columns))


def _bounds(blocks: pl.DataFrame) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    return {
        "min_weights": blocks["min_weight"].cast(pl.Int32).to_numpy(),
        "max_weights": blocks["max_weight"].cast(pl.Int32).to_numpy(),
    }
