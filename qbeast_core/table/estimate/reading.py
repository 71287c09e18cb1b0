"""Read the rows of a question: keys between two fractions, and all rows of files without index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NoReturn, cast

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.query.filters.nodes import Unknown
from qbeast_core.query.filters.rest import parse_rest
from qbeast_core.query.plan.counting import RowCount, count_rows
from qbeast_core.query.plan.drawn import apart, draw
from qbeast_core.query.plan.fractions import Sample
from qbeast_core.query.plan.select import match
from qbeast_core.query.plan.weights import ALL_WEIGHTS, KeyChoice
from qbeast_core.sampling.aggregates import Aggregates
from qbeast_core.sampling.batch import RowSums
from qbeast_core.sampling.sums import WEIGHT, Parts, Sums
from qbeast_core.space.arrays import BoolArray
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.expressions import evaluating
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.estimate.heavy_rows import (
    NO_HEAVY_ROWS,
    HeavyRows,
    heavy_rows,
    rows_without_list,
)
from qbeast_core.table.estimate.per_key import (
    PerKey,
    RangeSums,
    TooLarge,
    gathered,
    narrower_plans,
    split_plan,
)
from qbeast_core.table.estimate.question import Question
from qbeast_core.table.estimate.task import TaskSums, sums_of
from qbeast_core.table.index.key_counts import counts_of
from qbeast_core.table.read.explain import Plan
from qbeast_core.table.read.reader import Planner, Reader, ScanPlan
from qbeast_core.table.read.scan_task import read_parts
from qbeast_core.table.read.split_scan import all_parts, scan_tasks

# If a filter opens at least this fraction of the rows, samples also read the rows that it drops: calibration to the
# known number of all rows is worth more than the savings of the index.
_MIN_OPENED = 0.5

# Maximum fraction of the opened rows that are read to count matches.
_MAX_COUNTED = 0.5

_COUNT = Aggregates((), (pl.lit(1, pl.Int32),), {})

# Maximum number of tasks that the driver reads to find a matching row.
_MAX_CENTRE_TASKS = 8

# Maximum fraction of the opened rows that may be in files without a list of heavy keys.
_MAX_UNLISTED = 0.01

# Copies of the rows of whole keys in memory while they are grouped.
_ROW_COPIES = 4

# Ranges of equal width have different numbers of rows.
_MARGIN = 1.25

# Size of a task that is never split.
_UNLIMITED = 1 << 62

# From this design effect on, each batch is summed by key, which saves memory.
_MIN_EFFECT = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A planned read."""

    plan: Plan
    by_key: bool
    # The remaining question for the rows that the plan returns.
    left: Question


