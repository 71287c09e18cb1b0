"""Find the pages that hold rows of selected blocks and weights, for all files at once (format 7)."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.query.plan.weight_range import WeightRange
from qbeast_core.space.arrays import BoolArray, I32Array, I64Array
from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT
from qbeast_core.spec.block import MAX_ROWS
from qbeast_core.spec.layout import dump_layout, parse_layout
from qbeast_core.tree.layout.shape import Bands, BlockRuns, find_runs

_JSON = pl.Struct(
    {
        "v": pl.Int64,
        "tail": pl.Int64,
        "rows": pl.Int64,
        "bands": pl.List(pl.List(pl.Int64)),
        "n": pl.String,
        "w": pl.String,
    }
)
_LOW_BITS, _LOW_MASK = 16, 0xFFFF
_KEYS = {1: 4, 2: 5}
_KEY = r'"(?:v|rows|tail|bands|n|w)"\s*:'
_NO_WEIGHT = 1 << 20  # not the high bits of any weight
_SPAN = 1 << 32  # number of weights


@dataclass(frozen=True, slots=True, eq=False)
class PageTable:
    """The pages of all files, and the stretches: rows that share a page and a block."""

    # Number of the first page of each file, and the number of pages, shape (files + 1,). A file without a
    # usable layout has none.
    first_page: I64Array
    # Bytes of page directory and footer of each file, shape (files,); 0 without a layout.
    tail_bytes: I64Array
    # Number of the first band of each file, and the number of bands, shape (files + 1,). A band is a row group.
    first_band: I64Array
    # Rows, and rows per page, of each band.
    band_rows: I64Array
    band_page_rows: I64Array
    # Rows of each page, shape (pages,), and its first row in the file. 32 bits if they fit, as the three below: there
    # are millions.
    rows: I32Array | I64Array
    first_row: I32Array | I64Array
    # Page (ascending), block and rows of each stretch, shape (stretches,).
    stretch_page: I32Array | I64Array
    stretch_block: I32Array | I64Array
    stretch_rows: I32Array | I64Array
    # Smallest and largest weight that a stretch can hold, shape (stretches,).
    stretch_first: I32Array
    stretch_last: I32Array

    @property
    def size_bytes(self) -> int:
        """Memory of the columns."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    def select(self, blocks: BoolArray, weights: WeightRange) -> I64Array:
        """Return the pages that may hold a row of the chosen blocks with a weight in the range, ascending."""
        if weights.is_empty:
            return np.empty(0, np.int64)
        chosen = np.flatnonzero(blocks[self.stretch_block])
        if not weights.is_full:
            begins = self.stretch_first[chosen] <= weights.last
            chosen = chosen[begins & (self.stretch_last[chosen] >= weights.from_)]
        pages = self.stretch_page[chosen]
        fresh = np.ones(len(pages), np.bool_)
        fresh[1:] = pages[1:] != pages[:-1]
        return pages[fresh].astype(np.int64)

    def pages_with(self, file: int, first: int, last: int) -> slice:
        """Return the pages that hold the rows `first` to `last` (exclusive) of a file."""
        begin, end = self.first_page[file : file + 2].tolist()
        starts = self.first_row[begin:end]
        if first >= last:
            return slice(begin, begin)
        page, after = np.searchsorted(starts, [first, last - 1], side="right").tolist()
        return slice(begin + page - 1, begin + after)

    def pages_of(self, file: int, rows: I64Array) -> I64Array:
        """Return the page of some rows of a file with pages."""
        begin, end = self.first_page[file : file + 2]
        pages: I64Array = begin + np.searchsorted(self.first_row[begin:end], rows, side="right") - 1
        return pages

    def blocks_of(self, file: int, rows: I64Array) -> I64Array:
        """Return the block of some rows of a file with pages."""
        begin, end = np.searchsorted(self.stretch_page, self.first_page[file : file + 2]).tolist()
        counts = self.stretch_rows[begin:end].astype(np.int64)
        starts = np.cumsum(counts) - counts
        return self.stretch_block[begin:end][np.searchsorted(starts, rows, side="right") - 1].astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class IndexedFiles:
    """The columns of an index table that its pages depend on: by file, and by block."""

    files: pl.DataFrame
    num_records: I64Array
    # Whether the blocks of a file are ours, and in a space of known weights.
    usable: BoolArray
    # The blocks of file i are `first_block[i]` to `first_block[i + 1]`.
    first_block: I64Array
    file: I64Array
    rows: I64Array
    min_weight: I64Array
    max_weight: I64Array


