"""Truncated, bit-flipped and lying files give an error that names the file, or rows, within bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given

from qbeast_core.errors import DamagedFileError, StorageError
from tests.carbondata.collection import more_names, names, table_path
from tests.carbondata.damaging import check, damaged_tables, read
from tests.carbondata.memory_store import MemoryStore
from tests.helpers.examples import examples

# One of each kind, small; the slow run takes all that stand beside the tests.
NAMES = [
    "sdk230_complex_null_cases_localdict",
    "sdk230_nosort_localdict",
    "sdk230_prim_zstd",
    "sdk161_prim_snappy",
    "sdk230_sort_delta_inv",
    "sdk230_complex_map",
    "tx230_partitioned",
    "tx230_update_then_major",
    "cd111_v3_nodict_numbers",
]
ALL = names("sdk", "tx", "cd", "stream", "store")
MORE = more_names("sdk", "tx", "cd", "stream", "store")


@pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")
@examples(15, sweep=2000)
@given(damaged_tables(NAMES))
def test_some_damaged_tables_raise_or_read(drawn: tuple[str, MemoryStore]) -> None:
    check(*drawn)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")
@examples(25, sweep=3000)
@given(damaged_tables(ALL))
def test_damaged_tables_raise_or_read(drawn: tuple[str, MemoryStore]) -> None:
    check(*drawn)


@pytest.mark.sweep
@pytest.mark.skipif(not MORE, reason="no larger collection is pointed to")
@pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")
@examples(25, sweep=1500)
@given(damaged_tables(MORE))
def test_damaged_tables_of_larger_collection_raise_or_read(drawn: tuple[str, MemoryStore]) -> None:
    check(*drawn)


@pytest.mark.parametrize("name", ["sdk230_multipage_sorted_inv", "sdk230_complex_map"])
def test_truncated_data_file_raises(name: str) -> None:
    store = MemoryStore.of(table_path(name))
    path = next(path for path in store.list("") if path.endswith(".carbondata"))
    whole = store.files[path]
    for end in range(0, len(whole), max(len(whole) // 25, 1)):
        store.files[path] = whole[:end]
        with pytest.raises(DamagedFileError) as caught:
            read(store)
        assert caught.value.path == path


def test_missing_file_is_named() -> None:
    store = MemoryStore.of(table_path("tx230_partitioned"))
    path = next(path for path in store.list("") if path.endswith(".carbondata"))
    store.delete(path)
    with pytest.raises(StorageError, match="does not exist") as caught:
        read(store)
    assert caught.value.path == path
