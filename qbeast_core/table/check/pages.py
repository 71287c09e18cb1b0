"""The pages of our files: footer, page directory, Parquet's own page index and the layout tag say the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.io.parquet.cuts import cuts_of
from qbeast_core.io.parquet.footer import PagesUnavailable, read_page_locations
from qbeast_core.io.parquet.tail import FileTail, parse_tail
from qbeast_core.io.parquet.thrift import ThriftError
from qbeast_core.io.stores.store import Store
from qbeast_core.spec.layout import Layout, parse_layout
from qbeast_core.table.check.faults import Fault
from qbeast_core.tree.bands.shape import FileShape


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