def build_page_table(index: IndexedFiles) -> PageTable:
    """Decode the layout tags of files of ours with a usable index that covers all rows."""
    layouts = index.files.get_column("layout").cast(pl.String)
    whole = np.bincount(index.file, index.rows, len(layouts)) == index.num_records
    decoded = _decode_layouts(
        layouts, np.flatnonzero(index.usable & whole & layouts.is_not_null().to_numpy()), index
    )
    runs = find_runs(decoded.bands, index.rows)
    sound = decoded.fits(runs, index)
    if not sound.all():
        decoded = decoded.only(sound)
        runs = find_runs(decoded.bands, index.rows)
    return _page_table(decoded, runs, index)


@dataclass(frozen=True, slots=True, eq=False)
class _Layouts:
    """The layouts of some files, in the order of files."""

    files: I64Array
    tail_bytes: I64Array
    # Number of bands of each file, and the bands, with the positions of blocks in the index table.
    band_counts: I64Array
    bands: Bands
    # Number of pages of each file, and high bits of the first weight of each page.
    page_counts: I64Array
    high: I64Array

    def only(self, kept: BoolArray) -> _Layouts:
        """Return the layouts of some of the files."""
        bands = np.repeat(kept, self.band_counts)
        return _Layouts(
            files=self.files[kept],
            tail_bytes=self.tail_bytes[kept],
            band_counts=self.band_counts[kept],
            bands=Bands(
                self.bands.page_rows[bands],
                self.bands.first_block[bands],
                self.bands.blocks[bands],
                self.bands.whole_pages[np.repeat(bands, self.bands.blocks)],
            ),
            page_counts=self.page_counts[kept],
            high=self.high[np.repeat(kept, self.page_counts)],
        )

    def fits(self, runs: BlockRuns, index: IndexedFiles) -> BoolArray:
        """Return which files have all their rows in bands, and a weight for each page."""
        file_of_band = np.repeat(np.arange(len(self.files)), self.band_counts)
        pages = np.bincount(file_of_band, self._band_pages(runs), len(self.files))
        broken = np.bincount(index.file[runs.broken], minlength=index.files.height)[self.files] > 0
        fits: BoolArray = ~broken & (pages == self.page_counts)
        return fits

    def _band_pages(self, runs: BlockRuns) -> I64Array:
        rows = np.bincount(runs.band, runs.rows, len(self.bands.page_rows)).astype(np.int64)
        return -(-rows // self.bands.page_rows)


def _page_table(layouts: _Layouts, runs: BlockRuns, index: IndexedFiles) -> PageTable:
    bands, files = layouts.bands, index.files.height
    counts, band_counts, tail_bytes = (np.zeros(files, np.int64) for _ in range(3))
    counts[layouts.files], band_counts[layouts.files] = layouts.page_counts, layouts.band_counts
    tail_bytes[layouts.files] = layouts.tail_bytes
    first_band = np.concatenate([np.zeros(1, np.int64), np.cumsum(band_counts)])
    band_rows = np.bincount(runs.band, runs.rows, len(bands.page_rows)).astype(np.int64)
    # The rows of all bands follow each other, so each row has a number of its own, and so has each page.
    band_ends = np.cumsum(band_rows)
    band_pages = -(-band_rows // bands.page_rows)
    page_band = np.repeat(np.arange(len(band_pages)), band_pages)
    page_in_band = np.arange(len(page_band)) - (np.cumsum(band_pages) - band_pages)[page_band]
    start = (band_ends - band_rows)[page_band] + page_in_band * bands.page_rows[page_band]
    base = np.concatenate([np.zeros(1, np.int64), band_ends])[first_band[:-1]]
    page_file = np.repeat(np.arange(files), counts)
    places, starts_page, starts_run = _stretches(start, runs.starts()[:-1])
    page, block = np.cumsum(starts_page) - 1, runs.block[np.cumsum(starts_run) - 1]
    first, last = _weight_bounds(block, np.where(starts_page, layouts.high[page], _NO_WEIGHT))
    return PageTable(
        first_page=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
        tail_bytes=tail_bytes,
        first_band=first_band,
        band_rows=band_rows,
        band_page_rows=bands.page_rows,
        rows=_small(np.minimum(bands.page_rows[page_band], band_ends[page_band] - start)),
        first_row=_small(start - base[page_file]),
        stretch_page=_small(page),
        stretch_block=_small(block),
        stretch_rows=_small(np.diff(places, append=runs.rows.sum())),
        stretch_first=np.maximum(first, index.min_weight[block]).astype(np.int32),
        stretch_last=np.minimum(last, index.max_weight[block]).astype(np.int32),
    )


def _small(numbers: I64Array) -> I32Array | I64Array:
    return numbers.astype(np.int32) if int(numbers.max(initial=0)) <= MAX_WEIGHT else numbers


def _stretches(page: I64Array, run: I64Array) -> tuple[I64Array, BoolArray, BoolArray]:
    """Cut the rows where a page or a run starts; return the cuts, and whether a page and a run start there."""
    places = np.concatenate([page, run])
    places.sort(kind="stable")  # two sorted runs
    fresh = np.ones(len(places), np.bool_)
    fresh[1:] = places[1:] != places[:-1]
    places = places[fresh]
    starts_page, starts_run = (np.zeros(len(places), np.bool_) for _ in range(2))
    starts_page[np.searchsorted(places, page)] = True
    starts_run[np.searchsorted(places, run)] = True
    return places, starts_page, starts_run


def _weight_bounds(block: I64Array, high: I64Array) -> tuple[I64Array, I64Array]:
    """Return the smallest and the largest weight of each stretch.

    `high` has the high bits of the first weight of a stretch, where they are known. The weights of a block rise from
    stretch to stretch, so a known weight is a bound for all stretches before and after.
    """
    is_sorted = (block[1:] >= block[:-1]).all()  # always in files of one band
    order = np.arange(len(block)) if is_sorted else np.argsort(block, kind="stable")
    block, high = block[order], high[order]
    known, base = high != _NO_WEIGHT, block * _SPAN
    # Offsets of weights from the smallest one, above those of all blocks before.
    lowest = np.maximum.accumulate(base + np.where(known, (high << _LOW_BITS) - MIN_WEIGHT, 0)) - base
    highest = np.where(known, (high << _LOW_BITS | _LOW_MASK) - MIN_WEIGHT, _SPAN - 1) + base
    highest = np.append(highest[1:], _SPAN * (int(block[-1]) + 1) - 1) if len(block) else highest
    highest = np.where(np.append(block[1:] != block[:-1], True)[: len(block)], base + _SPAN - 1, highest)
    highest = np.minimum.accumulate(highest[::-1])[::-1] - base
    first, last = np.empty_like(lowest), np.empty_like(lowest)
    first[order], last[order] = lowest + MIN_WEIGHT, highest + MIN_WEIGHT
    return first, last


def _decode_layouts(layouts: pl.Series, tagged: I64Array, index: IndexedFiles) -> _Layouts:
    """Return the layouts of files whose tags can be decoded."""
    texts = layouts.gather(tagged)
    fields = _decode_json(texts)
    version, keys = (fields["v"].fill_null(0), texts.str.count_matches(_KEY))
    is_old = version.eq(1).to_numpy()
    block_counts = np.diff(index.first_block)[tagged]
    band_counts = np.where(is_old, 1, fields["bands"].list.len().fill_null(0).to_numpy()).astype(np.int64)
    # A tag of version 1 as one band without whole pages.
    old = np.array([fields["rows"].fill_null(0).to_numpy(), np.zeros_like(block_counts), block_counts])
    file = np.repeat(np.arange(len(tagged)), band_counts)
    numbers = old[:, file]
    numbers[:, ~is_old[file]] = _band_numbers(fields["bands"].filter(pl.Series(~is_old)))
    page_rows, first_block, blocks = numbers
    bounded = (numbers >= 0).all(axis=0) & (numbers <= MAX_ROWS).all(axis=0) & (page_rows > 0)
    wrong = ~bounded | (first_block + blocks > block_counts[file])
    entries = np.bincount(file, np.where(wrong, 0, blocks), len(tagged)).astype(np.int64)
    high, whole = (fields[name].str.decode("base64", strict=False) for name in ("w", "n"))
    high_bytes, whole_bytes = (_sizes(packed) for packed in (high, whole))
    sound = np.bincount(file, ~wrong, len(tagged)) == np.maximum(band_counts, 1)
    sound &= is_old | (whole_bytes == 2 * entries)
    # A repeated key is ambiguous.
    sound &= (keys == version.replace_strict(_KEYS, default=-1, return_dtype=pl.Int64)).to_numpy()
    sound &= (high_bytes >= 0) & (high_bytes % 2 == 0)
    kept = sound[file]
    is_whole = np.repeat(~is_old[sound], entries[sound])
    whole_pages = np.zeros(len(is_whole), np.int64)
    whole_pages[is_whole] = _numbers(whole.filter(pl.Series(sound & ~is_old)), "<u2")
    return _Layouts(
        files=tagged[sound],
        tail_bytes=fields["tail"].fill_null(0).to_numpy()[sound],
        band_counts=band_counts[sound],
        bands=Bands(
            page_rows[kept],
            first_block[kept] + index.first_block[tagged[file[kept]]],
            blocks[kept],
            whole_pages,
        ),
        page_counts=high_bytes[sound] // 2,
        high=_numbers(high.filter(pl.Series(sound)), "<i2"),
    )


def _band_numbers(lists: pl.Series) -> I64Array:
    """Return rows per page, first block and number of blocks of each band, shape (3, bands); -1: invalid."""
    bands = lists.filter(lists.list.len() > 0).explode()
    is_triple = bands.list.len() == 3
    numbers = [
        bands.list.get(place, null_on_oob=True).set(~is_triple, -1).fill_null(-1) for place in range(3)
    ]
    return np.array([column.to_numpy() for column in numbers], np.int64).reshape(3, len(bands))


def _sizes(packed: pl.Series) -> I64Array:
    return packed.bin.size().cast(pl.Int64).fill_null(-1).to_numpy()


def _numbers(packed: pl.Series, kind: str) -> I64Array:
    return np.frombuffer(b"".join(packed.to_list()), kind).astype(np.int64)


def _decode_json(texts: pl.Series) -> pl.DataFrame:
    """Decode layouts; an invalid text returns nulls."""
    try:
        fields = texts.str.json_decode(_JSON).struct.unnest()
    except pl.exceptions.PolarsError:
        fields = pl.DataFrame()
    if fields.height != len(texts):  # a text may be empty, invalid, or two JSON values
        sound = [_canonical(text) for text in texts]
        return pl.Series(sound, dtype=pl.String).str.json_decode(_JSON).struct.unnest()
    return fields


def _canonical(text: str) -> str | None:
    try:
        layout = parse_layout(text)
    except InvalidMetadataError:
        return None
    return None if layout is None else dump_layout(layout)
