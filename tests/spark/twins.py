"""Two copies of one table, changed by Spark and by this process: what came of it has to be the same."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl
from polars.testing import assert_frame_equal

import qbeast
from tests.helpers.invariants import check_invariants
from tests.helpers.small_files import resized
from tests.helpers.tables import small_files

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

COUNTS = ("operation", "version", "committed", "rows_deleted", "rows_updated", "rows_inserted", "rows_copied")


@contextmanager
def small_tasks() -> Generator[None]:
    """Cut few rows into many files and tasks."""
    with small_files(), resized(task_bytes=3 << 20):
        yield


def assert_same_change(
    path: Path, result: qbeast.ChangeResult, twin: Path, wanted: qbeast.ChangeResult
) -> None:
    """Both results say the same, and both tables hold the same blocks and rows."""
    assert {name: getattr(result, name) for name in COUNTS} == {
        name: getattr(wanted, name) for name in COUNTS
    }
    assert result.copies["rows"].equals(wanted.copies["rows"])
    assert (result.hint is None) == (wanted.hint is None)
    shapes = [item.plan.select("rows", "matched", "action").sort(pl.all()) for item in (result, wanted)]
    assert shapes[0].equals(shapes[1])
    tables = [qbeast.open_table(item) for item in (path, twin)]
    kept = [table.blocks().drop("path").sort(pl.all()) for table in tables]
    assert kept[0].equals(kept[1])
    # By all columns: inserted rows may have the numbers of others.
    rows = [table.rows().lazy().collect().sort(pl.all()) for table in tables]
    assert_frame_equal(rows[0], rows[1], check_exact=True)
    check_invariants(path, may_stage=True)
    assert tables[0].check().ok
