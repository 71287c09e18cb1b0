"""Read the rows of a question: keys between two fractions, heavy keys, and files without an index.

The rows of heavy keys are drawn one by one: a sample with all rows of such a key, or none, would be dominated by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import compress, pairwise
from typing import Final, NoReturn, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.plan.nodes import Unknown, named_columns
from qbeast_core.plan.predicate import parse_complement
from qbeast_core.plan.select import RowCount, Selection, apart, count_rows, draw, match
from qbeast_core.plan.weights import (
    ALL_WEIGHTS,
    FileDraw,
    KeyChoice,
    Sample,
    Stretch,
    fractions_of,
    sample_to_weights,
)
from qbeast_core.sampling.recognise import Aggregates
from qbeast_core.sampling.sums import (
    MIN_SHIFT,
    MIN_SHIFT_OF_SAMPLE,
    WEIGHT,
    KeySizes,
    Parts,
    Repeats,
    SeenRows,
    Sums,
)
from qbeast_core.space.values import BoolArray, I32Array, distinct
from qbeast_core.table.data.expressions import evaluating
from qbeast_core.table.engine.engine import Engine, guess_row_bytes
from qbeast_core.table.estimate.join import Joined
from qbeast_core.table.estimate.question import Question
from qbeast_core.table.estimate.summing import Summing
from qbeast_core.table.index.counts import count_other_keys, counts_of
from qbeast_core.table.read.explain import Plan
from qbeast_core.table.read.planner import FilterPlanner, Planner, ScanPlan, scans_of
from qbeast_core.table.read.tasks import read_scans
from qbeast_core.table.snapshot.hidden_rows import HiddenRows
from qbeast_core.tree.keys import MAX_COUNTERS, HeavyKeys, heaviest, parse_heavy


@dataclass(frozen=True, slots=True)
class HeavyRows:
    """The heavy keys that the tags of files list."""

    # Rows that can be drawn one by one, and rows of keys that fit in a page, by number of the file. The latter are
    # read separately, because each round would read their page again.
    files: Mapping[int, FileDraw]
    # Weights of keys whose rows are read separately, ascending: their rows lie in many places, or are needed together.
    keys: I32Array
    # The keys among these, by number of the file; samples draw all other keys as a whole.
    listed: Mapping[int, HeavyKeys]

    def rows_apart(self, hidden: HiddenRows) -> int:
        """Return the number of rows that are read separately."""
        rows, deleted = 0, hidden.of(number for number, draw in self.files.items() if draw.apart)
        for number, file_draw in self.files.items():
            for stretch in file_draw.apart:
                deleted_range = np.searchsorted(
                    deleted.get(number, _NO_ROWS), [stretch.first, stretch.first + stretch.rows]
                )
                rows += stretch.rows - int(deleted_range[1] - deleted_range[0])
        return rows


_NO_ROWS: Final = np.zeros(0, np.int64)
_NO_KEYS: Final = np.zeros(0, np.int32)

# Each key is sampled with all of its rows.
NO_HEAVY_ROWS: Final = HeavyRows({}, _NO_KEYS, {})


def heavy_rows(planner: Planner, opened: Selection, *, rows: int, whole_keys: bool = False) -> HeavyRows:
    """Return the rows of the keys that are heavy among the opened rows. `whole_keys`: draw no row by itself."""
    tags, records = planner.snapshot.files["keys"], opened.table.num_records
    listed: dict[int, HeavyKeys] = {}
    for number in (pl.Series(opened.opened) & _has_list(tags)).arg_true().to_list():
        heavy_keys = parse_heavy(tags[number], int(records[number]))
        if heavy_keys is not None:
            listed[number] = heavy_keys
    if not listed:
        return NO_HEAVY_ROWS
    heavy = np.sort(_heaviest(listed.values(), rows))
    places = {number: np.isin(keys.weights, heavy) for number, keys in listed.items()}
    can_draw = {number: (listed[number].firsts >= 0) & (opened.pages_total[number] > 0) for number in listed}
    apart = [listed[number].weights[is_heavy & ~can_draw[number]] for number, is_heavy in places.items()]
    keys = heavy if whole_keys else distinct(np.concatenate(apart))
    files: dict[int, FileDraw] = {}
    for number, of_file in listed.items():
        drawn = places[number] & ~np.isin(of_file.weights, keys)
        if drawn.any():
            pairs = zip(of_file.firsts[drawn].tolist(), of_file.rows[drawn].tolist(), strict=True)
            stretches = [Stretch.of(first, count, path=planner.paths[number]) for first, count in pairs]
            is_long = [_pages_of(opened, number, stretch) > 1 for stretch in stretches]
            files[number] = FileDraw(
                one_by_one=tuple(compress(stretches, is_long)),
                apart=tuple(s for s, several in zip(stretches, is_long, strict=True) if not several),
            )
    return HeavyRows(
        files, keys, {number: listed[number].select(is_heavy) for number, is_heavy in places.items()}
    )


def _partly_moved(planner: Planner) -> BoolArray:
    """Return the files whose samples are not random, because a reindex has moved some of their rows.

    Optimize moves some files of a write to the newest columns, such as its lowest weights. The other files then have
    uneven shares of the weights. So have the moved rows, if they move back to columns that they had before.
    """
    revision_of, revisions = planner.blocks.revision_of, planner.snapshot.config.revisions
    live = {
        number: revisions[number].hashed for number in distinct(revision_of).tolist() if number in revisions
    }
    if len(set(live.values())) <= 1:
        return np.zeros(len(revision_of), np.bool_)
    others = [number for number, hashed in live.items() if hashed != planner.hashed]
    came_back = any(
        0 < number < max(others) and revision.hashed == planner.hashed
        for number, revision in revisions.items()
    )
    return np.full(len(revision_of), came_back) | np.isin(revision_of, others)


def _repeats_of(planner: Planner, opened: Selection, heavy: HeavyRows, *, min_shift: float) -> Repeats | None:
    """Return how often the other keys repeat in the opened rows; rows of files without tags count as single keys."""
    numbers = np.flatnonzero(opened.opened)
    files = planner.snapshot.files.select("keys", "num_records")[numbers]
    counts = count_other_keys(files, [heavy.listed.get(number) for number in numbers.tolist()])
    rows = float(files["num_records"].sum())
    if not rows or counts.uncounted:
        return None
    deleted = int(planner.hidden_rows.counts[numbers].sum())
    # A filter of the index opens some cubes, whose keys are there with all rows, and deletes hit keys in proportion.
    share, kept = min(float(opened.rows_opened[numbers].sum()) / rows, 1.0), 1 - deleted / rows
    squares = counts.total.squares
    error = squares * math.sqrt(2 / MAX_COUNTERS) if len(numbers) > 1 else 0.0
    excess, scale = squares - counts.total.rows, share * kept**2
    return Repeats(share * rows * kept, scale * excess, scale * error, min_shift)


def _has_list(tags: pl.Series) -> pl.Series:
    return (tags.str.count_matches(":") == 2).fill_null(value=False)


def _pages_of(opened: Selection, file: int, stretch: Stretch) -> float:
    """Return the rows of a stretch, as a number of the file's pages there."""
    pages = opened.table.pages
    first = pages.pages_with(file, stretch.first, stretch.first + 1).start
    return stretch.rows / int(pages.rows(np.array([first]))[0])


