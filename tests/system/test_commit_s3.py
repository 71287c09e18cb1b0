from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from qbeast_core.errors import QbeastError, StorageError, TableNotFoundError, VersionNotFoundError
from qbeast_core.io.stores.store import open_store
from qbeast_core.log.actions import AddFile
from qbeast_core.log.intent import WriteIntent
from qbeast_core.table.commit.commit import commit
from qbeast_core.table.snapshot.snapshot import load_snapshot, refresh
from tests.helpers.intents import METADATA, block, revision

WRITERS = 3
COMMITS = 8


@pytest.fixture
def options(s3_options: dict[str, str]) -> dict[str, str]:
    return {**s3_options, "max_retries": "1", "retry_timeout": "5s"}


def add(name: str) -> AddFile:
    return AddFile(path=name, size=1, modification_time=1, stats='{"numRecords":1}', blocks=(block(),))


def test_writers_race_in_object_store(bucket: str, options: dict[str, str]) -> None:
    uri = f"s3://{bucket}/a table"
    store = open_store(uri, options)
    intent = WriteIntent(mode="create", metadata=METADATA, revision=revision(), adds=(add("first"),))
    first = commit(store, None, intent, storage_options=options).snapshot
    assert first is not None

    def write(writer: int) -> int:
        snapshot = load_snapshot(uri, storage_options=options)
        own = open_store(uri, options)
        intents = (
            WriteIntent(mode="append", adds=(add(f"{writer}-{number}"),), revision=revision())
            for number in range(COMMITS)
        )
        return sum(commit(own, snapshot, intent).attempts for intent in intents)

    with ThreadPoolExecutor(WRITERS) as pool:
        attempts = list(pool.map(write, range(WRITERS)))
    total = WRITERS * COMMITS
    assert sum(attempts) > total
    loaded = load_snapshot(uri, storage_options=options)
    assert (loaded.version, loaded.files.height) == (total, total + 1)
    assert loaded.files["revision"].null_count() == 0
    assert any("checkpoint.parquet" in name for name in store.list("_delta_log"))
    assert refresh(first).files.sort("path").equals(loaded.files.sort("path"))
    assert load_snapshot(uri, version=5, storage_options=options).files.height == 6
    with pytest.raises(VersionNotFoundError, match=f"newest is {total}"):
        load_snapshot(uri, version=99, storage_options=options)


def test_missing_table_differs_from_missing_store(bucket: str, options: dict[str, str]) -> None:
    with pytest.raises(TableNotFoundError, match="no Delta table"):
        load_snapshot(f"s3://{bucket}/nothing", storage_options=options)
    nobody = {**options, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "retry_timeout": "1s"}
    with pytest.raises(QbeastError) as caught:
        load_snapshot(f"s3://{bucket}/nothing", storage_options=nobody)
    assert isinstance(caught.value, StorageError)
