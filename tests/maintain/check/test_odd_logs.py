"""Whatever stands in a log: no error but ours, no row lost, and a repair makes every read right again."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, note, settings

import qbeast
from tests.helpers.examples import examples
from tests.helpers.odd_log import GONE, Edit, apply, edits
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, sampled, small_files

INDEXED = [ROW, "a"]
OLD = pl.DataFrame({ROW: range(120)}).with_columns(
    a=pl.col(ROW) * 37 % 101, s=(pl.col(ROW) % 13).cast(pl.String)
)
ROWS = pl.concat([OLD, OLD.with_columns(pl.col(ROW) + 5_000)])
MORE = OLD.with_columns(pl.col(ROW) + 20_000)
NARROW = (pl.col("a") < 10) | (pl.col("s") == "12")
FRACTION = 0.3
FILES = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("odd") / "t"
    with small_files(file_rows=80, page_rows=8):
        qbeast.write_table(OLD, path, columns=INDEXED, cube_size=20)
        qbeast.write_table(ROWS[OLD.height :], path, mode="append")
    table = qbeast.open_table(path)
    assert (len(table.revisions), table.rows().files().height) == (3, FILES)
    return path


# Revisions that name other columns than the table has decide about samples and appends.
Errors = type[qbeast.QbeastError] | tuple[type[qbeast.QbeastError], ...]
REFUSED = (qbeast.InvalidMetadataError, qbeast.InvalidColumnsError)


def attempt(grave: bool, errors: Errors, operation: Callable[[], object]) -> bool:  # noqa: FBT001
    """Run an operation; whether it was done. Errors of ours are allowed where the edit is grave, or for this one."""
    try:
        operation()
    except errors as error:
        note(f"{type(error).__name__}: {error}")
        return False
    except qbeast.QbeastError as error:
        note(f"{type(error).__name__}: {error}")
        if not grave:
            raise
        return False
    return True


def check_rows(table: qbeast.Table, rows: pl.DataFrame) -> None:
    assert_same_rows(table.read(), rows)
    assert_same_rows(table.rows().lazy().filter(NARROW).collect(), rows.filter(NARROW))


def check_sample(table: qbeast.Table, rows: pl.DataFrame) -> None:
    expected = sampled(rows, INDEXED, FRACTION)
    assert_same_rows(table.read(sample=FRACTION), expected)
    assert table.rows(sample=FRACTION).explain().rows_opened >= expected.height


def moves_rows(edit: Edit) -> bool:
    return edit.kind in {"add", "twice"} and edit.keys[0] in {"path", "deletionVector"}


def check_edited(made: Path, changes: list[Edit]) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.QbeastWarning)
        path = Path(folder) / "t"
        shutil.copytree(made, path)
        for edit in changes:
            apply(path, edit)
        check_table(path, changes)


def check_table(path: Path, changes: list[Edit]) -> None:
    grave, same = any(edit.is_grave for edit in changes), not any(map(moves_rows, changes))
    opened: list[qbeast.Table] = []
    if not attempt(grave, qbeast.StorageError, lambda: opened.append(qbeast.open_table(path))):
        return
    table = opened[0]
    assert str(path) in repr(table)
    if same:
        attempt(grave, qbeast.StorageError, lambda: check_rows(table, ROWS))
        attempt(grave, REFUSED, lambda: check_sample(table, ROWS))
    else:
        attempt(
            grave,
            (qbeast.StorageError, *REFUSED),
            lambda: table.rows(sample=FRACTION).lazy().filter(NARROW).collect(),
        )
    attempt(grave, qbeast.StorageError, lambda: table.rows(NARROW).explain())
    attempt(grave, qbeast.StorageError, table.metrics)
    rows = ROWS
    if attempt(grave, REFUSED, lambda: qbeast.write_table(MORE, path, mode="append")):
        rows = pl.concat([ROWS, MORE])
    if attempt(grave, qbeast.StorageError, lambda: qbeast.open_table(path).repair()) and same:
        check_repaired(path, rows, grave=grave)


def check_repaired(path: Path, rows: pl.DataFrame, *, grave: bool) -> None:
    """Every read is right again, and everything can be written."""
    if not qbeast.open_table(path).indexed_columns:
        qbeast.convert_table(path, columns=INDEXED)
    table = qbeast.open_table(path)

    def use() -> None:
        check_sample(table, rows)
        table.optimize()
        check_rows(table, rows)
        check_sample(table, rows)

    if attempt(grave, (qbeast.StorageError, qbeast.InvalidColumnsError), use):
        assert not set(table.check().faults["severity"]) & {"error"}, table.check()


@examples(1, sweep=70, parent=settings(suppress_health_check=list(HealthCheck)))
@given(changes=edits([*ROWS.columns], FILES))
def test_unusual_log_loses_no_row(made: Path, changes: list[Edit]) -> None:
    check_edited(made, changes)


@pytest.mark.parametrize("rows", [7, pytest.param(GONE, marks=pytest.mark.sweep)])
def test_files_without_row_counts_are_planned(made: Path, rows: object) -> None:
    edits_of_file = [Edit("stats", FILES - 1, ("numRecords",), rows)]
    if rows == GONE:
        edits_of_file.append(Edit("tags", FILES - 1, ("blocks", 0), None))
    check_edited(made, edits_of_file)
