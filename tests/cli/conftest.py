"""A table of 2,000 rows in two files, made once and copied for tests that change it."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

import qbeast
from tests.cli.running import ROWS


@pytest.fixture(scope="session")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that nobody changes."""
    path = tmp_path_factory.mktemp("cli") / "sales"
    for part in (ROWS.head(1500), ROWS.tail(500)):
        qbeast.write_table(part, path, columns=["id", "price"], mode="append", cube_size=300)
    return path


@pytest.fixture
def mine(sales: Path, tmp_path: Path) -> Path:
    """A table to change."""
    return copytree(sales, tmp_path / "mine")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands write where they run: that is not the repository."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
