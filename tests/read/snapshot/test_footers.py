"""Ends of Parquet files are read with the requests that they need, and understood as pyarrow does."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qbeast_core.io.footer import Unreadable, read_footer, read_footer_bytes
from qbeast_core.io.location import open_store


@pytest.mark.parametrize("columns", [1, 30, 2_000])
def test_footers_of_any_size_are_read(columns: int, tmp_path: Path) -> None:
    rows = pa.table({f"a column with the number {number}": [1, 2, 3] for number in range(columns)})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=1)
    data = (tmp_path / "a.parquet").read_bytes()
    store = open_store(str(tmp_path))
    footer = read_footer(store, "a.parquet", len(data))
    assert footer.equals(pq.read_metadata(io.BytesIO(data)))
    footer_bytes = int.from_bytes(data[-8:-4], "little") + 8
    assert read_footer_bytes(store, "a.parquet", len(data)) == data[:4] + data[-footer_bytes:]
    assert (columns < 1_000) == (footer_bytes < 1 << 16)  # longer than the first request


@pytest.mark.parametrize("end", [b"", b"PAR1", b"\xff\xff\xff\x7fPAR1", b"\x00\x00\x00\x00PARX"])
def test_other_ends_are_reported(end: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" * (len(end) > 4) + end)
    with pytest.raises(Unreadable, match=r"it (does not end|ends with)"):
        read_footer_bytes(open_store(str(tmp_path)), "a.parquet", (tmp_path / "a.parquet").stat().st_size)
