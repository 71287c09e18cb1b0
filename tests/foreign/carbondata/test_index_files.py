"""Index files of real tables: every one is read to its end, and tells what the data files tell themselves."""

from __future__ import annotations

import pytest

from qbeast_carbondata.damage import Damaged
from qbeast_carbondata.structs import read_index_file, read_merged_index_file
from qbeast_core.io.thrift import BINARY, LIST, field, write_binary, write_list
from tests.foreign.carbondata.collection import BESIDE

SINGLE = sorted(BESIDE.glob("sdk*/**/*.carbonindex"))
MERGED = sorted(BESIDE.rglob("*.carbonindexmerge"))


def test_index_entries_name_files_and_count_rows() -> None:
    for path in SINGLE:
        columns, entries = read_index_file(path.read_bytes())
        assert columns
        for entry in entries:
            assert (path.parent / entry.file_name).exists()
            if entry.blocklet is not None:
                of_file = [item.blocklet for item in entries if item.file_name == entry.file_name]
                assert sum(item.rows for item in of_file if item is not None) == entry.rows


def test_merged_files_hold_whole_index_files() -> None:
    assert MERGED
    for path in MERGED:
        files = read_merged_index_file(path.read_bytes())
        assert files
        for name, data in files.items():
            assert name.endswith(".carbonindex")
            columns, entries = read_index_file(data)
            assert columns
            assert entries


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 50])
def test_invalid_index_raises(data: bytes) -> None:
    with pytest.raises(Damaged):
        read_merged_index_file(data)
    with pytest.raises(Damaged):
        read_index_file(data)


@pytest.mark.parametrize(
    ("names", "files"),
    [([b"0", b"1"], [b"rows"]), ([b"0"], [b"rows", b"more"]), ([b"0", b"0"], [b"a", b"b"])],
)
def test_merged_index_needs_a_name_per_file(names: list[bytes], files: list[bytes]) -> None:
    parts = [
        field(1, LIST) + write_list(BINARY, [write_binary(item) for item in part]) + b"\0"
        for part in (names, files)
    ]
    with pytest.raises(Damaged, match="names"):
        read_merged_index_file(b"".join(parts))
