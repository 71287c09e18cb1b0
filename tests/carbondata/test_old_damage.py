"""Truncated, bit-flipped and lying files of CarbonData 1.x: an error that names the file, or rows; bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given

from qbeast_core.errors import DamagedFileError, StorageError
from tests.carbondata.collection import names, table_path
from tests.carbondata.damaging import check, damaged_tables, read
from tests.carbondata.memory_store import MemoryStore
from tests.carbondata.old_tables import OLD
from tests.helpers.examples import examples

SMALL = ["cd111_v1_complex", "cd111_v2_nodict_numbers", "stream161_finished"]


@pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")
@examples(5, sweep=300)
@given(damaged_tables(SMALL))
def test_some_damaged_tables_raise_or_read(drawn: tuple[str, MemoryStore]) -> None:
    check(*drawn)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")
@examples(13, sweep=1500)
@given(damaged_tables(names(*OLD)))
def test_damaged_tables_raise_or_read(drawn: tuple[str, MemoryStore]) -> None:
    check(*drawn)


@pytest.mark.parametrize("name", ["cd111_v1_complex", "cd111_v2_complex", "stream161_finished"])
def test_truncated_data_file_raises(name: str) -> None:
    store = MemoryStore.of(table_path(name))
    path = next(path for path in store.list("") if path.endswith(".carbondata"))
    whole = store.files[path]
    for end in range(0, len(whole), max(len(whole) // 12, 1)):
        store.files[path] = whole[:end]
        with pytest.raises((DamagedFileError, StorageError)) as caught:
            read(store)
        assert caught.value.path == path


@pytest.mark.parametrize("name", SMALL)
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
