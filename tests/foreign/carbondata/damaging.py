"""Damages files of tables, and reads what is left: rows, or an error that names the file, in bounded memory."""

from __future__ import annotations

import tracemalloc

from hypothesis import strategies as st

from qbeast_core.errors import DamagedFileError, StorageError, TableNotFoundError, UnsupportedTableError
from tests.foreign.carbondata.collection import reader_of, table_path
from tests.foreign.carbondata.memory_store import MemoryStore

MOST_BYTES = 96 << 20
EXTREMES = [
    b"\xff" * 4,
    b"\x00" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff" * 8,
    b"\x0f\xff\xff\xff\xff\x0f",
]
REFUSALS = (DamagedFileError, UnsupportedTableError, StorageError, TableNotFoundError)


def read(store: MemoryStore) -> int:
    """Read all rows of all columns; return how many."""
    reader = reader_of(store)
    return sum(frame.height for frame in reader.rows(list(reader.schema)))


@st.composite
def damaged_tables(draw: st.DrawFn, candidates: list[str]) -> tuple[str, MemoryStore]:
    """Draw a table, one of its files and what is done to it."""
    store = MemoryStore.of(table_path(draw(st.sampled_from(candidates))))
    path = draw(st.sampled_from(store.list("")))
    data = store.files[path]
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    how = draw(st.sampled_from(["cut", "flip", "extreme", "splice", "zero", "repeat"]))
    if how == "cut":
        data = data[:at]
    elif how == "flip":
        data = (
            data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :] if data else b"\0"
        )
    elif how == "extreme":
        lie = draw(st.sampled_from(EXTREMES))
        data = data[:at] + lie + data[at + len(lie) :]
    elif how == "splice":
        start, size = draw(st.integers(0, max(len(data) - 1, 0))), draw(st.integers(1, 40))
        data = data[:at] + data[start : start + size] + data[at + size :]
    elif how == "zero":
        data = data[:at] + bytes(len(data) - at)
    else:
        data = data[:at] + data[: draw(st.integers(1, 200))] + data[at:]
    store.files[path] = data
    return path, store


def check(path: str, store: MemoryStore) -> None:
    tracemalloc.start()
    try:
        read(store)
    except REFUSALS as error:
        assert str(error)  # noqa: PT017 -- any of them may be, or none
        if isinstance(error, DamagedFileError):
            assert error.path  # noqa: PT017
            assert repr(error.path) in str(error)  # noqa: PT017
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST_BYTES, (path, peak)
