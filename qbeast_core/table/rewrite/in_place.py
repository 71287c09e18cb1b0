"""Rewrite files whose rows keep their places. Each new file has the blocks of the old one; no plan is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.spec.block import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.support.runtime import new_id
from qbeast_core.table.data.data_files import delete_files_named
from qbeast_core.table.engine.live_files import FilesSource, all_rows, whole_parts
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.engine.tasks.changed_file import ChangeFile, FileToChange
from qbeast_core.table.engine.tasks.row_change import RowChange
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.candidates import has_exact_layout

_AT_ONCE: Final = 2
_HELD_BYTES: Final = 32  # memory per stored byte: rows before and after the change, and in order


@dataclass(frozen=True, slots=True, eq=False)
class InPlace:
    """Results by index of the old file."""

    # New files. They are deleted if the operation fails.
    adds: dict[int, AddFile] = field(default_factory=dict[int, AddFile])
    # Changed rows of files whose rows do not keep their places, if they fit in memory. These are not read again.
    rows: dict[int, pl.DataFrame] = field(default_factory=dict[int, pl.DataFrame])


def change_in_place(reader: Reader, files: I64Array, change: RowChange | None, engine: Engine) -> InPlace:
    """Rewrite the files whose rows keep their places. The new files are deleted if this fails."""
    newest = reader.index_state.newest
    if newest is None or change is None:
        return InPlace()
    files = files[_can_keep_blocks(reader, newest)[files]]
    needed = reader.snapshot.files["size_bytes"].to_numpy()[files] * _HELD_BYTES
    if not len(files) or not engine.has_room(int(needed.max())):
        return InPlace()
    at_once = _AT_ONCE if engine.has_room(int(needed.max()) * _AT_ONCE) else 1
    snapshot, operation, names = reader.snapshot, new_id(), list(reader.snapshot.copied_schema)
    call = ChangeFile(
        files=reader.files,
        keep=all_rows(reader, names),
        target=FilesSource(reader=reader, files=files).target,
        revision=newest,
        operation=operation,
        returns_rows=engine.shares_memory and engine.has_room(int(needed.sum())),
    )
    blocks, layouts = _blocks(reader, files), snapshot.files["layout"].cast(pl.String)
    items = {
        file: FileToChange(
            whole_parts(reader, np.array([file]), names), function, blocks[file], layouts[file]
        )
        for file in files.tolist()
        if (function := change.of_file(reader.paths[file])) is not None
    }
    try:
        answers = engine.map(call, list(items.values()), at_once=at_once)
    except BaseException:  # also after an interrupt or a panic of Rust
        delete_files_named(reader.store, "", operation)
        raise
    results = InPlace()
    for file, answer in zip(items, answers, strict=True):
        if isinstance(answer, AddFile):
            results.adds[file] = answer
        elif answer is not None:
            results.rows[file] = answer
    return results


def _can_keep_blocks(reader: Reader, newest: Revision) -> BoolArray:
    """Return which files belong to the newest revision, follow the exact rules, and have no deletion vector."""
    files = reader.snapshot.files
    of_newest = reader.index_state.revision_of == newest.revision_id
    mask: BoolArray = of_newest & has_exact_layout(files) & ~files["has_deletion_vector"].to_numpy()
    return mask


def _blocks(reader: Reader, files: I64Array) -> dict[int, tuple[Block, ...]]:
    """Return the blocks of each file in the order of the file."""
    by_file: dict[int, list[Block]] = {file: [] for file in files.tolist()}
    of_files = reader.index_state.blocks.filter(pl.col("file").is_in(files.tolist()))
    columns = ["file", "cube", "min_weight", "max_weight", "rows"]
    for file, cube, low, high, rows in of_files.select(columns).iter_rows():
        by_file[file].append(Block(cube=cube, min_weight=low, max_weight=high, element_count=rows))
    return {file: tuple(blocks) for file, blocks in by_file.items()}
