"""Plan files of a few files each, in a folder of their own, and files and rows of a version by `deltalake`."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
from deltalake import DeltaTable

import qbeast
from qbeast_core.plan.nodes import Unknown
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot
from tests.helpers.handmade_log import add
from tests.helpers.small_files import PLANNED, resized

FILES = ("path", "num_records", "size_bytes")


@contextmanager
def planned(folder: Path) -> Iterator[Path]:
    """Open tables of few files by plan files, which are kept in a folder. Yield the folder of their cache."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        mock.patch.object(tempfile, "tempdir", str(folder)),
        mock.patch.dict("os.environ", TMPDIR=str(folder)),
        resized(**PLANNED),
    ):
        yield folder


def priced(path: str, low: float = 0.0, rows: int = 5, **fields: Any) -> dict[str, Any]:
    """Return an add with statistics."""
    stats = {
        "numRecords": rows,
        "minValues": {"price": low},
        "maxValues": {"price": low + 1},
        "nullCount": {"price": 0},
    }
    return add(path, size=len(path) + rows, stats=json.dumps(stats), **fields)


def plans_in(folder: Path) -> list[Path]:
    """Return the folders of plan files."""
    return sorted(path for path in folder.glob("qbeast-plans*/*") if path.name[0].isdecimal())


def checkpoint(table: Path | str, version: int | None = None) -> None:
    DeltaTable(str(table), version=version).create_checkpoint()


def in_parts(table: Path, version: int, parts: int = 2) -> None:
    """Write the checkpoint of a version in several files."""
    log = table / "_delta_log"
    whole = pl.read_parquet(log / f"{version:020d}.checkpoint.parquet")
    (log / f"{version:020d}.checkpoint.parquet").unlink()
    size = -(-whole.height // parts)
    for part in range(parts):
        name = f"{version:020d}.checkpoint.{part + 1:010d}.{parts:010d}.parquet"
        whole[part * size : (part + 1) * size].write_parquet(log / name)
    hint = f'{{"version":{version},"size":{whole.height},"parts":{parts}}}'
    (log / "_last_checkpoint").write_text(hint)


def other_place(table: Path, name: str) -> Path:
    """Return a copy of a table, which no cache knows."""
    return Path(shutil.copytree(table, table.parent / name, symlinks=True))


def by_deltalake(table: Path | str, version: int | None = None) -> pl.DataFrame:
    """Return the live files of a version."""
    actions = DeltaTable(str(table), version=version).get_add_actions()
    return pl.DataFrame(actions).select(pl.col(name).cast(TYPES[name]) for name in FILES).sort("path")


TYPES = {"path": pl.String(), "num_records": pl.Int64(), "size_bytes": pl.Int64()}


def files_of(snapshot: Snapshot) -> pl.DataFrame:
    return snapshot.files.select(pl.col(name).cast(TYPES[name]) for name in FILES).sort("path")


def assert_lists(snapshot: Snapshot, expected: pl.DataFrame) -> None:
    """Assert that each way to list the files of a version lists some, and that their sums are right."""
    parts = list(snapshot.parts(Unknown()))
    assert pl.concat([files_of(part) for part in parts]).sort("path").equals(expected)
    narrowed = snapshot.narrowed(Unknown())
    assert files_of(narrowed).equals(expected)
    for version in (snapshot, narrowed):
        assert version.file_count == expected.height
        assert version.counted_rows == expected["num_records"].sum()
        assert version.data_bytes == expected["size_bytes"].sum()
    assert files_of(snapshot).equals(expected)


def opened(table: Path | str, version: int | None = None) -> Snapshot:
    """Return a version that is opened by a plan file."""
    snapshot = load_snapshot(table, version=version)
    assert snapshot.planned is not None
    return snapshot


def rows_of(table: Path | str, where: str | None = None, by: Sequence[str] = ("id",)) -> pl.DataFrame:
    return qbeast.read_table(str(table), where=where).sort(by)
