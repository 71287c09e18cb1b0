"""Tables from before ``.segment`` files: what an update wrote counts within the range of the table status alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest

import qbeast
from tests.foreign.carbondata.collection import expected, table_path

NAME = "store161_global_dictionary"
LOADED = b"1795244631581"


def with_copies(path: Path, times: list[bytes], **status: str) -> Path:
    """Copy the table, its files once more for each time, and say something of its segment."""
    own = shutil.copytree(table_path(NAME), path)
    folder = own / "Fact/Part0/Segment_0"
    for file in list(folder.iterdir()):
        for time in times:
            # The index file names the data file: as many bytes, so that nothing else changes.
            copy = file.with_name(file.name.replace(LOADED.decode(), time.decode()))
            copy.write_bytes(file.read_bytes().replace(LOADED, time))
    report = orjson.loads((own / "Metadata/tablestatus").read_bytes())
    report[0] |= status
    (own / "Metadata/tablestatus").write_bytes(orjson.dumps(report))
    return own


@pytest.mark.parametrize(
    ("range_", "times"),
    [
        ((), 1),
        (("1795244640000", "1795244650000"), 2),
        (("1795244640001", "1795244650000"), 1),
        (("1795244660000",) * 2, 1),
    ],
)
def test_files_of_updates_count_within_their_range(
    tmp_path: Path, range_: tuple[str, ...], times: int
) -> None:
    status = dict(zip(("updateDeltaStartTimestamp", "updateDeltaEndTimestamp"), range_, strict=False))
    path = with_copies(tmp_path / "t", [b"1795244640000"] if range_ else [], **status)
    assert qbeast.read_carbondata(path).height == times * expected(NAME).height
