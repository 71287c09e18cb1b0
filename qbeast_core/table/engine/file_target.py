"""Target of new data files: the table, its schema and its properties. Writers of files need nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import polars as pl

from qbeast_core.io.location import Location
from qbeast_core.io.store import Store
from qbeast_core.log.columns import StoredColumns, sample_column_of, without_values
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.table_config import SAMPLE_COLUMN
from qbeast_core.support.process import now_ms
from qbeast_core.table.data.frames import FrameLike, to_frame
from qbeast_core.table.data.rules import RowRules
from qbeast_core.table.data.schema import fit_frame
from qbeast_core.tree.summary import with_stored_values


@dataclass(frozen=True, slots=True)
class RowShape:
    """Schema that rows are converted to, as Delta schema and as Polars schema. `merge`: columns may be missing."""

    schema_json: str
    schema: pl.Schema
    merge: bool
    # Column whose values are computed when files are written: rows need not have it.
    sample_column: str | None = None
    # Rules of the table for new rows. None: it has none, or the rows are in the table already.
    rules: RowRules | None = field(default=None, repr=False)
    # Partition columns, whose values become the values that Delta stores: the empty text becomes null.
    partitions: tuple[str, ...] = ()

    def fit(self, rows: FrameLike) -> pl.DataFrame:
        """Return the rows with the columns and types of the table. Raise if they break a rule of the table."""
        frame = without_values(to_frame(rows), self.sample_column)
        if self.rules is None:
            return self._stored(fit_frame(frame, self.schema_json, self.schema, merge=self.merge))
        rules = self.rules.on_new(frame.columns)
        computed = {column.name for column in rules.generated}
        given = pl.Schema({name: dtype for name, dtype in self.schema.items() if name not in computed})
        fitted = fit_frame(rules.fill(frame), self.schema_json, given, merge=self.merge)
        if computed:
            fitted = fit_frame(rules.compute(fitted), self.schema_json, self.schema, merge=self.merge)
        fitted = self._stored(fitted)
        rules.check(fitted)
        return fitted

    def _stored(self, fitted: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as Delta stores them, where a partition column may have more nulls."""
        rows = with_stored_values(fitted, self.partitions)
        return fit_frame(rows, self.schema_json, self.schema, merge=self.merge) if self.partitions else rows

    def of_columns(self, names: Sequence[str]) -> RowShape:
        """Return the shape of some columns, and of columns that they are computed from. It checks no rules."""
        needed, rules = set(names), self.rules
        if rules is not None:
            needed |= rules.sources_of(names)
            rules = rules.for_columns(names)
        schema = pl.Schema({name: dtype for name, dtype in self.schema.items() if name in needed})
        # Rows may have none of the columns, and have another column then, which counts them.
        return replace(
            self, schema=schema, merge=self.merge or rules is not None, rules=rules, sample_column=None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """Target of new files. Picklable."""

    # Location of the table.
    location: Location
    shape: RowShape
    # The ``delta.`` properties of the table, and the name of its sample column.
    configuration: Mapping[str, str]
    # Dialect of the table: qbeast-spark may read files without the schema of the table.
    dialect: BlocksDialect
    # How files store the columns.
    columns: StoredColumns
    # Paths of columns that need statistics because the table is clustered by them.
    clustered_by: tuple[tuple[str, ...], ...] = ()
    # Sampling key. Empty: the weight of a row is the hash of the indexed columns.
    sample_by: tuple[str, ...] = ()
    # How much narrower than others the pages of columns are, by names in files.
    importance: Mapping[str, float] = field(default_factory=dict[str, float])
    # Rows of the table before the write, as far as they are counted.
    table_rows: int = 0
    # Modification time of the files. Optimize keeps files of one time together: they divide one space.
    time_ms: int

    @staticmethod
    def of(
        location: Location,
        shape: RowShape,
        configuration: Mapping[str, str],
        *,
        dialect: BlocksDialect,
        columns: StoredColumns,
        clustered_by: tuple[tuple[str, ...], ...] = (),
        sample_by: tuple[str, ...] = (),
        importance: Mapping[str, float] = MappingProxyType({}),
        table_rows: int = 0,
        time_ms: int | None = None,
    ) -> FileTarget:
        """Return the target of files in a table with this configuration, by default with the time of now."""
        prefixes = "delta.", SAMPLE_COLUMN
        properties = {key: value for key, value in configuration.items() if key.startswith(prefixes)}
        return FileTarget(
            # New files are below the root, also of a table with absolute paths.
            location=replace(location, trusts_absolute=False) if location.trusts_absolute else location,
            shape=replace(
                shape,
                sample_column=sample_column_of(properties, shape.schema, columns),
                partitions=columns.partitions,
            ),
            configuration=properties,
            dialect=dialect,
            columns=columns,
            clustered_by=clustered_by,
            sample_by=sample_by,
            importance=dict(importance),
            table_rows=table_rows,
            time_ms=now_ms() if time_ms is None else time_ms,
        )

    @property
    def store(self) -> Store:
        """Store of the table's folder."""
        return self.location.store