def _heaviest(listed: Iterable[HeavyKeys], rows: int) -> I32Array:
    """Return the weights of keys that are heavy among a number of rows."""
    files = list(listed)
    keys, key = np.unique(
        np.concatenate([keys_of_file.weights for keys_of_file in files]), return_inverse=True
    )
    counts = np.bincount(key, np.concatenate([keys_of_file.rows for keys_of_file in files])).astype(np.int64)
    heavy: I32Array = keys[heaviest(counts, rows)]
    return heavy


# If a filter opens at least this fraction of the rows, samples also read the rows that it drops: calibration to the
# known number of all rows is worth more than the savings of the index.
_MIN_OPENED = 0.5

# Maximum fraction of the opened rows that are read to count matches.
_MAX_COUNTED = 0.5

_COUNT = Aggregates((), (pl.lit(1, pl.Int32),), {})

_NO_SIZES = KeySizes(np.zeros(0, np.int32))

# Maximum fraction of the opened rows that may be in files without a list of heavy keys.
_MAX_UNLISTED = 0.01

# From this design effect on, each batch is summed by key, which saves memory.
_MIN_EFFECT = 2.0

# Copies of the rows of joined tables in memory.
_ROW_COPIES = 4

# Ranges of equal width have different numbers of rows.
_MARGIN = 1.25

