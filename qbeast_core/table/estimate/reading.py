"""Reads of what a question needs: the keys between two fractions, and all of the files that have no index."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NoReturn

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.estimate.batch import RowSums
from qbeast_core.estimate.sums import WEIGHT, Parts, Sums
from qbeast_core.hints import Message, argument
from qbeast_core.query.counting import RowCount, count_rows
from qbeast_core.query.drawn import apart, draw
from qbeast_core.query.fractions import Sample
from qbeast_core.query.nodes import Unknown
from qbeast_core.query.rest import parse_rest
from qbeast_core.query.select import match
from qbeast_core.query.weights import ALL_WEIGHTS
from qbeast_core.space.arrays import BoolArray
from qbeast_core.table.data.expressions import evaluating
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.estimate.heavy_rows import HeavyRows, heavy_rows
from qbeast_core.table.estimate.question import Question
from qbeast_core.table.estimate.task import TaskSums, sums_of
from qbeast_core.table.index.key_counts import counts_of
from qbeast_core.table.read.explain import Plan
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.scan_task import BATCH_BYTES, ScanTask, read_parts
from qbeast_core.table.read.split_scan import all_parts, scan_tasks

# Where a filter opens this share of the rows or more, rows that it leaves out are read too: how many there
# are is known, which says more than the index saves.
_LEAST_OPENED = 0.5

# Of the rows that a filter opens, at most as many are looked at to count those that it keeps.
_MOST_COUNTED = 0.5

# Tasks that are read here as well, at most, until a row is found that counts.
_TASKS_LOOKED_AT = 8

# Design effect from which on rows are added up by key as they are read: that takes less memory then.
_MANY_ROWS = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A read of one kind."""

    plan: Plan
    by_key: bool
    # What is asked of the rows that the plan gives.
    left: Question


@dataclass(frozen=True, slots=True)
class _Kind:
    """What tells windows apart."""

    sample: Sample | None
    pushed: bool
    indexed: bool
    by_key: bool


