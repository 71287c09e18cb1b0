"""What docs/personal-data.md says is kept of a person after each step, looked for in every byte below the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import qbeast

NAME = "person023"
EMAIL = f"{NAME}@example.org"
PEOPLE = pl.DataFrame({"email": [f"person{n:03}@example.org" for n in range(60)], "visits": range(60)})


def kept(path: Path) -> set[str]:
    """Where below the table a person is named: data files, commits, checkpoints."""
    actual: set[str] = set()
    for file in path.rglob("*"):
        if file.suffix == ".parquet":  # values are compressed; statistics and tags are told by the footer
            rows, footer = (
                str(pl.read_parquet(file, glob=False).to_dicts()),
                repr(pq.read_metadata(file).to_dict()),
            )
            if NAME in rows + footer or NAME.encode() in file.read_bytes():
                actual.add("checkpoint" if ".checkpoint" in file.name else "data")
        elif file.is_file() and NAME.encode() in file.read_bytes():
            actual.add("commit")
    return actual


def newest_metadata(path: Path) -> str:
    return "".join(item.to_json() for item in qbeast.open_table(path).revisions)


def live_statistics(path: Path) -> str:
    return str(pl.DataFrame(DeltaTable(path).get_add_actions(flatten=True)).to_dicts())


def erase(path: Path) -> None:
    """Delete the rows by a key that means nothing elsewhere, and let go of what held them."""
    table = qbeast.open_table(path)
    table.delete(pl.col("visits") == 23)
    table.optimize(full=True)
    table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)


@pytest.mark.parametrize("columns", [["email:hash", "visits"], ["visits"]])
def test_hashed_columns_keep_no_values_in_metadata(columns: list[str], tmp_path: Path) -> None:
    qbeast.write_table(PEOPLE, tmp_path / "t", columns=columns)
    assert kept(tmp_path / "t") == {"data"}
    erase(tmp_path / "t")
    assert kept(tmp_path / "t") == set()


def test_quantiles_keep_values_until_redrawn(tmp_path: Path) -> None:
    path = tmp_path / "t"
    qbeast.write_table(PEOPLE, path, columns=["email", "visits"])
    assert NAME in newest_metadata(path)
    erase(path)
    assert EMAIL not in set(qbeast.read_table(path)["email"])
    assert NAME in newest_metadata(path), "full=True keeps the quantiles; then the page may say less"
    assert NAME not in live_statistics(path)
    assert kept(path) == {"commit"}

    table = qbeast.open_table(path)
    table.optimize(into="new")
    table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert NAME not in newest_metadata(path) + live_statistics(path)
    assert kept(path) == {"commit"}, "of versions before the redraw"

    table.set_properties({"delta.logRetentionDuration": "interval 0 days"})
    last = DeltaTable(path)
    last.create_checkpoint()
    last.cleanup_metadata()
    assert kept(path) == set()
    assert qbeast.open_table(path).check().ok


def test_extreme_values_disappear_with_their_files(tmp_path: Path) -> None:
    """Of an indexed column: statistics hold the ends, and they go with the file."""
    path = tmp_path / "t"
    ends = pl.concat([PEOPLE, pl.DataFrame({"email": ["zoe@example.org"], "visits": [60]})])
    qbeast.write_table(ends, path, columns=["email:hash", "visits"])
    assert "zoe@example.org" in live_statistics(path)
    qbeast.open_table(path).delete(pl.col("visits") == 60)
    assert "zoe@example.org" not in live_statistics(path)


NOW: dict[str, Any] = {"retention_hours": 0, "allow_short_retention": True, "dry_run": False}


def live_rows(path: Path) -> str:
    """Return all rows in live data files, also those that no read returns."""
    return str([pl.read_parquet(file).to_dicts() for file in qbeast.open_table(path).rows().files()["path"]])


@pytest.mark.parametrize("columns", [["email:hash", "visits"], ["visits"], []])
def test_hidden_rows_are_on_disk_until_a_purge(columns: list[str], tmp_path: Path) -> None:
    path = tmp_path / "t"
    qbeast.write_table(PEOPLE.clear(), path, columns=columns, deletion_vectors=True)
    qbeast.open_table(path).set_properties({"delta.dataSkippingStatsColumns": "visits"})
    qbeast.write_table(PEOPLE, path, mode="append")
    table = qbeast.open_table(path)
    table.delete(pl.col("visits") == 23)
    assert EMAIL not in set(pl.read_delta(str(path))["email"])
    table.vacuum(**NOW)
    table.optimize()
    assert NAME in live_rows(path)
    assert kept(path) == {"data"}
    table.optimize(purge=True)
    assert NAME not in live_rows(path)
    assert kept(path) == {"data"}, "of the versions before the purge"
    table.vacuum(**NOW)
    assert kept(path) == set()
    assert not list(path.glob("deletion_vector_*"))


def test_delete_without_vectors_erases_live_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    qbeast.write_table(PEOPLE, path, columns=["email:hash", "visits"])
    table = qbeast.open_table(path)
    table.delete(pl.col("visits") == 23)
    assert NAME not in live_rows(path)
    assert kept(path) == {"data"}
    table.vacuum(**NOW)
    assert kept(path) == set()
