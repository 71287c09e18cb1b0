"""The index tags of one file, rebuilt from the copy in the file and from its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from qbeast_core.io.footer import (
    MAGIC,
    PagesUnavailable,
    Unreadable,
    parse_footer,
    parse_tail,
    read_footer,
    read_footer_bytes,
    stored_size,
)
from qbeast_core.io.store import Store
from qbeast_core.log.replay import TagCopy, parse_copy
from qbeast_core.space.values import I32Array, U32Array
from qbeast_core.spec.blocks import Block, dump_layout
from qbeast_core.spec.revision import Revision
from qbeast_core.support.sizing import sizing
from qbeast_core.table.check.rows import FileCheck
from qbeast_core.table.data.scan import SCAN_ERRORS, TableFiles, scan_files
from qbeast_core.tree.grid import frame_weights, grid_columns
from qbeast_core.tree.keys import dump_keys, keys_of_file
from qbeast_core.tree.pages import FileShape

_END: Final = 8  # length of the footer, and the magic bytes


@dataclass(frozen=True, slots=True, eq=False)
class UntaggedFile:
    """A live file whose tags may be in the file."""

    file: FileCheck
    # The revisions that rows can be indexed by, by digest.
    revisions: Mapping[str, Revision] = field(repr=False)


@dataclass(frozen=True, slots=True)
class FileTags:
    """The tags of a file; see the tags of format 7."""

    revision: Revision = field(repr=False)
    blocks: tuple[Block, ...]
    # None: single pages of the file cannot be read.
    layout: str | None
    keys: str


def read_tags(files: TableFiles, job: UntaggedFile) -> FileTags | None:
    """Return the tags that a file claims to have; None if it has no copy, or one that does not fit the table or file.

    Only a check of all rows shows whether they are right.
    """
    store, path = files.store, job.file.path
    size = stored_size(store, path)
    if size is None:
        return None
    try:
        footer = read_footer(store, path, size)
        copy = parse_copy(footer.metadata or {})
        revision = None if copy is None else job.revisions.get(copy.revision_digest)
        if copy is None or revision is None or not _fits(copy, footer.num_rows):
            return None
        weights, cells = _placed(files, job.file.of_size(size), revision, footer.num_rows)
        tail, layout = _tail_bytes(store, path, size), None
        if tail is not None:
            shape, hidden = FileShape.of(copy.layout), copy.layout.has_hidden_weights
            layout = dump_layout(shape.layout(cells, tail_bytes=tail, hidden_weights=hidden))
        keys = dump_keys(*keys_of_file(weights, is_scattered=bool(revision.sample_by)))
        return FileTags(revision, copy.blocks, layout, keys)
    except (Unreadable, *SCAN_ERRORS, OSError):
        return None  # the check of the file reports it


def _fits(copy: TagCopy, rows: int) -> bool:
    counts = sum(block.element_count for block in copy.blocks)
    return counts == rows == sum(band[0] for band in copy.layout.bands)


def _placed(
    files: TableFiles, file: FileCheck, revision: Revision, rows: int
) -> tuple[I32Array, list[U32Array]]:
    """Return the weight of each row, and its cell along each dimension."""
    scan = scan_files(files, [file.scan], revision.key_columns, file.schema)
    step = sizing().checked_rows
    starts = range(0, rows, step)
    parts = [scan.slice(start, step).collect() for start in starts]
    weights = np.concatenate([frame_weights(part, revision.hashed) for part in parts])
    cells = zip(*(grid_columns(part, revision) for part in parts), strict=True)
    return weights, [np.concatenate(column) for column in cells]


def _tail_bytes(store: Store, path: str, size: int) -> int | None:
    """Return the length of page directory and footer, which follow the page indexes; None without a directory."""
    try:
        footer = parse_footer(read_footer_bytes(store, path, size)[len(MAGIC) : -_END])
        start = max((sum(chunk.offset_index or (0,)) for chunk in footer.chunks), default=0)
        if start < size:
            parse_tail(store.get_range(path, start, size - start))
            return size - start
    except PagesUnavailable:
        pass
    return None
