# ruff: noqa: PLC0415 -- Polars must not be imported before its threads are set
"""Streams in batches of limited size, from Spark 4.2 on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from qbeast_spark_bridge.datasource.source_options import StreamReadOptions
from qbeast_spark_bridge.datasource.streams import StreamReader, offset_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from qbeast_core.table.read.stream import Offset


class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """The same with batches of limited size, from Spark 4.2 on."""

    def __init__(self, options: StreamReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._until: Offset | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Keep the place after the newest version: the query ends there."""
        self._until = self.stream.end()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """Return the limit of the options."""
        options = self.options
        if options.max_files is not None:
            return ReadMaxFiles(options.max_files)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return where the batch that begins at `start` ends."""
        from qbeast_core.table.read.stream import NO_LIMITS, Limits

        own = Limits(self.options.max_files, self.options.max_bytes)
        limits = NO_LIMITS if isinstance(limit, ReadAllAvailable) else own
        return dict(self.stream.latest(offset_of(start), limits, self._until).json())

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return the place after the newest version."""
        return dict(self.stream.end().json())
