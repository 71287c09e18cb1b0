"""Rows that workers read, place and write. This process plans with a sample of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Final, Protocol

import numpy as np
import polars as pl

from qbeast_core.errors import InputChangedError
from qbeast_core.log.actions import AddFile
from qbeast_core.space.values import MAX_WEIGHT, MIN_WEIGHT, I32Array, I64Array, U32Array, U64Array, distinct
from qbeast_core.spec.revision import Revision
from qbeast_core.support.process import Progress, ProgressCallback, report
from qbeast_core.table.data.files import FileTarget, delete_data_files
from qbeast_core.table.engine.engine import Rows, WritePlan, guess_row_bytes, unindexed_plan
from qbeast_core.table.engine.files import (
    PlacedFile,
    PlaceTask,
    SummaryTask,
    sort_keys,
    with_final_thresholds,
)
from qbeast_core.tree.build import ExistingLevel, ExistingTree, TreeBuilder, partitions_of
from qbeast_core.tree.files import pack_cubes, rows_per_file, smallest_block_rows
from qbeast_core.tree.grid import GRID_BITS, frame_weights, grid_columns
from qbeast_core.tree.keys import KeySketch, design_effect
from qbeast_core.tree.outline import Outline, OutlineLevel
from qbeast_core.tree.summary import IndexSummary, Partitions, domain_limits, merge_summaries

_WEIGHT_BITS: Final = np.uint64(32)  # the low bits of a sort key; the cube has the high bits


class Passes(Protocol):
    """Passes over the rows of one source, by threads or by a cluster. Each pass must read the same rows."""

    @property
    def advice(self) -> str:
        """Advice for the error message if a second read returned other rows."""
        ...

    def count(self) -> int:
        """Return the number of rows."""
        ...

    def write_plain(self, target: FileTarget) -> Sequence[AddFile]:
        """Write all rows to files without an index, and return these, see `write_plain`."""
        ...

    def summarise(self, task: SummaryTask) -> IndexSummary:
        """Return the summary of all rows, with a sample and the sum of the weights."""
        ...

    def place(self, task: PlaceTask) -> Sequence[PlacedFile]:
        """Write all rows to new files and return these. Files of failed attempts are not returned."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class DistributedRows:
    """The rows of a source, read in two passes: one summarises them, one places them.

    See `qbeast_core.table.engine.engine.Rows`.
    """

    passes: Passes
    target: FileTarget
    progress: ProgressCallback | None
    # Size of a row in memory. None: derived from the schema.
    row_bytes: float | None = None
    # Maximum number of rows per file.
    max_file_rows: int | None = None
    # See `PlaceTask`.
    part: tuple[Revision, bool] | None = None
    summaries: dict[tuple[str, ...], IndexSummary] = field(
        default_factory=dict[tuple[str, ...], IndexSummary]
    )

    @property
    def in_memory_rows(self) -> pl.DataFrame:
        """See `Rows`; empty, because the rows are not in this process."""
        return self.target.shape.schema.to_frame()

    @property
    def height(self) -> int:
        """See `Rows`."""
        for summary in self.summaries.values():
            return summary.rows
        return self.passes.count()

    def summary(self, names: Sequence[str], *, cube_size: int | None = None) -> IndexSummary:
        """See `Rows`."""
        if tuple(names) not in self.summaries:
            task = self._summary_task(names, cube_size=cube_size)
            self.summaries[tuple(names)] = self.passes.summarise(task)
        return self.summaries[tuple(names)]

    def split(self, revision: Revision) -> tuple[Rows | None, Rows | None]:
        """See `Rows`. Parts are not split again."""
        names = revision.columns
        both = self.passes.summarise(self._summary_task(names, apart=revision))
        inside, outside = replace(both, outside=None), both.outside
        if outside is None:
            raise AssertionError  # `apart` is set
        self.summaries[names] = merge_summaries([inside, outside], limits=domain_limits())
        if not outside.rows:
            return self, None
        if not inside.rows:
            return None, self
        return (
            replace(self, part=(revision, False), summaries={names: inside}),
            replace(self, part=(revision, True), summaries={names: outside}),
        )

    def plan(self, revision: Revision | None, tree: ExistingTree | None) -> WritePlan:
        """Draw the tree from the sample and partition it into files."""
        if revision is None:
            return unindexed_plan(partial(self.passes.write_plain, self.target))
        summary = self.summary(revision.columns)
        report(self.progress, Progress("plan", rows=summary.rows))
        weights = frame_weights(summary.sample, revision.hashed)
        partitions = partitions_of(tree).with_rows(summary.partitions)
        outline, keys = _draw(summary, weights, revision, tree, partitions)
        table_rows = max(self.target.table_rows, summary.rows)
        row_bytes = self.row_bytes or guess_row_bytes(self.target.shape.schema)
        file_rows = min(rows_per_file(row_bytes, table_rows), self.max_file_rows or summary.rows + 1)
        roots, share = _roots(outline, partitions.numbers(summary.partitions)), _share(summary)
        starts, cube_count = _file_starts(keys, outline, tree, roots, file_rows=file_rows, share=share)
        task = PlaceTask(
            target=replace(self.target, table_rows=table_rows),
            revision=revision,
            outline=outline,
            file_starts=starts,
            file_rows=file_rows,
            rows=summary.rows,
            weight_sum=summary.weight_sum,
            partitions=partitions,
            part=self.part,
        )
        return WritePlan(
            file_count=task.file_count,
            cube_count=cube_count,
            design_effect=design_effect(weights, share=share),
            keys=lambda: KeySketch.of(np.sort(weights)),
            write=lambda: self._write(task),
        )

    def _schema(self, names: Sequence[str]) -> pl.Schema:
        return pl.Schema({name: self.target.shape.schema[name] for name in names})

    def _summary_task(
        self, names: Sequence[str], *, cube_size: int | None = None, apart: Revision | None = None
    ) -> SummaryTask:
        return SummaryTask(
            self._schema(names),
            cube_size,
            apart=apart,
            partitions=self._schema(self.target.columns.partitions),
            sample_by=self._schema(self.target.sample_by),
        )

    def _write(self, task: PlaceTask) -> list[AddFile]:
        report(self.progress, Progress("write", 0, task.file_count, task.rows))
        files = self.passes.place(task)
        rows = sum(file.rows for file in files)
        if (rows, sum(file.weight_sum for file in files)) != (task.rows, task.weight_sum):
            delete_data_files(task.target.store, [file.add for file in files])
            msg = (
                f"the rows changed while they were written: {task.rows:,} rows were counted, then {rows:,} were read, "
                f"or indexed values differed. {self.passes.advice}"
            )
            raise InputChangedError(msg, rows_before=task.rows, rows_after=rows)
        report(self.progress, Progress("write", len(files), len(files), rows))
        return with_final_thresholds(files, task.outline)