@dataclass(eq=False)
class Reading:
    """Plans and reads of one question, and what they have cost."""

    reader: Reader
    question: Question
    # Rows that were read and belonged to the samples asked for.
    rows_read: int = 0
    # Of data files; pages that are read twice count twice.
    bytes_opened: int = 0
    # Who reads; None: this process, batch by batch.
    engine: Engine | None = None
    # Rows of files with an index that the conditions keep, where that was counted.
    counted: int | None = field(default=None, init=False)
    _kept_apart: int = field(default=0, init=False)
    _centres: dict[str, float] | None = field(default=None, init=False)
    _windows: dict[_Kind, Window | None] = field(default_factory=dict["_Kind", Window | None], init=False)

    @cached_property
    def unplaced(self) -> BoolArray:
        """Files without index, which are read whole: their rows are found no other way."""
        return self.reader.blocks.unplaced_files

    @property
    def rows_known(self) -> int | None:
        """Rows that sampled ones are compared with; None where the log does not tell."""
        if self.counted is not None:
            return self.counted - self._kept_apart
        known = self.rows_indexed
        return None if known is None else known - self.heavy.rows_apart(self.reader.deleted_rows)

    @cached_property
    def rows_indexed(self) -> int | None:
        """Rows of the files with an index, without deleted ones; None where the log does not tell."""
        table, files = self.reader.blocks, ~self.unplaced
        if table.replicated.any() or (table.num_records[files] < 0).any():
            return None
        deleted = sum(len(rows) for number, rows in self.reader.deleted_rows.items() if files[number])
        return int(table.num_records[files].sum()) - deleted

    @cached_property
    def farthest(self) -> dict[int, float]:
        """By numbers of totals, how far from zero the columns go that they are sums of, where the log tells."""
        files = self.reader.snapshot.files.filter(pl.Series(~self.unplaced))
        found: dict[int, float] = {}
        for number, name in self.question.aggregates.plain.items():
            far = [_farthest(files, bound, name) for bound in ("min", "max")]
            if None not in far:
                found[number] = max(one for one in far if one is not None)
        return found

    @cached_property
    def design_effect(self) -> float:
        """How clustered samples are."""
        return counts_of(self.reader.snapshot).lower_bound

    @cached_property
    def rows_opened(self) -> int:
        """Rows of the files with an index that the filter opens, about."""
        return int(self._kept.selection.rows_opened[~self.unplaced].sum())

    @cached_property
    def _kept(self) -> ScanPlan:
        """The read of all rows that the index leaves: asked for often."""
        return self._planners[True](None)

    @cached_property
    def heavy(self) -> HeavyRows:
        """The heavy keys that the tags of files list."""
        return heavy_rows(self.reader, self._kept.selection, rows=self.rows_opened)

    @property
    def is_calibrated(self) -> bool:
        """Whether sampled rows are compared with a known number of rows."""
        return self.counted is not None or self._compares_all

    @cached_property
    def _compares_all(self) -> bool:
        """Whether that is the number of all rows, so that those that a filter leaves out are read too."""
        if self.rows_indexed is None:
            return False
        opened = self.rows_opened if self.question.pushed(self.reader.snapshot.schema) is not None else None
        return opened is None or opened >= _LEAST_OPENED * self.rows_indexed

    def count(self, most_bytes: float) -> bool:
        """Count exactly the rows of files with an index that the conditions keep; tell whether it is known.

        What cubes and files lie wholly inside or outside of the conditions is known from the log; the columns that
        they name are read of the others, unless that takes too many bytes.
        """
        if self.counted is None and self.row_count is not None:
            found, window = self.row_count
            if window is None:
                self.counted = found.known
            elif window.plan.bytes_opened <= most_bytes:
                self.counted = self._counted_rows(found, window)
        return self.counted is not None

    @property
    def squares(self) -> float | None:
        """Of all keys, the least sum of squares of their rows; None: sampled rows are not compared with all.

        Infinite: keys of many rows are among them that cannot be drawn row by row.
        """
        compares_all = self.counted is None and self.is_calibrated
        return self.heavy.others if compares_all or math.isinf(self.heavy.others) else None

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Least and largest number of rows of indexed files that the conditions keep; None: unknown."""
        found = None if self.is_calibrated else self._kept_rows
        if found is None:
            return None
        known = found.known - self._kept_apart
        return max(known, 0), known + found.rows_read

    @cached_property
    def row_count(self) -> tuple[RowCount, Window | None] | None:
        """How many rows the conditions keep, as far as the log tells, and what is read for the rest."""
        found, asked = self._kept_rows, self.question
        condition = asked.pushed(self.reader.snapshot.schema)
        if found is None or condition is None or found.rows_read > _MOST_COUNTED * self.rows_opened:
            return None
        plan = ScanPlan(found.undecided, ALL_WEIGHTS, None)
        columns = tuple(dict.fromkeys(condition.meta.root_names()))
        read = Plan(self.reader, plan, None, columns)
        left = replace(asked, columns=columns)
        return found, Window(read, by_key=False, left=left) if found.undecided.opened.any() else None

    @cached_property
    def _kept_rows(self) -> RowCount | None:
        """Number of rows that the conditions keep, as far as cubes and files decide it; None: unknown."""
        schema, asked = self.reader.snapshot.schema, self.question
        condition = asked.pushed(schema)
        if condition is None or any(set(one.meta.root_names()) - set(schema) for one in asked.conditions):
            return None
        rest = parse_rest(condition, schema)
        if isinstance(rest, Unknown):
            return None
        chosen = self._kept.selection
        return count_rows(
            chosen.table,
            chosen.blocks,
            match(chosen.table, rest).blocks,
            files=~self.unplaced,
            deleted=self.reader.deleted_rows,
        )

    def _counted_rows(self, found: RowCount, window: Window) -> int | None:
        """Read what is not decided; None if that is not what was planned, so that rows might be counted twice."""
        rows_before = self.rows_read
        ask = RowSums((pl.lit(1, pl.Int32),), (), {}, self.question.condition, None, {})
        kept = sum(int(one.totals()[0, 0]) for one in self._batches(window, ask))
        self.bytes_opened += window.plan.bytes_opened
        return found.known + kept if self.rows_read - rows_before == found.rows_read else None

    @cached_property
    def _planners(self) -> tuple[Callable[[Sample | None], ScanPlan], ...]:
        """What plans reads of all rows, and of those that the index leaves of them."""
        pushed = self.question.pushed(self.reader.snapshot.schema)
        return self.reader.planner(None), self.reader.planner(pushed)

    @cached_property
    def _left(self) -> Question:
        """What is asked of rows that the conditions on the table's own columns have kept."""
        return self.question.left(self.reader.snapshot.schema)

    def read_apart(self, *, most_bytes: int) -> list[Sums]:
        """Read the rows that samples leave out, once, see `HeavyRows`; none without rows."""
        found = self.read(self.apart, most_bytes=most_bytes)
        self._kept_apart = sum(int(one.totals()[:, 0].sum()) for one in found)
        return found

    @cached_property
    def apart(self) -> Window | None:
        """The read of these rows; None if there are none."""
        if not any(one.apart for one in self.heavy.files.values()):
            return None
        chosen = apart(self._kept.selection, self.heavy.files)
        read = Plan(self.reader, replace(self._kept, selection=chosen), None, self.question.columns)
        return Window(read, by_key=False, left=self._left) if chosen.opened.any() else None

    def without_index(self) -> Window | None:
        """Return the read of all rows without index; None if there are none."""
        return self._window(_Kind(None, pushed=True, indexed=False, by_key=False))

    def between(self, start: float, end: float, *, by_key: bool) -> Window | None:
        """Return the read of the indexed rows between two fractions; None if nothing has to be opened."""
        sample = None if (start, end) == (0.0, 1.0) else (start, end)
        pushed = self.counted is not None or not (by_key and self._compares_all)
        return self._window(_Kind(sample, pushed=pushed, indexed=True, by_key=by_key))

    def _window(self, kind: _Kind) -> Window | None:
        """Plan a read, or remember it: what a round would cost is asked before it is read."""
        if kind not in self._windows:
            is_kept = kind.pushed and kind.sample is None
            plan = self._kept if is_kept else self._planners[kind.pushed](kind.sample)
            if kind.sample is not None and kind.indexed and self.heavy.files:
                every = (self._kept if kind.pushed else self._planners[False](None)).selection
                plan = replace(plan, selection=draw(plan.selection, every, self.heavy.files, plan.weights))
            opened = plan.selection.opened & (self.unplaced != kind.indexed)
            chosen = replace(plan, selection=replace(plan.selection, opened=opened))
            read = Plan(self.reader, chosen, kind.sample, self.question.columns)
            left = self._left if kind.pushed else self.question
            self._windows[kind] = Window(read, kind.by_key, left) if opened.any() else None
        return self._windows[kind]

    def read(self, window: Window | None, *, most_bytes: int | None = None) -> list[Sums]:
        """Read a window, and sum up its rows: in parts, of which several may hold a key; none without rows."""
        found = Parts(self.question.by)
        if window is not None:
            for sums in self._batches(window):
                found.add(sums)
                if most_bytes is not None and found.size_bytes > most_bytes:
                    self._refuse_memory(found.size_bytes, most_bytes, by_key=window.by_key)
            self.bytes_opened += window.plan.bytes_opened
        return found.sums

    def _refuse_memory(self, held: int, most: int, *, by_key: bool) -> NoReturn:
        asked = self.question
        reasons = {
            "keys": "for an error, or for a smaller sample" if by_key else None,
            "groups": "for fewer groups" if asked.by else None,
            "values for quantiles": "for no quantiles" if asked.aggregates.quantiles else None,
        }
        what = " and ".join(what for what, cure in reasons.items() if cure)
        cures = ", or ".join(cure for cure in reasons.values() if cure)
        message = Message(
            f"after {self.rows_read:,} rows what is held of {what} takes {held:,} bytes, more than the {most:,} ",
            "allowed; no answer was made. Allow more with ",
            *(argument(memory_bytes=None), f", or ask {cures}"),
        )
        raise InvalidInputError(message, argument="memory_bytes")

    def nothing(self) -> Sums:
        """Return what no rows come to."""
        schema = self.reader.snapshot.schema
        types = pl.Schema({name: schema[name] for name in self.question.columns} | {WEIGHT: pl.Int32()})
        return self._row_sums(self.question).of(pl.DataFrame(schema=types), sizes=self.is_calibrated)

    def _batches(self, window: Window, ask: RowSums | None = None) -> Iterator[Sums]:
        here = self._here(window, ask) if self.engine is None else self._by_tasks(window, self.engine, ask)
        for rows, sums in here:
            self.rows_read += rows
            if rows:
                yield sums

    def _by_tasks(self, window: Window, engine: Engine, ask: RowSums | None) -> Sequence[tuple[int, Sums]]:
        """Let tasks read and sum up: by key where they are, what is left of it here."""
        name = WEIGHT if window.by_key else None
        tasks = [
            replace(task, keep=replace(task.keep, weight_column=name))
            for task in scan_tasks(self.reader, window.plan.scan_plan, window.left.columns)
        ]
        if tasks and not self._has_centres(ask):
            self._find_centres_of(tasks, window.left)
        call = TaskSums(ask or self._row_sums(window.left), sizes=window.by_key and self.is_calibrated)
        return engine.map(call, tasks, at_once=1)

    def _here(self, window: Window, ask: RowSums | None) -> Iterator[tuple[int, Sums]]:
        plan = window.plan.scan_plan
        keep = self.reader.row_filter(plan, window.left.columns)
        keep = replace(keep, weight_column=WEIGHT if window.by_key else None)
        condition = self.question.condition
        text = None if condition is None else str(condition)
        by_key = ask is None and window.by_key and self.design_effect >= _MANY_ROWS
        with evaluating(text, "where", "no answer was made"):
            # One batch at a time: Polars has threads of its own for each, and more of ours are in their way.
            for frame in _large(read_parts(all_parts(self.reader, plan), keep, self.reader.files)):
                sums = self._summed(frame, window, ask)
                yield frame.height, sums.by_key(self.question.by) if by_key else sums

    def _summed(self, frame: pl.DataFrame, window: Window, ask: RowSums | None) -> Sums:
        if ask is not None:
            return ask.of(frame, sizes=False)
        self._find_centres(frame, window.left)
        return sums_of(self._row_sums(window.left), frame, sizes=window.by_key and self.is_calibrated)

    def _row_sums(self, asked: Question) -> RowSums:
        return RowSums(
            totals=asked.aggregates.totals,
            quantiles=tuple(one.values for one in asked.aggregates.quantiles),
            groups=asked.groups,
            condition=asked.condition,
            lookup=asked.lookup,
            centres=self._centres or dict.fromkeys(asked.aggregates.centres, 0.0),
        )

    def _has_centres(self, ask: RowSums | None) -> bool:
        """Tell whether batches can be summed up in any order: the first rows of all are what centres are found in."""
        return ask is not None or self._centres is not None or not self.question.aggregates.centres

    def _find_centres(self, frame: pl.DataFrame, asked: Question) -> None:
        """Find numbers near means, once, in the first rows that count."""
        if self._has_centres(None):
            return
        kept = self._row_sums(asked).kept(frame)
        if kept.height:
            found = kept.select(**self.question.aggregates.centres)
            self._centres = {name: found[name].item() or 0.0 for name in found.columns}

    def _find_centres_of(self, tasks: Sequence[ScanTask], asked: Question) -> None:
        """Find them for all tasks of this read and of later ones, whose sums are added: in the first few, or zeros."""
        for task in tasks[:_TASKS_LOOKED_AT]:
            for frame in task.read():
                self._find_centres(frame, asked)
                if self._centres is not None:
                    return
        self._centres = dict.fromkeys(self.question.aggregates.centres, 0.0)


def _large(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Put small frames together, of which a read of whole files gives many: each costs some queries."""
    held, held_bytes = list[pl.DataFrame](), 0
    for frame in frames:
        held.append(frame)
        held_bytes += int(frame.estimated_size())
        if held_bytes >= BATCH_BYTES:
            yield pl.concat(held)
            held, held_bytes = [], 0
    if held:
        yield pl.concat(held)


def _farthest(files: pl.DataFrame, bound: str, column: str) -> float | None:
    """Return how far a bound of a column lies from zero in any file; None where a file does not tell."""
    stored = files.schema.get(bound)
    if not isinstance(stored, pl.Struct) or column not in {one.name for one in stored.fields}:
        return None
    values = files.select(pl.col(bound).struct.field(column)).to_series()
    if not values.dtype.is_numeric() or values.null_count():
        return None
    far = values.cast(pl.Float64).abs().max()
    return float(far) if isinstance(far, float) and math.isfinite(far) else None
