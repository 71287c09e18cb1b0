"""A handle stays at the place it was opened at, whoever moves the working directory, a link or the home folder."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.deletion_vectors import delete

ROWS = pl.DataFrame({"row": range(100)})
OTHER = pl.DataFrame({"row": range(1000, 1070)})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def rows_at(path: Path | str) -> set[int]:
    return set(DeltaTable(path).to_pyarrow_table()["row"].to_pylist())


def test_home_folder_works_everywhere(here: Path) -> None:
    table = here / "home" / "sales"
    qbeast.write_table(OTHER, table, columns=["row"])
    qbeast.write_table(ROWS, "~/sales", mode="append")
    both = pl.concat([ROWS, OTHER])
    assert qbeast.read_table("~/sales").sort("row").equals(both)
    assert rows_at(table) == set(both["row"])
    opened = qbeast.open_table("~/sales")
    opened.delete(pl.col("row") < 50)
    opened.optimize(full=True)
    opened.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert opened.check().ok
    assert rows_at(table) == set(both.filter(pl.col("row") >= 50)["row"])
    assert opened.uri == str(table.resolve())
    assert not list((here / "work").iterdir())


def test_relative_handle_survives_working_directory_change(here: Path) -> None:
    for name, rows in (("a", ROWS), ("b", OTHER)):
        (here / name).mkdir()
        os.chdir(here / name)
        qbeast.write_table(rows, "t", columns=["row"])
    os.chdir(here / "a")
    opened = qbeast.open_table("t")
    lazy = qbeast.scan_table("t")
    os.chdir(here / "b")
    assert lazy.collect().sort("row").equals(ROWS)
    opened.delete(pl.col("row") < 10)
    opened.optimize(full=True)
    assert opened.refresh().version == opened.version
    opened.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert rows_at(here / "a" / "t") == set(range(10, 100))
    assert rows_at(here / "b" / "t") == set(OTHER["row"])
    assert opened.check().ok


def test_handle_by_link_stays_at_its_target(here: Path) -> None:
    qbeast.write_table(ROWS, here / "v1", columns=["row"])
    qbeast.write_table(OTHER, here / "v2", columns=["row"])
    (here / "now").symlink_to(here / "v1")
    opened = qbeast.open_table(here / "now")
    (here / "now").unlink()
    (here / "now").symlink_to(here / "v2")
    opened.delete(pl.col("row") < 10)
    assert rows_at(here / "v1") == set(range(10, 100))
    assert rows_at(here / "v2") == set(OTHER["row"])
    assert qbeast.read_table(here / "now").sort("row").equals(OTHER)


def test_revision_names_the_absolute_place(here: Path) -> None:
    qbeast.write_table(ROWS, "t", columns=["row"])
    config = load_snapshot("t").config
    assert {value.table_id for value in config.revisions.values()} == {str((here / "work" / "t").resolve())}


@pytest.mark.parametrize("path", ["s3:x", "a\\b", "a\nb", "a%41b", "", "~no-such-user-here/t", "s3://b/a#b"])
def test_ambiguous_paths_write_nothing(here: Path, path: str) -> None:
    for call in (
        lambda: qbeast.write_table(ROWS, path, columns=["row"]),
        lambda: qbeast.convert_table(path, columns=["row"]),
        lambda: qbeast.open_table(path).upgrade(),
        lambda: qbeast.open_table(path),
        lambda: qbeast.scan_table(path),
    ):
        with pytest.raises(qbeast.InvalidInputError, match="cannot be the path of a table") as caught:
            call()
        assert caught.value.argument == "path"
    assert not list((here / "work").iterdir())
    assert not list((here / "home").iterdir())


def test_impossible_folder_raises(here: Path) -> None:
    (here / "file").write_text("x")
    for path in ("/proc/qbeast-cannot-be-here", here / "file" / "t"):
        with pytest.raises(qbeast.StorageError, match="Nothing was changed"):
            qbeast.write_table(ROWS, path, columns=["row"])
        with pytest.raises(qbeast.TableNotFoundError):
            qbeast.read_table(path)


@pytest.mark.usefixtures("here")
def test_missing_data_file_is_named() -> None:
    qbeast.write_table(pl.DataFrame({"row": range(50_000)}), "t", columns=["row"], cube_size=1000)
    table = qbeast.open_table("t")
    (path, *_) = table.rows().files()["path"]
    Path(path).unlink()
    for read in (
        table.read,
        lambda: table.read(sample=0.1),
        lambda: table.rows().lazy().filter(pl.col("row") == 7).collect(),
        lambda: table.delete(pl.col("row") == 7),
        lambda: table.update(pl.col("row") < 7, {"row": pl.col("row")}),
        lambda: table.optimize(full=True),
    ):
        with pytest.raises(qbeast.StorageError, match=Path(path).name) as caught:
            read()
        assert caught.value.path == Path(path).name


def test_missing_deletion_vector_file_is_named(here: Path) -> None:
    rows = pl.DataFrame({"id": range(4000), "x": range(4000)})
    qbeast.write_table(rows, here / "t", columns=["id", "x"])
    delete(here / "t", [1, 2])
    log = here / "t" / "_delta_log" / f"{1:020}.json"
    text = log.read_text()
    start = text.index('"storageType": "i"')
    end = text.index('"sizeInBytes"')
    named = '"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1, '
    log.write_text(text[:start] + named + text[end:])
    table = qbeast.open_table(here / "t")
    with pytest.raises(
        qbeast.StorageError, match=r"ab/deletion_vector_d2c639aa-.*\.bin' of .* is missing"
    ) as caught:
        table.read()
    assert caught.value.path.startswith("ab/deletion_vector_")
    assert "deletion-vector" in set(table.check().faults["code"])
