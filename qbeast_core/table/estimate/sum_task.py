"""Sum a part of a read by key in any process; it can be pickled and does not open the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from qbeast_core.sampling.sums import WEIGHT, KeySizes, RowSums, Sums
from qbeast_core.table.data.expressions import evaluating
from qbeast_core.table.estimate.question_expressions import PerKey
from qbeast_core.table.read.tasks import ScanTask


@dataclass(frozen=True, slots=True, eq=False)
class TaskSums:
    """The function that `Engine.map` calls with each task of a read."""

    row_sums: RowSums
    # Whether to count all rows of each key, including rows that do not match.
    sizes: bool

    def __call__(self, task: ScanTask) -> tuple[int, Sums]:
        """Read a task; return the number of its rows, and their sums."""
        rows, parts = 0, list[Sums]()
        for frame in task.read():
            rows += frame.height
            parts += (
                sums_of(self.row_sums, piece, sizes=self.sizes) for piece in self.row_sums.pieces(frame)
            )
        return rows, Sums.concat(parts, self.row_sums.by).by_key(self.row_sums.by)


def sums_of(row_sums: RowSums, frame: pl.DataFrame, *, sizes: bool) -> Sums:
    """Return the sums of a batch; an error names the failing expression."""
    try:
        return row_sums.of(frame, sizes=sizes)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        with evaluating(row_sums.condition, "where"):
            kept = row_sums.kept(frame.lazy()).collect()
        for argument, expressions in (
            ("by", row_sums.groups.values()),
            ("aggregates", (*row_sums.totals, *row_sums.quantiles)),
        ):
            for expr in expressions:
                with evaluating(expr, argument):
                    kept.with_columns(**row_sums.centres).select(expr)
        raise


@dataclass(frozen=True, slots=True, eq=False)
class RangeSums:
    """The function that `Engine.map` calls with the read of all rows of some keys."""

    per: PerKey
    # The conditions and joins of rows.
    row_sums: RowSums
    # The sums of the rows of keys.
    key_sums: RowSums
    # Whether keys are sampled: the sums then have entries by key.
    by_key: bool
    max_bytes: int

    def __call__(self, task: ScanTask) -> tuple[int, Sums | TooLarge]:
        """Read a task; return the number of its rows, and the sums of their keys."""
        rows, frame = gathered(task.read(), self.max_bytes)
        return rows, frame if isinstance(frame, TooLarge) else self.sums(frame)

    def keys(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return one row for each key of some rows; an error names the failing expression."""
        weight = [pl.col(WEIGHT).first()] if WEIGHT in frame.columns else []
        kept = self.row_sums.kept(frame.lazy())
        try:
            return self.per.grouped(kept, *weight).collect()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            with evaluating(self.row_sums.condition, "where"):
                rows = kept.collect().lazy()
            with evaluating(self.per.text, "per"):
                self.per.grouped(rows).collect()
            raise

    def sums(self, frame: pl.DataFrame) -> Sums:
        """Return the sums of all rows of some keys."""
        keys = self.keys(frame)
        if not self.by_key:
            return sums_of(self.key_sums, keys.drop(WEIGHT, strict=False), sizes=False)
        # All rows of sampled keys are compared with the log.
        sizes = KeySizes(frame[WEIGHT].to_numpy()).by_key()
        return replace(sums_of(self.key_sums, keys, sizes=False), sizes=sizes)


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The rows of a range of weights need more memory than the limit."""

    size_bytes: int
    max_bytes: int
    # The weight of more than half of the rows that were read, if there is one.
    weight: int | None


def gathered(frames: Iterable[pl.DataFrame], max_bytes: int) -> tuple[int, pl.DataFrame | TooLarge]:
    """Return the number of rows of some frames, and all of them, unless they need more memory than `max_bytes`."""
    parts, rows, size_bytes = list[pl.DataFrame](), 0, 0
    for frame in frames:
        parts.append(frame)
        rows += frame.height
        size_bytes += int(frame.estimated_size())
        if size_bytes > max_bytes:
            return rows, TooLarge(size_bytes, max_bytes, _main_weight(parts))
    return rows, pl.concat(parts) if parts else pl.DataFrame()


def _main_weight(frames: Sequence[pl.DataFrame]) -> int | None:
    """Return the weight of more than half of the rows, if there is one."""
    if WEIGHT not in frames[0].columns:
        return None
    weights = pl.concat([frame[WEIGHT] for frame in frames])
    middle = int(weights.quantile(0.5, "lower") or 0)
    return middle if 2 * (weights == middle).sum() > len(weights) else None
