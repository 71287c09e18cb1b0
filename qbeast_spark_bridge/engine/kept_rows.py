"""Rows of a DataFrame that executors store in the table's folder until a change has read them."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from qbeast_core.errors import StorageError
from qbeast_core.io.location import Location
from qbeast_core.table.data.files import delete_files
from qbeast_core.table.dml.tasks import FitRows, Outside
from qbeast_core.table.engine.engine import Source
from qbeast_core.table.engine.row_change import AddedRows, StoredPart, StoredRows, stored_by
from qbeast_spark_bridge.engine.engine import SparkSource
from qbeast_spark_bridge.engine.workers import unpickled, worker_errors
from qbeast_spark_bridge.spark_schema import numbered
from qbeast_spark_bridge.worker.call import WorkerCall
from qbeast_spark_bridge.worker.transport import decimals_as_longs, short_decimals
from qbeast_spark_bridge.worker.write_files import FILES, KeepPartition, keep_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SparkKeeper:
    """See `qbeast_core.table.dml.replace_where.RowKeeper`."""

    location: Location
    operation: str = field(default_factory=lambda: str(uuid.uuid4()), init=False)

    def kept(self, source: Source, fit: FitRows) -> tuple[AddedRows, Outside]:
        """Store the rows; `clear` deletes them."""
        parts, outside = self._run(source, KeepPartition(fit, self.location, self.operation))
        return StoredRows(self.location, parts), outside

    def checked(self, source: Source, fit: FitRows) -> tuple[Source, Outside]:
        """Check the rows without storing them."""
        _, outside = self._run(source, KeepPartition(fit, self.location, None))
        return source, outside

    def clear(self) -> None:
        """Delete the stored rows, as far as the store allows."""
        with suppress(StorageError):
            delete_files(self.location.store, stored_by(self.location.store, self.operation))

    def _run(self, source: Source, task: KeepPartition) -> tuple[tuple[StoredPart, ...], Outside]:
        if not isinstance(source, SparkSource):
            raise TypeError(source)
        df: DataFrame = source.df
        with worker_errors(df.sparkSession):
            decimals = short_decimals(df.schema)
            call = WorkerCall.of(keep_partition, (task, df.columns, decimals))
            answers: list[Any] = unpickled(decimals_as_longs(numbered(df), decimals).mapInArrow(call, FILES))
        parts = tuple(part for stored, _ in answers for part in stored)
        return parts, reduce(add, (outside for _, outside in answers), Outside())
