"""All blocks of a snapshot as columns: what planning works on, with no Python object a block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from qbeast_core.query.pages import BlockRows, PageTable, build_page_table
from qbeast_core.query.statistics import Statistics
from qbeast_core.space.arrays import BoolArray, F64Array, I64Array
from qbeast_core.spec.revision import Revision


@dataclass(frozen=True, slots=True, eq=False)
class RevisionSpace:
    """The blocks of one revision and kind of writer, and their boxes."""

    # The space they are indexed in.
    revision: Revision
    # Numbers of the blocks in the table, ascending, shape (n,).
    blocks: I64Array
    foreign: bool
    # A box `[lower, upper)` a block, one array of shape (n,) per dimension; an end of 1.0, which belongs to
    # the box, is infinite here.
    lower: tuple[F64Array, ...]
    upper: tuple[F64Array, ...]


@dataclass(frozen=True, eq=False)  # no slots: what is derived is kept
class BlockTable:
    """The blocks of all files, in the order of files and of rows in each.

    A file whose index cannot be used (no tags, unreadable ones, an unknown revision, none of the schema's
    types) still has a block that may hold any weight and lies in no space.
    """

    # The snapshot's files; file i is row i.
    files: pl.DataFrame
    # File of each block, ascending, shape (blocks,).
    file: I64Array
    # Bounds of the weights of each block, shape (blocks,).
    min_weight: I64Array
    max_weight: I64Array
    # Rows of each block, shape (blocks,); 0 where unknown.
    rows: I64Array
    # Blocks whose rows are copies and must not be returned, shape (blocks,).
    replicated: BoolArray
    # The blocks that cubes can prune.
    spaces: tuple[RevisionSpace, ...]
    # Rows of each file, shape (files,); -1 where unknown, or where the log contradicts itself.
    num_records: I64Array
    # Files whose coordinates follow the exact rules, and whose blocks stand in row order, shape (files,).
    ours: BoolArray
    # Paths of the files whose tags cannot be read or cannot be true; they are read whole, whatever their
    # statistics say.
    corrupt: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.file)

    @property
    def size_bytes(self) -> int:
        """What is held of the blocks in memory, `files` aside, with what was derived so far."""
        held = [
            self.num_records,
            self.ours,
            *(self.__dict__.get(name) for name in ("first_block", "first_row")),
        ]
        held += [self.file, self.min_weight, self.max_weight, self.rows, self.replicated]
        for space in self.spaces:
            held += [space.blocks, *space.lower, *space.upper]
        pages = self.__dict__.get("pages")
        return sum(one.nbytes for one in held if one is not None) + (0 if pages is None else pages.size_bytes)

    @cached_property
    def first_block(self) -> I64Array:
        """Number of the first block of each file, and the number of blocks, shape (files + 1,)."""
        return np.searchsorted(self.file, np.arange(self.files.height + 1)).astype(np.int64)

    @cached_property
    def first_row(self) -> I64Array:
        """Row of its file that each block starts at, shape (blocks,); true only of `ours`."""
        before = np.cumsum(self.rows) - self.rows
        starts = self.first_block[:-1][self.file]
        return before - before[starts]

    @cached_property
    def statistics(self) -> Statistics:
        """The files' own statistics."""
        doubtful = self.files.get_column("path").is_in(list(self.corrupt))
        return Statistics(self.files, pl.Series("foreign", ~self.ours), self.num_records, doubtful)

    @cached_property
    def pages(self) -> PageTable:
        """The pages of our files that tell of them, and whose index can be used and accounts for every row."""
        whole = np.bincount(self.file, self.rows, self.files.height) == self.num_records
        unfit = self.replicated | self._placeless()  # what has no space has no known weights either
        return build_page_table(
            self.files.get_column("layout").cast(pl.String),
            usable=self.ours & whole & ~self.any_in_file(unfit),
            num_records=self.num_records,
            blocks=BlockRows(self.file, self.rows, self.first_row, self.min_weight, self.max_weight),
        )

    @cached_property
    def unplaced_files(self) -> BoolArray:
        """Files with rows that lie in no space, so that nothing is known of their weights, shape (files,)."""
        return self.any_in_file(self._placeless())

    def _placeless(self) -> BoolArray:
        placeless = np.ones(len(self), np.bool_)
        for space in self.spaces:
            placeless[space.blocks] = False
        return placeless

    def any_in_file(self, blocks: BoolArray) -> BoolArray:
        """Tell for every file whether any of its blocks is true, shape (files,)."""
        return np.bincount(self.file[blocks], minlength=self.files.height) > 0
