"""Engines as the scenarios use them: memory, spill, and workers that do everything twice and in odd orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl

import qbeast
from qbeast_core.table.dml.change import Change, ChangeOptions, Delete, Update, run_change
from qbeast_core.table.dml.merge import Merge
from qbeast_core.table.dml.merge_rules import Clauses
from qbeast_core.table.dml.merge_sources import FrameMergeSource
from qbeast_core.table.maintenance.reindex import reindex
from qbeast_core.table.rewrite.optimize import OptimizeOptions, optimize
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_core.table.write.options import WriteOptions
from tests.helpers.scattering import PartsEngine, scatter

__all__ = ["ENGINES", "OperationsOfEngine"]


class OperationsOfEngine(Protocol):
    """The operations of an engine on the table at a path; conditions and values are SQL."""

    def write(self, rows: pl.DataFrame, path: Path, **options: Any) -> object: ...

    def delete(self, path: Path, where: str) -> qbeast.ChangeResult: ...

    def update(self, path: Path, where: str, values: Mapping[str, str]) -> qbeast.ChangeResult: ...

    def merge(self, rows: pl.DataFrame, path: Path, on: str, **clauses: Any) -> qbeast.ChangeResult: ...

    def optimize(self, path: Path, *, full: bool = False) -> qbeast.OptimizeResult: ...

    def reindex(self, path: Path, columns: list[str], *, full: bool = False) -> object: ...


@dataclass(frozen=True)
class ThisProcess:
    """The public functions, in memory or by files on disk."""

    resources: qbeast.Resources

    def write(self, rows: pl.DataFrame, path: Path, **options: Any) -> object:
        return qbeast.write_table(rows, path, resources=self.resources, **options)

    def delete(self, path: Path, where: str) -> qbeast.ChangeResult:
        return qbeast.open_table(path, resources=self.resources).delete(where)

    def update(self, path: Path, where: str, values: Mapping[str, str]) -> qbeast.ChangeResult:
        return qbeast.open_table(path, resources=self.resources).update(where, values)

    def merge(self, rows: pl.DataFrame, path: Path, on: str, **clauses: Any) -> qbeast.ChangeResult:
        return qbeast.open_table(path, resources=self.resources).merge(rows, on, **clauses)

    def optimize(self, path: Path, *, full: bool = False) -> qbeast.OptimizeResult:
        return qbeast.open_table(path, resources=self.resources).optimize(full=full)

    def reindex(self, path: Path, columns: list[str], *, full: bool = False) -> object:
        return qbeast.open_table(path, resources=self.resources).reindex(columns, full=full)


@dataclass(frozen=True)
class OddWorkers:
    """Workers that read files from the last to the first, few rows at a time, and call each function twice."""

    engine: PartsEngine

    def write(self, rows: pl.DataFrame, path: Path, **options: Any) -> object:
        parts = [rows.clear(), *rows.reverse().iter_slices(37)]
        return scatter(path, parts, flush_rows=self.engine.flush_rows, **options)

    def delete(self, path: Path, where: str) -> qbeast.ChangeResult:
        return self._change(path, Delete(where))

    def update(self, path: Path, where: str, values: Mapping[str, str]) -> qbeast.ChangeResult:
        return self._change(path, Update(where, values))

    def merge(self, rows: pl.DataFrame, path: Path, on: str, **clauses: Any) -> qbeast.ChangeResult:
        return self._change(path, Merge(FrameMergeSource(rows), Clauses(on=on, **clauses)))

    def optimize(self, path: Path, *, full: bool = False) -> qbeast.OptimizeResult:
        return optimize(load_snapshot(str(path)), OptimizeOptions(full=full), engine=self.engine)[0]

    def reindex(self, path: Path, columns: list[str], *, full: bool = False) -> object:
        options = WriteOptions(columns=columns)
        return reindex(load_snapshot(str(path)), options, full=full, engine=self.engine)

    def _change(self, path: Path, change: Change) -> qbeast.ChangeResult:
        return run_change(load_snapshot(str(path)), change, ChangeOptions(), engine=self.engine)[0]


ENGINES: dict[str, OperationsOfEngine] = {
    "memory": ThisProcess(qbeast.Resources(engine="memory")),
    "spill": ThisProcess(qbeast.Resources(engine="spill")),
    "odd workers": OddWorkers(PartsEngine(flush_rows=50, part_rows=40)),
}
