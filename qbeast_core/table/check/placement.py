"""Rows and pages of a file against its blocks: cubes, weights, order, the hidden column, layout tag, page indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.io.footer import FileTail, PagesUnavailable, cuts_of, parse_tail, read_page_locations
from qbeast_core.io.store import Store
from qbeast_core.io.thrift import ThriftError
from qbeast_core.plan.bounds import clock_slack, point_bounds
from qbeast_core.space.cubes import cube_boxes, decode_cubes
from qbeast_core.space.values import MAX_WEIGHT, BoolArray, F64Array, I32Array, distinct, sample_values
from qbeast_core.spec.blocks import WEIGHT_COLUMN, Layout, parse_layout
from qbeast_core.spec.revision import Revision
from qbeast_core.table.check.faults import Fault
from qbeast_core.tree.build import blocks_of_rows
from qbeast_core.tree.fit import rows_outside
from qbeast_core.tree.grid import grid_columns, text_column
from qbeast_core.tree.pages import FileShape, page_cells

_LOW_BITS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Blocks of one file, and the space they lie in."""

    revision: Revision
    # `cube`, `min_weight`, `max_weight`, `rows`, in the order of the tag.
    blocks: pl.DataFrame
    # Whether the thresholds hold: those of old compactions do not (format 11).
    bounded: bool = True

    def boxes(self) -> tuple[F64Array, F64Array]:
        """Return the box of each block, the end 1.0 as infinity, shape (blocks, dimensions)."""
        cubes = decode_cubes(text_column(self.blocks["cube"]), dimensions=len(self.revision.columns))
        lower, upper = cube_boxes(cubes)
        upper[upper >= 1.0] = np.inf
        return lower, upper

    def points(self, frame: pl.DataFrame, *, foreign: bool) -> Iterator[tuple[F64Array, F64Array]]:
        """Yield bounds of the rows' coordinates, a pair a dimension."""
        spaces = zip(self.revision.columns, self.revision.transformations, strict=True)
        return (point_bounds(space, frame.get_column(name), foreign=foreign) for name, space in spaces)


class _Tally:
    """Counts wrong rows, and keeps the first one."""

    def __init__(self, code: str, message: str) -> None:
        self.count, self.first = 0, 0
        self._code, self._message = code, message

    def add(self, wrong: BoolArray, start: int) -> None:
        """Count the rows of a chunk that starts at row `start` of the file."""
        some = int(wrong.sum())
        if some and not self.count:
            self.first = start + int(np.argmax(wrong))
        self.count += some

    def faults(self) -> Iterator[Fault]:
        """Yield one fault if there are wrong rows."""
        if self.count:
            yield Fault(self._code, f"{self.count:,} row(s) {self._message}", self.first)


class EachRow:
    """A rule that each row meets or breaks by itself."""

    def __init__(
        self, code: str, message: str, broken: Callable[[pl.DataFrame, I32Array], BoolArray]
    ) -> None:
        self._tally, self._broken = _Tally(code, message), broken
        self.faults = self._tally.faults

    def add(self, start: int, frame: pl.DataFrame, weights: I32Array) -> None:
        """Look at some more rows, from number `start` of the file on."""
        self._tally.add(self._broken(frame, weights), start)


def row_range(revision: Revision, *, foreign: bool) -> EachRow:
    """Return the check that values lie in the range of their revision."""
    message = "have values outside the range of their revision: a reader that relies on the range misses them"
    slack = clock_slack if foreign else None
    return EachRow("row-range", message, lambda frame, _: rows_outside(frame, revision, slack=slack))


def hidden_weights() -> EachRow:
    """Return the check that the hidden column holds a lower bound of the high half of each weight."""

    def broken(frame: pl.DataFrame, weights: I32Array) -> BoolArray:
        # A null becomes a number above the high half of any int32.
        stored = frame.get_column(WEIGHT_COLUMN).cast(pl.Int64).fill_null(1 << _LOW_BITS).to_numpy()
        return np.asarray(stored > weights >> _LOW_BITS, np.bool_)

    message = f"have a {WEIGHT_COLUMN} above the high half of their weight"
    return EachRow("hidden-weight", message, broken)


def sample_column_values(name: str) -> EachRow:
    """Return the check that the sample column holds the fraction of each weight."""

    def broken(frame: pl.DataFrame, weights: I32Array) -> BoolArray:
        stored = frame.get_column(name).to_numpy()  # a null becomes NaN, which equals nothing
        return np.asarray(stored != sample_values(weights), np.bool_)

    return EachRow(
        "sample-column", f"have a value of {name!r} that is not the fraction of their weight", broken
    )


