"""Choose the files, blocks and pages that a read, or one of its rounds, opens (format 10).

A sample may draw the rows of heavy keys one by one. Rows of one key share one weight, so a sample has all of them or
none. If the rows of a heavy key are contiguous, in an order that is independent of their values, the i-th of m rows
gets the weight at i / m of all weights instead. A range of weights then holds the same fraction of them as of all keys,
in the first pages of the stretch.

A count reads less: the log has the rows of pages and cubes that are inside of the filter, data files have the others.

A band is a random part of its file, and its pages are neighbours in space. So a read is cut into pieces, runs of pages
of one band, and each round gets one of every few neighbouring pieces: a stratified sample. A round fits in memory,
where its rows are shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
import polars as pl

from qbeast_core.plan.blocks import BlockTable, PageBoxes
from qbeast_core.plan.bounds import Statistics, coordinate_intervals, evaluate, trusted_counts
from qbeast_core.plan.nodes import Atom, Node, column_of, columns_in
from qbeast_core.plan.weights import ALL_WEIGHTS, FileDraw, WeightRange
from qbeast_core.space.values import MIN_WEIGHT, BoolArray, I32Array, I64Array, distinct
from qbeast_core.spec.revision import Revision

# Why a file is opened or skipped.
SkipReason: TypeAlias = Literal["matches", "weights", "statistics", "cubes"]

_REASONS: tuple[SkipReason, ...] = get_args(SkipReason)


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class Selection:
    """The files, blocks and pages that a read opens."""

    # Index of the snapshot; file i is row i of its `files`.
    table: BlockTable
    # Files to read, shape (files,). Other files hold no match.
    opened: BoolArray
    # Blocks that may hold a match, shape (blocks,).
    blocks: BoolArray
    # Chosen pages of all opened files that can be read by pages, ascending, as positions in `table.pages`.
    page_numbers: I64Array
    # Why each file is opened or skipped, as an index of the values of `SkipReason`, shape (files,).
    reason_codes: I64Array
    # Rows that are not drawn by their keys, by number of the file, see `qbeast_core.plan.select`.
    drawn: Mapping[int, FileDraw] = field(default_factory=dict[int, "FileDraw"])

    @cached_property
    def page_offsets(self) -> I64Array:
        """Where in `page_numbers` each file begins, and the end, shape (files + 1,)."""
        return np.searchsorted(self.page_numbers, self.table.pages.first_page).astype(np.int64)

    @property
    def page_mask(self) -> BoolArray:
        """Mask of the chosen pages of all files, shape (pages,)."""
        mask = np.zeros(self.table.pages.count, np.bool_)
        mask[self.page_numbers] = True
        return mask

    @cached_property
    def pages_opened(self) -> I64Array:
        """Number of pages to read of each file, shape (files,); 0 for files without a layout."""
        return np.diff(self.page_offsets)

    @cached_property
    def pages_total(self) -> I64Array:
        """Number of pages of each file, shape (files,); 0 without a layout."""
        return np.diff(self.table.pages.first_page)

    @cached_property
    def rows_opened(self) -> I64Array:
        """Number of rows in the pages to read of each file, shape (files,); 0 if unknown."""
        table = self.table
        counted = pl.Series(np.bincount(table.file, table.rows, table.files.height).astype(np.int64))
        whole = table.files["num_records"].cast(pl.Int64).fill_null(counted).to_numpy()
        page_rows = table.pages.rows(self.page_numbers)
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(page_rows)])
        chosen = np.diff(running[self.page_offsets])
        return np.where(self.opened, np.where(self.pages_total > 0, chosen, whole), 0)

    def pages(self, file: int) -> I64Array:
        """Return the pages to read of an opened file, ascending, numbered from 0."""
        begin, end = self.page_offsets[file : file + 2]
        pages: I64Array = self.page_numbers[begin:end] - self.table.pages.first_page[file]
        return pages

    @property
    def reasons(self) -> pl.Series:
        """Why each file is opened or skipped, a `SkipReason`."""
        return pl.Series("reason", _REASONS).gather(self.reason_codes)


@dataclass(frozen=True, eq=False)  # no slots: boxes of pages are decoded when needed
class Matching:
    """The files and blocks that may match a filter."""

    table: BlockTable
    node: Node
    # Returns which files may match an atom by their statistics.
    by_file: Callable[[Atom], BoolArray]
    # Files that may match by their statistics, shape (files,).
    files: BoolArray
    # Blocks that may match by statistics and boxes, shape (blocks,).
    blocks: BoolArray

    def within(self, weights: WeightRange) -> Selection:
        """Choose what to read for a sample."""
        table = self.table
        in_range = (table.max_weight >= weights.from_) & (table.min_weight < weights.to)
        if weights.is_empty:
            in_range[:] = False
        blocks = in_range & self.blocks
        by_block = table.any_in_file(blocks)
        by_weight = table.pages.within(by_block, weights)
        pages = by_weight[self._may_match(by_weight)]
        in_weights, opened = (
            np.diff(np.searchsorted(numbers, table.pages.first_page)) > 0 for numbers in (by_weight, pages)
        )
        has_pages = np.diff(table.pages.first_page) > 0
        masks = [  # in the order of `SkipReason`; then pages have tighter bounds of weights than blocks
            by_block & (opened | ~has_pages),
            ~table.any_in_file(in_range),
            ~self.files,
            ~by_block | in_weights,
        ]
        return Selection(
            table=table,
            opened=masks[0],
            blocks=blocks,
            page_numbers=pages,
            reason_codes=np.select(masks, list(range(len(masks))), default=_REASONS.index("weights")),
        )

    def _may_match(self, pages: I64Array) -> BoolArray:
        """Return which of some pages may match by their boxes."""
        table, columns = self.table, columns_in(self.node)
        decoded, matches = self._decoded
        files = (np.diff(np.searchsorted(pages, table.pages.first_page)) > 0) & ~decoded
        for revision, boxes in table.boxes(files, columns):
            of_atom = partial(_of_pages, revision, boxes, self.by_file)
            matches[boxes.pages] = evaluate(self.node, len(boxes.pages), of_atom)
        decoded |= files
        return matches[pages]

    @cached_property
    def _decoded(self) -> tuple[BoolArray, BoolArray]:
        """Files whose boxes are decoded, and pages that may match by their boxes as far as these are decoded."""
        return np.zeros(self.table.files.height, np.bool_), np.ones(self.table.pages.count, np.bool_)

    def of_keys(self, keys: I32Array) -> Selection:
        """Choose what to read for all rows of some keys, given by their weights."""
        parts = [self.within(WeightRange(key, key + 1)) for key in keys.tolist()]
        nothing = self.within(WeightRange(MIN_WEIGHT, MIN_WEIGHT))
        return replace(
            nothing,
            opened=np.logical_or.reduce([nothing.opened, *(part.opened for part in parts)]),
            blocks=np.logical_or.reduce([nothing.blocks, *(part.blocks for part in parts)]),
            page_numbers=distinct(
                np.concatenate([nothing.page_numbers, *(part.page_numbers for part in parts)])
            ),
        )


def select(table: BlockTable, node: Node, weights: WeightRange = ALL_WEIGHTS) -> Selection:
    """Choose what to read for a filter and a sample.

    >>> from qbeast_core.plan.decode_tags import build_block_table
    >>> from qbeast_core.plan.nodes import Unknown
    >>> files = pl.DataFrame({"path": ["a"], "num_records": [3], "revision": [None], "rules": [None],
    ...     "blocks": [None], "layout": [None], "state": [None], "size_bytes": [900]})
    >>> select(build_block_table(files, {}, pl.Schema()), Unknown()).reasons.to_list()
    ['matches']
    """
    return match(table, node).within(weights)


def match(table: BlockTable, node: Node) -> Matching:
    """Return what may match a filter, for any sample: callers that read several samples share the result."""
    by_file = cache(table.statistics.may_match)
    blocks = evaluate(node, len(table), lambda atom: by_file(atom)[table.file] & _of_boxes(table, atom))
    return Matching(table, node, by_file, evaluate(node, table.files.height, by_file), blocks)


def files_that_may_match(files: pl.DataFrame, node: Node) -> BoolArray:
    """Return which files can hold a row that a filter keeps, by their statistics; tags are not decoded.

    >>> files = pl.DataFrame({"path": ["a", "b"], "num_records": [3, 3], "rules": ["1", "1"],
    ...     "min": [{"x": 1}, {"x": 5}], "max": [{"x": 4}, {"x": 9}], "null_count": [{"x": 0}, {"x": 0}]})
    >>> from qbeast_core.plan.predicate import parse_predicate
    >>> files_that_may_match(files, parse_predicate(pl.col("x") > 4, pl.Schema({"x": pl.Int64}))).tolist()
    [False, True]
    """
    doubtful = pl.repeat(value=False, n=files.height, eager=True)
    foreign = files.get_column("rules").cast(pl.String).ne_missing("1")
    statistics = Statistics(files, foreign, trusted_counts(files), doubtful)
    return evaluate(node, files.height, statistics.may_match)


def _of_boxes(table: BlockTable, atom: Atom) -> BoolArray:
    """Return whether the box of each block can match an atom; True for blocks without a box."""
    mask = np.ones(len(table), np.bool_)
    column = column_of(atom)
    for space in table.spaces:
        if column in space.revision.columns:
            dimension = space.revision.columns.index(column)
            transformation = space.revision.transformations[dimension]
            intervals = coordinate_intervals(atom, transformation, foreign=space.foreign)
            if intervals is not None:
                mask[space.blocks] = intervals.meet(space.lower[dimension], space.upper[dimension])
    return mask


def _of_pages(
    revision: Revision, boxes: PageBoxes, by_file: Callable[[Atom], BoolArray], atom: Atom
) -> BoolArray:
    """Return whether each page can match an atom, by its box and by the statistics of its file."""
    mask, column = by_file(atom)[boxes.file], column_of(atom)
    if column in revision.columns:
        dimension = revision.columns.index(column)
        intervals = coordinate_intervals(atom, revision.transformations[dimension], foreign=False)
        if intervals is not None:
            mask = mask & intervals.meet(boxes.lower[dimension], boxes.upper[dimension])
    return mask


def draw(
    by_key: Selection, matching: Selection, files: Mapping[int, FileDraw], weights: WeightRange
) -> Selection:
    """Choose what to read for a sample in which each row of some keys is drawn separately."""
    table = by_key.table.pages
    chosen = by_key.page_mask
    pages = np.zeros_like(chosen)
    for file, file_draw in files.items():
        for stretch in (*file_draw.one_by_one, *file_draw.apart):
            touched = table.pages_with(file, stretch.first, stretch.first + stretch.rows)
            numbers = np.arange(touched.start, touched.stop)
            first, rows = table.first_rows(numbers), table.rows(numbers)
            has_others = (first < stretch.first) | (first + rows > stretch.first + stretch.rows)
            chosen[touched] &= has_others
        for stretch in file_draw.one_by_one:
            pages[table.pages_with(file, *stretch.within(weights))] = True
    return _reading(by_key, chosen | (pages & matching.page_mask), files)


def apart(matching: Selection, files: Mapping[int, FileDraw]) -> Selection:
    """Choose what to read for the rows that samples skip."""
    table = matching.table.pages
    pages = np.zeros(table.count, np.bool_)
    for file, file_draw in files.items():
        for stretch in file_draw.apart:
            pages[table.pages_with(file, stretch.first, stretch.first + stretch.rows)] = True
    only = {
        file: replace(file_draw, one_by_one=(), only=True)
        for file, file_draw in files.items()
        if file_draw.apart
    }
    selection = _reading(matching, pages & matching.page_mask, only)
    return replace(selection, opened=selection.opened & (selection.pages_opened > 0))


def _reading(selection: Selection, pages: BoolArray, files: Mapping[int, FileDraw]) -> Selection:
    """Return a selection with other pages."""
    chosen = replace(selection, page_numbers=np.flatnonzero(pages), drawn=files)
    return replace(chosen, opened=np.where(chosen.pages_total > 0, chosen.pages_opened > 0, chosen.opened))


class Hidden(Protocol):
    """The rows of files that no read returns."""

    @property
    def counts(self) -> I64Array:
        """Number of hidden rows of each file."""
        ...

    def of(self, numbers: Iterable[int]) -> Mapping[int, I64Array]:
        """Return the hidden rows of some files, by index of the file. Files without any are left out."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RowCount:
    """The rows that a filter keeps, in two parts."""

    # Rows that it keeps, outside of the pages and files to read.
    known: int
    # Pages and files whose rows must be read and filtered.
    undecided: Selection
    # Rows in these, without deleted ones.
    rows_read: int


