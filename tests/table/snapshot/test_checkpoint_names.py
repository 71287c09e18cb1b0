from __future__ import annotations

import pytest

from qbeast_core.table.snapshot.log_files import newest_checkpoint

CLASSIC = "00000000000000000010.checkpoint.parquet"
PARTS = [f"00000000000000000020.checkpoint.{part:010d}.0000000003.parquet" for part in (1, 2, 3)]
UUID = "00000000000000000030.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
NOISE = [
    "_last_checkpoint",
    "00000000000000000040.json",
    "00000000000000000040.crc",
    "00000000000000000000.00000000000000000040.compacted.json",
    "00000000000000000040.checkpoint.parquet#1",
    "x00000000000000000040.checkpoint.parquet",
]


@pytest.mark.parametrize(
    ("names", "version", "expected"),
    [
        ([CLASSIC, *PARTS, UUID], 99, [UUID]),
        ([CLASSIC, *PARTS, UUID], 29, PARTS),
        ([CLASSIC, *PARTS[:2]], 29, [CLASSIC]),
        ([CLASSIC, *PARTS], 20, PARTS),
        ([CLASSIC, UUID.replace("30.", "10.")], 10, [CLASSIC]),
        ([CLASSIC], 9, None),
        ([], 9, None),
    ],
)
def test_newest_complete_checkpoint_counts(names, version, expected) -> None:
    actual = newest_checkpoint([f"_delta_log/{name}" for name in (*names, *NOISE)], version=version)
    assert (actual and [path.removeprefix("_delta_log/") for path in actual.paths]) == expected
