"""Rows and pages of a file against its blocks: cubes, weights, order, the hidden column, layout tag, page indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.io.parquet.footer import PagesUnavailable, read_page_locations
from qbeast_core.io.parquet.tail import FileTail, cuts_of, parse_tail
from qbeast_core.io.parquet.thrift import ThriftError
from qbeast_core.io.stores.store import Store
from qbeast_core.query.plan.coordinate_intervals import point_bounds
from qbeast_core.query.plan.file_statistics import clock_slack
from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array
from qbeast_core.space.cubes import cube_boxes, decode_cubes
from qbeast_core.space.weights import sample_values
from qbeast_core.spec.layout import WEIGHT_COLUMN, Layout, parse_layout
from qbeast_core.spec.revision import Revision
from qbeast_core.table.check.faults import Fault
from qbeast_core.tree.layout.shape import FileShape
from qbeast_core.tree.space.evolve import rows_outside
from qbeast_core.tree.space.index_values import text_column

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
    """Return the check that the hidden column holds the high half of each weight."""

    def broken(frame: pl.DataFrame, weights: I32Array) -> BoolArray:
        # A null becomes a number that no high half of an int32 equals.
        stored = frame.get_column(WEIGHT_COLUMN).cast(pl.Int64).fill_null(1 << _LOW_BITS).to_numpy()
        return np.asarray(stored != weights >> _LOW_BITS, np.bool_)

    message = f"have a {WEIGHT_COLUMN} that is not the high half of their weight"
    return EachRow("hidden-weight", message, broken)


def sample_column_values(name: str) -> EachRow:
    """Return the check that the sample column holds the fraction of each weight."""

    def broken(frame: pl.DataFrame, weights: I32Array) -> BoolArray:
        stored = frame.get_column(name).to_numpy()  # a null becomes NaN, which equals nothing
        return np.asarray(stored != sample_values(weights), np.bool_)

    return EachRow(
        "sample-column", f"have a value of {name!r} that is not the fraction of their weight", broken
    )


class OurRows:
    """Rows of a file of ours, whose layout places the rows of each block."""

    def __init__(self, placement: Placement, layout: Layout, shape: FileShape) -> None:
        self._placement, self._layout, self._shape = placement, layout, shape
        self._starts = shape.runs.starts()
        self._weights = np.empty(int(self._starts[-1]), np.int32)
        self._lower, self._upper = placement.boxes()
        self._outside = _Tally("row-cube", "lie outside the cube of their block")

    def add(self, start: int, frame: pl.DataFrame, weights: I32Array) -> None:
        """Look at some more rows."""
        stop = start + frame.height
        self._weights[start:stop] = weights
        block = self._block_of(np.arange(start, stop))
        wrong = np.zeros(frame.height, np.bool_)
        for j, (point, _) in enumerate(self._placement.points(frame, foreign=False)):
            wrong |= (point < self._lower[block, j]) | (point >= self._upper[block, j])
        self._outside.add(wrong, start)

    def faults(self) -> Iterator[Fault]:
        """Yield the faults of cubes, weights, order and pages."""
        blocks = self._placement.blocks
        for fault in self._outside.faults():
            block = int(self._block_of(np.array([self._outside.first]))[0])
            yield replace(fault, cube=blocks["cube"][block])
        filled = blocks.filter(pl.col("rows") > 0)
        if filled.height:
            rows = self._shape.runs.by_block()
            yield from self._in_blocks(filled, rows, self._weights[rows])
            yield from self._page_faults()

    def _block_of(self, rows: I64Array) -> I64Array:
        block: I64Array = self._shape.runs.block[np.searchsorted(self._starts, rows, side="right") - 1]
        return block

    def _in_blocks(self, filled: pl.DataFrame, rows: I64Array, weights: I32Array) -> Iterator[Fault]:
        """Yield the faults of weights, which are in the order of blocks, as the rows are."""
        counts = filled["rows"].to_numpy()
        first = np.cumsum(counts) - counts
        for fault in (*_weight_faults(filled, first, weights), *_order_faults(filled, first, weights)):
            yield replace(fault, row=None if fault.row is None else int(rows[fault.row]))

    def _page_faults(self) -> Iterator[Fault]:
        firsts = self._shape.page_starts()
        first = self._weights[firsts] >> _LOW_BITS
        logged = np.asarray(self._layout.weights, np.int32)
        if len(logged) != len(first):
            return  # a fault of the log
        for page in np.flatnonzero(logged != first)[:1].tolist():
            message = f"page {page} begins with a weight of high half {first[page]}, its layout tag says {logged[page]}"
            yield Fault("layout", message, int(firsts[page]))


def _weight_faults(filled: pl.DataFrame, first: I64Array, weights: I32Array) -> Iterator[Fault]:
    cubes = filled["cube"]
    least, most = np.minimum.reduceat(weights, first), np.maximum.reduceat(weights, first)
    low, high = filled["min_weight"].to_numpy(), filled["max_weight"].to_numpy()
    over = np.flatnonzero((most > high) | (least < low))
    for bad in over[:1].tolist():
        inside = weights[first[bad] : first[bad] + filled["rows"][bad]]
        wrong = (inside > high[bad]) | (inside < low[bad])
        others = f", and {len(over) - 1:,} other block(s) have such rows" if len(over) > 1 else ""
        message = f"have weights outside {low[bad]} to {high[bad]}, the bounds of their block{others}"
        row = int(first[bad] + np.argmax(wrong))
        yield Fault("row-weight", f"{int(wrong.sum()):,} row(s) {message}", row, cubes[bad])
    for bad in np.flatnonzero(least > low)[:1].tolist():
        yield Fault("min-weight", _smallest(int(least[bad]), int(low[bad])), int(first[bad]), cubes[bad])


def _order_faults(filled: pl.DataFrame, first: I64Array, weights: I32Array) -> Iterator[Fault]:
    falls = weights[1:] < weights[:-1]
    falls[first[1:] - 1] = False  # from one block to the next
    if falls.any():
        row = int(np.argmax(falls)) + 1
        cube = filled["cube"][int(np.searchsorted(first, row, side="right")) - 1]
        message = "rows of a block do not rise in weight, so its pages cannot be chosen"
        yield Fault("row-order", message, row, cube)


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
        for depth in np.unique(self._depth):  # rows that found their block are not looked at further down
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


def _smallest(weight: int, logged: int) -> str:
    return f"the smallest weight of the block is {weight}, its tag says {logged}"


# A check of all rows of a file, some at a time.
RowCheck: TypeAlias = EachRow | OurRows | ForeignRows


def read_layout(text: str | None) -> Layout | None:
    """Return a layout as far as it can be read; None where it cannot, or is of a version unknown here."""
    try:
        return None if text is None else parse_layout(text)
    except InvalidMetadataError:
        return None


def check_pages(
    store: Store, path: str, size: int, layout: Layout, shape: FileShape | None
) -> Iterator[Fault]:
    """Check that single pages of a file can be read where its layout tag says so."""
    if layout.tail_bytes > size:
        return  # a fault of the log
    try:
        tail = parse_tail(store.get_range(path, size - layout.tail_bytes, layout.tail_bytes))
    except PagesUnavailable as error:
        yield Fault("pages", f"its pages cannot be read alone: {error.reason}")
        return
    if shape is not None and tail.cuts != cuts_of(shape.band_rows, shape.bands.page_rows):
        message = (
            f"it is cut into {_shown(tail.cuts.page_rows, tail.pages)}; its layout tag has "
            f"{_shown(shape.bands.page_rows.tolist(), shape.pages)}"
        )
        yield Fault("pages", message)
        return
    wrong = _unlike_page_index(store, path, tail)
    if wrong is not None:
        yield Fault("pages", f"its page directory and the page index of column {wrong!r} differ")


def _shown(page_rows: Sequence[int], pages: int) -> str:
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