def count_rows(keeps: Selection, leaves: Selection, *, files: BoolArray, hidden: Hidden) -> RowCount | None:
    """Return the number of rows that a filter keeps in some files, and what must be read for the rest.

    `keeps` may hold rows that the filter keeps, `leaves` rows that it does not, each for all weights. None: the log
    cannot decide.
    """
    table, pages = keeps.table, keeps.table.pages
    is_paged = keeps.pages_total > 0
    of_paged = np.repeat(files, keeps.pages_total)
    inside, undecided_pages = (
        keeps.page_mask & mask & of_paged for mask in (~leaves.page_mask, leaves.page_mask)
    )
    here = (files & ~is_paged)[table.file]
    blocks = keeps.blocks & ~leaves.blocks & here
    whole = _read_whole(table, keeps.blocks & here, blocks, hidden.counts)
    if (table.num_records[whole] < 0).any():
        return None
    numbers = np.flatnonzero(undecided_pages)
    has_partial = np.diff(np.searchsorted(numbers, pages.first_page)) > 0
    undecided = replace(keeps, opened=whole | has_partial, page_numbers=numbers)
    known = int(table.rows[blocks & ~whole[table.file]].sum() + pages.rows(np.flatnonzero(inside)).sum())
    known -= int(hidden.counts[table.any_in_file(blocks) & ~whole].sum())
    read = int(undecided.rows_opened.sum() - hidden.counts[whole].sum())
    hidden_inside, hidden_read = _hidden_rows(table, inside, undecided_pages, hidden)
    return RowCount(known - hidden_inside, undecided, read - hidden_read)


