"""The version after a change, which follows from the commit, equals the version that is loaded from the log."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.log.values import joined_files
from qbeast_core.plan.nodes import Unknown
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.examples import examples
from tests.helpers.plan_files import checkpoint, opened, planned
from tests.helpers.steps_of_life import ROWS, STEPS
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, folder, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.sweep
@pytest.mark.timeout(3000)
@examples(3, sweep=60, parent=RELAXED)
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5), vectors=st.booleans())
def test_versions_after_changes_equal_loaded_ones(
    steps: list[str],
    vectors: bool,  # noqa: FBT001 -- drawn
) -> None:
    with folder() as path:
        check_life(path, steps, vectors=vectors)


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("step", ["delete", "merge"])  # the merge adds a revision
def test_version_after_change_equals_loaded_one(tmp_path: Path, step: str, vectors: bool) -> None:  # noqa: FBT001
    check_life(tmp_path / "t", [step], vectors=vectors)


@pytest.mark.sweep
@pytest.mark.timeout(3000)
@examples(3, sweep=60, parent=RELAXED)
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5), vectors=st.booleans())
def test_versions_of_plan_files_have_the_rows_of_polars(
    steps: list[str],
    vectors: bool,  # noqa: FBT001 -- drawn
) -> None:
    with folder() as path, planned(path / "temporary"):
        check_planned_life(path / "t", steps, vectors=vectors)


@pytest.mark.parametrize("step", ["delete", pytest.param("merge", marks=pytest.mark.sweep)])
def test_version_of_a_plan_file_has_the_rows_of_polars(tmp_path: Path, step: str) -> None:
    with planned(tmp_path / "temporary"):
        check_planned_life(tmp_path / "t", [step], vectors=True)


def check_planned_life(path: Path, steps: list[str], *, vectors: bool) -> None:
    """Write a checkpoint after each other commit, and compare the rows of all versions with those of Polars."""
    with small_files():
        qbeast.write_table(ROWS, path, columns=[ROW, "a"], cube_size=10, deletion_vectors=vectors)
        qbeast.open_table(path).set_properties({"delta.checkpointInterval": "2"})
        for step in steps:
            checkpoint(path)
            opened(path)
            STEPS[step](qbeast.open_table(path))
            check_newest(path)
            check_rows(path, qbeast.open_table(path).version)
        for version in range(qbeast.open_table(path).version):
            check_rows(path, version)


def check_rows(path: Path, version: int) -> None:
    """Assert that a version, opened and as it is cached, has the rows of Polars, and may be filtered."""
    expected = pl.scan_delta(path, version=version).collect()
    for table in (qbeast.open_table(path, version=version), qbeast.open_table(path)):
        if table.version == version:
            assert_same_rows(table.read(), expected, ROW)
            assert_same_rows(table.read(where="a < 60"), expected.filter(pl.col("a") < 60), ROW)
            assert table.count() == expected.height == table.snapshot.live_rows


def check_life(path: Path, steps: list[str], *, vectors: bool) -> None:
    with small_files():
        qbeast.write_table(ROWS, path, columns=[ROW, "a"], cube_size=10, deletion_vectors=vectors)
        for step in steps:
            STEPS[step](qbeast.open_table(path))
            check_newest(path)


def check_newest(path: Path) -> None:
    """Assert that the newest version, which is cached after a change, equals the one in the log."""
    found = qbeast.open_table(path).snapshot
    loaded = load_snapshot(path, version=found.version, use_plan=False)
    files = [joined_files([part.files for part in found.parts(Unknown())]), found.files]
    for some in files:
        assert_frame_equal(joined_files([some, loaded.files.clear()]).sort("path"), loaded.files.sort("path"))
    for name in ("timestamp_ms", "metadata", "config", "schema", "protocol", "domains", "fingerprint"):
        assert getattr(found, name) == getattr(loaded, name)
    hidden = [
        {version.data_paths[number]: rows.tolist() for number, rows in version.hidden_rows.of(files).items()}
        for version, files in ((each, range(each.files.height)) for each in (found, loaded))
    ]
    assert hidden[0] == hidden[1]
