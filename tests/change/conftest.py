"""Tables that tests of changes begin with. Each is written once; tests change copies."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from tests.helpers.change_races import grown
from tests.helpers.changes import spread, written

COUNT = 60


@pytest.fixture(scope="session")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tables."""
    folder = tmp_path_factory.mktemp("masters")
    written(folder / "spread", count=COUNT)
    grown(folder / "grown")
    assert DeltaTable(folder / "spread").to_pyarrow_table().num_rows == 2 * COUNT  # loads what tests use
    return folder


@pytest.fixture
def rows() -> pl.DataFrame:
    """The rows of the table at `path`."""
    return spread(2 * COUNT)


@pytest.fixture
def path(masters: Path, tmp_path: Path) -> Path:
    """A table of two appends."""
    return copytree(masters / "spread", tmp_path / "t")


@pytest.fixture
def table(path: Path) -> qbeast.Table:
    return qbeast.open_table(path)


@pytest.fixture
def grown_path(masters: Path, tmp_path: Path) -> Path:
    """A table of `tests.helpers.change_races`."""
    return copytree(masters / "grown", tmp_path / "t")
