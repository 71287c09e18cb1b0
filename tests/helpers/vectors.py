"""Tables with deletion vectors, and the rows that they hide as deltalake reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder

import qbeast

__all__ = ["ENABLED", "enable_vectors", "few", "hidden_rows", "rows_by_sql", "shown", "vector_files"]

FEATURES_READER = 3
ENABLED = {"delta.enableDeletionVectors": "true"}


def few(names: Iterable[str], *usual: str) -> list[Any]:
    """Return parameters of a test: some are run with each change, the others in sweeps."""
    return [pytest.param(name, marks=() if name in usual else pytest.mark.sweep) for name in names]


def enable_vectors(path: Path) -> None:
    """Let changes of a table hide rows."""
    qbeast.open_table(path).set_properties(ENABLED)


def hidden_rows(path: Path, version: int | None = None) -> dict[str, list[int]]:
    """Return the hidden rows of each file that has some, by its decoded path, as deltalake reads them."""
    hidden: dict[str, list[int]] = {}
    table = DeltaTable(path, version=version)
    if table.protocol().min_reader_version < FEATURES_READER:
        return hidden
    root = unquote(urlparse(table.table_uri).path).rstrip("/")
    for uri, is_shown in pl.DataFrame(table.deletion_vectors()).iter_rows():
        # deltalake returns the path of the log, which is encoded, within an encoded address.
        name = unquote(unquote(urlparse(uri).path)).removeprefix(f"{root}/")
        hidden[name] = np.flatnonzero(~np.array(is_shown, np.bool_)).tolist()
    return hidden


def shown(rows: pl.DataFrame, hidden: Sequence[int]) -> pl.DataFrame:
    """Return the rows of a file without hidden ones."""
    return rows[np.setdiff1d(np.arange(rows.height), hidden)]


def rows_by_sql(path: Path, query: str = "SELECT * FROM t") -> pl.DataFrame:
    """Return the rows of a query of the table `t`, as the SQL of deltalake reads them."""
    return pl.DataFrame(QueryBuilder().register("t", DeltaTable(path)).execute(query).read_all())


def vector_files(path: Path) -> set[str]:
    """Return the names of the files of vectors, with or without a version."""
    return {file.name for file in path.rglob("deletion_vector_*.bin")}
