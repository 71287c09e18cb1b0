"""Verify the invariants of section 8 of the format on a table's log and data files.

Independent of the writer: the log is replayed, pyarrow reads the files, and cubes are decoded bit by bit.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from qbeast_core.space.coordinates import to_coordinates
from qbeast_core.space.values import NumberColumn, number_values
from qbeast_core.spec.revision import IdentityTransformation, LinearTransformation, Revision
from qbeast_core.tree.grid import frame_weights, to_index_column
from tests.space.cube_reference import ALPHABET, box_of_path
from tests.space.cube_reference import Path as CubePath

Column = np.ndarray[Any, Any]
LAST_WEIGHT = 2**31 - 1
BLOCK_KEYS = {
    "documented": ["cube", "minWeight", "maxWeight", "replicated", "elementCount"],
    "qbeast-spark": ["cubeId", "minWeight", "maxWeight", "elementCount", "replicated"],
}


@dataclass(frozen=True)
class Log:
    """The newest state of a log of JSON commits."""

    version: int
    configuration: dict[str, str]
    schema: dict[str, Any]
    adds: dict[str, dict[str, Any]]

    @property
    def revisions(self) -> dict[int, Revision]:
        prefix = "qbeast.revision."
        texts = {key: text for key, text in self.configuration.items() if key.startswith(prefix)}
        sample_by = json.loads(self.configuration.get("qbeast.sampleBy", "[]"))
        return {
            int(key.removeprefix(prefix)): Revision.from_json(text).with_sample_by(sample_by)
            for key, text in texts.items()
        }


@dataclass(frozen=True)
class Placed:
    """A block of a live file."""

    revision: int
    cube: str
    min_weight: int
    max_weight: int
    rows: int
    # Texts of the values of the partition columns.
    partition: tuple[str | None, ...] = ()


def read_log(table: Path) -> Log:
    """Replay a log that was never checkpointed."""
    configuration: dict[str, str] = {}
    schema: dict[str, Any] = {}
    adds: dict[str, dict[str, Any]] = {}
    commits = sorted((table / "_delta_log").glob("*.json"))
    assert [int(path.stem) for path in commits] == list(range(len(commits)))
    for commit in commits:
        actions = [json.loads(line) for line in commit.read_bytes().splitlines()]
        for body in (action["remove"] for action in actions if "remove" in action):
            adds.pop(body["path"], None)
        for action in actions:
            if "metaData" in action:
                configuration = action["metaData"]["configuration"]
                schema = json.loads(action["metaData"]["schemaString"])
            if "add" in action:
                adds[action["add"]["path"]] = action["add"]
    return Log(len(commits) - 1, configuration, schema, adds)


def check_invariants(table: Path, *, may_stage: bool = False) -> list[Placed]:
    """Assert the invariants of all live files of a table; return their blocks.

    Files without index are errors, unless `may_stage` is set.
    """
    log = read_log(table)
    revisions = log.revisions
    assert int(log.configuration["qbeast.lastRevisionID"]) == max(revisions)
    keys = BLOCK_KEYS[log.configuration["qbeast.blocksDialect"]]
    adds = [add for add in log.adds.values() if not may_stage or "revision" in (add.get("tags") or {})]
    is_mapped = log.configuration.get("delta.columnMapping.mode", "none") != "none"
    types = {
        field["metadata"]["delta.columnMapping.physicalName"] if is_mapped else field["name"]: field["type"]
        for field in log.schema["fields"]
    }
    placed = [block for add in adds for block in _check_file(table, add, revisions, keys, types)]
    for add in adds:
        _check_sample_column(table, add, log, types)
    if any(block.partition for block in placed):
        assert log.configuration["qbeast.minReader"] in ("4", "5")
    if "qbeast.sampleBy" in log.configuration:
        assert log.configuration["qbeast.minReader"] == "5"
    for revision, partition in {(block.revision, block.partition) for block in placed}:
        blocks = [block for block in placed if (block.revision, block.partition) == (revision, partition)]
        characters = -(-len(revisions[revision].columns) // 6)
        # What was below a leaf may be staged now.
        _check_ancestors(blocks, characters=characters, leaves=len(adds) == len(log.adds))
    return placed


# Types of partition columns whose texts Polars casts.
_CASTS = {"string": pl.String, "long": pl.Int64, "integer": pl.Int32, "double": pl.Float64, "date": pl.Date}


def _check_file(
    table: Path,
    add: dict[str, Any],
    revisions: dict[int, Revision],
    keys: list[str],
    types: dict[str, Any],
) -> list[Placed]:
    tags, stats = add["tags"], json.loads(add["stats"])
    path = table / unquote(add["path"])
    assert path.stat().st_size == add["size"]
    with pq.ParquetFile(path) as file:
        stored, footer = pl.DataFrame(file.read(use_threads=False)), file.metadata
    layout = json.loads(tags["qbeast.layout"])
    hidden = layout.get("hidden", True)  # a table may have changed its dialect
    assert ("_qbeast_weight" in stored.columns) == hidden
    assert "_qbeast_weight" not in stats["nullCount"]
    revision = revisions[int(tags["revision"])]
    values = add["partitionValues"]
    assert not set(values) & set(stored.columns)
    assert not set(values) & set(stats["nullCount"])
    indexed = _with_partition(stored, add, revision, types)
    weights = frame_weights(indexed, revision.hashed).astype(np.int64)
    if hidden:
        assert stored.columns[-1] == "_qbeast_weight"
        assert stored["_qbeast_weight"].dtype == pl.Int32
        of_bands = np.repeat([weight >> 16 for *_, weight in layout["bands"]], _group_rows(footer))
        assert (stored["_qbeast_weight"].to_numpy() == of_bands).all()
    points = [
        to_coordinates(transformation, to_index_column(indexed[name]))
        for name, transformation in zip(revision.columns, revision.transformations, strict=True)
    ]
    _check_ranges(indexed, revision)
    blocks = _read_blocks(tags["blocks"], keys)
    assert sum(block["elementCount"] for block in blocks) == stats["numRecords"] == stored.height  # 8.5
    assert not any(block.get("replicated", False) for block in blocks)
    assert tags["qbeast.rules"] == "1"
    _check_bands(layout["bands"], weights, footer)
    _check_pages(layout, points)
    _check_tail(layout["tail"], layout["directory"], footer, add["size"])
    placed = [
        Placed(
            revision.revision_id,
            block["cube"],
            block["minWeight"],
            block["maxWeight"],
            block["elementCount"],
            tuple(values.values()),
        )
        for block in blocks
    ]
    _check_blocks(placed, points, weights)
    return placed


def _with_partition(
    stored: pl.DataFrame, add: dict[str, Any], revision: Revision, types: dict[str, Any]
) -> pl.DataFrame:
    """Return the rows of a file with the indexed columns that are partition columns."""
    values = add["partitionValues"]
    return stored.with_columns(
        pl.lit(values[name], pl.String).cast(_CASTS[types[name]]).alias(name)
        for name in set(values) & set(revision.key_columns)
    )


def _check_sample_column(table: Path, add: dict[str, Any], log: Log, types: dict[str, Any]) -> None:
    """Assert that a table with a sample column has its values and bounds in each file (section 14 of the format)."""
    name = log.configuration.get("qbeast.sampleColumn")
    if (name, "float") not in [(field["name"], field["type"]) for field in log.schema["fields"]]:
        return
    assert log.configuration["qbeast.minReader"] in ("2", "3", "4", "5")
    with pq.ParquetFile(table / unquote(add["path"])) as file:
        stored, footer = pl.DataFrame(file.read(use_threads=False)), file.metadata
    assert "_qbeast_weight" not in stored.columns
    revision = log.revisions[int(add["tags"]["revision"])]
    weights = frame_weights(_with_partition(stored, add, revision, types), revision.hashed)
    expected = (np.searchsorted(_multiples(), weights.astype(np.int64), side="right") - 1) / 65536
    assert stored[name].dtype == pl.Float32
    assert stored[name].to_list() == expected.tolist()
    stats = json.loads(add["stats"])
    assert (stats["minValues"][name], stats["maxValues"][name]) == (expected.min(), expected.max())
    assert stats["nullCount"][name] == 0
    place, first = [footer.schema.column(leaf).path for leaf in range(footer.num_columns)].index(name), 0
    for group in map(footer.row_group, range(footer.num_row_groups)):
        values, bounds = expected[first : first + group.num_rows], group.column(place).statistics
        assert (bounds.min, bounds.max, bounds.null_count) == (values.min(), values.max(), 0)
        first += group.num_rows


@cache
def _multiples() -> np.ndarray:
    """Return the weight of each m / 65536, cut off towards zero as in section 10 of the format."""
    return np.array([int(m / 65536 * (2**32 - 1) - 2**31) for m in range(65536)])


def _check_ranges(stored: pl.DataFrame, revision: Revision) -> None:
    """Assert that values are in the linear range, or equal the only value (section 3 of the format)."""
    for name, space in zip(revision.columns, revision.transformations, strict=True):
        if not isinstance(space, LinearTransformation | IdentityTransformation):
            continue
        values = stored[name].drop_nulls()
        values = values.filter(values.is_finite()) if values.dtype.is_float() else values
        if len(values):
            column = to_index_column(values)
            assert isinstance(column, NumberColumn)
            low, high = (float(end) for end in space.limits)
            assert (column_values := number_values(column)).min() >= low, (
                f"{name}: {column_values.min()} < {low}"
            )
            assert column_values.max() <= high, f"{name}: {column_values.max()} > {high}"


def _read_blocks(text: str, keys: list[str]) -> list[dict[str, Any]]:
    """Read blocks with exactly these keys; the JVM fails on others."""
    blocks: list[dict[str, Any]] = json.loads(text)
    for block in blocks:
        assert list(block) == keys
        block["cube"] = block.pop(keys[0])
    return blocks


def _group_rows(footer: pq.FileMetaData) -> list[int]:
    return [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]


def _check_bands(bands: list[list[int]], weights: Column, footer: pq.FileMetaData) -> None:
    """Assert that the row groups hold successive ranges of weights (section 14)."""
    counts, firsts = [rows for rows, *_ in bands], [weight for *_, weight in bands]
    assert counts == _group_rows(footer)
    starts = np.cumsum([0, *counts])
    for low, end, first, last in zip(
        firsts, [*firsts[1:], LAST_WEIGHT + 1], starts, starts[1:], strict=False
    ):
        assert weights[first:last].min() == low
        assert weights[first:last].max() < end


def _check_pages(layout: dict[str, Any], points: list[Column]) -> None:
    """Assert that the rows of each page lie in its box (section 14)."""
    counts = [-(-rows // page_rows) for rows, page_rows, _ in layout["bands"]]
    starts = np.cumsum([0, *counts])
    page = np.concatenate(
        [
            start + np.arange(rows) // page_rows
            for start, (rows, page_rows, _) in zip(starts, layout["bands"], strict=False)
        ]
    )
    packed = zlib.decompress(base64.b64decode(layout["p"]), wbits=-15)
    steps = np.frombuffer(packed, np.uint8).reshape(len(points), 2, sum(counts)).astype(np.int64)
    for column, (first, *widths), (low, high) in zip(points, layout["box"], steps, strict=True):
        cells = np.minimum(column * 2.0**32, 2.0**32 - 1).astype(np.int64)
        assert len(widths) in {1, 16}
        ends = first + np.cumsum([width for width in widths for _ in range(256 // len(widths))])
        assert (cells >= np.append(first, ends)[low][page]).all()
        assert (cells < ends[high][page]).all()


def _check_tail(tail_bytes: int, directory_bytes: int, footer: pq.FileMetaData, size: int) -> None:
    """Assert that the page directory lies between the data and the footer."""
    assert tail_bytes == directory_bytes + footer.serialized_size + 8
    ends = [
        column.total_compressed_size + (column.dictionary_page_offset or column.data_page_offset)
        for group in range(footer.num_row_groups)
        for column in map(footer.row_group(group).column, range(footer.num_columns))
    ]
    assert max(ends) <= size - tail_bytes


def _check_blocks(blocks: list[Placed], points: list[Column], weights: Column) -> None:
    """Assert that each row is in the first cube on its way down that takes its weight (8.1, 8.2)."""
    left = np.ones(len(weights), np.bool_)
    for cube in sorted({block.cube for block in blocks}, key=len):
        own = [block for block in blocks if block.cube == cube]
        rows = left & (weights <= max(block.max_weight for block in own)) & _in_box(cube, points)
        assert rows.sum() == sum(block.rows for block in own)
        assert all(block.rows > 0 for block in own)
        assert weights[rows].min() == min(block.min_weight for block in own)
        assert max(block.max_weight for block in own) <= LAST_WEIGHT
        left &= ~rows
    assert not left.any()


def _in_box(cube: str, points: list[Column]) -> Column:
    inside = np.ones(len(points[0]), np.bool_)
    for (low, high), column in zip(
        box_of_path(_path_of_text(cube, len(points)), len(points)), points, strict=True
    ):
        inside &= (column >= float(low)) & ((column < float(high)) | (high == 1))
    return inside


def _path_of_text(text: str, dimensions: int) -> CubePath:
    """Decode by section 5 of the format: `dimensions` bits per level, six per character."""
    characters = -(-dimensions // 6)
    levels = [text[at : at + characters] for at in range(0, len(text), characters)]
    path = []
    for level in levels:
        bits = [ALPHABET.index(character) >> (5 - i) & 1 for character in level for i in range(6)]
        assert not any(bits[dimensions:])
        path.append(bits[:dimensions])
    return path


def _check_ancestors(blocks: list[Placed], *, characters: int, leaves: bool) -> None:
    smallest: dict[str, int] = {}
    thresholds: dict[str, set[int]] = defaultdict(set)
    for block in blocks:
        smallest[block.cube] = min(block.max_weight, smallest.get(block.cube, LAST_WEIGHT))
        thresholds[block.cube].add(block.max_weight)
    inner = set()
    for block in blocks:
        ends = range(0, len(block.cube), characters)
        ancestors = [block.cube[:end] for end in ends if block.cube[:end] in smallest]
        inner.update(ancestors)
        for ancestor in ancestors:
            assert block.min_weight > smallest[ancestor], f"{block} below {ancestor!r}"  # 8.3
        for above, below in pairwise([*ancestors, block.cube]):
            assert smallest[above] <= smallest[below], f"{above!r} above {below!r}"  # 8.4
    for cube in smallest.keys() - inner if leaves else ():
        assert LAST_WEIGHT in thresholds[cube], f"leaf {cube!r} has thresholds {thresholds[cube]}"  # 8.4
