"""The object store, against an S3 server in this process."""

from __future__ import annotations

from datetime import timedelta

import obstore
import pytest

from qbeast_core.errors import InvalidInputError, StorageError
from qbeast_core.io.location import open_store
from qbeast_core.io.remote import RemoteStore, translate_options
from qbeast_core.io.store import Store


@pytest.fixture
def options(s3_options: dict[str, str]) -> dict[str, str]:
    return {**s3_options, "max_retries": "1", "retry_timeout": "5s"}


@pytest.fixture
def store(bucket: str, options: dict[str, str]) -> Store:
    return open_store(f"s3://{bucket}/t", options)


def test_near_ranges_share_a_request(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * 2_000
    store.put("f", data)
    request: list[tuple[list[int], list[int]]] = []
    ask = obstore.get_ranges

    def counted(*place: object, starts: list[int], lengths: list[int], coalesce: int) -> object:
        request.append((starts, lengths))
        return ask(*place, starts=starts, lengths=lengths, coalesce=coalesce)

    monkeypatch.setattr(obstore, "get_ranges", counted)
    ranges = [(0, 10), (10, 5), (1_000, 10), (400_000, 7)]
    actual = store.get_ranges("f", ranges)
    assert [bytes(part) for part in actual] == [data[start : start + length] for start, length in ranges]
    assert request == [([0, 400_000], [1_010, 7])]


def test_refusing_store_raises_storage_error(bucket: str, options: dict[str, str]) -> None:
    store = open_store("s3://no-such-bucket/t", options)
    for write in (store.put, store.put_if_absent):
        with pytest.raises((StorageError, FileNotFoundError)):
            write("f", b"x")
    closed = open_store(
        f"s3://{bucket}/t", {**options, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "max_retries": "0"}
    )
    with pytest.raises(StorageError, match="cannot read 'f'"):
        closed.get("f")


def test_stores_without_exclusive_writes_reject_commits(bucket: str, options: dict[str, str]) -> None:
    store = open_store(f"s3://{bucket}/t", {**options, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    store.put("data", b"x")
    with pytest.raises(StorageError, match="conditional puts"):
        store.put_if_absent("0.json", b"x")
    off = {"AWS_S3_ALLOW_UNSAFE_RENAME": "0", "AWS_S3_LOCKING_PROVIDER": ""}  # as before files are written
    open_store(f"s3://{bucket}/t", {**options, **off}).put_if_absent("0.json", b"x")


def test_options_reach_obstore() -> None:
    values = {
        "AWS_Region": "x",
        "aws_allow_http": "true",
        "timeout": "30s",
        "max_retries": "3",
        "retry_timeout": "500ms",
        "AWS_S3_LOCKING_PROVIDER": "dynamodb",
    }
    assert translate_options(values) == {
        "config": {"aws_region": "x"},
        "client_options": {"allow_http": "true", "timeout": "30s"},
        "retry_config": {"max_retries": 3, "retry_timeout": timedelta(milliseconds=500)},
    }
    assert translate_options({}) == {}


@pytest.mark.parametrize(
    ("uri", "option"),
    [
        ("s3://b/t", {"bogus": "1"}),
        ("s3://b/t", {"max_retries": "many"}),
        ("s3://b/t", {"retry_timeout": "soon"}),
        ("hdfs://b/t", {}),
    ],
)
def test_invalid_options_raise_at_once(uri: str, option: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        RemoteStore(uri, option)
