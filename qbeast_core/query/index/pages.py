"""Find the pages that hold rows of selected blocks and weights, for all files at once (format 7)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.query.plan.weights import WeightRange
from qbeast_core.space.arrays import BoolArray, I32Array, I64Array
from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT
from qbeast_core.spec.block import MAX_ROWS
from qbeast_core.spec.layout import LAYOUT_VERSION, parse_layout

if TYPE_CHECKING:  # it has the page table
    from qbeast_core.query.index.index_table import IndexTable

_JSON = pl.Struct({"v": pl.Int64, "rows": pl.Int64, "tail": pl.Int64, "w": pl.String})
_LOW_BITS, _LOW_MASK = 16, 0xFFFF
_KEYS = 4
_KEY = r'"(?:v|rows|tail|w)"\s*:'


@dataclass(frozen=True, slots=True, eq=False)
class PageTable:
    """The pages of all files, and the stretches: rows that share a page and a block."""

    # Number of the first page of each file, and the number of pages, shape (files + 1,). A file without a
    # usable layout has none.
    first_page: I64Array
    # Rows per page, and bytes of indexes and footer of each file, shape (files,); 0 without a layout.
    page_rows: I64Array
    tail_bytes: I64Array
    # Rows of each page, shape (pages,). 32 bits if they fit, as the two below: there are millions.
    rows: I32Array | I64Array
    # Page and block of each stretch, shape (stretches,), both ascending.
    stretch_page: I32Array | I64Array
    stretch_block: I32Array | I64Array
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


def build_page_table(index: IndexTable) -> PageTable:
    """Decode the layout tags of files of ours with a usable index that covers all rows."""
    layouts, num_records = index.files.get_column("layout").cast(pl.String), index.num_records
    whole = np.bincount(index.file, index.rows, len(layouts)) == num_records
    unfit = index.replicated | ~index.in_space  # blocks outside of all spaces have unknown weights, too
    usable = index.ours & whole & ~index.any_in_file(unfit)
    page_rows, tail_bytes, counts, high = _decode_layouts(layouts, usable, num_records)
    first_page = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    page_file = np.repeat(np.arange(len(layouts)), counts)
    start = (np.arange(len(page_file)) - first_page[page_file]) * page_rows[page_file]
    rows = np.minimum(page_rows[page_file], num_records[page_file] - start)
    # Number the rows of files with pages end to end, so each row has a unique number.
    base = np.cumsum(np.where(counts > 0, num_records, 0))
    base -= np.where(counts > 0, num_records, 0)
    present = np.flatnonzero((counts[index.file] > 0) & (index.rows > 0))
    starts_page, starts_block = _stretches(
        base[page_file] + start, base[index.file[present]] + index.first_row[present]
    )
    page, block = np.cumsum(starts_page) - 1, present[np.cumsum(starts_block) - 1]
    first = np.where(starts_page, high[page] << _LOW_BITS, MIN_WEIGHT)
    last = np.full(len(page), MAX_WEIGHT)
    goes_on = np.flatnonzero(block[1:] == block[:-1])
    last[goes_on] = high[page[goes_on + 1]] << _LOW_BITS | _LOW_MASK
    return PageTable(
        first_page=first_page,
        page_rows=page_rows,
        tail_bytes=tail_bytes,
        rows=_small(rows),
        stretch_page=_small(page),
        stretch_block=_small(block),
        stretch_first=np.maximum(first, index.min_weight[block]).astype(np.int32),
        stretch_last=np.minimum(last, index.max_weight[block]).astype(np.int32),
    )


def _small(numbers: I64Array) -> I32Array | I64Array:
    return numbers.astype(np.int32) if int(numbers.max(initial=0)) <= MAX_WEIGHT else numbers


def _stretches(page: I64Array, block: I64Array) -> tuple[BoolArray, BoolArray]:
    """Cut the rows where a page or a block starts; return whether a page and a block start at each piece."""
    places = np.concatenate([page, block])
    places.sort(kind="stable")  # two sorted runs
    fresh = np.ones(len(places), np.bool_)
    fresh[1:] = places[1:] != places[:-1]
    places = places[fresh]
    starts_page, starts_block = (np.zeros(len(places), np.bool_) for _ in range(2))
    starts_page[np.searchsorted(places, page)] = True
    starts_block[np.searchsorted(places, block)] = True
    return starts_page, starts_block


def _decode_layouts(
    layouts: pl.Series, usable: BoolArray, num_records: I64Array
) -> tuple[I64Array, I64Array, I64Array, I64Array]:
    """Return rows per page, tail bytes and number of pages of each file, and the high bits of all pages."""
    page_rows, tail_bytes, counts = (np.zeros(len(layouts), np.int64) for _ in range(3))
    tagged = np.flatnonzero(usable & layouts.is_not_null().to_numpy())
    fields = _decode_json(layouts.gather(tagged))
    packed = fields.get_column("w").str.decode("base64", strict=False)
    rows = fields.get_column("rows").fill_null(0).to_numpy()
    size = packed.bin.size().cast(pl.Int64).fill_null(1).to_numpy()
    needed = 2 * -(-num_records[tagged] // np.maximum(rows, 1))
    is_current = fields.get_column("v").eq(LAYOUT_VERSION).fill_null(value=False).to_numpy()
    # A repeated key is ambiguous.
    is_unique = layouts.gather(tagged).str.count_matches(_KEY).eq(_KEYS).to_numpy()
    sound = is_current & is_unique & (rows > 0) & (rows <= MAX_ROWS) & (size == needed)
    page_rows[tagged[sound]] = rows[sound]
    tail_bytes[tagged[sound]] = fields.get_column("tail").fill_null(0).to_numpy()[sound]
    counts[tagged[sound]] = size[sound] // 2
    high = np.frombuffer(b"".join(packed.filter(pl.Series(sound)).to_list()), "<i2")
    return page_rows, tail_bytes, counts, high.astype(np.int64)


def _decode_json(texts: pl.Series) -> pl.DataFrame:
    """Decode layouts; an invalid text returns nulls."""
    try:
        fields = texts.str.json_decode(_JSON).struct.unnest()
    except pl.exceptions.PolarsError:
        fields = pl.DataFrame()
    if fields.height != len(texts):  # a text may be empty, invalid, or two JSON values
        sound = [text if _is_layout(text) else None for text in texts]
        return pl.Series(sound, dtype=pl.String).str.json_decode(_JSON).struct.unnest()
    return fields


def _is_layout(text: str) -> bool:
    try:
        return parse_layout(text) is not None
    except InvalidMetadataError:
        return False
