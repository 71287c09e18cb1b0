"""Deleted rows of blocks: the delete deltas that count, and the rows they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from qbeast_carbondata.metadata.json_files import DEAD_BLOCK, UpdatedBlock, read_delete_delta
from qbeast_carbondata.stored_file import must_exist, read_file
from qbeast_core.io.store import Store
from qbeast_core.space.values import I64Array

_STAMP: Final = re.compile(r"-(\d+)\.deletedelta$")


def deltas_of(
    update: UpdatedBlock | None, block_path: str, list_files: Callable[[], Sequence[str]]
) -> tuple[str, ...] | None:
    """Return the paths of the delete deltas of a block that count; None if all its rows are deleted."""
    if update is not None and update.status in DEAD_BLOCK:
        return None
    if update is None or not update.start:
        return ()
    stamps: Sequence[str]
    if update.start == update.end:
        stamps = [update.start]
    elif update.stamps is not None:
        stamps = update.stamps
    else:
        names = [path for path in list_files() if path.startswith(f"{block_path}-")]
        listed = [match[1] for match in map(_STAMP.search, names) if match]
        stamps = [stamp for stamp in listed if int(update.start) <= int(stamp) <= int(update.end)]
    return tuple(f"{block_path}-{stamp}.deletedelta" for stamp in stamps)


def read_deleted_rows(store: Store, paths: Sequence[str]) -> dict[tuple[int, int], I64Array]:
    """Return the deleted rows by blocklet and page, from all deltas together; several may name the same row."""
    by_page: dict[tuple[int, int], list[I64Array]] = {}
    for path in paths:
        with must_exist(store.uri, path):
            pages = read_file(store, path, read_delete_delta).pages
        for page in pages:
            by_page.setdefault((page.blocklet, page.page), []).append(np.array(page.rows, np.int64))
    return {page: np.unique(np.concatenate(parts)) for page, parts in by_page.items()}
