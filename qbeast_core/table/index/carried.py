"""What was worked out for a version: kept as long as the version is, and carried along by our own appends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.files.grown_files import joined
from qbeast_core.query.fitting import fits_schema
from qbeast_core.query.live_blocks import LiveBlocks, characters_per_level, live_blocks
from qbeast_core.table.index.key_counts import KeyCounts, count_keys
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.key_tag import KEYS_TAG, parse_keys

_Tags: TypeAlias = tuple[pl.DataFrame, list[int]]

_BLOCKS: Final[WeakKeyDictionary[Snapshot, LiveBlocks]] = WeakKeyDictionary()

_COUNTS: Final[WeakKeyDictionary[Snapshot, KeyCounts]] = WeakKeyDictionary()


def blocks_of(snapshot: Snapshot, tags: Callable[[], _Tags]) -> LiveBlocks:
    """Return the blocks of a version, which are placed once."""
    found = _BLOCKS.get(snapshot)
    if found is None:
        found = live_blocks(snapshot.files, snapshot.config.revisions, snapshot.schema, tags())
        _BLOCKS[snapshot] = found
    return found


def counts_of(snapshot: Snapshot) -> KeyCounts:
    """Return how often index keys repeat in a version, which is counted once; to count on, copy it."""
    found = _COUNTS.get(snapshot)
    if found is None:
        found = _COUNTS[snapshot] = count_keys(snapshot.files)
    return found


def carry_blocks(before: Snapshot, after: Snapshot, adds: Sequence[AddFile]) -> None:
    """Know the blocks of a version by those of the one before, if they are known, without decoding a tag."""
    known = _BLOCKS.get(before)
    rows = None if known is None else _block_rows(before, adds)
    if known is None or rows is None:
        return
    new = pl.DataFrame(rows, schema=known.blocks.schema, orient="row")
    _BLOCKS[after] = LiveBlocks(joined(known.blocks, new), known.unplaced)


def carry_counts(before: Snapshot, after: Snapshot, adds: Sequence[AddFile]) -> None:
    """Know how often keys repeat in a version by the one before, and the tags of files that were added."""
    sketches = [parse_keys((add.tags or {}).get(KEYS_TAG)) for add in adds]
    if after.files.height != before.files.height + len(adds) or None in sketches:
        return
    counts = counts_of(before).copy()
    for sketch in sketches:
        if sketch is not None:
            counts.total.add(sketch)
    _COUNTS[after] = counts


def _block_rows(before: Snapshot, adds: Sequence[AddFile]) -> list[tuple[object, ...]] | None:
    """Return the blocks of files as `LiveBlocks` has them; None: of some file the tags have to be read."""
    rows: list[tuple[object, ...]] = []
    for file, add in enumerate(adds, start=before.files.height):
        tags = add.tags or {}
        revision = before.config.revisions.get(int(tags.get("revision") or -1))
        ours = tags.get("qbeast.rules") == "1"
        if not add.blocks or not ours or revision is None or not fits_schema(revision, before.schema):
            return None
        per_level = characters_per_level(revision)
        rows += [
            (
                *(file, revision.revision_id, block.cube, len(block.cube) // per_level),
                *(block.min_weight, block.max_weight, block.element_count, block.replicated),
                *(False, True),  # of no old layout, and by the exact rules
            )
            for block in add.blocks
        ]
    return rows
