"""Where the files of an operation go, and the shape of their rows: all that a writer of files knows of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from qbeast_core.io.stores.store import Store, checked_options, open_store
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.data.frames import FrameLike, to_frame
from qbeast_core.table.data.schema import fit_frame


@dataclass(frozen=True, slots=True)
class RowShape:
    """How rows become rows of the table: the Delta schema, the same as Polars types, whether columns may be missing."""

    schema_json: str
    schema: pl.Schema
    merge: bool

    def fit(self, rows: FrameLike) -> pl.DataFrame:
        """Return the rows with the table's columns and types."""
        return fit_frame(to_frame(rows), self.schema_json, self.schema, merge=self.merge)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """Where the files of an operation go, and what they follow; picklable."""

    # The table, as workers reach it too.
    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    shape: RowShape
    # The table's properties that files follow: those of Delta.
    configuration: Mapping[str, str]
    # Of the table: a JVM may read files without the table's schema.
    dialect: BlocksDialect

    @staticmethod
    def of(
        uri: str,
        shape: RowShape,
        configuration: Mapping[str, str],
        *,
        dialect: BlocksDialect,
        storage_options: Mapping[str, str] | None = None,
    ) -> FileTarget:
        """Return the target of files in a table of that configuration."""
        kept = {key: value for key, value in configuration.items() if key.startswith("delta.")}
        return FileTarget(
            uri=uri,
            storage_options=checked_options(storage_options),
            shape=shape,
            configuration=kept,
            dialect=dialect,
        )

    @property
    def store(self) -> Store:
        """The store below the table's root."""
        return open_store(self.uri, self.storage_options)
