"""Read whole data files with Polars' own reader: full reads, files of other writers, deletion vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from qbeast_core.io.store import Store
from qbeast_core.space.arrays import I64Array

__all__ = ["scan_files", "scan_without_rows"]

_ROW = "__qbeast_row"


def scan_files(
    store: Store,
    paths: Sequence[str],
    columns: Sequence[str],
    schema: pl.Schema,
    *,
    storage_options: dict[str, str] | None = None,
    row_index: str | None = None,
    use_bounds: bool = True,
) -> pl.LazyFrame:
    """Return a scan of whole files in the table's types; missing columns are null.

    Parameters
    ----------
    store, paths
        Where the files are, and their decoded paths; at least one.
    columns : sequence of str
        Columns wanted, at least one.
    schema : polars.Schema
        The table's columns.
    storage_options : dict, optional
        For object stores.
    row_index : str, optional
        Name of a column with the row's number in its file; then only one file may be given.
    use_bounds : bool, default True
        Whether Polars may leave out row groups by their bounds, see `qbeast_core.query.predicate.understand`.

    Raises
    ------
    UnsupportedTableError
        A path leads out of the table.
    """
    lazy = pl.scan_parquet(
        [store.locate(path) for path in paths],
        schema={name: schema[name] for name in columns},
        missing_columns="insert",
        extra_columns="ignore",
        cast_options=pl.ScanCastOptions(
            integer_cast="upcast",
            float_cast="upcast",
            datetime_cast=["nanosecond-downcast", "millisecond-upcast", "convert-timezone"],
            missing_struct_fields="insert",
            extra_struct_fields="ignore",
            categorical_to_string="allow",
        ),
        storage_options=_as_polars_takes_them(storage_options or {}),
        glob=False,
        hive_partitioning=False,
        row_index_name=row_index,
        use_statistics=use_bounds,
    )
    return lazy.select(*columns, *([row_index] if row_index else []))


def scan_without_rows(
    store: Store,
    path: str,
    dropped: I64Array,
    columns: Sequence[str],
    schema: pl.Schema,
    *,
    storage_options: dict[str, str] | None = None,
    use_bounds: bool = True,
) -> pl.LazyFrame:
    """Return a scan of one whole file without some of its rows.

    Parameters
    ----------
    dropped : ndarray of int64, shape (n,)
        Numbers of the rows to leave out, counted from 0 in the file.
    """
    lazy = scan_files(
        store, [path], columns, schema, storage_options=storage_options, row_index=_ROW, use_bounds=use_bounds
    )
    gone = pl.Series(dropped, dtype=pl.get_index_type())
    return lazy.filter(~pl.col(_ROW).is_in(gone.implode())).drop(_ROW)


def _as_polars_takes_them(storage_options: Mapping[str, str]) -> dict[str, Any] | None:
    """Translate options of `deltalake`, which are all texts: Polars wants this one as a number."""
    numbers = {key: int(text) for key, text in storage_options.items() if key.lower() == "max_retries"}
    return {**storage_options, **numbers} or None
