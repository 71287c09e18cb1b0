"""Read the rows of a plan and sum them: in this process, in tasks of an engine, or in ranges of whole keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TypeAlias, cast

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.plan.weights import WeightRange
from qbeast_core.sampling.sums import WEIGHT, RowSums, Sums
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.expressions import evaluating
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.estimate.question import Question
from qbeast_core.table.estimate.sum_task import PerKey, RangeSums, TooLarge, gathered, sums_of, sums_of_task
from qbeast_core.table.read.explain import Plan
from qbeast_core.table.read.planner import FilterPlanner, Planner, ScanPlan, scan_tasks, scans_of
from qbeast_core.table.read.tasks import read_scans

# Maximum number of tasks that the driver reads to find a matching row.
_MAX_CENTRE_TASKS = 8

# Copies of the rows of whole keys in memory while they are grouped: three for a sum, up to five for `n_unique`.
_ROW_COPIES = 4

# Ranges of equal width have different numbers of rows.
_MARGIN = 1.25

# Bytes opened, number of rows, and their sums, None without rows.
_Part: TypeAlias = tuple[int, int, Sums | None]

# Size of a task that is never split.
_UNLIMITED = 1 << 62


@dataclass(eq=False)
class Summing:
    """Reads rows, and sums them by group and key."""

    planner: Planner
    question: Question
    # Planners of reads without and with the conditions.
    filtered_plans: tuple[FilterPlanner, ...]
    # Reads the rows; None to read batches in this process.
    engine: Engine | None
    # Whether to sum each batch by key, which saves memory if keys have many rows.
    sums_by_key: bool
    # Empty until they are known; until then, batches must be summed in order.
    _centres: dict[str, float] = field(default_factory=dict[str, float], init=False)

    def nothing(self, *, sizes: bool) -> Sums:
        """Return the sums of no rows."""
        schema, per = self.planner.snapshot.schema, self.question.per
        columns = {name: schema[name] for name in self.question.columns} if per is None else dict(per.schema)
        types = pl.Schema({**columns, WEIGHT: pl.Int32()})
        return self._row_sums(self.question).of(pl.DataFrame(schema=types), sizes=sizes)

    def parts(self, plan: Plan, left: Question, *, by_key: bool, sizes: bool) -> Iterator[_Part]:
        """Yield the sums of the rows of a plan, in parts; several parts may hold the same key.

        `left` is the remaining question for the rows. `sizes`: count all rows of each key, also those that do not
        match.
        """
        if left.per is not None:
            yield from self._whole_keys(plan, left, by_key=by_key)
            return
        here = self._here if self.engine is None else self._by_tasks
        for rows, sums in here(plan, left, by_key=by_key, sizes=sizes):
            yield 0, rows, sums if rows else None
        yield plan.bytes_opened, 0, None

    def ranges(self, plan: Plan) -> list[Plan]:
        """Split a read into ranges whose rows are expected to fit in memory; at least one per task."""
        columns = plan.columns
        types = {name: self.planner.snapshot.schema[name] for name in columns} | {WEIGHT: pl.Int32()}
        row = pl.DataFrame({name: [None] for name in types}, types)
        ranges = math.ceil(_MARGIN * plan.rows_opened * row.estimated_size() / self._max_rows_bytes)
        if self.engine is not None:
            ranges = max(ranges, len(scan_tasks(self.planner, plan.scan_plan, columns)))
        return split_plan(plan, self._filtered_of(plan), ranges)

    def frames(self, plan: ScanPlan, columns: Sequence[str], *, by_key: bool) -> Iterator[pl.DataFrame]:
        """Read rows in this process, with their weights if they are read by key."""
        keep = replace(self.planner.row_filter(plan, columns), weight_column=WEIGHT if by_key else None)
        return read_scans(scans_of(self.planner, plan), keep, self.planner.files)

    def _here(self, plan: Plan, left: Question, *, by_key: bool, sizes: bool) -> Iterator[tuple[int, Sums]]:
        with evaluating(self.question.condition, "where"):
            # One batch at a time: Polars runs each on all of its threads.
            for frame in _large(self.frames(plan.scan_plan, left.columns, by_key=by_key)):
                self._find_centres([frame], left)
                for piece in self._row_sums(left).pieces(frame):
                    sums = sums_of(self._row_sums(left), piece, sizes=sizes)
                    is_merged = by_key and self.sums_by_key
                    yield piece.height, sums.by_key(self.question.by) if is_merged else sums

    def _by_tasks(
        self, plan: Plan, left: Question, *, by_key: bool, sizes: bool
    ) -> Sequence[tuple[int, Sums]]:
        """Read and sum by tasks of the engine."""
        engine, name = cast("Engine", self.engine), WEIGHT if by_key else None
        tasks = scan_tasks(self.planner, plan.scan_plan, left.columns, weight_column=name)
        if tasks:
            # For all tasks from the first few, because sums with different centres cannot be added.
            self._find_centres((frame for task in tasks[:_MAX_CENTRE_TASKS] for frame in task.read()), left)
            self._centres = self._centres or dict.fromkeys(left.aggregates.centres, 0.0)
        return engine.map(partial(sums_of_task, row_sums=self._row_sums(left), sizes=sizes), tasks, at_once=1)

    def _whole_keys(self, plan: Plan, left: Question, *, by_key: bool) -> Iterator[_Part]:
        """Read all rows of keys in ranges of weights whose rows fit in memory."""
        parts, filtered = self.ranges(plan), self._filtered_of(plan)
        while parts:
            narrower = list[Plan]()
            found = self._sums_of_ranges(parts, left, by_key=by_key)
            for part, (rows, sums) in zip(parts, found, strict=True):
                if isinstance(sums, TooLarge):
                    narrower += _narrower_plans(part, filtered, sums)
                    yield part.bytes_opened, 0, None
                else:
                    yield part.bytes_opened, rows, sums if rows else None
            parts = narrower

    def _filtered_of(self, plan: Plan) -> FilterPlanner:
        return self.filtered_plans[plan.scan_plan.predicate is not None]

    @property
    def _max_rows_bytes(self) -> int:
        """Memory for the rows of a range."""
        return self.question.limits.memory_bytes // _ROW_COPIES

    def _sums_of_ranges(
        self, parts: Sequence[Plan], left: Question, *, by_key: bool
    ) -> Iterable[tuple[int, Sums | TooLarge]]:
        """Read ranges of weights; return the number of rows of each, and their sums."""
        engine = self.engine
        if engine is None:
            return (self._range_here(part.scan_plan, left, by_key=by_key) for part in parts)
        # A task reads a whole range.
        name = WEIGHT if by_key or len(parts) > 1 else None
        split = partial(
            scan_tasks, self.planner, columns=left.columns, task_bytes=_UNLIMITED, weight_column=name
        )
        tasks = [task for part in parts for task in split(part.scan_plan)]
        keys = self._range_sums(left, by_key=by_key).keys
        self._find_centres((keys(frame) for task in tasks[:_MAX_CENTRE_TASKS] for frame in task.read()), left)
        self._centres = self._centres or dict.fromkeys(left.aggregates.centres, 0.0)
        return engine.map(self._range_sums(left, by_key=by_key), tasks, at_once=1)

    def _range_here(self, plan: ScanPlan, left: Question, *, by_key: bool) -> tuple[int, Sums | TooLarge]:
        frames = self.frames(plan, left.columns, by_key=by_key or not plan.weights.is_full)
        with evaluating(self.question.condition, "where"):
            rows, frame = gathered(frames, self._max_rows_bytes)
        if isinstance(frame, TooLarge):
            return rows, frame
        if not rows:
            return 0, self.nothing(sizes=False)
        self._find_centres(map(self._range_sums(left, by_key=by_key).keys, [frame]), left)
        return rows, self._range_sums(left, by_key=by_key).sums(frame)

    def _range_sums(self, left: Question, *, by_key: bool) -> RangeSums:
        rows = RowSums((), (), {}, left.condition, tuple(join.lookup for join in left.joins), {})
        per = cast("PerKey", left.per)
        return RangeSums(per, rows, self._row_sums(left), by_key, self._max_rows_bytes)

    def _row_sums(self, question: Question) -> RowSums:
        per = question.per
        return RowSums(
            totals=question.aggregates.totals,
            quantiles=tuple(quantile.values for quantile in question.aggregates.quantiles),
            groups=question.groups,
            condition=question.condition if per is None else per.condition,
            lookups=tuple(join.lookup for join in question.joins) if per is None else (),
            centres={name: self._centres.get(name, 0.0) for name in question.aggregates.centres},
            key=question.aggregates.key,
            shown=tuple(question.aggregates.shown.values()),
        )

    def _find_centres(self, frames: Iterable[pl.DataFrame], question: Question) -> None:
        """Compute the centres once, from the first frame with matching rows."""
        if self._centres or not question.aggregates.centres:
            return
        row_sums = self._row_sums(question)
        for piece in (piece for frame in frames for piece in row_sums.pieces(frame)):
            kept = row_sums.kept(piece.lazy()).collect()
            if kept.height:
                centres = kept.select(**question.aggregates.centres)
                self._centres = {name: centres[name].item() or 0.0 for name in centres.columns}
                return


def _large(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Concatenate small frames, because each frame costs several queries."""
    waiting, waiting_bytes = list[pl.DataFrame](), 0
    for frame in frames:
        waiting.append(frame)
        waiting_bytes += int(frame.estimated_size())
        if waiting_bytes >= sizing().batch_bytes:
            yield pl.concat(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pl.concat(waiting)


def split_plan(plan: Plan, filtered: FilterPlanner, parts: int) -> list[Plan]:
    """Split the read of all rows of keys into ranges of weights of equal width."""
    if parts <= 1:
        return [plan]
    weights = plan.scan_plan.weights
    edges = np.linspace(weights.from_, weights.to, parts + 1).round().astype(np.int64)
    return _within(plan, filtered, edges.tolist())


def _narrower_plans(plan: Plan, filtered: FilterPlanner, large: TooLarge) -> list[Plan]:
    """Split a range in halves, or before and after a key with most of the rows."""
    weights, key = plan.scan_plan.weights, large.weight
    if weights.to - weights.from_ == 1:
        msg = (
            f"the rows of one key need {large.size_bytes:,} bytes of memory or more, and the limit for rows is "
            f"{large.max_bytes:,}. Increase `memory_bytes`, or select fewer rows by `where`"
        )
        raise InvalidInputError(msg, argument="memory_bytes")
    inner = [(weights.from_ + weights.to) // 2] if key is None else [key, key + 1]
    return _within(plan, filtered, sorted({weights.from_, *inner, weights.to}))


def _within(plan: Plan, filtered: FilterPlanner, edges: Sequence[int]) -> list[Plan]:
    """Split a read at these weights; parts that open no file are left out."""
    whole, parts = plan.scan_plan, list[Plan]()
    for weights in (WeightRange(*ends) for ends in pairwise(edges)):
        if whole.keys is not None and whole.keys.only:
            keys = whole.keys.weights
            part = filtered.of_keys(keys[(keys >= weights.from_) & (keys <= weights.last)])
            part = replace(part, weights=weights)
        else:
            part = replace(filtered.within(weights), keys=whole.keys)
        opened = part.selection.opened & whole.selection.opened
        part = replace(part, selection=replace(part.selection, opened=opened))
        if opened.any():
            parts.append(replace(plan, scan_plan=part))
    return parts
