"""What `import qbeast` offers to bring tables into the format: signatures and documentation."""

from __future__ import annotations

import os
from collections.abc import Mapping

from qbeast_core.table.upgrade import Copies, UpgradeResult, upgrade

__all__ = ["upgrade_table"]


def upgrade_table(
    path: str | os.PathLike[str],
    *,
    replicated: Copies | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> UpgradeResult:
    """Bring a table that qbeast-spark wrote before its version 0.6.0 up to date, without touching its data.

    One commit gives every data file the tags of today; the rows stay where they are, and qbeast returns each
    of them once before and after. Done again it changes nothing, and a table of today has nothing to upgrade.

    Such tables may hold files with *copies* of rows. qbeast passes over them; every other reader of Delta
    tables returns those rows twice.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    replicated : {"keep", "drop"}, optional
        What becomes of files with copies: kept, as the format's documents have it (default, with a warning if
        there are any), or dropped from the table, after which every reader sees each row once. Either way
        files that readers disagree about, all of them copies, are dropped.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them.

    Returns
    -------
    UpgradeResult
        The version, and how many files were retagged, kept and dropped.

    Raises
    ------
    InvalidInputError
        `replicated` is neither.
    TableNotFoundError, NotQbeastTableError, UnsupportedTableError
        There is no Delta table, it has no Qbeast index, or a feature that must not be written.
    CommitConflictError, CommitUnknownError, StorageError
        See `write_table`.

    Warns
    -----
    QbeastWarning
        Copies are kept and nobody asked for that.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"a": [1, 2]}), "new", columns=["a"])
    >>> qbeast.upgrade_table("new").upgraded
    False
    """
    return upgrade(os.fspath(path), replicated=replicated, storage_options=storage_options)
