"""The pages of our files: footer, page directory, Parquet's own page index and the layout tag say the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.io.parquet.footer import PagesUnavailable, read_page_locations
from qbeast_core.io.parquet.tail import FileTail, parse_tail
from qbeast_core.io.parquet.thrift import ThriftError
from qbeast_core.io.stores.store import Store
from qbeast_core.spec.layout import PageLayout, parse_layout
from qbeast_core.table.check.faults import Fault


def read_layout(text: str | None) -> PageLayout | None:
    """Return a layout as far as it can be read; None where it cannot, or is of a version unknown here."""
    try:
        return None if text is None else parse_layout(text)
    except InvalidMetadataError:
        return None


def check_pages(store: Store, path: str, size: int, layout: PageLayout) -> Iterator[Fault]:
    """Check that single pages of a file can be read where its layout tag says so."""
    if layout.tail_bytes > size:
        return  # a fault of the log
    try:
        tail = parse_tail(store.get_range(path, size - layout.tail_bytes, layout.tail_bytes))
    except PagesUnavailable as error:
        yield Fault("pages", f"its pages cannot be read alone: {error.reason}")
        return
    if (tail.page_rows, tail.pages) != (layout.page_rows, len(layout.weights)):
        message = (
            f"it is cut into {tail.pages} pages of {tail.page_rows} rows; its layout tag has "
            f"{len(layout.weights)} of {layout.page_rows}"
        )
        yield Fault("pages", message)
        return
    wrong = _unlike_page_index(store, path, tail)
    if wrong is not None:
        yield Fault("pages", f"its page directory and the page index of column {wrong!r} differ")


def _unlike_page_index(store: Store, path: str, tail: FileTail) -> str | None:
    """Return a leaf column whose OffsetIndex has other pages than the directory."""
    places = sorted(chunk.offset_index for chunk in tail.footer.chunks if chunk.offset_index is not None)
    by_place = dict(zip(places, map(bytes, store.get_ranges(path, places)), strict=True))
    first_rows = np.arange(tail.pages, dtype=np.int64) * tail.page_rows
    for chunk, starts in zip(tail.footer.chunks, tail.page_starts, strict=True):
        if chunk.offset_index is None:
            return chunk.path
        try:
            offsets, sizes, rows = read_page_locations(by_place[chunk.offset_index])
        except ThriftError:
            return chunk.path
        same = len(offsets) == tail.pages and (offsets == starts[:-1]).all() and (rows == first_rows).all()
        if not same or (sizes != np.diff(starts)).any():
            return chunk.path
    return None