class ForeignRows:
    """Rows of another writer's file, in any order, counted into its blocks from the top of the tree down.

    A row belongs to the first cube on its way down whose block takes its weight. Counts and smallest weights
    are compared only if the place of every row is certain (`point_bounds`).
    """

    def __init__(self, placement: Placement) -> None:
        # Several blocks of one cube take the same rows: which of them took which cannot be decided.
        blocks = placement.blocks.group_by("cube", maintain_order=True).agg(
            pl.col("min_weight").min(), pl.col("max_weight").max(), pl.col("rows").sum()
        )
        self._placement = Placement(placement.revision, blocks, placement.bounded)
        self._lower, self._upper = self._placement.boxes()
        self._depth = blocks["cube"].str.len_bytes().to_numpy()
        self._low, self._high = (blocks[name].to_numpy() for name in ("min_weight", "max_weight"))
        self._counts = np.zeros(blocks.height, np.int64)
        self._least = np.full(blocks.height, np.iinfo(np.int32).max, np.int32)
        self._certain = True
        self._nowhere = _Tally("row-cube", "lie in no cube of the file's blocks")
        self._astray = _Tally("row-weight", "have weights outside the bounds of the block they lie in")

    def add(self, start: int, frame: pl.DataFrame, weights: I32Array) -> None:
        """Place some more rows."""
        bounds = list(self._placement.points(frame, foreign=True))
        self._certain = self._certain and all((low == high).all() for low, high in bounds)
        remaining, in_cube = np.arange(len(weights)), np.zeros(len(weights), np.bool_)
        for depth in distinct(self._depth):  # rows that found their block are not looked at further down
            weight, free = weights[remaining], np.ones(len(remaining), np.bool_)
            ends = [(below[remaining], above[remaining]) for below, above in bounds]
            for block in np.flatnonzero(self._depth == depth):
                inside = np.ones(len(remaining), np.bool_)
                for j, (below, above) in enumerate(ends):
                    inside &= (above >= self._lower[block, j]) & (below < self._upper[block, j])
                in_cube[remaining[inside]] = True
                inside &= free & (weight >= self._low[block])
                if self._placement.bounded:
                    inside &= weight <= self._high[block]
                free &= ~inside
                self._counts[block] += inside.sum()
                self._least[block] = weight[inside].min(initial=self._least[block])
            remaining = remaining[free]
        lost = np.zeros(len(weights), np.bool_)
        lost[remaining] = True
        self._nowhere.add(lost & ~in_cube, start)
        self._astray.add(lost & in_cube, start)

    def faults(self) -> Iterator[Fault]:
        """Yield the faults, once all rows are placed."""
        yield from self._nowhere.faults()
        yield from self._astray.faults()
        if not self._certain or self._nowhere.count or self._astray.count:
            return
        blocks = self._placement.blocks
        logged, cubes = blocks["rows"].to_numpy(), blocks["cube"]
        for bad in np.flatnonzero(self._counts != logged)[:1].tolist():
            message = f"the block holds {self._counts[bad]:,} rows, its tag says {logged[bad]:,}"
            yield Fault("block-rows", message, None, cubes[bad])
        wrong: BoolArray = (self._counts > 0) & (self._counts == logged) & (self._least != self._low)
        for bad in np.flatnonzero(wrong)[:1].tolist():
            yield Fault("min-weight", _smallest(int(self._least[bad]), int(self._low[bad])), None, cubes[bad])


class OurRows(ForeignRows):
    """Rows of a file of ours, whose cells are exact."""

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)
        texts, revision = text_column(self._placement.blocks["cube"]), placement.revision
        self._cubes = decode_cubes(texts, dimensions=len(revision.columns))
        self._top = np.full(len(self._cubes), MAX_WEIGHT, np.int32)

    def add(self, start: int, frame: pl.DataFrame, weights: I32Array) -> None:
        """Place some more rows."""
        cells = grid_columns(frame, self._placement.revision)
        highest = self._high.astype(np.int32) if self._placement.bounded else self._top
        block = blocks_of_rows(self._cubes, highest, cells, weights)
        nowhere, astray = block < 0, np.zeros(len(weights), np.bool_)
        if nowhere.any():
            lost = np.flatnonzero(nowhere)
            inside = (
                blocks_of_rows(self._cubes, self._top, [part[lost] for part in cells], weights[lost]) >= 0
            )
            nowhere[lost[inside]], astray[lost[inside]] = False, True
        found = np.flatnonzero(block >= 0)
        block = block[found]
        astray[found] = weights[found] < self._low[block]
        self._counts += np.bincount(block, minlength=len(self._counts))
        np.minimum.at(self._least, block, weights[found])
        self._nowhere.add(nowhere, start)
        self._astray.add(astray, start)