def _share(summary: IndexSummary) -> float:
    return summary.sample.height / summary.rows if summary.rows else 1.0


def _draw(
    summary: IndexSummary,
    weights: I32Array,
    revision: Revision,
    tree: ExistingTree | None,
    partitions: Partitions,
) -> tuple[Outline, U64Array]:
    """Draw the tree from the sample. Return it with the sorted keys of the sample."""
    size = revision.desired_cube_size
    cells, trees = grid_columns(summary.sample, revision), partitions.numbers(summary.sample)
    outline = draw_outline(
        cells,
        weights,
        rows_each=1.0 / _share(summary),
        cube_size=size,
        existing=tree,
        smallest_block_rows=smallest_block_rows(size),
        trees=trees,
        tree_count=partitions.tree_count,
    )
    return outline, np.sort(sort_keys(outline, outline.place(cells, weights, trees), weights))


def _roots(outline: Outline, trees: I64Array | None) -> U64Array:
    """Return the lowest sort keys of trees, by their numbers; None: there is one tree."""
    if trees is None:
        return np.zeros(1, np.uint64)
    return np.sort(outline.places_in_files[trees].astype(np.uint64)) << _WEIGHT_BITS


def _file_starts(
    keys: U64Array,
    outline: Outline,
    tree: ExistingTree | None,
    roots: U64Array,
    *,
    file_rows: int,
    share: float,
) -> tuple[U64Array, int]:
    """Return the first sort key of each file, and how many cubes have sampled rows, a share of all rows.

    Files end at the end of a cube if one is near. `keys` are those of the sampled rows, ascending, `roots` the lowest
    keys of all trees with rows, including trees without sampled rows.
    """
    numbers, counts = np.unique(keys >> _WEIGHT_BITS, return_counts=True)
    if not len(keys):
        return np.zeros(0, np.uint64), 0
    cubes = outline.cubes.at(outline.nodes_in_files[numbers])
    packed = pack_cubes(cubes, counts.astype(np.int64), tree, file_rows=file_rows, share=share)
    cuts = packed.file_starts[:-1]
    begins = np.cumsum(counts) - counts
    index = np.minimum(np.searchsorted(begins, cuts), len(begins) - 1)
    is_cube_start = begins[index] == cuts
    # A cube that is not cut starts at its lowest key: rows outside the sample may have lower weights.
    starts = np.where(is_cube_start, numbers[index] << _WEIGHT_BITS, keys[cuts])
    # The first file of a tree begins at the root: rows outside the sample may be in higher cubes.
    is_first = np.diff(np.searchsorted(roots, starts, side="right"), prepend=-1) != 0
    starts = distinct(np.concatenate([starts[~is_first], roots]))
    starts[0] = 0
    return starts, len(counts)


