"""The version after a change, which follows from the commit, equals the version that is loaded from the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.examples import examples
from tests.helpers.steps_of_life import ROWS, STEPS
from tests.helpers.strategies import ROW
from tests.helpers.tables import folder, small_files

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


def check_life(path: Path, steps: list[str], *, vectors: bool) -> None:
    with small_files():
        qbeast.write_table(ROWS, path, columns=[ROW, "a"], cube_size=10, deletion_vectors=vectors)
        for step in steps:
            STEPS[step](qbeast.open_table(path))
            check_newest(path)


def check_newest(path: Path) -> None:
    """Assert that the newest version, which is cached after a change, equals the one in the log."""
    found = qbeast.open_table(path).snapshot
    loaded = load_snapshot(path, version=found.version)
    assert_frame_equal(found.files.sort("path"), loaded.files.sort("path"))
    for name in ("timestamp_ms", "metadata", "config", "schema", "protocol", "domains", "fingerprint"):
        assert getattr(found, name) == getattr(loaded, name)
    hidden = [
        {version.data_paths[number]: rows.tolist() for number, rows in version.hidden_rows.of(files).items()}
        for version, files in ((each, range(each.files.height)) for each in (found, loaded))
    ]
    assert hidden[0] == hidden[1]