# Arguments of a plan: the sample, pushed, indexed, by_key, and whether it skips keys.
_Kind: TypeAlias = tuple[Sample | None, bool, bool, bool, bool]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A planned read."""

    plan: Plan
    by_key: bool
    # The remaining question for the rows that the plan returns.
    left: Question
    # Reads of the same keys from joined tables; None: no file is opened.
    others: tuple[Window | None, ...] = ()

    @property
    def bytes_opened(self) -> int:
        """Number of bytes to read from data files of all tables."""
        others = (window.bytes_opened for window in self.others if window is not None)
        return self.plan.bytes_opened + sum(others)

    def rows_bytes(self, planner: Planner) -> int:
        """Return the approximate memory of the rows."""
        schema = planner.snapshot.schema
        return self.plan.rows_opened * guess_row_bytes(
            pl.Schema({name: schema[name] for name in self.plan.columns})
        )


@dataclass(eq=False)
class Reading:
    """Plans and reads of one question, and their cost."""

    # Of the files that may match the conditions, which are the population of the samples.
    planner: Planner
    question: Question
    # Number of rows of the samples.
    rows_read: int = 0
    # Bytes of data files; pages that are read twice count twice.
    bytes_opened: int = 0
    # Reads the rows; None to read batches in this process.
    engine: Engine | None = None
    # The reading of the table that joins this one.
    joins_to: Reading | None = None
    # Number of matching rows of files with an index, if counted.
    counted: int | None = field(default=None, init=False)
    _kept_apart: int = field(default=0, init=False)
    # Rows of keys that were read apart, also those that do not match if these are counted.
    _rows_apart: int = field(default=0, init=False)
    # Row counts of the keys of samples; only for a joined table.
    _sizes: list[KeySizes] = field(default_factory=list[KeySizes], init=False)
    # A round is planned twice: for its cost, then to read it.
    _windows: dict[_Kind, Window | None] = field(default_factory=dict["_Kind", Window | None], init=False)

    def __post_init__(self) -> None:
        """Leave out the files that the statistics exclude, if the table has many."""
        if self.question.pushed is not None:
            self.planner = self.planner.narrowed(self.question.pushed)

    @cached_property
    def others(self) -> tuple[Reading, ...]:
        """The readings of joined tables, in the order of the joins."""
        question = replace(self.question, aggregates=_COUNT, groups={}, late=None, joins=(), per=None)
        return tuple(
            Reading(join.planner, replace(question, pushed=join.where, columns=join.columns), joins_to=self)
            for join in self.question.joins
            if join.planner is not None
        )

    @property
    def tables(self) -> tuple[Reading, ...]:
        """All readings: of the table itself, and of joined tables."""
        return (self, *self.others)

    @cached_property
    def unplaced(self) -> BoolArray:
        """Files whose rows are all read: without index, or without an index of the columns to sample by."""
        unplaced = self.planner.blocks.unplaced_files
        if self.planner.sample_by is not None:
            return np.ones_like(unplaced)
        older = _partly_moved(self.planner)
        if self.question.whole_keys:
            return np.full_like(older, older.any())
        return unplaced | older

    @property
    def rows_known(self) -> int | None:
        """Number of rows of the population; None if the log does not have it."""
        if self.counted is not None:
            return self.counted - self._kept_apart
        rows = self.rows_indexed
        if rows is None:
            return None
        return rows - self._rows_apart - self.heavy.rows_apart(self.planner.hidden_rows)

    @cached_property
    def rows_indexed(self) -> int | None:
        """Rows of the files with an index, without deleted ones; None if the log does not have it."""
        table, files = self.planner.blocks, ~self.unplaced
        if (table.num_records[files] < 0).any():
            return None
        return int((table.num_records - self.planner.hidden_rows.counts)[files].sum())

    @cached_property
    def farthest(self) -> dict[int, float]:
        """Largest magnitude of the column of each total, by number of the total, if the log has it."""
        if self.question.per is not None:
            return {}
        files = self.planner.snapshot.files.filter(pl.Series(~self.unplaced))
        plain = self.question.aggregates.plain.items()
        magnitudes = {number: _farthest(files, name) for number, name in plain}
        return {number: magnitude for number, magnitude in magnitudes.items() if magnitude is not None}

    @cached_property
    def design_effect(self) -> float:
        """Design effect of samples of the table."""
        return counts_of(self.planner.snapshot).lower_bound

    @cached_property
    def rows_opened(self) -> int:
        """Approximate number of rows that the filter opens in files with an index."""
        return int(self._kept.selection.rows_opened[~self.unplaced].sum())

    @cached_property
    def _kept(self) -> ScanPlan:
        """The read of all rows that the index does not exclude."""
        return self._filtered_plans[True](None)

    @cached_property
    def heavy(self) -> HeavyRows:
        """The heavy keys that the tags of files list, of this table or a joined one."""
        if self.joins_to is not None:
            return replace(self._listed, keys=self.joins_to.heavy.keys)
        if self.question.aggregates.counts_keys:
            return NO_HEAVY_ROWS  # each key counts once, however many rows it has
        keys = [table._listed.keys for table in self.tables]  # noqa: SLF001 - of the same class
        return replace(self._listed, keys=distinct(np.concatenate(keys)))

    @cached_property
    def _listed(self) -> HeavyRows:
        """The heavy keys that the tags of files of this table list."""
        whole_keys = self.question.whole_keys
        return heavy_rows(self.planner, self._kept.selection, rows=self.rows_opened, whole_keys=whole_keys)

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
            has_list = _has_list(self.planner.snapshot.files["keys"]).to_numpy()
            unlisted = int(self._kept.selection.rows_opened[~has_list].sum())
            return self.question.pushed is None or unlisted > _MAX_UNLISTED * self.rows_opened
        return self.question.pushed is None or self.rows_opened >= _MIN_OPENED * self.rows_indexed

    def count(self, max_bytes: float) -> bool:
        """Count the matching rows of files with an index exactly; return whether the count is known.

        The log has the counts of cubes and files that are completely inside or outside of the conditions. For the
        others, the columns of the conditions are read, unless that needs more than `max_bytes`.
        """
        if self.counted is None and self.row_count is not None:
            count, window = self.row_count
            if window is None:
                self.counted = count.known
            elif window.bytes_opened <= max_bytes:
                before = self.rows_read
                kept = sum(int(sums.totals()[0, 0]) for sums in self._batches(window))
                # None if the read returns another number of rows than planned.
                self.counted = count.known + kept if self.rows_read - before == count.rows_read else None
        return self.counted is not None

    @property
    def repeats(self) -> Repeats | None:
        """How often the keys repeat that samples draw as a whole; None if unknown."""
        skips_others = len(self.heavy.keys) > len(self._listed.keys)  # keys that only joined tables list
        if self.question.aggregates.counts_keys or skips_others:
            return None
        return self._repeats_matching if self._pushes(by_key=True) else self._repeats_of_all

    @cached_property
    def _repeats_of_all(self) -> Repeats | None:
        return self._repeats(self._filtered_plans[False](None).selection)

    @cached_property
    def _repeats_matching(self) -> Repeats | None:
        return self._repeats(self._kept.selection)

    def _repeats(self, opened: Selection) -> Repeats | None:
        indexed = replace(opened, opened=opened.opened & ~self.unplaced)
        min_shift = MIN_SHIFT if self.question.limits.sample is None else MIN_SHIFT_OF_SAMPLE
        return _repeats_of(self.planner, indexed, self._listed, min_shift=min_shift)

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
        columns = tuple(named_columns(condition))
        read = Plan(self.planner, ScanPlan(count.undecided, ALL_WEIGHTS, None), None, columns)
        left = replace(self.question, aggregates=_COUNT, groups={}, joins=(), columns=columns)
        return count, Window(read, by_key=False, left=left)

    @cached_property
    def _kept_rows(self) -> RowCount | None:
        """The count of matching rows from cubes and files, and the undecided part; None if unknown."""
        condition = self.question.pushed
        question = self.question
        if condition is None or question.late is not None or question.changes_rows:
            return None
        if question.aggregates.counts_keys:
            return None
        complement = parse_complement(condition, self.planner.snapshot.schema)
        if isinstance(complement, Unknown):
            return None
        selection = self._kept.selection
        leaves = match(selection.table, complement).within(ALL_WEIGHTS)
        return count_rows(selection, leaves, files=~self.unplaced, hidden=self.planner.hidden_rows)

    @cached_property
    def _filtered_plans(self) -> tuple[FilterPlanner, ...]:
        """Planners of reads without and with the conditions."""
        return self.planner.of_filter(None), self.planner.of_filter(self.question.pushed)

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
        return sum(self.bytes_of(window) for window in self.apart if window is not None)

    @cached_property
    def apart(self) -> tuple[Window | None, Window | None]:
        """The reads of the rows that samples skip: stretches of rows, and all rows of keys."""
        return self._stretches_apart(), self._keys_apart()

    def _stretches_apart(self) -> Window | None:
        """Return the read of the stretches that samples skip; None if there are none."""
        if not any(file_draw.apart for file_draw in self.heavy.files.values()):
            return None
        selection = apart(self._kept.selection, self.heavy.files)
        plan = Plan(self.planner, replace(self._kept, selection=selection), None, self.question.columns)
        return Window(plan, by_key=False, left=self.question.left) if selection.opened.any() else None

    def _keys_apart(self) -> Window | None:
        """Return the read of all rows of the keys that samples skip; None if there are none."""
        if not len(self.heavy.keys):
            return None
        pushed = self._pushes(by_key=True)
        plan = self._filtered_plans[pushed].of_keys(self.heavy.keys)
        opened = plan.selection.opened & ~self.unplaced
        plan = replace(plan, selection=replace(plan.selection, opened=opened))
        read = Plan(self.planner, plan, None, self.question.columns)
        left = self.question.left if pushed else self.question
        others = tuple(other.apart[1] for other in self.others)
        is_read = opened.any() or any(others)  # samples of joined tables skip these keys, too
        return Window(read, by_key=False, left=left, others=others) if is_read else None

    def _pushes(self, *, by_key: bool) -> bool:
        """Whether a read leaves out rows that the conditions exclude. Totals may be calibrated to all rows."""
        return self.counted is not None or not (by_key and self._compares_all)

    def without_index(self) -> Window | None:
        """Return the read of all rows without index; None if there are none."""
        return self._window(None, pushed=True, indexed=False, by_key=False)

    def between(self, start: float, end: float, *, by_key: bool, every_key: bool = False) -> Window | None:
        """Return the read of the indexed rows between two fractions; None if it opens no file.

        `every_key`: it is a part of a read of all rows, which skips no key.
        """
        sample = None if (start, end) == (0.0, 1.0) else (start, end)
        pushed = self._pushes(by_key=by_key)
        return self._window(sample, pushed=pushed, indexed=True, by_key=by_key, every_key=every_key)

    def probability(self, start: float, end: float) -> float:
        """Return the probability of a key to be among those between two fractions."""
        if self.counted == 0 or self.between(0.0, 1.0, by_key=False) is None:
            return 1.0  # no file with an index can match
        return sample_to_weights((start, end)).probability if end > start else 0.0

    def _window(
        self,
        sample: Sample | None,
        *,
        pushed: bool,
        indexed: bool,
        by_key: bool,
        every_key: bool = False,
    ) -> Window | None:
        """Return the plan of a read, cached; None if it opens no file."""
        if indexed and self.unplaced.all():
            return None
        skips = sample is not None and indexed and not every_key
        kind = sample, pushed, indexed, by_key, skips
        if kind not in self._windows:
            plan = self._kept if pushed and sample is None else self._filtered_plans[pushed](sample)
            if skips and self.heavy.files:
                matching = (self._kept if pushed else self._filtered_plans[False](None)).selection
                plan = replace(plan, selection=draw(plan.selection, matching, self.heavy.files, plan.weights))
            if skips and len(self.heavy.keys):
                plan = replace(plan, keys=KeyChoice(self.heavy.keys, only=False))
            opened = plan.selection.opened & (self.unplaced != indexed)
            opened_plan = replace(plan, selection=replace(plan.selection, opened=opened))
            read = Plan(self.planner, opened_plan, sample, self.question.columns)
            remaining = self.question.left if pushed else self.question
            range_of = (0.0, 1.0) if sample is None else fractions_of(sample)
            others = tuple(
                other.between(*range_of, by_key=by_key, every_key=every_key) for other in self.others
            )
            self._windows[kind] = Window(read, by_key, remaining, others) if opened.any() else None
        return self._windows[kind]

    def read(self, window: Window | None, *, max_bytes: int | None = None) -> list[Sums]:
        """Read a window and sum its rows, in parts; several parts may hold the same key."""
        parts = Parts(self.question.by)
        for piece in () if window is None else self._pieces(window):
            joined = replace(piece, left=replace(piece.left, joins=self._joins(piece)))
            for sums in self._batches(joined):
                parts.add(sums)
                if max_bytes is not None and parts.size_bytes > max_bytes:
                    self._refuse_memory(parts.size_bytes, max_bytes, by_key=piece.by_key)
            self.bytes_opened += piece.bytes_opened - piece.plan.bytes_opened
        return parts.sums

    def _pieces(self, window: Window) -> Sequence[Window]:
        """Split a read in ranges of weights, so that the rows of joined tables fit in memory."""
        keys, sample = window.plan.scan_plan.keys, window.plan.sample
        pairs = zip(self.others, window.others, strict=True)
        sizes = [part.rows_bytes(other.planner) for other, part in pairs if part is not None]
        count = math.ceil(_MARGIN * sum(sizes) * _ROW_COPIES / self.question.limits.memory_bytes)
        if count <= 1 or (keys is not None and keys.only):
            return [window]
        start, end = (0.0, 1.0) if sample is None else fractions_of(sample)
        between = partial(self.between, by_key=window.by_key, every_key=sample is None)
        pieces = [between(*edges) for edges in pairwise(np.linspace(start, end, count + 1).tolist())]
        return [piece for piece in pieces if piece is not None]

    def bytes_of(self, window: Window) -> int:
        """Return the bytes that a read is expected to open, of all tables."""
        parts = [window.plan] if self.question.per is None else self.summing.ranges(window.plan)
        return window.bytes_opened - window.plan.bytes_opened + sum(part.bytes_opened for part in parts)

    def _joins(self, window: Window) -> tuple[Joined, ...]:
        """Return the joins with the rows of other tables."""
        reads = iter(zip(self.others, window.others, strict=True))
        joins = list[Joined]()
        for join in self.question.joins:
            if join.planner is not None:
                other, part = next(reads)
                join = join.with_rows(other.rows_of(join, part))  # noqa: PLW2901 - the same join
            joins.append(join)
        return tuple(joins)

    def rows_of(self, join: Joined, window: Window | None) -> pl.DataFrame:
        """Read the rows of this table to join; their memory is limited."""
        columns, on = join.lookup.frame.columns, list(join.lookup.on)
        parts = [join.lookup.frame]
        max_bytes = self.question.limits.memory_bytes
        for frame in () if window is None else self._joined_rows(window, columns):
            part = frame.select(columns).drop_nulls(on)  # null matches nothing
            parts.append(part.unique() if join.is_filter else part)
            used_bytes = sum(int(part.estimated_size()) for part in parts)
            used_bytes += sum(sizes.size_bytes for sizes in self._sizes)
            if used_bytes > max_bytes:
                message = (
                    f"after {self.rows_read:,} rows, the rows to join from {self.planner.snapshot.uri!r} take "
                    f"{used_bytes:,} bytes of memory, more than the limit of {max_bytes:,}; no answer "
                    "was computed. Increase `memory_bytes`, allow a larger error, or filter: qbeast.Join(..., where=)"
                )
                raise InvalidInputError(message, argument="memory_bytes")
        self.bytes_opened += 0 if window is None else window.bytes_opened
        rows = pl.concat(parts)
        return rows.unique() if join.is_filter else rows

    def _joined_rows(self, window: Window, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the rows that match the filter of a join, and count all rows by key."""
        plan, condition = window.plan.scan_plan, window.left.condition
        keep = self.planner.row_filter(plan, list(dict.fromkeys([*columns, *named_columns(condition)])))
        keep = replace(keep, weight_column=WEIGHT if window.by_key else None)
        is_apart = plan.keys is not None and plan.keys.only
        with evaluating(self.question.pushed, "join"):
            for frame in read_scans(scans_of(self.planner, plan), keep, self.planner.files):
                kept = frame if condition is None else frame.filter(condition)
                self.rows_read += frame.height
                if window.by_key:
                    self._sizes.append(KeySizes(frame[WEIGHT].to_numpy()).by_key())
                if is_apart:
                    self._rows_apart += frame.height
                    self._kept_apart += kept.height
                yield kept

    def deviates(self, probability: float) -> bool:
        """Return whether the sampled rows of a joined table differ from the log by more than chance explains."""
        known = self.rows_known if self.is_calibrated else None
        bounds = self.bounds if known is None else (known, known)
        repeats = self.repeats
        if bounds is None and repeats is None:
            return False
        sizes = KeySizes.concat(self._sizes or [_NO_SIZES]).counted()
        return SeenRows.of(sizes, probability).differs(bounds, repeats)

    def _refuse_memory(self, used_bytes: int, max_bytes: int, *, by_key: bool) -> NoReturn:
        question = self.question
        reasons = {
            "keys": "an error, or a smaller sample" if by_key else None,
            "groups": "fewer groups" if question.by else None,
            "distinct keys": "no distinct keys" if question.aggregates.shown else None,
            "values for quantiles": "no quantiles" if question.aggregates.quantiles else None,
        }
        what = " and ".join(what for what, cure in reasons.items() if cure) or "sums"
        cures = ", or ".join(cure for cure in reasons.values() if cure) or "fewer answers"
        message = (
            f"after {self.rows_read:,} rows, {what} take {used_bytes:,} bytes of memory, more than the limit of "
            f"{max_bytes:,}. Increase `memory_bytes`, or request {cures}"
        )
        raise InvalidInputError(message, argument="memory_bytes")

    @property
    def nothing(self) -> Sums:
        """The sums of no rows."""
        return self.summing.nothing(sizes=self.is_calibrated)

    @cached_property
    def summing(self) -> Summing:
        """Reads and sums the rows."""
        by_key = self.question.whole_keys or self.design_effect >= _MIN_EFFECT
        return Summing(self.planner, self.question, self._filtered_plans, self.engine, by_key)

    def _batches(self, window: Window) -> Iterator[Sums]:
        sizes = window.by_key and self.is_calibrated
        parts = self.summing.parts(window.plan, window.left, by_key=window.by_key, sizes=sizes)
        for bytes_opened, rows, sums in parts:
            self.rows_read += rows
            self.bytes_opened += bytes_opened
            if sums is not None:
                yield sums


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