def draw_outline(
    cells: list[U32Array],
    weights: I32Array,
    *,
    rows_each: float,
    cube_size: int,
    existing: ExistingTree | None = None,
    smallest_block_rows: int = 0,
    trees: I64Array | None = None,
    tree_count: int = 1,
) -> Outline:
    """Build the trees of many rows from a uniform sample of them.

    `trees` are the numbers of the sampled rows' trees. The outline has a root for each of `tree_count` trees.
    Thresholds and leaves come from the sampled counts; with a sample of fraction p, the error of the count of a cube
    of n rows is about ``1 / sqrt(p * n)``. If all rows are in the sample, this is the tree of `assign_rows`.
    """
    builder = TreeBuilder(
        cells,
        weights,
        cube_size,
        existing=existing,
        smallest_block_rows=smallest_block_rows,
        rows_each=rows_each,
        trees=trees,
    )
    builder.build()
    roots = np.arange(tree_count)
    levels = _levels(builder, roots) if builder.levels else [_blank(roots)]
    return Outline(len(cells), tuple(levels))


def _levels(builder: TreeBuilder, roots: I64Array) -> list[OutlineLevel]:
    """Join the sampled nodes and the live nodes below open nodes, level by level."""
    dimensions = len(builder.cells)
    no_keys = np.zeros(0, np.int64)
    ends = np.cumsum([len(level.keys) for level in builder.levels])
    used = np.bincount(builder.row_cube, minlength=builder.node_count) > 0
    thresholds = np.split(builder.final_thresholds(used), ends[:-1])
    levels: list[OutlineLevel] = []
    # A sample of the new rows misses live cubes, and live cubes miss regions that only new rows reach, so both are
    # joined. `sampled_at` and `live_at` are the positions in the outline of the nodes of the level above, or -1 if
    # missing or below a leaf.
    sampled_at = live_at = no_keys
    for depth, (sampled, live) in enumerate(zip_longest(builder.levels, builder.tree.levels)):
        sampled_keys, live_keys = (no_keys if level is None else level.keys for level in (sampled, live))
        if depth:
            sampled_keys = _keys(sampled_at, sampled_keys, dimensions)
            live_keys = _keys(live_at, live_keys, dimensions)
        keys = distinct(np.concatenate([sampled_keys, live_keys])) if depth else roots
        keys = keys[keys >= 0]
        if not len(keys):
            break
        sampled_at, live_at = _positions(keys, sampled_keys), _positions(keys, live_keys)
        level = _blank(keys)
        if live is not None:
            _put(level.thresholds, live_at, _live_bounds(live, depth))
            _put(level.live_below, live_at, live.has_descendants)
        if sampled is not None:
            _put(level.thresholds, sampled_at, thresholds[depth])
        levels.append(level)
        closed = level.thresholds == MAX_WEIGHT  # nothing lies below a leaf
        sampled_at, live_at = (
            np.where((position >= 0) & ~closed[np.maximum(position, 0)], position, -1)
            for position in (sampled_at, live_at)
        )
    return levels


def _live_bounds(level: ExistingLevel, depth: int) -> I32Array:
    """Return thresholds for live cubes that no sampled row reached.

    A cube with blocks takes all rows. A cube without blocks stays below the weights of its descendants;
    otherwise it would break the order of weights along the branch.
    """
    if depth >= GRID_BITS:
        return np.full(len(level.keys), MAX_WEIGHT, np.int32)
    below = np.maximum(level.lowest_below.astype(np.int64) - 1, MIN_WEIGHT)
    return np.where(level.has_blocks, MAX_WEIGHT, below).astype(np.int32)


def _keys(at: I64Array, keys: I64Array, dimensions: int) -> I64Array:
    """Return the keys of nodes in the outline; -1 if the parent is missing or closed."""
    positions = at[keys >> dimensions]
    return np.where(positions >= 0, (positions << dimensions) | (keys & ((1 << dimensions) - 1)), -1)


def _positions(level_keys: I64Array, keys: I64Array) -> I64Array:
    return np.where(keys >= 0, np.searchsorted(level_keys, np.maximum(keys, 0)), -1)


def _blank(keys: I64Array) -> OutlineLevel:
    return OutlineLevel(keys, np.full(len(keys), MAX_WEIGHT, np.int32), np.zeros(len(keys), np.bool_))


def _put(target: np.ndarray[Any, Any], positions: I64Array, values: np.ndarray[Any, Any]) -> None:
    kept = positions >= 0
    target[positions[kept]] = values[kept]
