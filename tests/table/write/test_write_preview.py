"""The preview of a write says what the write then does, and leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings

import qbeast
from tests.helpers.strategies import Case, cases
from tests.helpers.tables import folder, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

SHARED = (
    *("rows", "files", "cubes", "revision_id", "new_revision"),
    *("transformers", "cube_size", "design_effect"),
)
ROWS = pl.DataFrame({"id": range(900), "x": [i / 7 for i in range(900)]})


def preview(rows: pl.DataFrame, path: Path, **options: Any) -> qbeast.WriteResult:
    return qbeast.write_table(rows, path, dry_run=True, **options)


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(item.relative_to(path)): item.read_bytes() for item in sorted(path.rglob("*")) if item.is_file()
    }


@settings(max_examples=15)
@given(case=cases())
def test_write_matches_its_preview(case: Case) -> None:
    with folder() as path, small_files():
        for number, (frame, size) in enumerate(zip(case.frames, case.cube_sizes, strict=True)):
            options = {
                "columns": case.columns,
                "mode": "append" if number else "error",
                "cube_size": size,
                "dialect": case.dialect,
            }
            before = contents(path)
            planned = preview(frame, path, **options)
            assert contents(path) == before
            done = qbeast.write_table(frame, path, **options)
            assert {key: getattr(planned, key) for key in SHARED} == {
                key: getattr(done, key) for key in SHARED
            }
            assert (planned.version, planned.dry_run, planned.committed) == (done.version - 1, True, False)


def test_preview_reports_skipped_writes(tmp_path: Path) -> None:
    done = qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    planned = preview(ROWS, tmp_path / "t", columns=["id"], mode="ignore")
    assert (planned.skipped, planned.rows, planned.version) == (True, 0, done.version)


def test_preview_raises_like_the_write(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    with pytest.raises(qbeast.TableExistsError):
        preview(ROWS, tmp_path / "t", columns=["id"])
    with pytest.raises(qbeast.SchemaMismatchError):
        preview(ROWS.cast(pl.String), tmp_path / "t", mode="append")
