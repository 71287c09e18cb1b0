"""A dropped table leaves nothing of its own, and takes nothing of others."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import qbeast

ROWS = pl.DataFrame({"id": range(1000)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of several versions, whose files are of all kinds, in a folder."""
    path = tmp_path / "sales" / "t"
    for _ in range(2):
        qbeast.write_table(ROWS, path, columns=["id"], cube_size=100, mode="overwrite")
    qbeast.open_table(path).delete("id < 10")
    ROWS.write_parquet(path / "orphan.parquet")
    return path


def test_table_exists_until_it_is_dropped(path: Path) -> None:
    assert not qbeast.table_exists(path.parent)
    assert not qbeast.table_exists(path.parent / "missing")
    assert qbeast.table_exists(path)
    result = qbeast.drop_table(path, confirm=True)
    assert (result.version, result.committed) == (2, False)
    assert {"orphan.parquet", "_delta_log/00000000000000000000.json"} < set(result.files)
    assert result.bytes > 0
    assert not qbeast.table_exists(path)
    assert not path.exists()
    assert path.parent.exists()
    with pytest.raises(qbeast.TableNotFoundError):
        qbeast.open_table(path)
    qbeast.write_table(ROWS, path, columns=["id"])
    assert qbeast.open_table(path).count() == 1000


def test_plain_delta_table_is_dropped(tmp_path: Path) -> None:
    ROWS.write_delta(tmp_path / "plain")
    assert qbeast.table_exists(tmp_path / "plain")
    qbeast.drop_table(tmp_path / "plain", confirm=True)
    assert not (tmp_path / "plain").exists()


@pytest.mark.parametrize("confirm", [False, None, 1, "yes"])
def test_drop_needs_confirmation(path: Path, confirm: object) -> None:
    before = sorted(path.rglob("*"))
    with pytest.raises(qbeast.InvalidInputError, match="Nothing was changed"):
        qbeast.drop_table(path, confirm=confirm)  # type: ignore[arg-type]
    with pytest.raises(qbeast.InvalidInputError, match="`confirm` must be True"):
        qbeast.drop_table(path)
    assert sorted(path.rglob("*")) == before


def test_folder_without_a_log_raises(tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "a.parquet")
    (tmp_path / "_delta_log").mkdir()
    for place in (tmp_path, tmp_path / "_delta_log", tmp_path / "missing"):
        with pytest.raises(qbeast.TableNotFoundError, match="Nothing was changed"):
            qbeast.drop_table(place, confirm=True)
    assert (tmp_path / "a.parquet").exists()


def test_foreign_files_are_kept(path: Path) -> None:
    others = [path / "notes.txt", path / "_hidden" / "a.parquet", path / ".git" / "a.parquet"]
    for other in others:
        other.parent.mkdir(exist_ok=True)
        ROWS.write_parquet(other)
    qbeast.write_table(ROWS, path / "inner", columns=["id"])
    qbeast.drop_table(path, confirm=True)
    assert all(other.exists() for other in others)
    assert qbeast.open_table(path / "inner").count() == 1000
    assert sorted(item.name for item in path.iterdir()) == [".git", "_hidden", "inner", "notes.txt"]


def test_dry_run_lists_what_goes_and_stays(path: Path) -> None:
    (path / "notes.txt").touch()
    before = sorted(path.rglob("*"))
    plan = qbeast.drop_table(path, dry_run=True)
    assert sorted(path.rglob("*")) == before
    assert (plan.dry_run, plan.kept) == (True, ("notes.txt",))
    result = qbeast.drop_table(path, confirm=True)
    assert (result.files, result.bytes, result.kept) == (plan.files, plan.bytes, plan.kept)
    assert [item.name for item in path.iterdir()] == ["notes.txt"]


def test_checksums_of_hadoop_go_with_their_files(path: Path) -> None:
    for file in [*path.glob("*.parquet"), path / "_delta_log" / "00000000000000000000.json"]:
        (file.parent / f".{file.name}.crc").touch()
    (path / ".notes.txt.crc").touch()
    qbeast.drop_table(path, confirm=True)
    assert [item.name for item in path.iterdir()] == [".notes.txt.crc"]


def test_links_are_not_followed(path: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    ROWS.write_parquet(outside / "a.parquet")
    (path / "link").symlink_to(outside, target_is_directory=True)
    (path / "linked.parquet").symlink_to(outside / "a.parquet")
    qbeast.drop_table(path, confirm=True)
    assert (outside / "a.parquet").exists()
    assert [item.name for item in path.iterdir()] == ["link"]


def test_log_outside_of_table_raises(path: Path, tmp_path: Path) -> None:
    (path / "_delta_log").rename(tmp_path / "log")
    (path / "_delta_log").symlink_to(tmp_path / "log", target_is_directory=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(qbeast.UnsupportedTableError, match="leads out of the table"):
        qbeast.drop_table(path, confirm=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_drop_of_clone_keeps_source_files(path: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    (clone / "_delta_log").mkdir(parents=True)
    for commit in (path / "_delta_log").glob("*.json"):
        text = commit.read_text().replace('"path":"', f'"path":"file://{path}/')
        (clone / "_delta_log" / commit.name).write_text(text)
    assert qbeast.open_table(clone, allow_absolute_paths=True).count() == 990
    qbeast.drop_table(clone, confirm=True)
    assert not clone.exists()
    assert qbeast.open_table(path).count() == 990