@dataclass(eq=False)
class Reading:
    """Plans and reads of one question, and their cost."""

    reader: Reader
    question: Question
    # Number of rows of the samples.
    rows_read: int = 0
    # Bytes of data files; pages that are read twice count twice.
    bytes_opened: int = 0
    # Reads the rows; None to read batches in this process.
    engine: Engine | None = None
    # Number of matching rows of files with an index, if counted.
    counted: int | None = field(default=None, init=False)
    _kept_apart: int = field(default=0, init=False)
    # Rows of keys that were read apart, also those that do not match if these are counted.
    _rows_apart: int = field(default=0, init=False)
    # Empty until they are known; until then, batches must be summed in order.
    _centres: dict[str, float] = field(default_factory=dict[str, float], init=False)
    # By sample, pushed, indexed and by_key. A round is planned twice: for its cost, then to read it.
    _windows: dict[tuple[Sample | None, bool, bool, bool], Window | None] = field(
        default_factory=dict[tuple[Sample | None, bool, bool, bool], Window | None], init=False
    )

    @cached_property
    def unplaced(self) -> BoolArray:
        """Files whose rows are all read: without index, or without an index of the columns to sample by."""
        unplaced = self.reader.blocks.unplaced_files
        if self.reader.sample_by is not None:
            return np.ones_like(unplaced)
        return np.zeros_like(unplaced) if self.question.whole_keys else unplaced

    @property
    def rows_known(self) -> int | None:
        """Number of rows of the population; None if the log does not have it."""
        if self.counted is not None:
            return self.counted - self._kept_apart
        rows = self.rows_indexed
        if rows is None:
            return None
        return rows - self._rows_apart - self.heavy.rows_apart(self.reader.deleted_rows)

    @cached_property
    def rows_indexed(self) -> int | None:
        """Rows of the files with an index, without deleted ones; None if the log does not have it."""
        table, files = self.reader.blocks, ~self.unplaced
        if table.replicated.any() or (table.num_records[files] < 0).any():
            return None
        deleted = sum(len(rows) for number, rows in self.reader.deleted_rows.items() if files[number])
        return int(table.num_records[files].sum()) - deleted

    @cached_property
    def farthest(self) -> dict[int, float]:
        """Largest magnitude of the column of each total, by number of the total, if the log has it."""
        if self.question.per is not None:
            return {}
        files = self.reader.snapshot.files.filter(pl.Series(~self.unplaced))
        plain = self.question.aggregates.plain.items()
        magnitudes = {number: _farthest(files, name) for number, name in plain}
        return {number: magnitude for number, magnitude in magnitudes.items() if magnitude is not None}

    @cached_property
    def design_effect(self) -> float:
        """Design effect of samples of the table."""
        return counts_of(self.reader.snapshot).lower_bound

    @cached_property
    def rows_opened(self) -> int:
        """Approximate number of rows that the filter opens in files with an index."""
        return int(self._kept.selection.rows_opened[~self.unplaced].sum())

    @cached_property
    def _kept(self) -> ScanPlan:
        """The read of all rows that the index does not exclude."""
        return self._planners[True](None)

    @cached_property
    def heavy(self) -> HeavyRows:
        """The heavy keys that the tags of files list."""
        if self.question.aggregates.counts_keys:
            return NO_HEAVY_ROWS  # each key counts once, however many rows it has
        whole_keys = self.question.whole_keys
        return heavy_rows(self.reader, self._kept.selection, rows=self.rows_opened, whole_keys=whole_keys)

    @property
    def is_calibrated(self) -> bool:
        """Whether totals are calibrated to a known number of rows."""
        return self.counted is not None or (self._compares_all and self.question.per is None)

    @cached_property
    def _compares_all(self) -> bool:
        """Whether the number of all rows is compared, so samples also read rows that a filter drops."""
        if self.rows_indexed is None or self.question.aggregates.counts_keys:
            return False
        if self.question.per is not None:  # to detect heavy keys that are not listed; nothing is calibrated
            return self.question.pushed is None or self._lacks_lists
        return self.question.pushed is None or self.rows_opened >= _MIN_OPENED * self.rows_indexed

    @property
    def _lacks_lists(self) -> bool:
        """Whether many of the opened rows are in files without a list of heavy keys."""
        return rows_without_list(self.reader, self._kept.selection) > _MAX_UNLISTED * self.rows_opened

    def count(self, max_bytes: float) -> bool:
        """Count the matching rows of files with an index exactly; return whether the count is known.

        The log has the counts of cubes and files that are completely inside or outside of the conditions. For the
        others, the columns of the conditions are read, unless that needs more than `max_bytes`.
        """
        if self.counted is None and self.row_count is not None:
            count, window = self.row_count
            if window is None:
                self.counted = count.known
            elif window.plan.bytes_opened <= max_bytes:
                self.counted = self._counted_rows(count, window)
        return self.counted is not None

    @property
    def squares(self) -> float | None:
        """Minimum sum of the squared row counts of all keys; None if samples are not compared with all rows."""
        return self.heavy.others if self.counted is None and self._compares_all else None

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Minimum and maximum number of the rows that samples read of indexed files; None if unknown."""
        if self.question.per is not None and self._compares_all and self.rows_known is not None:
            return self.rows_known, self.rows_known
        count = None if self.is_calibrated else self._kept_rows
        if count is None:
            return None
        min_rows = count.known - self._kept_apart
        return max(min_rows, 0), min_rows + count.rows_read

    @cached_property
    def row_count(self) -> tuple[RowCount, Window | None] | None:
        """The count of matching rows from the log, and the read that counts the rest; None if that costs too much."""
        count, condition = self._kept_rows, self.question.pushed
        is_per_key = self.question.per is not None
        if is_per_key or count is None or condition is None:
            return None
        if count.rows_read > _MAX_COUNTED * self.rows_opened:
            return None
        if not count.undecided.opened.any():
            return count, None
        columns = tuple(dict.fromkeys(condition.meta.root_names()))
        read = Plan(self.reader, ScanPlan(count.undecided, ALL_WEIGHTS, None), None, columns)
        left = replace(self.question, aggregates=_COUNT, groups={}, lookup=None, columns=columns)
        return count, Window(read, by_key=False, left=left)

    @cached_property
    def _kept_rows(self) -> RowCount | None:
        """The count of matching rows from cubes and files, and the undecided part; None if unknown."""
        condition = self.question.pushed
        if condition is None or self.question.late is not None or self.question.aggregates.counts_keys:
            return None
        rest = parse_rest(condition, self.reader.snapshot.schema)
        if isinstance(rest, Unknown):
            return None
        selection = self._kept.selection
        return count_rows(
            selection.table,
            selection.blocks,
            match(selection.table, rest).blocks,
            files=~self.unplaced,
            deleted=self.reader.deleted_rows,
        )

    def _counted_rows(self, count: RowCount, window: Window) -> int | None:
        """Count the undecided rows; None if the read returns another number of rows than planned."""
        rows_before = self.rows_read
        kept = sum(int(sums.totals()[0, 0]) for sums in self._batches(window))
        self.bytes_opened += window.plan.bytes_opened
        return count.known + kept if self.rows_read - rows_before == count.rows_read else None

    @cached_property
    def _planners(self) -> tuple[Planner, ...]:
        """Planners of reads without and with the conditions."""
        return self.reader.planner(None), self.reader.planner(self.question.pushed)

    def read_apart(self, *, max_bytes: int) -> list[Sums]:
        """Read the rows that samples skip, once; see `HeavyRows`."""
        stretches, keys = self.apart
        sums = self.read(stretches, max_bytes=max_bytes)
        before = self.rows_read
        sums += self.read(keys, max_bytes=max_bytes)
        self._rows_apart = self.rows_read - before
        per_key = self.question.per is not None
        kept = (int(part.totals()[:, 0].sum()) for part in sums)
        self._kept_apart = self._rows_apart if per_key else sum(kept)
        return sums

    @cached_property
    def bytes_apart(self) -> int:
        """Bytes of the rows that samples skip."""
        return sum(window.plan.bytes_opened for window in self.apart if window is not None)

    @cached_property
    def apart(self) -> tuple[Window | None, Window | None]:
        """The reads of the rows that samples skip: stretches of rows, and all rows of keys."""
        return self._stretches_apart(), self._keys_apart()

    def _stretches_apart(self) -> Window | None:
        """Return the read of the stretches that samples skip; None if there are none."""
        if not any(file_draw.apart for file_draw in self.heavy.files.values()):
            return None
        selection = apart(self._kept.selection, self.heavy.files)
        plan = Plan(self.reader, replace(self._kept, selection=selection), None, self.question.columns)
        return Window(plan, by_key=False, left=self.question.left) if selection.opened.any() else None

    def _keys_apart(self) -> Window | None:
        """Return the read of all rows of the keys that samples skip; None if there are none."""
        if not len(self.heavy.keys):
            return None
        pushed = self._pushes(by_key=True)
        plan = self._planners[pushed].of_keys(self.heavy.keys)
        opened = plan.selection.opened & ~self.unplaced
        plan = replace(plan, selection=replace(plan.selection, opened=opened))
        read = Plan(self.reader, plan, None, self.question.columns)
        left = self.question.left if pushed else self.question
        return Window(read, by_key=False, left=left) if opened.any() else None

    def _pushes(self, *, by_key: bool) -> bool:
        """Whether a read leaves out rows that the conditions exclude. Totals may be calibrated to all rows."""
        return self.counted is not None or not (by_key and self._compares_all)

    def without_index(self) -> Window | None:
        """Return the read of all rows without index; None if there are none."""
        return self._window(None, pushed=True, indexed=False, by_key=False)

    def between(self, start: float, end: float, *, by_key: bool) -> Window | None:
        """Return the read of the indexed rows between two fractions; None if it opens no file."""
        sample = None if (start, end) == (0.0, 1.0) else (start, end)
        return self._window(sample, pushed=self._pushes(by_key=by_key), indexed=True, by_key=by_key)

    def _window(self, sample: Sample | None, *, pushed: bool, indexed: bool, by_key: bool) -> Window | None:
        """Return the plan of a read, cached; None if it opens no file."""
        if indexed and self.unplaced.all():
            return None
        kind = sample, pushed, indexed, by_key
        if kind not in self._windows:
            plan = self._kept if pushed and sample is None else self._planners[pushed](sample)
            if sample is not None and indexed and self.heavy.files:
                matching = (self._kept if pushed else self._planners[False](None)).selection
                plan = replace(plan, selection=draw(plan.selection, matching, self.heavy.files, plan.weights))
            if sample is not None and indexed and len(self.heavy.keys):
                plan = replace(plan, keys=KeyChoice(self.heavy.keys, only=False))
            opened = plan.selection.opened & (self.unplaced != indexed)
            opened_plan = replace(plan, selection=replace(plan.selection, opened=opened))
            read = Plan(self.reader, opened_plan, sample, self.question.columns)
            remaining = self.question.left if pushed else self.question
            self._windows[kind] = Window(read, by_key, remaining) if opened.any() else None
        return self._windows[kind]

    def read(self, window: Window | None, *, max_bytes: int | None = None) -> list[Sums]:
        """Read a window and sum its rows, in parts; several parts may hold the same key."""
        parts = Parts(self.question.by)
        if window is not None:
            for sums in self._batches(window):
                parts.add(sums)
                if max_bytes is not None and parts.size_bytes > max_bytes:
                    self._refuse_memory(parts.size_bytes, max_bytes, by_key=window.by_key)
            if self.question.per is None:
                self.bytes_opened += window.plan.bytes_opened
        return parts.sums

    def _refuse_memory(self, used_bytes: int, max_bytes: int, *, by_key: bool) -> NoReturn:
        question = self.question
        reasons = {
            "keys": "for an error, or for a smaller sample" if by_key else None,
            "groups": "for fewer groups" if question.by else None,
            "distinct keys": "for no distinct keys" if question.aggregates.shown else None,
            "values for quantiles": "for no quantiles" if question.aggregates.quantiles else None,
        }
        what = " and ".join(what for what, cure in reasons.items() if cure)
        cures = ", or ".join(cure for cure in reasons.values() if cure)
        message = (
            f"after {self.rows_read:,} rows, {what} take {used_bytes:,} bytes of memory, more than the limit of "
            f"{max_bytes:,}; no answer was computed. Increase `memory_bytes`, or ask {cures}"
        )
        raise InvalidInputError(message, argument="memory_bytes")

    @cached_property
    def nothing(self) -> Sums:
        """The sums of no rows."""
        schema, per = self.reader.snapshot.schema, self.question.per
        columns = {name: schema[name] for name in self.question.columns} if per is None else dict(per.schema)
        types = pl.Schema({**columns, WEIGHT: pl.Int32()})
        return self._row_sums(self.question).of(pl.DataFrame(schema=types), sizes=self.is_calibrated)

    def _batches(self, window: Window) -> Iterator[Sums]:
        for rows, sums in self._parts(window):
            self.rows_read += rows
            if rows:
                yield sums

    def _parts(self, window: Window) -> Iterable[tuple[int, Sums]]:
        if self.question.per is not None:
            return self._whole_keys(window)
        return self._here(window) if self.engine is None else self._by_tasks(window, self.engine)

    def _by_tasks(self, window: Window, engine: Engine) -> Sequence[tuple[int, Sums]]:
        """Read and sum by tasks of the engine."""
        name = WEIGHT if window.by_key else None
        plan = window.plan.scan_plan
        tasks = scan_tasks(self.reader, plan, window.left.columns, weight_column=name)
        if tasks:
            # For all tasks from the first few, because sums with different centres cannot be added.
            self._find_centres(
                (frame for task in tasks[:_MAX_CENTRE_TASKS] for frame in task.read()), window.left
            )
            self._centres = self._centres or dict.fromkeys(window.left.aggregates.centres, 0.0)
        call = TaskSums(self._row_sums(window.left), sizes=window.by_key and self.is_calibrated)
        return engine.map(call, tasks, at_once=1)

    def _whole_keys(self, window: Window) -> Iterator[tuple[int, Sums]]:
        """Read all rows of keys in ranges of weights whose rows fit in memory."""
        planner = self._planners[window.plan.scan_plan.predicate is not None]
        parts = split_plan(window.plan, planner, self._ranges(window))
        while parts:
            narrower = list[Plan]()
            for part, (rows, sums) in zip(parts, self._sums_of_ranges(window, parts), strict=True):
                self.bytes_opened += part.bytes_opened
                if isinstance(sums, TooLarge):
                    narrower += narrower_plans(part, planner, sums)
                else:
                    yield rows, sums
            parts = narrower

    def _ranges(self, window: Window) -> int:
        """Return the number of ranges whose rows are expected to fit in memory; at least one per task."""
        columns = window.left.columns
        types = {name: self.reader.snapshot.schema[name] for name in columns} | {WEIGHT: pl.Int32()}
        row = pl.DataFrame({name: [None] for name in types}, types)
        rows_bytes = window.plan.rows_opened * row.estimated_size()
        ranges = math.ceil(_MARGIN * rows_bytes / self._max_rows_bytes)
        if self.engine is None:
            return ranges
        return max(ranges, len(scan_tasks(self.reader, window.plan.scan_plan, columns)))

    @property
    def _max_rows_bytes(self) -> int:
        """Memory for the rows of a range."""
        return self.question.memory_bytes // _ROW_COPIES

    def _sums_of_ranges(self, window: Window, parts: Sequence[Plan]) -> Iterable[tuple[int, Sums | TooLarge]]:
        """Read ranges of weights; return the number of rows of each, and their sums."""
        engine, left = self.engine, window.left
        if engine is None:
            return (self._range_here(window, part.scan_plan) for part in parts)
        # A task reads a whole range.
        name = WEIGHT if window.by_key or len(parts) > 1 else None
        split = partial(
            scan_tasks, self.reader, columns=left.columns, task_bytes=_UNLIMITED, weight_column=name
        )
        tasks = [task for part in parts for task in split(part.scan_plan)]
        keys = self._range_sums(window).keys
        self._find_centres((keys(frame) for task in tasks[:_MAX_CENTRE_TASKS] for frame in task.read()), left)
        self._centres = self._centres or dict.fromkeys(left.aggregates.centres, 0.0)
        return engine.map(self._range_sums(window), tasks, at_once=1)

    def _range_here(self, window: Window, plan: ScanPlan) -> tuple[int, Sums | TooLarge]:
        by_key = window.by_key or not plan.weights.is_full
        frames = self._frames(plan, window.left.columns, by_key=by_key)
        with evaluating(self.question.condition, "where", "no answer was computed"):
            rows, frame = gathered(frames, self._max_rows_bytes)
        if isinstance(frame, TooLarge):
            return rows, frame
        if not rows:
            return 0, self.nothing
        self._find_centres(map(self._range_sums(window).keys, [frame]), window.left)
        return rows, self._range_sums(window).sums(frame)

    def _range_sums(self, window: Window) -> RangeSums:
        left = window.left
        rows = RowSums((), (), {}, left.condition, left.lookup, {})
        per = cast("PerKey", left.per)
        return RangeSums(per, rows, self._row_sums(left), window.by_key, self._max_rows_bytes)

    def _here(self, window: Window) -> Iterator[tuple[int, Sums]]:
        by_key = window.by_key and self.design_effect >= _MIN_EFFECT
        sizes = window.by_key and self.is_calibrated
        with evaluating(self.question.condition, "where", "no answer was computed"):
            # One batch at a time: Polars runs each on all of its threads.
            frames = self._frames(window.plan.scan_plan, window.left.columns, by_key=window.by_key)
            for frame in _large(frames):
                self._find_centres([frame], window.left)
                sums = sums_of(self._row_sums(window.left), frame, sizes=sizes)
                yield frame.height, sums.by_key(self.question.by) if by_key else sums

    def _frames(self, plan: ScanPlan, columns: Sequence[str], *, by_key: bool) -> Iterator[pl.DataFrame]:
        keep = replace(self.reader.row_filter(plan, columns), weight_column=WEIGHT if by_key else None)
        return read_parts(all_parts(self.reader, plan), keep, self.reader.files)

    def _row_sums(self, question: Question) -> RowSums:
        per = question.per
        return RowSums(
            totals=question.aggregates.totals,
            quantiles=tuple(quantile.values for quantile in question.aggregates.quantiles),
            groups=question.groups,
            condition=question.condition if per is None else per.condition,
            lookup=question.lookup if per is None else None,
            centres={name: self._centres.get(name, 0.0) for name in question.aggregates.centres},
            key=question.aggregates.key,
            shown=tuple(question.aggregates.shown.values()),
        )

    def _find_centres(self, frames: Iterable[pl.DataFrame], question: Question) -> None:
        """Compute the centres once, from the first frame with matching rows."""
        if self._centres or not question.aggregates.centres:
            return
        for frame in frames:
            kept = self._row_sums(question).kept(frame.lazy()).collect()
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


def _farthest(files: pl.DataFrame, column: str) -> float | None:
    """Return the largest magnitude of the bounds of a column over all files; None if a file lacks them."""
    try:
        bounds = files.select(pl.col(bound).struct.field(column).alias(bound) for bound in ("min", "max"))
    except pl.exceptions.PolarsError:  # the log has no bounds of this column
        return None
    if not all(dtype.is_numeric() for dtype in bounds.dtypes):
        return None
    values = pl.concat([series.cast(pl.Float64) for series in bounds])
    if values.is_empty() or values.null_count() or not values.is_finite().all():
        return None
    return float(values.abs().to_numpy().max())
