"""The object store, against an S3 server in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import boto3
import polars as pl
import pytest

from qbeast_core.errors import InvalidInputError, StorageError
from qbeast_core.io.pages import PageReader, PageRequest
from qbeast_core.io.parquet_write import encode_data_file
from qbeast_core.io.remote import RemoteStore, translate_options
from qbeast_core.io.store import Store, open_store
from tests.helpers.s3_server import S3Server
from tests.io.frames import every_type, weights

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    server = S3Server()
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket="bucket")
    yield {
        **KEYS,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "max_retries": "1",
        "retry_timeout": "5s",
    }
    server.stop()


@pytest.fixture
def store(options: dict[str, str], request: pytest.FixtureRequest) -> Store:
    return open_store(f"s3://bucket/{request.node.name}", options)


def test_what_is_put_is_there(store: Store) -> None:
    store.put("a/b c/é.bin", b"0123456789")
    store.put("top", memoryview(b"x"))
    assert store.list("") == ["a/b c/é.bin", "top"]
    assert (store.list("a"), store.list("none")) == (["a/b c/é.bin"], [])
    assert store.get("a/b c/é.bin") == b"0123456789"
    assert store.size("top") == 1
    assert store.get_range("a/b c/é.bin", 2, 3) == b"234"
    assert [bytes(p) for p in store.get_ranges("a/b c/é.bin", [(0, 2), (2, 1), (8, 2)])] == [
        b"01",
        b"2",
        b"89",
    ]
    with pytest.raises(StorageError, match="too short"):
        store.get_range("a/b c/é.bin", 8, 5)
    store.delete("top")
    store.delete("top")
    for read in (store.get, store.size, lambda path: store.get_range(path, 0, 1)):
        with pytest.raises(FileNotFoundError):
            read("top")


def test_one_of_many_writers_wins(store: Store) -> None:
    def write(number: int) -> bool:
        try:
            store.put_if_absent("0.json", b"%d" % number)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(16)))
    assert won.count(True) == 1
    assert store.get("0.json") == b"%d" % won.index(True)


def test_pages_are_read_from_afar(store: Store) -> None:
    frame = every_type(500)
    requests = []
    for name in "abc":
        file = encode_data_file(frame, weights=weights(500), page_rows=100)
        store.put(name, file.data)
        pages = pl.Series([1, 3]).to_numpy()
        requests.append(PageRequest(name, file.size_bytes, 500, 100, file.tail_bytes, pages))
    read = PageReader(store).read(requests, ["id", "deep"], frame.schema)
    assert read["id"].to_list() == [*range(100, 200), *range(300, 400)] * 3


def test_a_store_that_refuses_is_a_storage_error(options: dict[str, str]) -> None:
    store = open_store("s3://no-such-bucket/t", options)
    for write in (store.put, store.put_if_absent):
        with pytest.raises((StorageError, FileNotFoundError)):
            write("f", b"x")
    closed = open_store(
        "s3://bucket/t", {**options, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "max_retries": "0"}
    )
    with pytest.raises(StorageError, match="cannot read 'f'"):
        closed.get("f")


def test_tables_whose_writers_do_not_exclude_each_other_are_not_committed_to(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("s3://bucket/t", {**options, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    store.put("data", b"x")
    with pytest.raises(StorageError, match="conditional puts"):
        store.put_if_absent("0.json", b"x")
    for off in (
        {"AWS_S3_ALLOW_UNSAFE_RENAME": "0"},
        {"AWS_S3_LOCKING_PROVIDER": ""},
    ):  # as before files are written
        open_store("s3://bucket/t", {**options, **off}).put_if_absent(
            f"{len(off)}{next(iter(off))}.json", b"x"
        )
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")
    with pytest.raises(StorageError, match="AWS_S3_LOCKING_PROVIDER"):
        open_store("s3://bucket/t", options).put_if_absent("0.json", b"x")


def test_options_go_where_obstore_wants_them() -> None:
    given = {
        "AWS_Region": "x",
        "aws_allow_http": "true",
        "timeout": "30s",
        "max_retries": "3",
        "retry_timeout": "500ms",
        "AWS_S3_LOCKING_PROVIDER": "dynamodb",
    }
    assert translate_options(given) == {
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
def test_what_is_not_understood_is_refused_at_once(uri: str, option: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        RemoteStore(uri, option)


def test_local_tables_do_not_load_obstore() -> None:
    code = "import sys; from qbeast_core.io.store import open_store as o; o('/t'); assert 'obstore' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
