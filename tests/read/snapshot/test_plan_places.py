"""Plan files of tables in buckets, of old layouts and mapped columns, and of processes that make one at once."""

from __future__ import annotations

import shutil
from multiprocessing.pool import Pool
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

import qbeast
from qbeast_core.plan.nodes import Unknown
from qbeast_core.table.snapshot.snapshot import load_snapshot, refresh
from tests.format.collection import find
from tests.format.delta_tables import NAMES, copied, expected
from tests.helpers.handmade_log import PROTOCOL, metadata, remove, write_log
from tests.helpers.plan_files import (
    assert_lists,
    by_deltalake,
    checkpoint,
    in_parts,
    opened,
    planned,
    plans_in,
    priced,
)
from tests.helpers.tables import assert_same_rows


@pytest.fixture
def table(tmp_path: Path) -> Path:
    adds = [priced(f"f{number}", number, 10 + number) for number in range(7)]
    root = Path(write_log(tmp_path / "t", [PROTOCOL, metadata(), *adds]))
    checkpoint(root)
    return root


def upload(root: Path, bucket: str) -> None:
    """Put new files of the folder into the bucket; its server runs in this process."""
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    keys = backend.get_bucket(bucket).keys
    for path in sorted(root.rglob("*")):
        key = f"t/{path.relative_to(root).as_posix()}"
        if path.is_file() and key not in keys:
            backend.put_object(bucket, key, path.read_bytes())


@pytest.mark.parametrize("parts", [1, pytest.param(2, marks=pytest.mark.sweep)])
def test_table_in_a_bucket_has_a_plan_file(
    table: Path, tmp_path: Path, bucket: str, s3_options: dict[str, str], parts: int
) -> None:
    if parts > 1:
        in_parts(table, 0, parts)
    upload(table, bucket)
    with planned(tmp_path / "temporary") as cache:
        far = load_snapshot(f"s3://{bucket}/t", storage_options=s3_options)
        assert far.planned is not None
        assert_lists(far, by_deltalake(table))
        write_log(table, [remove("f1"), priced("g")], [priced("h")], first=1)
        upload(table, bucket)
        for newest in (refresh(far), load_snapshot(f"s3://{bucket}/t", storage_options=s3_options)):
            assert_lists(newest, by_deltalake(table))
        assert len(plans_in(cache)) == 1


@pytest.mark.sweep
def test_other_table_in_a_bucket_has_its_own_plan_file(
    table: Path, tmp_path: Path, bucket: str, s3_options: dict[str, str]
) -> None:
    with planned(tmp_path / "temporary"):
        upload(table, bucket)
        load_snapshot(f"s3://{bucket}/t", storage_options=s3_options)
        # Its checkpoint has the same name.
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].get_bucket(bucket).keys.clear()
        shutil.rmtree(table)
        write_log(table, [PROTOCOL, metadata(), *[priced(f"x{number}") for number in range(7)]])
        checkpoint(table)
        upload(table, bucket)
        assert_lists(load_snapshot(f"s3://{bucket}/t", storage_options=s3_options), by_deltalake(table))


def listed(arguments: tuple[str, str]) -> tuple[bool, list[str]]:
    table, folder = arguments
    with planned(Path(folder)):
        snapshot = load_snapshot(table)
        return snapshot.planned is not None, sorted(snapshot.narrowed(Unknown()).files["path"])


@pytest.mark.sweep
def test_processes_at_once_make_one_plan_file(table: Path, tmp_path: Path, four: Pool) -> None:
    names = by_deltalake(table)["path"].to_list()
    for number in range(5):
        cache = tmp_path / f"temporary-{number}"
        found = four.map(listed, [(str(table), str(cache))] * 8, chunksize=1)
        assert found == [(True, names)] * 8
        assert len(plans_in(cache)) == 1
        assert len(list(cache.glob("qbeast-plans*/*"))) == 1


@pytest.mark.parametrize("name", ["legacy/v050_mixed_states"])
def test_old_layouts_are_read_from_the_log(tmp_path: Path, name: str) -> None:
    golden = find(name)
    table = Path(shutil.copytree(golden.path, tmp_path / "t"))
    checkpoint(table)
    with planned(tmp_path / "temporary") as cache:
        for _ in range(2):
            assert load_snapshot(table).planned is None
        assert [path.name for plan in plans_in(cache) for path in plan.iterdir()].count("refused") == 1
        key = golden.expected.columns[0]
        assert_same_rows(qbeast.read_table(table).select(golden.expected.columns), golden.expected, key)


def test_renamed_and_dropped_columns_have_the_log_decide(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(40), "x": [number * 7 % 40 for number in range(40)], "y": ["y"] * 40})
    path = tmp_path / "t"
    with planned(tmp_path / "temporary"):
        qbeast.write_table(rows, path, columns=["id", "x"], cube_size=10)
        qbeast.open_table(path).rename_column("y", "z", upgrade_protocol=True)
        checkpoint(path)
        before = opened(path)
        qbeast.open_table(path).rename_column("x", "w")
        qbeast.open_table(path).drop_column("z")
        assert load_snapshot(path).planned is None
        for snapshot in (load_snapshot(path), refresh(before)):
            assert list(snapshot.schema) == ["id", "w"]
        expected_rows = rows.select("id", w="x")
        assert_same_rows(qbeast.read_table(path), expected_rows, "id")
        assert_same_rows(qbeast.read_table(path, where="w < 9"), expected_rows.filter(pl.col("w") < 9), "id")
        checkpoint(path)
        low = qbeast.open_table(path, version=3).read(where="w < 9")
        assert_same_rows(low, expected_rows.filter(pl.col("w") < 9), "id")


FOLDERS = ("partitions/", "column-mapping-name/", "non-ascii-partition-values/", "deletion-vectors/")


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(FOLDERS)])
def test_tables_of_others_have_the_same_rows(tmp_path: Path, name: str) -> None:
    table = copied(name, tmp_path)
    try:
        checkpoint(table)
    except Exception as error:  # noqa: BLE001 -- of many kinds
        pytest.skip(f"deltalake writes no checkpoint: {error}")
    with planned(tmp_path / "temporary"):
        rows = expected(name)
        actual = qbeast.read_table(table).select(rows.columns)
        assert actual.height == rows.height
        assert actual.join(rows, on=rows.columns, how="anti", nulls_equal=True).is_empty()
        assert load_snapshot(table).file_count == len(DeltaTable(table).file_uris())
