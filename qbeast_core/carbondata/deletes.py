"""Deleted rows of blocks: which delete deltas count, and the rows they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from qbeast_core.carbondata.damage import damaged
from qbeast_core.carbondata.encryption import unless_encrypted
from qbeast_core.carbondata.inside import inside, there
from qbeast_core.carbondata.json_files import DEAD_BLOCK, UpdatedBlock, read_delete_delta
from qbeast_core.io.store import Store
from qbeast_core.space.arrays import I64Array

_MOST_ROW: Final = 2**31
_STAMP: Final = re.compile(r"-(\d+)\.deletedelta$")

# By the name of a block (its file's up to the last `-`), what the update status says of it.
BlockDeletes = Mapping[str, UpdatedBlock]


def deletes_by_block(updates: Iterable[UpdatedBlock], segment: str) -> BlockDeletes:
    """Return what the update status says of a segment's blocks."""
    return {one.block: one for one in updates if one.segment == segment}


def deltas_of(
    deletes: BlockDeletes, folder: str, file_name: str, list_files: Callable[[], Sequence[str]]
) -> tuple[str, ...] | None:
    """Return the paths of the delete deltas of a data file that count; None if all its rows are gone."""
    block = file_name.rpartition("-")[0]
    update = deletes.get(block)
    if update is None:
        return ()
    if update.status in DEAD_BLOCK:
        return None
    if not update.start:
        return ()
    beside = f"{folder}/{block}" if folder else block
    stamps: Sequence[str]
    if update.start == update.end:
        stamps = [update.start]
    elif update.stamps is not None:
        stamps = update.stamps
    else:
        first, last = int(update.start), int(update.end)
        names = [path for path in list_files() if path.startswith(f"{beside}-")]
        found = [match[1] for match in map(_STAMP.search, names) if match]
        stamps = [stamp for stamp in found if first <= int(stamp) <= last]
    return tuple(f"{beside}-{stamp}.deletedelta" for stamp in stamps)


def read_deleted_rows(store: Store, paths: Sequence[str]) -> dict[tuple[int, int], I64Array]:
    """Return the deleted rows by blocklet and page, from all deltas together; a row may be named twice."""
    found: dict[tuple[int, int], list[I64Array]] = {}
    for path in paths:
        with there(store.uri, path):
            data = store.get(path)
        with inside(store.uri, path), unless_encrypted(data):
            for page in read_delete_delta(data).pages:
                rows = page.rows
                if rows and not 0 <= min(rows) <= max(rows) < _MOST_ROW:
                    damaged(f"it deletes row {min(rows)} to {max(rows)} of a page")
                found.setdefault((page.blocklet, page.page), []).append(np.array(rows, np.int64))
    return {place: np.unique(np.concatenate(parts)) for place, parts in found.items()}
