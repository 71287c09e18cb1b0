"""The part of a table's interface that looks after it: files, versions, dialect, properties."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import polars as pl

from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.dialect import DialectResult, JvmRelease, switch_dialect
from qbeast_core.table.properties import add_columns, set_properties, widen_columns
from qbeast_core.table.restore import RestoreResult, restore
from qbeast_core.table.snapshot import load_snapshot
from qbeast_core.table.table_base import TableBase
from qbeast_core.table.travel import travel
from qbeast_core.table.vacuum import VacuumResult, vacuum
from qbeast_core.table.world import WORLD

__all__ = ["Administered"]


class Administered(TableBase):
    """`Table.vacuum`, `Table.restore`, `Table.switch_dialect` and changes of metadata alone."""

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties, without those that describe the index."""
        stored = self._snapshot.metadata.configuration
        return {key: text for key, text in stored.items() if not key.startswith("qbeast.")}

    def vacuum(
        self,
        *,
        retention_hours: float | None = None,
        dry_run: bool = True,
        allow_short_retention: bool = False,
    ) -> VacuumResult:
        """Find, or delete, data files that the table does not need any more.

        These are the files of versions that nobody travels back to, and what interrupted writes left behind.
        Files of the newest version are never touched, nor their deletion vectors; nor is anything that is
        not a data file. Deleted files cannot be had back, and versions that need them cannot be read.

        Parameters
        ----------
        retention_hours : float, optional
            Files that were removed from the table, or written, less than so many hours ago are spared; by
            default what the table's property ``delta.deletedFileRetentionDuration`` says, or 168 (a week).
        dry_run : bool, default True
            Tell what would be deleted, and delete nothing.
        allow_short_retention : bool, default False
            Accept less than the table's own retention. A writer at work, or a reader of an older version, can
            lose its files then.

        Returns
        -------
        VacuumResult
            The files and their bytes.

        Raises
        ------
        InvalidInputError
            The retention is none, or too short.
        UnsupportedTableError, StorageError
            The table must not be written; the store refused.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"a": [1, 2]})
        >>> for _ in range(3):
        ...     result = qbeast.write_table(rows, "often", columns=["a"], mode="overwrite")
        >>> table = qbeast.open_table("often")
        >>> table.vacuum().files
        ()
        >>> len(table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False).files)
        2
        """
        return vacuum(
            self._snapshot,
            retention_hours=retention_hours,
            dry_run=dry_run,
            allow_short=allow_short_retention,
            now_ms=WORLD.now_ms(),
        )

    def restore(self, version: int | str | datetime, *, dry_run: bool = False) -> RestoreResult:
        """Make an older version the newest: its rows, its columns, its properties and its index.

        One commit; no data is rewritten, and the versions in between stay in the history. What others commit
        while it is on its way is undone as well. Ids of revisions that were made since are not used again.

        Parameters
        ----------
        version : int, datetime or str
            A version number, or a time, as for `qbeast.open_table`.
        dry_run : bool, default False
            Change nothing and say what would be done.

        Returns
        -------
        RestoreResult
            The new version, and how many files came back and went.

        Raises
        ------
        VersionNotFoundError
            There is no such version, or a vacuum took some of its files.
        NotQbeastTableError
            The table had no Qbeast index then.
        UnsupportedTableError
            The table must not be written, or allows appends only.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> for day in range(3):
        ...     _ = qbeast.write_table(pl.DataFrame({"day": [day]}), "log", columns=["day"], mode="append")
        >>> table = qbeast.open_table("log")
        >>> table.restore(0).version, table.scan().collect()["day"].to_list()
        (3, [0])
        """
        number, moment = travel(version)
        newest = self._newest()
        options = newest.storage_options
        old = load_snapshot(newest.uri, version=number, timestamp=moment, storage_options=options)
        result, outcome = restore(newest, old, dry_run=dry_run)
        if outcome is not None:
            self._move_to(outcome.snapshot)
        return result

    def switch_dialect(self, dialect: BlocksDialect, *, jvm: JvmRelease = "0.7") -> DialectResult:
        """Spell the index in the log anew, for readers that know one of its two spellings only.

        One commit that changes tags alone: no file is rewritten, and qbeast reads both spellings at any time.
        Files written in dialect ``"documented"`` hold a column `_qbeast_weight` beyond the table's schema. An
        optimize by qbeast-spark 0.7 fails on it, or takes it for a column that was added; the result names these
        files, a `HiddenColumnWarning` says so, and ``optimize(full=True)`` takes the column out.

        Parameters
        ----------
        dialect : {"documented", "qbeast-spark"}
            As the format's documents spell blocks, or as the JVM implementation does.
        jvm : {"0.7", "0.8"}, default "0.7"
            Which qbeast-spark is to read the table: its last release, which fails on quantiles and on columns
            of one value, or its main branch.

        Returns
        -------
        DialectResult
            The version, and how many files got new tags.

        Raises
        ------
        InvalidColumnsError
            The JVM cannot read an index of these columns: of type byte, short or timestamp without zone, or,
            up to 0.7, by quantiles.
        InvalidInputError, UnsupportedTableError
            There is no such dialect; the table must not be written.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": range(9)}), "both", columns=["a"])
        >>> table = qbeast.open_table("both")
        >>> table.switch_dialect("qbeast-spark", jvm="0.8").retagged_files
        1
        """
        result, outcome = switch_dialect(self._newest(), dialect, jvm=jvm)
        self._move_to(outcome.snapshot)
        return result

    def set_properties(self, properties: Mapping[str, str | None]) -> int:
        """Set properties of the table, or unset them, in one commit.

        Parameters
        ----------
        properties : mapping of str to str or None
            None unsets. Names of your own, and those of Delta that ask nothing new of readers and writers, for
            example ``delta.checkpointInterval`` or ``delta.appendOnly``. A change data feed
            (``delta.enableChangeDataFeed``) and check constraints (``delta.constraints.<name>``) can be unset.

        Returns
        -------
        int
            The version that has them; the present one if nothing changed.

        Raises
        ------
        InvalidInputError
            A name of qbeast's own, or a value that is no text.
        UnsupportedTableError
            A property, or the table, has to do with a feature that qbeast does not support.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`; a conflict also where another writer set the same property.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": [1]}), "owned", columns=["a"])
        >>> table = qbeast.open_table("owned")
        >>> table.set_properties({"owner": "us"}), table.properties
        (1, {'owner': 'us'})
        """
        outcome = set_properties(self._newest(), properties)
        self._move_to(outcome.snapshot)
        return outcome.version

    def add_columns(self, columns: Mapping[str, pl.DataType | type[pl.DataType]]) -> int:
        """Add columns at the end of the schema, in one commit; rows that are there have nulls in them.

        Renaming and dropping columns is not supported: Delta tables can do it with the feature columnMapping, and
        tables that use it are refused by name.

        Parameters
        ----------
        columns : mapping of str to Polars type
            New columns; names differ from those of the table in more than case.

        Returns
        -------
        int
            The version that has them; the present one if there are none.

        Raises
        ------
        SchemaMismatchError
            A column of that name is there.
        InvalidInputError
            A type that Delta does not have.
        UnsupportedTableError
            The table must not be written.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": [1]}), "wider", columns=["a"])
        >>> table = qbeast.open_table("wider")
        >>> table.add_columns({"note": pl.String}), table.scan().collect().rows()
        (1, [(1, None)])
        """
        outcome = add_columns(self._newest(), columns)
        self._move_to(outcome.snapshot)
        return outcome.version

    def widen_columns(self, columns: Mapping[str, pl.DataType | type[pl.DataType]]) -> int:
        """Give columns of bytes or shorts a wider type, in one commit; no file is rewritten.

        Indexed columns may be among them. Other types need Delta's feature typeWidening, which qbeast does not
        support.

        Parameters
        ----------
        columns : mapping of str to Polars type
            Columns of type Int8 or Int16 with their new type, Int16 or Int32.

        Returns
        -------
        int
            The version that has them; the present one if they have these types already.

        Raises
        ------
        InvalidInputError
            There is no such column.
        UnsupportedTableError
            Another change of type, or the table must not be written.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"a": [1], "n": [7]}, schema={"a": pl.Int64, "n": pl.Int8})
        >>> _ = qbeast.write_table(rows, "narrow", columns=["a"])
        >>> table = qbeast.open_table("narrow")
        >>> table.widen_columns({"n": pl.Int32}), table.schema["n"]
        (1, Int32)
        """
        outcome = widen_columns(self._newest(), columns)
        self._move_to(outcome.snapshot)
        return outcome.version
