"""Truncated, bit-flipped and lying files give an error that names the file, or rows, within bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given

from qbeast_core.errors import DamagedFileError, StorageError
from tests.foreign.carbondata.collection import more_names, names, table_path
from tests.foreign.carbondata.damaging import check, damaged_tables, read
from tests.foreign.carbondata.memory_store import MemoryStore
from tests.foreign.carbondata.old_tables import OLD
from tests.helpers.examples import examples

# One of each kind, small; the sweep takes all that stand beside the tests, and more.
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
OLD_NAMES = ["cd111_v1_complex", "cd111_v2_nodict_numbers", "stream161_finished"]
ALL = [*names("sdk", "tx", *OLD), *more_names("sdk", "tx", *OLD)]


@pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")
@examples(5, sweep=700)
@given(damaged_tables([*NAMES, *OLD_NAMES]))
def test_some_damaged_tables_raise_or_read(drawn: tuple[str, MemoryStore]) -> None:
    check(*drawn)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")
@examples(25, sweep=450)
@given(damaged_tables(ALL))
def test_damaged_tables_raise_or_read(drawn: tuple[str, MemoryStore]) -> None:
    check(*drawn)


@pytest.mark.parametrize(
    "name",
    [
        *("sdk230_multipage_sorted_inv", "sdk230_complex_map"),
        *("cd111_v1_complex", "cd111_v2_complex", "stream161_finished"),
    ],
)
def test_truncated_data_file_raises(name: str) -> None:
    store = MemoryStore.of(table_path(name))
    path = next(path for path in store.list("") if path.endswith(".carbondata"))
    whole = store.files[path]
    for end in range(0, len(whole), max(len(whole) // 12, 1)):
        store.files[path] = whole[:end]
        with pytest.raises((DamagedFileError, StorageError)) as caught:
            read(store)
        assert caught.value.path == path


@pytest.mark.parametrize("name", OLD_NAMES)
def test_truncated_dictionary_or_index_raises(name: str) -> None:
    store = MemoryStore.of(table_path(name))
    for path in store.list(""):
        whole = store.files[path]
        if path.endswith((".dict", ".dictmeta", ".carbonindex")):
            store.files[path] = whole[: len(whole) // 2 + 1]
            with pytest.raises(DamagedFileError) as caught:
                read(store)
            assert caught.value.path == path
            store.files[path] = whole


@pytest.mark.parametrize("name", ["tx230_partitioned", "cd111_v3_nodict_numbers"])
def test_missing_file_is_named(name: str) -> None:
    store = MemoryStore.of(table_path(name))
    path = next(path for path in store.list("") if path.endswith(".carbondata"))
    store.delete(path)
    with pytest.raises(StorageError, match="does not exist") as caught:
        read(store)
    assert caught.value.path == path
