"""The bands and pages of all files, from their layout tags (format 7).

Bands are decoded with the index. Boxes of pages are decoded when a filter needs them, for the files that it may open:
they are most of the bytes of a tag.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.query.plan.page_boxes import PageBoxes
from qbeast_core.query.plan.weight_range import WeightRange
from qbeast_core.space.coordinates import cells_of_steps
from qbeast_core.space.cubes import MAX_DEPTH
from qbeast_core.space.values import MAX_WEIGHT, MIN_WEIGHT, BoolArray, F64Array, I64Array, U8Array
from qbeast_core.spec.blocks import (
    LAYOUT_VERSION,
    MAX_BOUNDS,
    MAX_ROWS,
    STEP_GROUPS,
    dump_layout,
    group_widths,
    parse_layout,
    unpack_boxes,
)

_JSON: Final = pl.Struct({"v": pl.Int64, "tail": pl.Int64, "bands": pl.List(pl.List(pl.Int64))})
_KEYS: Final = 5
_KEY: Final = r'"(?:v|tail|bands|box|p)"\s*:'
_NUMBERS: Final = 3  # of a band: rows, rows per page, smallest weight
_CELLS: Final = 1 << MAX_DEPTH

# Fewer bytes than any page takes, with its header and its entries in the indexes of pages.
_MIN_PAGE_BYTES: Final = 32
# Deflate packs at most 1,032 bytes into one, base64 three bytes into four characters. A page has at least two bounds.
_MAX_PAGES_PER_CHARACTER: Final = 1032 * 3 // 4 // 2

# Smallest first cell and widths of steps.
_LEAST: Final = np.array([0] + [1] * STEP_GROUPS)


@dataclass(frozen=True, eq=False)  # no slots: derived arrays are cached
class PageTable:
    """The bands of all files, and their pages, which have numbers in the order of files and rows."""

    # Number of the first band of each file, and the number of bands, shape (files + 1,). A band is a row group. A file
    # without a usable layout has none.
    first_band: I64Array
    # Bytes of page directory and footer of each file, shape (files,); 0 without a layout.
    tail_bytes: I64Array
    # Rows, rows per page, and smallest weight of each band.
    band_rows: I64Array
    band_page_rows: I64Array
    band_weights: I64Array

    @property
    def size_bytes(self) -> int:
        """Memory of the columns."""
        cached = (value for value in self.__dict__.values() if isinstance(value, np.ndarray))
        return sum(array.nbytes for array in cached)

    @cached_property
    def _band_page(self) -> I64Array:
        """Number of the first page of each band, and the number of pages, shape (bands + 1,)."""
        pages = -(-self.band_rows // self.band_page_rows)
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(pages)])

    @cached_property
    def first_page(self) -> I64Array:
        """Number of the first page of each file, and the number of pages, shape (files + 1,)."""
        first: I64Array = self._band_page[self.first_band]
        return first

    @property
    def count(self) -> int:
        """Number of pages of all files."""
        return int(self._band_page[-1])

    @cached_property
    def _band_row(self) -> I64Array:
        """First row of each band in its file, shape (bands,)."""
        before = np.cumsum(self.band_rows) - self.band_rows
        starts: I64Array = np.append(before, 0)[self.first_band[:-1]]
        return before - np.repeat(starts, np.diff(self.first_band))

    def rows(self, pages: I64Array) -> I64Array:
        """Return the rows of some pages."""
        band = self.bands_of(pages)
        before = (pages - self._band_page[band]) * self.band_page_rows[band]
        return np.minimum(self.band_page_rows[band], self.band_rows[band] - before)

    def first_rows(self, pages: I64Array) -> I64Array:
        """Return the first row of some pages in their files."""
        band = self.bands_of(pages)
        return self._band_row[band] + (pages - self._band_page[band]) * self.band_page_rows[band]

    def bands_of(self, pages: I64Array) -> I64Array:
        """Return the band of some pages."""
        bands: I64Array = np.searchsorted(self._band_page, pages, side="right") - 1
        return bands

    def within(self, files: BoolArray, weights: WeightRange) -> I64Array:
        """Return the pages of some files that may hold a row with a weight in the range, ascending."""
        chosen = np.repeat(files, np.diff(self.first_band))
        if weights.is_empty:
            return np.empty(0, np.int64)
        if not weights.is_full:
            chosen &= (self.band_weights <= weights.last) & (self._last_weights >= weights.from_)
        bands = np.flatnonzero(chosen)
        counts = np.diff(self._band_page)[bands]
        starts = np.cumsum(counts) - counts
        return np.repeat(self._band_page[bands] - starts, counts) + np.arange(counts.sum())

    @cached_property
    def _last_weights(self) -> I64Array:
        """Largest weight that each band can hold: the next band begins above it."""
        last = np.append(self.band_weights[1:] - 1, MAX_WEIGHT)[: len(self.band_weights)]
        last[self.first_band[1:][np.diff(self.first_band) > 0] - 1] = MAX_WEIGHT
        return last

    def pages_with(self, file: int, first: int, last: int) -> slice:
        """Return the pages that hold the rows `first` to `last` (exclusive) of a file."""
        begin = int(self.first_page[file])
        if first >= last:
            return slice(begin, begin)
        page, after = self.pages_of(file, np.array([first, last - 1])).tolist()
        return slice(page, after + 1)

    def pages_of(self, file: int, rows: I64Array) -> I64Array:
        """Return the page of some rows of a file with pages."""
        first, last = self.first_band[file : file + 2]
        band = first + np.searchsorted(self._band_row[first:last], rows, side="right") - 1
        pages: I64Array = self._band_page[band] + (rows - self._band_row[band]) // self.band_page_rows[band]
        return pages


def build_page_table(
    layouts: pl.Series, num_records: I64Array, usable: BoolArray, *, size_bytes: pl.Series
) -> PageTable:
    """Decode the bands of layout tags, text by file.

    A layout is used if its file is `usable`, has all its rows in bands, and can have so many pages.
    """
    texts = layouts.cast(pl.String)
    tagged = np.flatnonzero(usable & texts.is_not_null().to_numpy())
    fields = _decoded(texts.gather(tagged), _JSON)
    counts = fields["bands"].list.len().fill_null(0).to_numpy().astype(np.int64)
    numbers = _band_numbers(fields["bands"])
    file = np.repeat(np.arange(len(tagged)), counts)
    rows, page_rows, weights = numbers
    in_range = (rows > 0) & (page_rows > 0) & (rows <= MAX_ROWS) & (page_rows <= MAX_ROWS)
    in_range &= (weights >= MIN_WEIGHT) & (weights <= MAX_WEIGHT)
    in_range[1:] &= (weights[1:] > weights[:-1]) | (file[1:] != file[:-1])
    # A repeated key is ambiguous.
    keys = texts.gather(tagged).str.count_matches(_KEY).to_numpy()
    sound = (fields["v"].fill_null(0).to_numpy() == LAYOUT_VERSION) & (keys == _KEYS) & (counts > 0)
    sound &= np.bincount(file, in_range, len(tagged)) == counts
    sound &= np.bincount(file, np.where(in_range, rows, 0), len(tagged)) == num_records[tagged]
    pages = np.where(in_range, -(-rows // np.maximum(page_rows, 1)), 0)
    sizes = size_bytes.gather(tagged).to_numpy(), texts.gather(tagged).str.len_bytes().to_numpy()
    sound &= np.bincount(file, pages, len(tagged)) <= _max_pages(*sizes)
    tails = fields["tail"].fill_null(0).to_numpy()
    band_counts, tail_bytes = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
    band_counts[tagged[sound]], tail_bytes[tagged[sound]] = counts[sound], tails[sound]
    kept = sound[file]
    return PageTable(
        first_band=np.concatenate([np.zeros(1, np.int64), np.cumsum(band_counts)]),
        tail_bytes=tail_bytes,
        band_rows=rows[kept],
        band_page_rows=page_rows[kept],
        band_weights=weights[kept],
    )


def _max_pages(file_bytes: I64Array, tag_bytes: I64Array) -> I64Array:
    """Return how many pages files can have at most, by their sizes and those of their tags.

    >>> _max_pages(np.array([900, 10**12, 10**12]), np.array([200, 200, 10**9])).tolist()
    [28, 77400, 2097152]
    """
    in_file, in_text = file_bytes // _MIN_PAGE_BYTES, tag_bytes * _MAX_PAGES_PER_CHARACTER
    return np.minimum(np.minimum(in_file, in_text), MAX_BOUNDS // 2)


def page_boxes(table: PageTable, layouts: pl.Series, files: I64Array, *, dimensions: int) -> PageBoxes:
    """Decode the boxes of all pages of some files with pages. An invalid box becomes the whole space."""
    texts = layouts.gather(files).cast(pl.String).to_list()
    begins, counts = table.first_page[files], np.diff(table.first_page)[files]
    steps = np.empty((2 * dimensions, int(counts.sum())), np.uint8)
    boxes = np.empty((dimensions, len(files), 1 + STEP_GROUPS), np.int64)
    first = 0
    for number, (text, count) in enumerate(zip(texts, counts.tolist(), strict=True)):
        boxes[:, number], steps[:, first : first + count] = _sides(text, count, dimensions)
        first += count
    of_page = np.repeat(np.arange(len(files)), counts)
    lower, upper = list[F64Array](), list[F64Array]()
    for box, low, high in zip(boxes, steps[::2], steps[1::2], strict=True):
        begin, end = cells_of_steps(box, of_page, low, high)
        lower.append(begin / _CELLS)
        upper.append(np.where(end < _CELLS, end / _CELLS, np.inf))
    starts = np.cumsum(counts) - counts
    pages = np.repeat(begins - starts, counts) + np.arange(first)
    return PageBoxes(pages, files[of_page], tuple(lower), tuple(upper))


def _sides(text: str, count: int, dimensions: int) -> tuple[I64Array, U8Array]:
    """Return the first cell and the width of each group of steps, and the steps of each page.

    Invalid ones become a step of the whole space.
    """
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        layout = orjson.loads(text)
        numbers = [[first, *group_widths(widths)] for first, *widths in layout["box"]]
        box = np.array(numbers, np.int64).reshape(dimensions, 1 + STEP_GROUPS)
        packed = unpack_boxes(layout["p"], 2 * dimensions * count)
        steps = np.frombuffer(packed, np.uint8).reshape(2 * dimensions, count)
        if (box >= _LEAST).all() and (box <= _CELLS).all():
            return box, steps
    whole = np.full((dimensions, 1 + STEP_GROUPS), _CELLS) * _LEAST
    return whole, np.zeros((2 * dimensions, count), np.uint8)


def _band_numbers(lists: pl.Series) -> I64Array:
    """Return rows, rows per page and smallest weight of each band, shape (3, bands); -1: invalid."""
    bands = lists.filter(lists.list.len() > 0).explode()
    is_triple = bands.list.len() == _NUMBERS
    numbers = [
        bands.list.get(place, null_on_oob=True).set(~is_triple, None).fill_null(-1 if place < 2 else MAX_ROWS)
        for place in range(_NUMBERS)
    ]
    return np.array([column.to_numpy() for column in numbers], np.int64).reshape(_NUMBERS, len(bands))


def _decoded(texts: pl.Series, fields: pl.Struct) -> pl.DataFrame:
    """Decode fields of layouts; an invalid text returns nulls."""
    try:
        frame = texts.str.json_decode(fields).struct.unnest()
    except pl.exceptions.PolarsError:
        frame = pl.DataFrame()
    if frame.height == len(texts):
        return frame
    # A text may be empty, invalid, or two JSON values.
    return pl.Series(list(_canonical(texts)), dtype=pl.String).str.json_decode(fields).struct.unnest()


def _canonical(texts: pl.Series) -> Iterator[str | None]:
    for text in texts:
        try:
            layout = parse_layout(text)
        except InvalidMetadataError:
            layout = None
        yield None if layout is None else dump_layout(layout)
