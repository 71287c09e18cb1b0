"""The index of a snapshot as appends and rewrites see it: files by revision, trees, and breaks of the order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.query.index.fitting import fits_schema
from qbeast_core.query.index.index_table import NO_REVISION, IndexTable
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.space.cubes import Cubes, decode_cubes
from qbeast_core.spec.revision import Revision
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.layout.existing import ExistingTree, existing_tree
from qbeast_core.tree.layout.order import broken_order, open_where_broken
from qbeast_core.tree.space.columns import text_column

# Instead of a revision: the file has no index that can be used.
STAGED: Final = -1

# Instead of a file's number: the block is in a file that is not live yet.
NEW_FILE: Final = -1

_BLOCKS: Final = pl.Schema(
    {"file": pl.Int64, "cube": pl.String, "min_weight": pl.Int64, "max_weight": pl.Int64, "rows": pl.Int64}
)


@dataclass(frozen=True, slots=True, eq=False)
class Disorder:
    """What breaks the order of weights (format 8.3) when files go and blocks come."""

    # Live files to take out as well, ascending.
    files: I64Array
    # Whether somewhere only new blocks are to blame: taking files out cannot mend that.
    is_stuck: bool

    def __bool__(self) -> bool:
        return self.is_stuck or bool(len(self.files))


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class IndexState:
    """A snapshot's files by revision, and their blocks; pure once the snapshot is there."""

    snapshot: Snapshot

    @cached_property
    def newest(self) -> Revision | None:
        """The newest revision, if it has a space for the columns as they are now: others take no more rows."""
        latest = self.snapshot.config.latest
        return latest if latest is not None and fits_schema(latest, self.snapshot.schema) else None

    @property
    def table(self) -> IndexTable:
        """The blocks of all files, with masks that say which can be relied on."""
        return self.snapshot.index

    @property
    def blocks(self) -> pl.DataFrame:
        """The blocks that rewrites rely on."""
        return self.table.usable

    def binding(self, revision: Revision) -> pl.DataFrame:
        """Return the blocks of a revision that appended rows must keep to, without copies."""
        return self.table.binding.filter((pl.col("revision") == revision.revision_id) & ~pl.col("replicated"))

    def listed(self) -> pl.DataFrame:
        """Return one row per block of every file whose tags can be read; see `Table.blocks`."""
        path = pl.Series("path", self.snapshot.data_paths, dtype=pl.String)
        return self.table.readable.select(
            pl.lit(path).gather(pl.col("file")).alias("path"),
            pl.col("revision").replace(NO_REVISION, None).alias("revision_id"),
            "cube",
            "depth",
            "min_weight",
            "max_weight",
            pl.col("rows").alias("element_count"),
            "replicated",
        )

    @cached_property
    def revision_of(self) -> I64Array:
        """Revision that each live file is indexed in, or `STAGED`; shape (files,)."""
        found = np.full(self.snapshot.files.height, STAGED, np.int64)
        found[self.blocks["file"].to_numpy()] = self.blocks["revision"].to_numpy()
        return found

    @cached_property
    def files(self) -> pl.DataFrame:
        """Of each live file `file`, `path` (decoded), `rows`, `bytes` and `revision_id` (null: not indexed)."""
        files = self.snapshot.files
        return files.select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
            pl.Series("path", self.snapshot.data_paths, dtype=pl.String),
            pl.col("num_records").cast(pl.Int64).alias("rows"),
            pl.col("size_bytes").cast(pl.Int64).alias("bytes"),
            pl.Series("revision_id", self.revision_of).replace(STAGED, None),
        )

    @property
    def has_copies(self) -> bool:
        """Whether live blocks repeat rows of others (format 11)."""
        return bool(self.blocks["replicated"].any())

    def tree(
        self,
        revision: Revision,
        gone: BoolArray | None = None,
        new: pl.DataFrame | None = None,
        *,
        keeps_places: bool = False,
    ) -> ExistingTree:
        """Return the tree that rows are put into."""
        taken: BoolArray | None = None
        if gone is None:
            blocks = self.binding(revision)[_BLOCKS.names()]
        else:
            mine = self.blocks.filter(pl.col("revision") == revision.revision_id).select(_BLOCKS.names())
            blocks = pl.concat([mine, new_blocks() if new is None else new])
            taken = np.append(gone, values=False)[blocks["file"].to_numpy()]  # the last one is `NEW_FILE`
            if not keeps_places:
                blocks, taken = blocks.filter(~_mask(taken)), None
        tree = existing_tree(
            _cubes(blocks, revision), **_bounds(blocks), element_counts=blocks["rows"].to_numpy(), gone=taken
        )
        return tree if gone is None else open_where_broken(tree)

    def disorder(self, gone: BoolArray, new: pl.DataFrame, revision: Revision | None) -> Disorder:
        """Return what breaks the order of weights, cubes aside that did before (tables of the JVM have some).

        Where a cube is at fault, the cheaper side is to go: its own files, or those of its descendants.
        """
        back = None if revision is None else revision.revision_id
        touched = {*self.revision_of[gone].tolist(), *([] if back is None else [back])}
        found, is_stuck = [np.zeros(0, np.int64)], False
        for number in sorted(touched & set(self.snapshot.config.revisions)):
            one = self.snapshot.config.revisions[number]
            mine = self.blocks.filter(pl.col("revision") == number).select(_BLOCKS.names())
            staying = mine.filter(~_mask(gone[mine["file"].to_numpy()]))
            broken = _broken(pl.concat([staying, new]) if number == back else staying, one)
            if broken.is_empty():
                continue
            before = _broken(mine, one).filter("above")["text"]
            known = broken.filter(pl.col("above") & pl.col("text").is_in(before.implode()))["cube"]
            broken = broken.filter(~pl.col("cube").is_in(known.implode()))
            sides = self._cheaper_sides(broken)
            found.append(sides["file"].to_numpy())
            is_stuck = is_stuck or sides["cube"].n_unique() < broken["cube"].n_unique()
        return Disorder(np.unique(np.concatenate(found)), is_stuck)

    def _cheaper_sides(self, broken: pl.DataFrame) -> pl.DataFrame:
        """Return the files of one side of each faulty cube, where a side has live files alone."""
        sides = broken.unique(["cube", "above", "file"]).join(self.files, on="file", how="left")
        cheapest = (
            sides.group_by("cube", "above")
            .agg(pl.col("bytes").sum(), (pl.col("file") == NEW_FILE).any().alias("fixed"))
            .filter(~pl.col("fixed"))
            .sort("cube", "bytes", "above", descending=[False, False, True])
            .unique("cube", keep="first", maintain_order=True)
        )
        return sides.join(cheapest, on=["cube", "above"], how="semi")


def new_blocks(adds: Iterable[AddFile] = ()) -> pl.DataFrame:
    """Return the blocks of files that are not live yet, as `IndexState` wants them.

    >>> new_blocks().columns
    ['file', 'cube', 'min_weight', 'max_weight', 'rows']
    """
    rows = [
        (NEW_FILE, block.cube, block.min_weight, block.max_weight, block.element_count)
        for add in adds
        for block in add.blocks or ()
    ]
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
    return decode_cubes(text_column(blocks["cube"]), dimensions=len(revision.columns))


def _bounds(blocks: pl.DataFrame) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    return {
        "min_weights": blocks["min_weight"].cast(pl.Int32).to_numpy(),
        "max_weights": blocks["max_weight"].cast(pl.Int32).to_numpy(),
    }


def _mask(files: BoolArray) -> pl.Series:
    return pl.Series(files, dtype=pl.Boolean)
