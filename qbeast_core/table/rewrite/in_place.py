"""Files whose rows get other values and keep their places: written again one by one, without a plan."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.query.weights import ALL_WEIGHTS
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.spec.block import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.data_files import delete_files
from qbeast_core.table.engine.protocol import Engine, FilesSource
from qbeast_core.table.engine.tasks.changed_file import ChangeFile, FileToChange
from qbeast_core.table.engine.tasks.row_change import ChangeByFile, RowChange
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.read.scan_task import FileParts, RowFilter

_AT_ONCE: Final = 2
_HELD_BYTES: Final = 32  # in memory, per byte stored: rows as they are, as they will be, and in order


def change_in_place(
    reader: Reader, numbers: I64Array, change: RowChange | ChangeByFile | None, engine: Engine
) -> Mapping[int, AddFile]:
    """Write files again of which no row goes and no indexed value changes; their blocks are those they had."""
    newest = reader.index_state.newest
    if newest is None or change is None:
        return {}
    tried = numbers[_keep_rules(reader, newest)[numbers]]
    stored = reader.snapshot.files["size_bytes"].to_numpy()[tried]
    if not len(tried) or not engine.has_room(int(stored.max()) * _HELD_BYTES * _AT_ONCE):
        return {}
    snapshot, operation = reader.snapshot, str(uuid.uuid4())
    call = ChangeFile(
        files=reader.files,
        keep=RowFilter(tuple(snapshot.schema), snapshot.schema, reader.indexed, ALL_WEIGHTS),
        target=FilesSource(reader=reader, numbers=tried).target,
        revision=newest,
        operation=operation,
    )
    blocks = _blocks(reader, tried)
    items = [
        FileToChange(FileParts(whole=(path,)), of_file, blocks[number])
        for number in tried.tolist()
        for path in [reader.paths[number]]
        for of_file in [change.of_file(path) if isinstance(change, ChangeByFile) else change]
        if of_file is not None
    ]
    try:
        written = engine.map(call, items, at_once=_AT_ONCE)
    except BaseException:  # an interrupt or a panic of Rust leaves no files either; raised again
        delete_files(reader.store, [path for path in reader.store.list("") if path.startswith(operation)])
        raise
    by_path = {item.parts.whole[0]: add for item, add in zip(items, written, strict=True)}
    found = {number: by_path.get(reader.paths[number]) for number in tried.tolist()}
    return {number: add for number, add in found.items() if add is not None}


def _keep_rules(reader: Reader, newest: Revision) -> BoolArray:
    """Tell which files are of the newest revision, follow the exact rules, and hide no rows."""
    files = reader.snapshot.files
    exact = files["rules"].cast(pl.String).eq("1").fill_null(value=False) & ~files["has_deletion_vector"]
    found: BoolArray = exact.to_numpy() & (reader.index_state.revision_of == newest.revision_id)
    return found


def _blocks(reader: Reader, numbers: I64Array) -> dict[int, tuple[Block, ...]]:
    """Return the blocks of files, in their order."""
    found: dict[int, list[Block]] = {number: [] for number in numbers.tolist()}
    of_files = reader.index_state.blocks.filter(pl.col("file").is_in(numbers.tolist()))
    columns = ["file", "cube", "min_weight", "max_weight", "rows"]
    for file, cube, low, high, rows in of_files.select(columns).iter_rows():
        found[file].append(Block(cube=cube, min_weight=low, max_weight=high, element_count=rows))
    return {number: tuple(blocks) for number, blocks in found.items()}
