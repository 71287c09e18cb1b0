"""The metadata of a table as values: its columns, its loads, and the live data files of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.metadata.json_files import Load, UpdatedBlock
from qbeast_core.carbondata.metadata.segments import LiveFile, Stores
from qbeast_core.carbondata.structs.schema import TableSchema


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A load and its live data files."""

    load: Load
    files: tuple[LiveFile, ...]

    @property
    def rows(self) -> int | None:
        """Rows that are not deleted, as index and update status count them; None if only the files know."""
        counts = [file.rows for file in self.files]
        if None in counts:
            return None
        return sum(count or 0 for count in counts) - sum(file.deleted_rows for file in self.files)


@dataclass(frozen=True, slots=True, eq=False)
class TableSnapshot:
    """The metadata of a table at one moment."""

    stores: Stores
    # None for a folder of data files.
    schema: TableSchema | None
    # Visible columns in the order of the user; empty for a folder of data files.
    columns: tuple[Column, ...]
    # All entries of the table status; empty for a folder of data files.
    loads: tuple[Load, ...]
    updates: tuple[UpdatedBlock, ...]
    # Whether it has a table status.
    is_transactional: bool

    @property
    def uri(self) -> str:
        """The table's root."""
        return self.stores.table.uri

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties."""
        return {} if self.schema is None else self.schema.properties
