"""One line about a plan that opens much of a table: what would open less, and how much that is, from a small sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Final

import polars as pl

from qbeast_core.errors import QbeastError
from qbeast_core.log.rebase import dialect_of
from qbeast_core.plan.nodes import Unknown
from qbeast_core.spec.revision import ColumnSpec
from qbeast_core.support.sizing import sizing
from qbeast_core.table.advise.advise import (
    TableSample,
    code_of,
    facts_of,
    field_of,
    present_index,
    table_sample,
    with_fields_as_columns,
)
from qbeast_core.table.advise.search import Search, Workload, text_of
from qbeast_core.table.advise.trial import ColumnSet, Dimension, importance_of
from qbeast_core.table.data.schema import lost_columns
from qbeast_core.table.estimate.reading import heavy_rows
from qbeast_core.table.index.counts import counts_of
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.read.explain import Plan

# Share of the bytes from which on a plan has a hint, if the filter matches at most the other share of the rows.
_MUCH: Final = 1 / 3
_MAX_MATCHES: Final = 0.3
# Times fewer bytes that the filter has to open.
_WORTHWHILE: Final = 1.5
_IMPORTANCES: Final = (1.0, 2.0, 4.0, 8.0)
_MAX_MISSING: Final = 3

# Limits of the sample: rows, files to open, and bytes.
_ROWS: Final = 1 << 12
_LEAST: Final = 1e-9
# Pages up to which a table is too small if no other index helps, and too small for any index.
_FEW_PAGES: Final = 16
_VERY_FEW_PAGES: Final = 4
# If a sample is too large for a hint.
_ADVISE: Final = (
    "table.advise([plan.where]) reads a sample and finds an index of which this filter opens less"
)


def hint_of(plan: Plan) -> str | None:
    """Return what would open less than a plan, in one line. None: it opens little, or nothing is known to help.

    Reads at most 8 MiB. A hint never raises: the read itself reports what is wrong with files.
    """
    if plan.sample is not None or plan.where is None or plan.share <= _MUCH:
        return None
    with suppress(QbeastError, OSError, pl.exceptions.PolarsError):
        return _Hints(plan, plan.where).line()
    return None


class _Hints:
    """The simulated tables of a hint."""

    def __init__(self, plan: Plan, where: pl.Expr) -> None:
        self._plan, self._planner = plan, plan.planner.whole
        self._snapshot = self._planner.snapshot
        self._where, self._fields = with_fields_as_columns(where, self._snapshot.schema)

    def line(self) -> str | None:
        """Return the hint."""
        if not self._can_reindex:
            return None
        if not self._is_cheap:
            return _ADVISE if self._plan.unused_conditions else None
        if not self._may_help:
            return None
        pages = int(self._plan.files["pages_total"].sum())
        cure = None if pages <= _VERY_FEW_PAGES else self._cure
        if cure is not None:
            filtered = f"a filter on {', '.join(map(repr, self._fields))}" if self._fields else "this filter"
            index, share = cure
            percent = max(round(100 * share), 1)
            return f"{filtered} would open about {percent} % of the bytes after {self._call(index)}"
        if pages > _FEW_PAGES:
            return None
        return f"{self._plan.rows_total:,} row(s) in {pages} page(s) are too few for an index to skip much of them"

    @property
    def _can_reindex(self) -> bool:
        snapshot = self._snapshot
        return (
            snapshot.config.is_indexed
            and dialect_of(snapshot) == "documented"
            and not snapshot.copies
            and (snapshot.planned is not None or not self._planner.blocks.unplaced_files.any())
        )

    @cached_property
    def _is_cheap(self) -> bool:
        """Whether a sample is small enough to be read for a hint."""
        if self._snapshot.planned is not None:
            return False  # its index is not in memory
        planner, total = self._planner, max(self._plan.rows_total, 1)
        fraction = min(_ROWS * min(math.ceil(counts_of(self._snapshot).lower_bound), 8) / total, 1.0)
        if fraction == 1.0:
            return self._plan.bytes_total <= sizing().hint_bytes
        if heavy_rows(planner, planner.plan(None, None).selection, rows=total).files:
            return self._plan.bytes_total <= sizing().hint_bytes
        read = Plan(planner, planner.plan(None, fraction), fraction, tuple(self._snapshot.schema))
        return (
            int(read.scan_plan.selection.opened.sum()) <= sizing().hint_files
            and read.bytes_opened <= sizing().hint_bytes
        )

    @cached_property
    def _sample(self) -> TableSample:
        sample = table_sample(self._planner, rows=_ROWS, max_bytes=sizing().hint_bytes)
        fields = {name: field_of(path) for name, path in self._fields.items()}
        return replace(sample, rows=sample.rows.with_columns(**fields))

    @cached_property
    def _workload(self) -> Workload:
        return Workload.of([self._where], self._sample.rows)

    @property
    def _may_help(self) -> bool:
        """Whether an index can use the filter, and the filter matches few rows."""
        rows = self._sample.rows
        if rows.is_empty() or rows.filter(self._where).height > _MAX_MATCHES * rows.height:
            return False
        return not isinstance(self._workload.nodes(rows.schema)[0], Unknown)

    @cached_property
    def _search(self) -> Search:
        return Search(
            self._sample.rows, facts_of(self._planner, self._sample, self._workload), self._workload
        )

    @cached_property
    def _present(self) -> ColumnSet:
        return present_index(self._planner, self._search) or ()

    @cached_property
    def _cure(self) -> tuple[ColumnSet, float] | None:
        """The mildest index of which the filter opens at most a third, or else the least, with the share of bytes."""
        now = self._plan.share
        best: tuple[ColumnSet, float] | None = None
        for index in self._indexes() if self._present else ():
            share = self._share(index)
            if share * _WORTHWHILE > now or (best is not None and share >= best[1]):
                continue
            best = index, share
            if share <= _MUCH:
                break
        return best

    def _share(self, index: ColumnSet) -> float:
        """Return the share of the bytes that the filter would open, from what it opens now.

        The same columns are compared with their own simulation: a table may be better or worse than a simulated one.
        """
        trial = self._search.few.trial
        then = float(trial.opened(index).shares[0])
        if _names_of(index) == _names_of(self._present) and index != self._present:
            then *= self._rows_now / max(float(trial.opened(self._present).shares[0]), then, _LEAST)
        return self._plan.share * then / self._rows_now

    @property
    def _rows_now(self) -> float:
        return self._plan.rows_opened / max(self._plan.rows_total, 1)

    def _indexes(self) -> Iterator[ColumnSet]:
        """Yield indexes to try: the files written again, columns of the filter added, and these more important."""
        if self._is_scattered and not self._fields:
            yield self._present
        indexed = _names_of(self._present)
        filtered = [name for name in self._workload.named if name not in self._unfit]
        missing = [name for name in filtered if name not in indexed][:_MAX_MISSING]
        added = [(name,) for name in missing] + ([tuple(missing)] if len(missing) > 1 else [])
        for times in _IMPORTANCES:
            for names in ([()] if times > 1 and len(missing) < len(filtered) else []) + added:
                columns = (*self._present, *(Dimension(ColumnSpec(name)) for name in names))
                yield tuple(
                    replace(column, importance=column.importance * times)
                    if column.name in filtered
                    else column
                    for column in columns
                )

    @property
    def _is_scattered(self) -> bool:
        """Whether several writes made the table, each with a tree of its own."""
        latest, trees = self._snapshot.config.latest, self._snapshot.blocks
        roots = Index(self._snapshot).binding(latest).filter(pl.col("depth") == 0) if latest else None
        return len(trees.spaces) > 1 or roots is None or roots.height > roots["tree"].n_unique()

    @property
    def _unfit(self) -> set[str]:
        rows, snapshot = self._sample.rows, self._snapshot
        lost = lost_columns(rows.columns, rows.schema)
        return {
            *lost,
            *snapshot.columns.partitions,
            *([snapshot.sample_column] if snapshot.sample_column else []),
        }

    def _call(self, index: ColumnSet) -> str:
        """Return statements that give the table an index."""
        weighing = ", ".join(f"{name!r}: {value:g}" for name, value in importance_of(index).items())
        if index == self._present:
            return "table.optimize(full=True)"
        if _names_of(index) == _names_of(self._present):
            return f"table.set_importance({{{weighing}}}); table.optimize(full=True)"
        calls: list[str] = []
        for name, path in self._fields.items():
            calls.append(f"table.add_columns({{{name!r}: pl.{self._sample.rows.schema[name]!r}}})")
            calls.append(f"table.update('true', {{{name!r}: {code_of(path)}}})")
        columns = [text_of(column) for column in index]
        importance = f", importance={{{weighing}}}" if weighing else ""
        return "; ".join([*calls, f"table.reindex(columns={columns}{importance}, full=True)"])


def _names_of(index: ColumnSet) -> tuple[str, ...]:
    return tuple(column.name for column in index)
