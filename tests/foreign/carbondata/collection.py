"""The tables of CarbonData that stand beside the tests, and those a variable of the environment points to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from qbeast_carbondata.files.data_file import open_dictionaries
from qbeast_carbondata.metadata.open_table import load_segment, load_table
from qbeast_carbondata.metadata.segments import Stores
from qbeast_carbondata.reader import TableReader

BESIDE = Path(__file__).parent / "tables"
MORE = os.environ.get("QBEAST_CARBONDATA_TABLES")


def names(*prefixes: str) -> list[str]:
    """Return the tables that stand beside the tests and begin so."""
    return sorted(path.name for path in BESIDE.iterdir() if path.name.startswith(prefixes))


def more_names(*prefixes: str) -> list[str]:
    """Return those of the larger collection that begin so and do not stand beside the tests."""
    if MORE is None:
        return []
    actual = (path.parent.name for path in Path(MORE).rglob("expected.parquet"))
    return sorted(name for name in actual if name.startswith(prefixes) and not (BESIDE / name).exists())


def swept(tables: Sequence[str]) -> list[Any]:
    """Return parameters that only a sweep takes."""
    return [pytest.param(name, marks=pytest.mark.sweep) for name in tables]


IMPORTED = [name for name in names("sdk", "tx", "cd", "store", "stream") if "parquet" not in name]
"""The tables whose rows lie in their own folder."""


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by all columns that sort."""
    return rows.sort([name for name, dtype in rows.schema.items() if not dtype.is_nested()])


def folder(name: str) -> Path:
    """Return the folder of a table with all that belongs to it."""
    if (BESIDE / name).exists() or MORE is None:
        return BESIDE / name
    return next(path for path in Path(MORE).rglob(name) if path.is_dir())


def table_path(name: str) -> Path:
    """Return where the table as written lies."""
    own = folder(name)
    return next((own / inner for inner in ("store", "table") if (own / inner).exists()), own)


def expected(name: str) -> pl.DataFrame:
    """Return the rows, as CarbonData's readers had them."""
    return pl.read_parquet(folder(name) / "expected.parquet")


def reader_of(
    store: Any, *, outside: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None
) -> TableReader:
    """Return a reader of all live segments of the table in a store."""
    table = load_table(Stores(store, {}, outside or {}, allow_absolute_paths=False))
    loads = [load for load in table.loads if load.is_visible] if table.is_transactional else [None]
    segments = tuple(load_segment(table, load) for load in loads)
    return TableReader(table, segments, open_dictionaries(store, settings))