def _hidden_rows(
    table: BlockTable, inside: BoolArray, undecided: BoolArray, hidden: Hidden
) -> tuple[int, int]:
    """Return the number of hidden rows in pages inside of a filter, and in undecided ones.

    The rows of a vector are read only if a part of a file is concerned.
    """
    first, total = table.pages.first_page, np.diff(table.pages.first_page)
    has_pages = total > 0
    counts = [
        np.diff(np.searchsorted(np.flatnonzero(mask), first)) * (hidden.counts > 0)
        for mask in (inside, undecided)
    ]
    sums = [int(hidden.counts[has_pages & (of_file == total)].sum()) for of_file in counts]
    parts = (counts[0] + counts[1] > 0) & (counts[0] < total) & (counts[1] < total)
    for number, rows in hidden.of(np.flatnonzero(parts).tolist()).items():
        page = table.pages.pages_of(number, rows)
        sums = [sums[0] + int(inside[page].sum()), sums[1] + int(undecided[page].sum())]
    return sums[0], sums[1]


def _read_whole(table: BlockTable, keeps: BoolArray, inside: BoolArray, hidden_rows: I64Array) -> BoolArray:
    """Return the files without pages to read: blocks do not locate their rows."""
    counted = np.bincount(table.file, table.rows, table.files.height) == table.num_records
    undecided, some, others = (table.any_in_file(blocks) for blocks in (keeps & ~inside, keeps, ~inside))
    whole: BoolArray = undecided | (some & ~counted) | (some & others & (hidden_rows > 0))
    return whole


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Parts of a read, neighbours in space one after the other: runs of pages, or files whose pages are not known."""

    # Number of the file of each piece, shape (pieces,).
    file: I64Array
    # First page and end, as positions in the pages to read of the file. Equal: the whole file.
    first: I64Array
    end: I64Array
    # Rows in the pages, also those that a read leaves out. -1: unknown.
    rows: I64Array

    def __len__(self) -> int:
        return len(self.file)


def in_space(selection: Selection) -> I64Array:
    """Return the opened files, neighbours in space near each other, the same way for any order of `files`.

    Processes with and without a plan file have different orders of files, and may divide a read among them.
    """
    table, cube = selection.table, pl.col("cube")
    cubes = table.blocks.group_by("file", maintain_order=True).agg(cube.min().alias("first"), last=cube.max())
    order = cubes.with_columns(table.files["path"]).select(pl.arg_sort_by("first", "last", "path"))
    numbers: I64Array = order.to_series().cast(pl.Int64).to_numpy()
    return numbers[selection.opened[numbers]]


def cut(selection: Selection, *, piece_rows: int, whole_bands: bool) -> Pieces:
    """Cut a read into pieces of about `piece_rows` rows; `whole_bands`: into bands, which are adjacent in a file."""
    table, pages = selection.table.pages, selection.page_numbers
    band = table.bands_of(pages)
    rows = table.rows(pages)
    firsts = np.flatnonzero(np.diff(band, prepend=-1))
    in_band = np.add.reduceat(rows, firsts) if len(firsts) else rows
    counts = np.diff(firsts, append=len(pages))
    parts = np.ones_like(in_band) if whole_bands else np.maximum(in_band // piece_rows, 1)
    before = np.cumsum(rows) - rows
    share = (before - np.repeat(before[firsts], counts)) / np.repeat(in_band, counts)
    part = (share * np.repeat(parts, counts)).astype(np.int64)
    starts = np.flatnonzero((np.diff(band, prepend=-1) != 0) | (np.diff(part, prepend=0) != 0))
    file = np.searchsorted(table.first_page, pages[starts], side="right") - 1
    offsets = selection.page_offsets[file]
    # Files without pages are pieces by themselves, at their places among the others.
    alone = np.flatnonzero(selection.opened & (selection.pages_total == 0))
    zeros = np.zeros_like(alone)
    known = selection.table.files["num_records"].cast(int).fill_null(-1).to_numpy()
    columns = (
        np.concatenate([file, alone]),
        np.concatenate([starts - offsets, zeros]),
        np.concatenate([np.append(starts[1:], len(pages)) - offsets, zeros]),
        np.concatenate([np.add.reduceat(rows, starts) if len(starts) else rows, known[alone]]),
    )
    # Each band of a file covers its space in about the same order, so equal shares of bands are neighbours.
    order = np.lexsort((np.concatenate([share[starts], zeros]), columns[0]))
    return Pieces(*(column[order] for column in columns))


def deal(pieces: int, rounds: int, random: np.random.Generator) -> I64Array:
    """Return the round of each piece: of `rounds` neighbours each gets another one.

    >>> deal(7, 3, np.random.default_rng(5)).tolist()
    [0, 0, 2, 1, 2, 1, 0]
    """
    blocks = -(-pieces // rounds) + 1
    dealt = random.permuted(np.tile(np.arange(rounds), (blocks, 1)), axis=1).ravel()
    first = int(random.integers(rounds))  # another division into neighbours in each epoch
    return dealt[first : first + pieces]


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The pieces of one reader, round by round. Readers have the same number of rows, and none in common."""

    # Round and piece, ascending by round.
    round: I64Array
    piece: I64Array
    # First row and end in the piece, of the rows that the read returns. -1: the whole piece.
    first: I64Array
    end: I64Array


def share_of(dealt: I64Array, rows: I64Array, *, rank: int, world_size: int, rounds: int) -> Share:
    """Return the share of one of `world_size` readers; `rows` are the rows of each piece that the read returns.

    Reader r has the rounds from `r * rounds` on. At the borders between readers pieces are divided.
    """
    order = np.argsort(dealt, kind="stable")
    ends = np.cumsum(rows[order])
    starts = ends - rows[order]
    each = int(ends[-1]) // world_size if len(ends) else 0
    first, end = rank * each, (rank + 1) * each
    mine = (ends > first) & (starts < end)
    piece = order[mine]
    is_cut = ((starts < first) | (ends > end))[mine]
    return Share(
        round=np.clip(dealt[piece] - rank * rounds, 0, rounds - 1),
        piece=piece,
        first=np.where(is_cut, np.maximum(first - starts[mine], 0), -1),
        end=np.where(is_cut, np.minimum(end - starts[mine], rows[piece]), -1),
    )
