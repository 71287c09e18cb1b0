"""Other writers beside an optimize: appends stay, changes of the same files make it fail without a trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from tests.helpers.change_races import BOUNDS, check_no_orphans, grown, rows
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.races import landing_first
from tests.helpers.stores import failing_puts, nth
from tests.helpers.tables import assert_same_rows, small_files


def optimize_beside(path: Path, other: Callable[[], Any], **options: Any) -> qbeast.OptimizeResult:
    """Optimize; the other writer commits between the data files and the commit of ours."""
    table = qbeast.open_table(path)
    with landing_first(other):
        return table.optimize(**options)


def check(path: Path, wanted: pl.DataFrame, *, may_stage: bool = False) -> None:
    assert_same_rows(qbeast.open_table(path).read(), wanted)
    check_invariants(path, may_stage=may_stage)


@pytest.mark.parametrize("options", [{}, {"full": True}])
def test_concurrent_append_stays(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "t"
    everything = grown(path)
    more = rows(5000)
    result = optimize_beside(path, lambda: qbeast.write_table(more, path, mode="append"), **options)
    assert result.committed
    assert result.attempts >= 2 or result.version >= 7
    check(path, pl.concat([everything, more]))
    check_no_orphans(path)


def test_concurrent_append_by_delta_writer_stays(tmp_path: Path) -> None:
    path = tmp_path / "t"
    everything = grown(path)
    more = rows(5000)
    optimize_beside(path, lambda: write_deltalake(path, more, mode="append"))
    check(path, pl.concat([everything, more]), may_stage=True)


def test_concurrent_new_revision_renumbers_ours(tmp_path: Path) -> None:
    path = tmp_path / "t"
    everything = grown(path)
    strange = rows(5000).with_columns(pl.col("a") * 9)
    write_deltalake(path, strange, mode="append")
    more = rows(6000).with_columns(pl.col("a") * 90)
    result = optimize_beside(path, lambda: qbeast.write_table(more, path, mode="append"))
    table = qbeast.open_table(path)
    assert [revision.revision_id for revision in table.revisions] == [0, 1, 2, 3]
    assert (result.new_revision, result.revision_id) == (True, 3)
    check(path, pl.concat([everything, strange, more]))
    assert (
        table.rows().lazy().filter(pl.col("a") > 40).collect().height == more.filter(pl.col("a") > 40).height
    )


@pytest.mark.parametrize("how", ["overwrite", "delete", "compact", "optimize"])
def test_earlier_replacement_of_same_files_wins(tmp_path: Path, how: str) -> None:
    path = tmp_path / "t"
    everything = grown(path)
    kept = everything.filter(pl.col("a") > 0.1)
    others: dict[str, tuple[Callable[[], Any], pl.DataFrame]] = {
        "overwrite": (lambda: qbeast.write_table(rows(1), path, mode="overwrite"), rows(1)),
        "delete": (lambda: DeltaTable(path).delete("a <= 0.1"), kept),
        "compact": (DeltaTable(path).optimize.compact, everything),
        "optimize": (lambda: qbeast.open_table(path).optimize(), everything),
    }
    other, left = others[how]
    with pytest.raises(qbeast.CommitConflictError, match="replaces"):
        optimize_beside(path, other)
    assert read_log(path).version == 6
    check(path, left, may_stage=True)
    check_no_orphans(path)


@pytest.mark.parametrize("seed", [16, pytest.param(56, marks=pytest.mark.sweep)])
def test_append_below_removed_threshold_replans_optimize(tmp_path: Path, seed: int) -> None:
    path, rng = tmp_path / "t", np.random.default_rng(seed)
    with small_files(file_rows=15):
        count = int(rng.integers(40, 120))
        base = pl.DataFrame({"row": range(count), "a": rng.random(count)})
        qbeast.write_table(base, path, columns=["row:hash", "a:linear"], cube_size=5, column_stats=BOUNDS)
        more = pl.DataFrame({"a": rng.random(int(rng.integers(5, 60)))}).with_row_index("row", 1000)
        more = more.cast({"row": pl.Int64})
        files = qbeast.open_table(path).rows().files()["path"].sample(fraction=0.6, seed=seed).to_list()
        steps: list[str] = []
        result = optimize_beside(
            path,
            lambda: qbeast.write_table(more, path, mode="append"),
            files=files,
            progress=lambda step: steps.append(step.stage),
        )
    assert steps.count("read") == 2  # of two plans
    assert result.version == 2
    check(path, pl.concat([base, more]))
    check_no_orphans(path)


def test_error_while_writing_leaves_no_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    everything = grown(path)
    table = qbeast.open_table(path)
    with (
        small_files(),
        failing_puts(nth(3), OSError("disk full")) as put,
        pytest.raises(OSError, match="disk"),
    ):
        table.optimize(full=True)
    assert len(put) >= 3
    check(path, everything)
    check_no_orphans(path)
