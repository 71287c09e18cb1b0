"""Samples of a table whose files are indexed by different columns: each file by the columns of its revision."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote

import polars as pl
from deltalake import DeltaTable

import qbeast
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.plan.weights import Sample
from qbeast_core.table import commit
from tests.helpers.invariants import read_log
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, sampled, small_files
from tests.helpers.vectors import hidden_rows, shown

__all__ = [
    "FRACTIONS",
    "ROWS",
    "check_version",
    "columns_of_files",
    "files_that_lost_their_place",
    "new",
    "sampled_by_files",
    "sampled_by_log",
]

FRACTIONS = (0.0, 0.07, 0.5, 1.0)


ROWS = pl.DataFrame({ROW: range(120)}).with_columns(
    a=pl.col(ROW) * 31 % 101,
    b=(pl.col(ROW) * 7919 % 997) / 7,
    s=pl.format("key {}", pl.col(ROW) % 40),
    flag=pl.col(ROW) % 3 == 0,
)


def new(path: Path, columns: Any = (ROW,), **options: Any) -> qbeast.Table:
    """Return a table of a few files, a copy of one that is written once."""
    shutil.copytree(_written(tuple(columns), tuple(options.items())).name, path, dirs_exist_ok=True)
    return qbeast.open_table(path)


@cache
def _written(columns: tuple[str, ...], options: tuple[tuple[str, Any], ...]) -> Any:
    folder = tempfile.TemporaryDirectory()
    with small_files(file_rows=30, page_rows=8):
        qbeast.write_table(ROWS, folder.name, list(columns), cube_size=20, **dict(options))
    return folder


def columns_of_files(path: Path) -> list[tuple[str, ...]]:
    log = read_log(path)
    return [log.revisions[int(add["tags"]["revision"])].columns for add in log.adds.values()]


def sampled_by_log(path: Path, rows: pl.DataFrame, sample: Sample | None, key: str = ROW) -> pl.DataFrame:
    """Return the rows of a sample by a log of JSON commits; a file without tags has the newest columns."""
    log = read_log(path)
    newest = log.revisions[int(log.configuration["qbeast.lastRevisionID"])]
    parts, hidden = [rows.clear()], hidden_rows(path)
    for encoded, add in log.adds.items():
        number = (add.get("tags") or {}).get("revision")
        revision = newest if number is None else log.revisions[int(number)]
        name = unquote(encoded)
        keys = shown(pl.read_parquet(path / name, columns=[key]), hidden.get(name, []))
        parts.append(sampled(rows.join(keys, on=key, how="semi"), list(revision.hashed), sample))
    return pl.concat(parts)


def sampled_by_files(
    path: Path,
    rows: pl.DataFrame,
    sample: Sample | None,
    *,
    key: str,
    key_in_files: str | None = None,
    version: int | None = None,
) -> pl.DataFrame:
    """Return the rows of a sample of any table by its list of files."""
    table = qbeast.open_table(path, version=version)
    columns = {revision.revision_id: list(revision.hashed) for revision in table.revisions}
    newest, parts = list(table.sample_by or table.indexed_columns), [rows.clear()]
    if all(names == newest for names in columns.values()):
        return sampled(rows, newest, sample)
    hidden = hidden_rows(path, version)
    for name, number in table.rows().files().select("path", "revision_id").iter_rows():
        keys = pl.read_parquet(path / name, columns=[key_in_files or key]).to_series().alias(key).to_frame()
        keys = shown(keys, hidden.get(Path(name).relative_to(path).as_posix(), []))
        mine = rows.join(keys, on=key, how="semi")
        parts.append(sampled(mine, newest if number is None else columns[number], sample))
    return pl.concat(parts)


@contextmanager
def files_that_lost_their_place() -> Generator[None]:
    """Let appends that lose a race publish their files without index, as if thresholds had changed."""

    def without_index(intent: WriteIntent, _: object) -> WriteIntent:
        return replace(intent, adds=tuple(add.without_index() for add in intent.adds))

    with mock.patch.object(commit, "fit_blocks", without_index):
        yield


def check_version(path: Path, rows: pl.DataFrame, key: str = ROW) -> qbeast.Table:
    """Assert that the newest version has the rows, each once in a partition into samples, as others read them."""
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), rows, key)
    ends = list(pairwise(FRACTIONS))
    parts = [table.read(sample=sample) for sample in ends]
    assert_same_rows(pl.concat(parts), rows, key)
    for sample, part in zip(ends, parts, strict=True):
        assert_same_rows(part, sampled_by_log(path, rows, sample, key), key)
    assert table.count(sample=ends[1]) == parts[1].height
    low = pl.col(key) < (rows[key].median() or 0)
    assert_same_rows(table.read(where=low, sample=ends[1]), parts[1].filter(low), key)
    assert table.count() == rows.height
    report = table.check(data=False)
    assert report.ok, report
    others = pl.DataFrame(DeltaTable(path).to_pyarrow_table())
    assert set(others[key]) == set(rows[key])
    assert others.height == rows.height
    return table
