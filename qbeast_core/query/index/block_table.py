"""The blocks of all files of a snapshot as one frame, shared by planning, appends and rewrites."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.query.index.page_table import PageTable, build_page_table, page_boxes
from qbeast_core.query.plan.file_statistics import Statistics, trusted_counts
from qbeast_core.query.plan.page_boxes import PageBoxes
from qbeast_core.space.values import MAX_WEIGHT, MIN_WEIGHT, BoolArray, F64Array, I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.support.sizing import sizing

# Revision of files without one, in `BlockTable.blocks`.
NO_REVISION: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class RevisionSpace:
    """The usable blocks of one revision and kind of writer, and their boxes."""

    revision: Revision
    # Positions of the blocks in the table, ascending, shape (n,).
    blocks: I64Array
    foreign: bool
    # Boxes `[lower, upper)`, one array of shape (n,) per dimension. An end of 1.0 belongs to the box, so it
    # is infinite here.
    lower: tuple[F64Array, ...]
    upper: tuple[F64Array, ...]


@dataclass(frozen=True, eq=False)  # no slots: derived columns are cached
class BlockTable:
    """The index of a snapshot: one row per block, in the order of files and of blocks in each file.

    Every file has at least one block. A file without readable tags has one block without a cube, which may hold any
    weight. The masks `binding` and `usable` mark reliable blocks; planning treats others like blocks without a cube.
    """

    # The snapshot's files; file i is row i.
    files: pl.DataFrame
    # `file` (ascending), `revision` (of the file), `cube` (null: not from a tag), `depth`, `min_weight`,
    # `max_weight` (as in the tag), `rows`, `replicated` (copies, in no file that is read), `ours` (the exact
    # rules), and the masks `binding` (in the space of a revision: appends respect them) and `usable`
    # (binding, and not contradicted by the log: reads and rewrites use them).
    blocks: pl.DataFrame
    # The boxes of usable blocks, used for pruning.
    spaces: tuple[RevisionSpace, ...]
    # `file` and `reason` (`build.UnusableReason`) of files whose index cannot be used.
    unusable: pl.DataFrame
    # Files whose blocks contradict their statistics, shape (files,).
    contradicted: BoolArray
    # Files whose tags cannot be read or cannot be true, shape (files,). They are read as a whole; their
    # statistics are ignored.
    corrupt_files: BoolArray
    # Files whose coordinates follow the exact rules, shape (files,).
    ours: BoolArray

    def __len__(self) -> int:
        return self.blocks.height

    @property
    def size_bytes(self) -> int:
        """Memory of the blocks and of cached derived arrays, without `files`."""
        arrays = [value for value in self.__dict__.values() if isinstance(value, np.ndarray)]
        for space in self.spaces:
            arrays += [space.blocks, *space.lower, *space.upper]
        frames = [self.blocks, *(self.__dict__[name] for name in _VIEWS if name in self.__dict__)]
        views = {id(frame): int(frame.estimated_size()) for frame in frames}  # a view may be `blocks` itself
        pages = self.__dict__.get("pages")
        return (
            sum(array.nbytes for array in arrays) + sum(views.values()) + (pages.size_bytes if pages else 0)
        )

    @cached_property
    def readable(self) -> pl.DataFrame:
        """The blocks of all tags that can be read, reliable or not."""
        return self._where(self.blocks["cube"].is_not_null())

    @cached_property
    def binding(self) -> pl.DataFrame:
        """The blocks that appends respect: blocks in the space of a revision."""
        return self._where(self.blocks["binding"])

    @cached_property
    def usable(self) -> pl.DataFrame:
        """The blocks that rewrites rely on: binding, and not contradicted by the log."""
        return self._where(self.blocks["usable"])

    def _where(self, mask: pl.Series) -> pl.DataFrame:
        return self.blocks if mask.all() else self.blocks.filter(mask)

    def with_files(self, files: pl.DataFrame, new: BlockTable) -> BlockTable:
        """Return the table extended by `new`, the table of the last files of `files`."""
        shift = self.files.height
        blocks = self.blocks.vstack(new.blocks.with_columns(new.blocks["file"] + shift))
        spaces = {(space.revision.revision_id, space.foreign): space for space in self.spaces}
        for space in new.spaces:
            key = space.revision.revision_id, space.foreign
            spaces[key] = _extended(spaces.get(key), space, shift=len(self))
        return BlockTable(
            files=files,
            # Rechunk rarely: it copies the whole frame.
            blocks=blocks if blocks.n_chunks() <= sizing().max_chunks else blocks.rechunk(),
            spaces=tuple(spaces.values()),
            unusable=self.unusable.vstack(new.unusable.with_columns(new.unusable["file"] + shift)),
            contradicted=np.append(self.contradicted, new.contradicted),
            corrupt_files=np.append(self.corrupt_files, new.corrupt_files),
            ours=np.append(self.ours, new.ours),
        )

    @property
    def corrupt(self) -> tuple[str, ...]:
        """Paths of the corrupt files."""
        return tuple(self.files["path"].filter(pl.Series(self.corrupt_files, dtype=pl.Boolean)).to_list())

    @cached_property
    def file(self) -> I64Array:
        """File of each block, ascending, shape (blocks,)."""
        return self.blocks["file"].to_numpy()

    @cached_property
    def min_weight(self) -> I64Array:
        """Smallest weight that each block can hold, shape (blocks,)."""
        return np.where(self.in_space, self.blocks["min_weight"].to_numpy(), MIN_WEIGHT)

    @cached_property
    def max_weight(self) -> I64Array:
        """Largest weight that each block can hold, shape (blocks,)."""
        # Thresholds of layouts before 0.6.0 bound no rows, and neither do those of files without statistics: a
        # compaction of that time wrote such files, with rows above the threshold.
        is_bounded = self.files["state"].is_null().to_numpy() & (self.num_records >= 0)
        bounded = self.in_space & is_bounded[self.file]
        return np.where(bounded, self.blocks["max_weight"].to_numpy(), MAX_WEIGHT)

    @cached_property
    def rows(self) -> I64Array:
        """Rows of each block, shape (blocks,); 0 where unknown."""
        return self.blocks["rows"].to_numpy()

    @cached_property
    def in_space(self) -> BoolArray:
        """The mask `usable` as an array: blocks whose cube and weights prune, shape (blocks,)."""
        return self.blocks["usable"].to_numpy()

    @cached_property
    def revision_of(self) -> I64Array:
        """Revision of each file, or `NO_REVISION` if its index cannot be used, shape (files,)."""
        revisions = np.full(self.files.height, NO_REVISION, np.int64)
        revisions[self.usable["file"].to_numpy()] = self.usable["revision"].to_numpy()
        return revisions

    @cached_property
    def num_records(self) -> I64Array:
        """Rows of each file, shape (files,); -1 where unknown, or where the log contradicts itself."""
        return np.where(self.corrupt_files, -1, trusted_counts(self.files))

    @cached_property
    def first_block(self) -> I64Array:
        """Position of the first block of each file, and the number of blocks, shape (files + 1,)."""
        return np.searchsorted(self.file, np.arange(self.files.height + 1)).astype(np.int64)

    @cached_property
    def statistics(self) -> Statistics:
        """Statistics of the files."""
        doubtful = pl.Series(self.corrupt_files, dtype=pl.Boolean)
        return Statistics(self.files, pl.Series("foreign", ~self.ours), self.num_records, doubtful)

    @cached_property
    def pages(self) -> PageTable:
        """The pages of files of ours with a layout tag and a usable index."""
        usable, sizes = self.ours & ~self.unplaced_files, self.files["size_bytes"]
        return build_page_table(self.files["layout"], self.num_records, usable, size_bytes=sizes)

    def boxes(self, files: BoolArray, columns: frozenset[str]) -> Iterator[tuple[Revision, PageBoxes]]:
        """Yield the boxes of the pages of some files with pages, by revision, if it indexes one of the columns."""
        for space in self.spaces:
            if space.foreign or columns.isdisjoint(space.revision.columns):
                continue
            chosen = np.flatnonzero(files & (self.revision_of == space.revision.revision_id))
            if len(chosen):
                dimensions = len(space.revision.columns)
                yield (
                    space.revision,
                    page_boxes(self.pages, self.files["layout"], chosen, dimensions=dimensions),
                )

    @cached_property
    def unplaced_files(self) -> BoolArray:
        """Files with rows outside of all spaces, whose weights are unknown, shape (files,)."""
        return self.any_in_file(~self.in_space)

    def any_in_file(self, blocks: BoolArray) -> BoolArray:
        """Return for every file whether any of its blocks is true, shape (files,)."""
        return np.bincount(self.file[blocks], minlength=self.files.height) > 0


def _extended(space: RevisionSpace | None, new: RevisionSpace, *, shift: int) -> RevisionSpace:
    blocks = new.blocks + shift
    if space is None:
        return replace(new, blocks=blocks)
    lower = tuple(map(np.append, space.lower, new.lower))
    upper = tuple(map(np.append, space.upper, new.upper))
    return replace(space, blocks=np.append(space.blocks, blocks), lower=lower, upper=upper)


_VIEWS: Final = ("readable", "binding", "usable")
