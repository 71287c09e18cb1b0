"""Layouts before 0.6.0 (format 11), translated when a log is read: elsewhere, files have blocks and no copies of rows.

A file of such a layout has one block, whose fields are flat tags. It gets the `blocks` tag that an upgrade would write.
Files whose rows are also in other files leave the live files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
from pydantic import TypeAdapter

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.space.values import MAX_WEIGHT, MIN_WEIGHT
from qbeast_core.spec.blocks import Block, FilePath, parse_blocks, read_text

# Column -> tag key of the fields that become `blocks`. The tag `state` stays: it marks files of old layouts.
FLAT_KEYS: Final[Mapping[str, str]] = {
    "cube": "cube",
    "min_weight": "minWeight",
    "max_weight": "maxWeight",
    "element_count": "elementCount",
}

COPIED_STATES: Final = ("REPLICATED", "ANNOUNCED")
_FLAT_BLOCK: Final = TypeAdapter(Block)


@dataclass(frozen=True, slots=True, eq=False)
class CopiedRows:
    """The copies of rows in a version. Other readers return them, this library does not."""

    # Files that hold nothing else, in the columns of the live files.
    files: pl.DataFrame = field(default_factory=pl.DataFrame)
    # Decoded paths of live files with copies beside other rows. Their tags do not show which rows are copies.
    mixed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files.height or self.mixed)


NO_COPIES: Final = CopiedRows()


def with_blocks(tags: pl.DataFrame) -> pl.DataFrame:
    """Return the tags of files with `blocks` instead of flat tags.

    >>> flat = {"cube": "A", "min_weight": -5, "max_weight": 7, "element_count": 2}
    >>> tags = pl.DataFrame([{"blocks": None, "state": "FLOODED", **flat}], schema_overrides={"blocks": pl.String})
    >>> with_blocks(tags).row(0)
    ('[{"cubeId":"A","minWeight":-5,"maxWeight":7,"elementCount":2,"replicated":false}]', 'FLOODED')
    """
    if tags["cube"].null_count() < tags.height:
        block = pl.struct(
            pl.col("cube").alias("cubeId"),
            pl.col("min_weight").fill_null(MIN_WEIGHT).alias("minWeight"),
            pl.col("max_weight").fill_null(MAX_WEIGHT).alias("maxWeight"),
            pl.col("element_count").fill_null(0).alias("elementCount"),
            pl.col("state").is_in(COPIED_STATES).fill_null(value=False).alias("replicated"),
        )
        is_flat = pl.col("blocks").is_null() & pl.col("cube").is_not_null()
        text = pl.format("[{}]", block.struct.json_encode())
        tags = tags.with_columns(blocks=pl.when(is_flat).then(text).otherwise("blocks"))
    return tags.drop(FLAT_KEYS)


def without_copies(files: pl.DataFrame) -> tuple[pl.DataFrame, CopiedRows]:
    """Return the live files without files of copies, and the copies.

    Tags that contradict the statistics of their file hide no row: the file is read as a whole.

    >>> block = '[{"cube":"","minWeight":0,"maxWeight":1,"replicated":%s,"elementCount":1}]'
    >>> files = pl.DataFrame({"path": ["a", "b"], "blocks": [block % "false", block % "true"], "num_records": [1, 1],
    ...     "miscounted": [False, False], "state": [None, None]})
    >>> live, copies = without_copies(files)
    >>> live["path"].to_list(), copies.files["path"].to_list()
    (['a'], ['b'])
    """
    # No other value of a block is `true`; a cube may contain these letters.
    marked = files["blocks"].cast(pl.String).str.contains("true", literal=True).arg_true().to_list()
    if not marked:
        return files, NO_COPIES
    gone, mixed = list[int](), list[str]()
    columns = ("path", "blocks", "num_records", "miscounted", "state")
    for number, file in zip(marked, files.select(columns)[marked].iter_rows(named=True), strict=True):
        blocks = _trusted_blocks(file)
        if all(block.replicated for block in blocks):
            gone += [number] if blocks else []
        elif any(block.replicated for block in blocks):
            mixed.append(FilePath.of_log(file["path"]).text)
    is_gone = pl.int_range(files.height, eager=True).is_in(gone)
    return files.filter(~is_gone), CopiedRows(files.filter(is_gone), tuple(mixed))


def _trusted_blocks(file: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a file; none if they cannot be read, or contradict its statistics."""
    try:
        blocks = parse_blocks(file["blocks"])
    except InvalidMetadataError:
        return []
    if file["state"] in COPIED_STATES:  # counts of such files need not be right: they are never read
        return blocks
    counted, rows = file["num_records"], sum(block.element_count for block in blocks)
    contradicts = file["miscounted"] or (counted is not None and counted != rows)
    return [] if contradicts or any(block.min_weight > block.max_weight for block in blocks) else blocks


def block_from_flat_tags(tags: Mapping[str, str]) -> Block:
    """Return the block of a file from its flat tags. Raise if they cannot be read.

    >>> block_from_flat_tags({"state": "FLOODED", "cube": "A", "revision": "1", "minWeight": "-5",
    ...                       "maxWeight": "7", "elementCount": "2"})
    Block(cube='A', min_weight=-5, max_weight=7, element_count=2, replicated=False)
    """
    fields = {**tags, "replicated": str(tags.get("state") in COPIED_STATES)}
    text = json.dumps(dict(tags))
    block: Block = read_text(lambda _: _FLAT_BLOCK.validate_strings(fields), text, what="a file's tags")
    return block