class PagedRows:
    """Rows of a file with pages: each in the range of weights of its band, and in the box of its page."""

    def __init__(self, revision: Revision, layout: Layout) -> None:
        self._revision, shape = revision, FileShape.of(layout)
        self._page_starts = shape.page_starts()
        self._band_starts = np.cumsum(shape.band_rows) - shape.band_rows
        self._first = shape.first_weights.astype(np.int64)
        self._least = np.full(len(self._first), MAX_WEIGHT, np.int64)
        self._bounds = page_cells(layout)
        self._early = _Tally("layout", "have a weight outside the range of their band")
        self._outside = _Tally("layout", "lie outside the box of their page")

    def add(self, start: int, frame: pl.DataFrame, weights: I32Array) -> None:
        """Look at some more rows."""
        rows = np.arange(start, start + frame.height)
        page, band = (
            np.searchsorted(starts, rows, side="right") - 1
            for starts in (self._page_starts, self._band_starts)
        )
        ends = np.append(self._first[1:], MAX_WEIGHT + 1)
        self._early.add((weights < self._first[band]) | (weights >= ends[band]), start)
        np.minimum.at(self._least, band, weights)
        wrong = np.zeros(frame.height, np.bool_)
        for column, (lower, upper) in zip(grid_columns(frame, self._revision), self._bounds, strict=True):
            wrong |= (column < lower[page]) | (column > upper[page])
        self._outside.add(wrong, start)

    def faults(self) -> Iterator[Fault]:
        """Yield the faults."""
        yield from self._early.faults()
        yield from self._outside.faults()
        for band in np.flatnonzero(self._least > self._first)[:1].tolist():
            message = f"band {band} begins at a weight of {self._least[band]}, its layout tag says {self._first[band]}"
            yield Fault("layout", message, int(self._band_starts[band]))


def _smallest(weight: int, logged: int) -> str:
    return f"the smallest weight of the block is {weight}, its tag says {logged}"


# A check of all rows of a file, some at a time.
RowCheck: TypeAlias = EachRow | ForeignRows | PagedRows


def read_layout(text: str | None) -> Layout | None:
    """Return a layout as far as it can be read; None where it cannot, or is of a version unknown here."""
    try:
        return None if text is None else parse_layout(text)
    except InvalidMetadataError:
        return None


def check_pages(store: Store, path: str, size: int, layout: Layout) -> Iterator[Fault]:
    """Check that single pages of a file can be read where its layout tag says so."""
    shape = FileShape.of(layout)
    if layout.tail_bytes > size:
        return  # a fault of the log
    try:
        tail = parse_tail(store.get_range(path, size - layout.tail_bytes, layout.tail_bytes))
    except PagesUnavailable as error:
        yield Fault("pages", f"its pages cannot be read alone: {error.reason}")
        return
    if tail.cuts != cuts_of(shape.band_rows, shape.page_rows):
        message = (
            f"it is cut into {_shown_pages(tail.cuts.page_rows, tail.pages)}; its layout tag has "
            f"{_shown_pages(shape.page_rows.tolist(), shape.pages)}"
        )
        yield Fault("pages", message)
        return
    wrong = _unlike_page_index(store, path, tail)
    if wrong is not None:
        yield Fault("pages", f"its page directory and the page index of column {wrong!r} differ")


def _shown_pages(page_rows: Sequence[int], pages: int) -> str:
    return f"{pages} pages of {', '.join(map(str, page_rows))} rows"


def _unlike_page_index(store: Store, path: str, tail: FileTail) -> str | None:
    """Return a leaf column whose OffsetIndex has other pages than the directory."""
    places = sorted(chunk.offset_index for chunk in tail.footer.chunks if chunk.offset_index is not None)
    by_place = dict(zip(places, map(bytes, store.get_ranges(path, places)), strict=True))
    first_rows = tail.cuts.starts()[:-1]
    for number, group in enumerate(tail.footer.groups):
        pages = np.flatnonzero(tail.page_groups == number)
        rows_in_group = first_rows[pages] - first_rows[pages[0]]
        for chunk, starts, sizes in zip(group.chunks, tail.page_starts, tail.page_sizes, strict=True):
            if chunk.offset_index is None:
                return chunk.path
            try:
                located = read_page_locations(by_place[chunk.offset_index])
            except ThriftError:
                return chunk.path
            if not all(map(np.array_equal, located, (starts[pages], sizes[pages], rows_in_group))):
                return chunk.path
    return None
