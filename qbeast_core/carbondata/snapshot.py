"""What the metadata of a table says, as values: its columns, its loads, and the live data files of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.json_files import Load, UpdatedBlock
from qbeast_core.carbondata.segments import LiveFile, Stores
from qbeast_core.carbondata.structs.schema import TableSchema


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A load, and its data files that are live."""

    load: Load
    files: tuple[LiveFile, ...]

    @property
    def rows(self) -> int | None:
        """Rows that are left, as index and update status count them; None if only the files can tell."""
        counts = [file.rows for file in self.files]
        if any(count is None for count in counts):
            return None
        return sum(count or 0 for count in counts) - sum(file.deleted_rows for file in self.files)


@dataclass(frozen=True, slots=True, eq=False)
class TableSnapshot:
    """What the metadata of a table says."""

    stores: Stores
    # The schema as stored; None of a folder without one.
    schema: TableSchema | None
    # Columns that are not dropped, in the order of the user; none of a folder without schema.
    columns: tuple[Column, ...]
    # All entries of the table status; none of a folder of data files.
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
