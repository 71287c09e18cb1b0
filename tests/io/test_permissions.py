"""A folder that permissions close is named as such. It does not pass for an empty or missing one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import qbeast
from qbeast_core.cli.output import fresh_file
from qbeast_core.cli.program import program
from tests.helpers.users import another_user

ROWS = pl.DataFrame({"a": range(10)})
INSIDE: dict[str, Callable[[Path], object]] = {
    "open": qbeast.open_table,
    "read": qbeast.read_table,
    "write": lambda path: qbeast.write_table(ROWS, path, columns=["a"]),
    "append": lambda path: qbeast.write_table(ROWS, path, mode="append", columns=["a"]),
    "convert": lambda path: qbeast.convert_table(path, columns=["a"]),
    "carbon": qbeast.open_carbondata,
    "output": lambda path: fresh_file(str(path / "out.csv"), overwrite=False),
}
CLOSED = pytest.mark.parametrize("closed", ["", "t"])


@pytest.fixture
def place() -> Generator[Path]:
    """A folder that another user can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def in_shell(*arguments: Path | str) -> str:
    return CliRunner().invoke(program, list(map(str, arguments))).stderr


@pytest.mark.parametrize("name", INSIDE)
@CLOSED
def test_closed_folder_is_named(place: Path, name: str, closed: str) -> None:
    call, root = INSIDE[name], place / "root"
    (place / "nothing").mkdir()
    with suppress(qbeast.QbeastError):
        call(place / "nothing")  # imports what the other user may not read
    qbeast.write_table(ROWS, root / "t", columns=["a"])
    (root / closed).chmod(0)
    try:
        with another_user(), pytest.raises(qbeast.StorageError, match="Permission denied"):
            call(root / "t")
    finally:
        (root / closed).chmod(0o755)


def test_closed_log_is_named(place: Path) -> None:
    qbeast.write_table(ROWS, place / "t", columns=["a"])
    (place / "t" / "_delta_log").chmod(0)
    try:
        with another_user(), pytest.raises(qbeast.StorageError, match="Permission denied"):
            qbeast.open_table(place / "t")
    finally:
        (place / "t" / "_delta_log").chmod(0o755)


@CLOSED
def test_closed_folder_of_source_is_named(place: Path, closed: str) -> None:
    folder = place / "root" / "t"
    folder.mkdir(parents=True)
    assert "there is no" in in_shell("write", folder / "a.parquet", place / "new", "-c", "a")
    ROWS.write_parquet(folder / "a.parquet")
    (place / "root" / closed).chmod(0)
    try:
        with another_user():
            assert "Permission denied" in in_shell("write", folder / "a.parquet", place / "new", "-c", "a")
    finally:
        (place / "root" / closed).chmod(0o755)


def test_closed_folder_of_open_table_is_named(place: Path) -> None:
    """A version that cannot be seen is not a version that does not exist."""
    qbeast.write_table(ROWS, place / "t", columns=["a"])
    table = qbeast.open_table(place / "t")
    table.refresh()
    (place / "t").chmod(0)
    try:
        with another_user(), pytest.raises(qbeast.StorageError, match="Permission denied"):
            table.refresh()
    finally:
        (place / "t").chmod(0o755)
