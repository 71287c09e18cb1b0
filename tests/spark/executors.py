"""Spark as an engine of tests/contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import qbeast_spark_bridge as bridge
from tests.spark.frames import to_spark

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    import qbeast

_ResultT = TypeVar("_ResultT", bound="qbeast.ChangeResult | qbeast.OptimizeResult")


@dataclass
class Executors:
    """Tables of the bridge, with rows that Spark reads from files."""

    spark: SparkSession
    folder: Path
    frames: int = 0

    def write(self, rows: pl.DataFrame, path: Path, **options: Any) -> object:
        return bridge.write_table(self._of_spark(rows), path, **options)

    def delete(self, path: Path, where: str) -> qbeast.ChangeResult:
        return by_spark(self._table(path).delete(where))

    def update(self, path: Path, where: str, values: Mapping[str, str]) -> qbeast.ChangeResult:
        return by_spark(self._table(path).update(where, values))

    def merge(self, rows: pl.DataFrame, path: Path, on: str, **clauses: Any) -> qbeast.ChangeResult:
        return by_spark(self._table(path).merge(self._of_spark(rows), on, **clauses))

    def optimize(self, path: Path, *, full: bool = False) -> qbeast.OptimizeResult:
        return by_spark(self._table(path).optimize(full=full))

    def reindex(self, path: Path, columns: list[str], *, full: bool = False) -> object:
        return self._table(path).reindex(columns, full=full)

    def _table(self, path: Path) -> qbeast.Table:
        return bridge.open_table(self.spark, path)

    def _of_spark(self, rows: pl.DataFrame) -> DataFrame:
        self.frames += 1
        return to_spark(self.spark, rows, self.folder / str(self.frames))


def by_spark(result: _ResultT) -> _ResultT:
    """Return a result, which names the engine."""
    assert result.engine == "spark"
    return result
