"""The JSON files of real tables, and what is none."""

from __future__ import annotations

import pytest

from qbeast_carbondata.damage import Damaged
from qbeast_carbondata.metadata.json_files import (
    read_delete_delta,
    read_segment_file,
    read_table_status,
    read_update_status,
)
from tests.foreign.carbondata.collection import BESIDE, table_path


def test_all_json_files_of_tables_are_parsed() -> None:
    actual = 0
    for path in BESIDE.rglob("*"):
        if path.name.startswith("tablestatus"):
            assert all(load.name and load.status for load in read_table_status(path.read_bytes()))
        elif path.name.startswith("tableupdatestatus"):
            assert all(block.start <= block.end for block in read_update_status(path.read_bytes()))
        elif path.suffix == ".segment":
            assert read_segment_file(path.read_bytes()).locations
        elif path.suffix == ".deletedelta":
            assert read_delete_delta(path.read_bytes()).pages
        else:
            continue
        actual += 1
    assert actual > 80


def test_compacted_and_unfinished_segments_are_invisible() -> None:
    loads = read_table_status((table_path("tx230_minor_compaction") / "Metadata/tablestatus").read_bytes())
    assert {load.name: load.is_visible for load in loads} == {
        "0": False,
        "1": False,
        "2": False,
        "3": True,
        "0.1": True,
    }


@pytest.mark.parametrize("text", [b"{", b"[1]", b'[{"loadName": "0"}]', b"\xff", b"[" * 100_000])
def test_invalid_table_status_raises(text: bytes) -> None:
    with pytest.raises(Damaged):
        read_table_status(text)


@pytest.mark.parametrize(
    "wrong",
    [
        '"deleteDeltaStartTimestamp": "5"',
        '"deleteDeltaEndTimestamp": "5"',
        '"deletedRowsInBlock": "3"',
        '"deleteDeltaStartTimestamp": "x", "deleteDeltaEndTimestamp": "x"',
        '"deleteDeltaStartTimestamp": "1", "deleteDeltaEndTimestamp": "2", "deltaFileStamps": ["../1"]',
    ],
)
def test_update_status_that_revives_rows_raises(wrong: str) -> None:
    with pytest.raises(Damaged):
        read_update_status(f'[{{"segmentName": "0", "blockName": "part-0", {wrong}}}]'.encode())
