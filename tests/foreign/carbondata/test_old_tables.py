"""Tables of CarbonData 1.0 to 1.6: versions 1 to 3, dictionaries, streaming; every value equals what was loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_carbondata.columns import Column
from qbeast_carbondata.files.data_file import open_dictionaries
from qbeast_core.errors import DamagedFileError, LostValuesWarning, StorageError, UnsupportedTableError
from qbeast_core.io.location import open_store
from tests.foreign.carbondata.collection import expected, more_names, names, reader_of, swept, table_path
from tests.foreign.carbondata.old_tables import (
    MINUTES_OF_2000,
    OLD,
    file_rows,
    old_files,
    old_reader,
    rows_and_expected,
)

LOSSY = "cd100_v2_long_overflow"


def check(name: str) -> None:
    actual, target = rows_and_expected(name)
    if name.startswith("stream"):  # an index names its files in any order
        actual, target = actual.sort("id"), target.sort("id")
    assert_frame_equal(actual, target, check_exact=True)


@pytest.mark.parametrize("name", [*(name for name in names(*OLD) if name != LOSSY), *swept(more_names(*OLD))])
def test_rows_equal_carbondata(name: str) -> None:
    check(name)


def test_lost_values_warn_with_file_and_column() -> None:
    with pytest.warns(
        LostValuesWarning, match=r"part-0-0-0-\d+\.carbondata.*blocklet 0, column 'v'.*2\*\*63"
    ):
        check(LOSSY)


def test_table_may_mix_versions_and_surrogate_widths() -> None:
    files = old_files("cd111_mixed_v1_v2_v3")
    assert {file.version for file in files} == {"V1", "V2", "V3"}
    grown = old_files("cd111_v1_dict_3loads")
    assert len({len(file_rows(file)) for file in grown}) > 1


def test_columns_are_read_separately() -> None:
    (file,) = old_files("cd111_v2_types")
    whole = file_rows(file)
    for column in file.columns:
        (array,) = file.read(file.blocklets[0], [column], [0])
        assert_frame_equal(
            pl.DataFrame({column.schema.name: array}), whole.select(column.schema.name), check_exact=True
        )
        (none,) = file.read(file.blocklets[0], [column], [])
        assert len(none) == 0
        assert none.type == column.arrow_type


def test_stream_rows_after_last_commit_are_ignored(tmp_path: Path) -> None:
    whole = Path(shutil.copytree(table_path("stream161_basic"), tmp_path / "table"))
    before = [file_rows(file) for file in old_files("stream161_basic")]
    for path in whole.rglob("*.carbondata"):
        path.write_bytes(path.read_bytes() + b"@carbondata_sync\0\0")
    actual = [reader.open(live) for reader in [reader_of(open_store(whole))] for live in reader.files]
    for file, target in zip(actual, before, strict=True):
        assert file.version == "row"
        assert_frame_equal(file_rows(file), target)


def test_stream_cut_before_last_commit_raises(tmp_path: Path) -> None:
    whole = Path(shutil.copytree(table_path("stream161_basic"), tmp_path / "table"))
    for path in whole.rglob("*.carbondata"):
        path.write_bytes(path.read_bytes()[:-5])
    reader = reader_of(open_store(whole))
    with pytest.raises(StorageError, match="ends before"):
        list(reader.rows(["id"]))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Return a copy of a table with dictionaries that nobody else uses."""
    return Path(shutil.copytree(table_path("store161_global_dictionary"), tmp_path / "table"))


def dictionary_column() -> Column:
    (file,) = old_files("store161_global_dictionary")
    return next(column for column in file.columns if column.has_global_dictionary)


def test_missing_dictionary_is_named(copied: Path) -> None:
    column = dictionary_column()
    path = f"Metadata/{column.schema.column_id}.dict"
    (copied / path).unlink()
    with pytest.raises(UnsupportedTableError, match=f"column '{column.schema.name}'.*{path}") as caught:
        open_dictionaries(open_store(copied)).members(column)
    assert caught.value.path == path


def test_dictionary_bytes_after_the_index_are_ignored(copied: Path) -> None:
    column = dictionary_column()
    before = open_dictionaries(open_store(copied)).members(column)
    path = copied / "Metadata" / f"{column.schema.column_id}.dict"
    path.write_bytes(path.read_bytes() + b"\x19\x18\x03abc")
    assert open_dictionaries(open_store(copied)).members(column).equals(before)


@pytest.mark.parametrize("cut", [1, 7, 300])
def test_truncated_dictionary_raises(copied: Path, cut: int) -> None:
    column = dictionary_column()
    path = copied / "Metadata" / f"{column.schema.column_id}.dict"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(DamagedFileError, match=r"\.dict"):
        open_dictionaries(open_store(copied)).members(column)
    (copied / "Metadata" / f"{column.schema.column_id}.dictmeta").unlink()
    with pytest.raises(DamagedFileError, match=r"\.dict"):
        open_dictionaries(open_store(copied)).members(column)


def test_dictionary_member_must_be_a_number(copied: Path) -> None:
    (file,) = old_files("cd111_v2_types")
    column = next(item for item in file.columns if item.has_global_dictionary and item.kind.name == "INT")
    path = copied / "Metadata" / f"{column.schema.column_id}.dict"
    path.write_bytes(b"\x19\x28\x08@NU#LL$!\x02x1\x00")
    with pytest.raises(DamagedFileError, match="INT"):
        open_dictionaries(open_store(copied)).members(column)
    path.write_bytes(b"\x19\x38\x08@NU#LL$!\x02+7\x02 8\x00")
    assert open_dictionaries(open_store(copied)).members(column).to_pylist() == [None, None, 7, 8]


def test_writer_settings_define_timestamp_units() -> None:
    path, target = table_path("cd111_v2_timegran"), expected("cd111_v2_timegran")
    actual = qbeast.read_carbondata(path, writer_settings=MINUTES_OF_2000)
    assert_frame_equal(actual.cast(target.schema).sort("id"), target.sort("id"))
    moved = {"carbon.cutOffTimestamp": "2000-01-01T00:00:00+00:00", "carbon.timegranularity": "minute"}
    assert_frame_equal(qbeast.read_carbondata(path, writer_settings=moved), actual)
    for wrong in ({"carbon.timegranularity": "WEEK"}, {"carbon.cutOffTimestamp": "soon"}, {"other": "1"}):
        with pytest.raises(qbeast.InvalidInputError, match="writer_settings"):
            qbeast.open_carbondata(path, writer_settings=wrong)


@pytest.mark.parametrize("name", ["cd111_mixed_v1_v2_v3", "store161_global_dictionary", "stream161_finished"])
def test_history_of_old_loads_becomes_commits(name: str, tmp_path: Path) -> None:
    target = expected(name).sort("id")
    result = qbeast.import_carbondata(table_path(name), tmp_path / "t", ["id"], segments="history")
    actual = qbeast.read_table(tmp_path / "t")
    assert result.commits == len(result.segments) == len(old_reader(name).segments)
    assert_frame_equal(actual.select(target.columns).cast(target.schema).sort("id"), target)
