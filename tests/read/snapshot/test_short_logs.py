"""A short local log is read without deltalake: it gives the same version, and whatever is unusual goes to deltalake."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from polars.testing import assert_frame_equal

from qbeast_core.io.location import Location
from qbeast_core.table.snapshot.delta import open_short
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.examples import examples
from tests.helpers.random_log import logs, put
from tests.helpers.small_files import resized
from tests.helpers.tables import folder

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")

ROWS = pl.DataFrame({"id": range(50), "name": [f"n{i}" for i in range(50)]})
FIELDS = ("version", "timestamp_ms", "metadata", "protocol", "config", "schema", "schema_json", "domains")


def is_short(root: Path | str, version: int | None = None) -> bool:
    return open_short(Location.of(root), version=version) is not None


def assert_as_deltalake(root: Path | str, version: int | None = None) -> bool:
    """Return whether the log is read without deltalake."""
    if not is_short(root, version):
        return False
    with resized(max_short_commits=0):
        expected = load_snapshot(root, version=version)
    actual = load_snapshot(root, version=version)
    for name in (*FIELDS, "fingerprint"):
        assert getattr(actual, name) == getattr(expected, name), name
    for mine, theirs in ((actual.files, expected.files), (actual.copies.files, expected.copies.files)):
        assert_frame_equal(mine, theirs, check_exact=True)
        assert mine.rows() == theirs.rows()  # a null struct differs from a struct of nulls
    assert actual.copies.mixed == expected.copies.mixed
    return True


@examples(25, sweep=4000)
@given(texts=logs())
def test_random_logs_give_what_deltalake_gives(texts: list[str]) -> None:
    with folder() as path:
        put(Path(path), texts)
        assert_as_deltalake(path)
        assert_as_deltalake(path, len(texts) // 2)
