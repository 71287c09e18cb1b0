"""The blocks, bands and pages of all files of a snapshot as frames, and the boxes of pages (format 7).

Bands are decoded with the index. Boxes of pages are decoded when a filter needs them, for the files that it may open:
they are most of the bytes of a tag.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.plan.bounds import Statistics, trusted_counts
from qbeast_core.plan.weights import WeightRange
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
from qbeast_core.spec.revision import Revision
from qbeast_core.support.sizing import sizing


@dataclass(frozen=True, slots=True, eq=False)
class PageBoxes:
    """The boxes of all pages of some files, whose files have the same dimensions."""

    # Numbers of the pages and their files, ascending, shape (n,).
    pages: I64Array
    file: I64Array
    # Boxes `[lower, upper)`, one array of shape (n,) per dimension. The end 1.0 belongs to a box, so it is infinite.
    lower: tuple[F64Array, ...]
    upper: tuple[F64Array, ...]


_JSON: Final = pl.Struct(
    {"v": pl.Int64, "tail": pl.Int64, "directory": pl.Int64, "bands": pl.List(pl.List(pl.Int64))}
)
_KEYS: Final = 6
_KEY: Final = r'"(?:v|tail|directory|bands|box|p)"\s*:'
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
    # How many bytes before the end of each file its page directory begins, and the length of the directory, shape
    # (files,); 0 without a layout.
    tail_bytes: I64Array
    directory_bytes: I64Array
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
    texts, size_bytes = texts.gather(tagged), size_bytes.gather(tagged)
    fields = _decoded(texts, _JSON)
    of_file = fields.select_seq(  # one query: each takes longer than its work
        pl.col("v", "tail", "directory").fill_null(0),
        bands=pl.col("bands").list.len().fill_null(0).cast(pl.Int64),
        keys=pl.lit(texts).str.count_matches(_KEY),
        tag_bytes=pl.lit(texts).str.len_bytes().cast(pl.Int64),
    )
    counts = of_file["bands"].to_numpy()
    rows, page_rows, weights = _band_numbers(fields)
    file = np.repeat(np.arange(len(tagged)), counts)
    in_range = (rows > 0) & (page_rows > 0) & (rows <= MAX_ROWS) & (page_rows <= MAX_ROWS)
    in_range &= (weights >= MIN_WEIGHT) & (weights <= MAX_WEIGHT)
    in_range[1:] &= (weights[1:] > weights[:-1]) | (file[1:] != file[:-1])
    # A repeated key is ambiguous.
    sound = (of_file["v"].to_numpy() == LAYOUT_VERSION) & (of_file["keys"].to_numpy() == _KEYS) & (counts > 0)
    sound &= np.bincount(file, in_range, len(tagged)) == counts
    sound &= np.bincount(file, np.where(in_range, rows, 0), len(tagged)) == num_records[tagged]
    pages = np.where(in_range, -(-rows // np.maximum(page_rows, 1)), 0)
    most = _max_pages(size_bytes.to_numpy(), of_file["tag_bytes"].to_numpy())
    sound &= np.bincount(file, pages, len(tagged)) <= most
    numbers = [of_file[name].to_numpy()[sound] for name in ("bands", "tail", "directory")]
    of_files = np.zeros((len(numbers), len(layouts)), np.int64)
    of_files[:, tagged[sound]] = np.array(numbers)
    band_counts, tail_bytes, directory_bytes = of_files
    kept = sound[file]
    return PageTable(
        first_band=np.concatenate([np.zeros(1, np.int64), np.cumsum(band_counts)]),
        tail_bytes=tail_bytes,
        directory_bytes=directory_bytes,
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


def _page_boxes(table: PageTable, layouts: pl.Series, files: I64Array, *, dimensions: int) -> PageBoxes:
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


def _band_numbers(fields: pl.DataFrame) -> I64Array:
    """Return rows, rows per page and smallest weight of each band, shape (3, bands); -1: invalid."""
    band = pl.col("bands")
    numbers = [
        pl.when(band.list.len() == _NUMBERS)
        .then(band.list.get(place, null_on_oob=True))
        .fill_null(-1 if place < 2 else MAX_ROWS)
        .alias(f"{place}")
        for place in range(_NUMBERS)
    ]
    bands = fields.lazy().select(band).filter(band.list.len() > 0).explode("bands").select(numbers).collect()
    return np.array([column.to_numpy() for column in bands], np.int64)


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
                    _page_boxes(self.pages, self.files["layout"], chosen, dimensions=dimensions),
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
