"""A name of Unity Catalog has one form, its entry leads to a store or is refused, and answers are not trusted."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.errors import (
    InvalidInputError,
    QbeastError,
    StorageError,
    TableNotFoundError,
    UnsupportedTableError,
)
from qbeast_core.io.address import parts_of_unity_name, resolve_location
from qbeast_core.io.catalog import unity_client
from qbeast_core.io.catalog.lent import Lent, LentOptions
from qbeast_core.io.location import Location
from qbeast_core.table.data.scan import store_arguments
from tests.helpers.examples import examples
from tests.helpers.unity_service import (
    AWS,
    AZURE,
    EXPIRES_MS,
    GCP,
    NONE,
    STATIC,
    TOKEN,
    UnityService,
    serving_unity,
)

NAME = "uc://shop.raw.sales"
PLACE = "s3://bucket/sales"
OWN = {
    "AWS_REGION": "eu-west-1",
    "aws_access_key_id": "mine",
    "Secret_Access_Key": "hunter3",
    "timeout": "9s",
}
OTHERS = {"AWS_REGION": "eu-west-1", "timeout": "9s"}


@pytest.fixture(scope="module")
def running() -> Iterator[UnityService]:
    with serving_unity() as service:
        yield service


@pytest.fixture
def service(running: UnityService) -> UnityService:
    running.entries.clear()
    running.replies.clear()
    running.requests.clear()
    running.operations = {"READ", "READ_WRITE"}
    running.credentials = lambda _: AWS
    running.add("shop.raw.sales", PLACE)
    return running


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UNITY_ENDPOINT", "UNITY_TOKEN", "DATABRICKS_HOST", "DATABRICKS_TOKEN", "UNITY_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)


NAMES = {
    "uc://shop.raw.sales": ("shop", "raw", "sales"),
    "UC://shop.raw.sales": ("shop", "raw", "sales"),
    "uc://größe.注文.s-1": ("größe", "注文", "s-1"),
    'uc://shop.new raw.it\'s "x"': ("shop", "new raw", 'it\'s "x"'),
    "uc://`shop`.`new raw`.`a``b`": ("shop", "new raw", "a`b"),
    f"uc://{'c' * 255}.s.t": ("c" * 255, "s", "t"),
}


@pytest.mark.parametrize(("text", "parts"), NAMES.items())
def test_name_has_three_parts(text: str, parts: tuple[str, str, str]) -> None:
    name = resolve_location(text)
    assert parts_of_unity_name(name) == parts
    assert resolve_location(name) == name


@examples(30, sweep=500)
@given(
    parts=st.tuples(
        *[
            st.text(
                st.characters(codec="utf-8", exclude_characters="./\x7f", min_codepoint=32),
                min_size=1,
                max_size=9,
            )
        ]
        * 3
    )
)
def test_quoted_names_round_trip(parts: tuple[str, str, str]) -> None:
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in parts)
    assert parts_of_unity_name(resolve_location(f"uc://{quoted}")) == parts


@pytest.mark.parametrize(
    "text",
    [
        "uc://",
        "uc://sales",
        "uc://raw.sales",
        "uc://shop.raw.",
        "uc://shop..sales",
        "uc://shop.raw.sales.x",
        "uc://shop/raw/sales",
        "uc://shop.raw.sales/",
        "uc://shop.raw.sales/../x",
        "uc://shop.raw.`a.b`",
        "uc://shop.raw.`a/b`",
        "uc://shop.raw.`sales",
        "uc://shop.raw.``",
        f"uc://shop.raw.{'t' * 256}",
        f"uc://{'x.' * 50_000}",
    ],
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="Unity Catalog"):
        Location.of(text)


def test_parts_of_a_name_are_encoded(service: UnityService) -> None:
    service.add("shop.new raw.it's %2F ?x=1#é", PLACE)
    assert Location.of("uc://shop.new raw.it's %2F ?x=1#é", service.options).uri == PLACE
    assert service.requests[0][1] == "/tables/shop.new%20raw.it%27s%20%252F%20%3Fx%3D1%23%C3%A9"


def test_lent_credentials_replace_all_others(service: UnityService) -> None:
    location = Location.of(NAME, {**OWN, **service.options})
    expected = {"aws_access_key_id": "lent-key", "aws_secret_access_key": "hunter2-secret"}
    assert location.storage_options == {**OTHERS, **expected, "aws_session_token": "hunter2-session"}
    assert location.options_of_others == {**OWN, **service.options}
    assert location.name == NAME
    assert service.requests[1][2]["operation"] == "READ_WRITE"
    service.credentials = lambda _: {
        **STATIC,
        "aws_temp_credentials": {**AWS["aws_temp_credentials"], "session_token": None},
    }
    assert Location.of(NAME, service.options).storage_options == expected


@pytest.mark.parametrize(
    "answer", [NONE, {}, {"r2_temp_credentials": {"access_key_id": "x"}}, {"gcp_oauth_token": {}}]
)
def test_own_options_are_kept_if_none_are_lent(service: UnityService, answer: Mapping[str, Any]) -> None:
    service.credentials = lambda _: answer
    assert Location.of(NAME, {**OWN, **service.options}).storage_options == OWN


@pytest.mark.parametrize(
    "address", ["s3a://bucket/sales", "gs://bucket/sales/", "abfss://data@a.dfs.core.windows.net/t"]
)
def test_entries_lead_to_stores(service: UnityService, address: str) -> None:
    service.add("shop.raw.sales", address)
    assert Location.of(NAME, service.options).uri == address.removesuffix("/")


# Changes of an entry, and the report.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "view": ({"table_type": "VIEW", "storage_location": None}, "a view"),
    "view of a definition": ({"view_definition": "SELECT 1"}, "a view"),
    "materialized view": ({"table_type": "MATERIALIZED_VIEW"}, "a materialized view"),
    "streaming": ({"table_type": "STREAMING_TABLE"}, "a streaming table"),
    "foreign": ({"table_type": "FOREIGN"}, "a table of another catalog"),
    "clone": ({"table_type": "EXTERNAL_SHALLOW_CLONE"}, "a shallow clone"),
    "unknown type": ({"table_type": "NEWEST"}, "of the type 'NEWEST'"),
    "iceberg": ({"data_source_format": "ICEBERG"}, "of the format 'ICEBERG'"),
    "no format": ({"data_source_format": None}, "of the format 'None'"),
    "row filter": ({"row_filter": {"function_name": "f"}}, "with a filter of rows"),
    "mask": (
        {"columns": [{"name": "a"}, {"name": "b", "mask": {"function_name": "f"}}]},
        "with masks of columns",
    ),
    "catalog-managed": ({"properties": {"delta.feature.catalogManaged": "supported"}}, "catalogManaged"),
    "its preview": ({"properties": {"delta.feature.catalogOwned-preview": "supported"}}, "catalogManaged"),
    "no location": ({"storage_location": None}, "without a location"),
    "no id": ({"table_id": None}, "without an id"),
    "local file": ({"storage_location": "file:///etc"}, "at 'file:///etc'"),
    "folder": ({"storage_location": "/etc"}, "at '/etc'"),
    "http": ({"storage_location": "http://169.254.169.254/latest"}, "at 'http://169"),
    "another name": ({"storage_location": "uc://a.b.c"}, "at 'uc://"),
    "memory": ({"storage_location": "memory:///x"}, "at 'memory://"),
    "r2": ({"storage_location": "r2://b@a.r2.cloudflarestorage.com/x"}, "at 'r2://"),
    "password": ({"storage_location": "s3://me:hunter2@bucket/t"}, "a location that cannot be used"),
    "up": ({"storage_location": "s3://bucket/a/../b"}, "a location that cannot be used"),
    "query": ({"storage_location": "s3://bucket/a?versionId=1"}, "a location that cannot be used"),
    "long": ({"storage_location": f"s3://bucket/{'x' * 5000}"}, "at 's3://bucket/xxx"),
}


@pytest.mark.parametrize(("change", "report"), REFUSED.values(), ids=REFUSED)
def test_other_entries_are_refused(service: UnityService, change: dict[str, Any], report: str) -> None:
    service.add("shop.raw.sales", **{"location": PLACE, **change})
    service.entries["shop.raw.sales"] |= change
    with pytest.raises(UnsupportedTableError) as caught:
        Location.of(NAME, service.options)
    assert report in str(caught.value)
    assert "hunter" not in str(caught.value)
    assert len(str(caught.value)) < 800


def test_local_files_need_a_server_here_and_an_option(service: UnityService, tmp_path: Any) -> None:
    service.add("shop.raw.sales", f"file://{tmp_path}")
    allowed = {**service.options, "UNITY_ALLOW_LOCAL_PATHS": "true"}
    assert Location.of(NAME, allowed).uri == str(tmp_path)
    with pytest.raises(UnsupportedTableError, match="at 'file://"):
        Location.of(NAME, service.options)
    elsewhere = unity_client.UnityServer.of(NAME, {**allowed, "UNITY_ENDPOINT": "https://catalog.example"})
    assert not elsewhere.allows_local_paths


ENDPOINTS: dict[str, tuple[dict[str, str], str | None]] = {
    "bare host": ({"DATABRICKS_HOST": "adb-1.azuredatabricks.net"}, "https://adb-1.azuredatabricks.net"),
    "slash": ({"unity_endpoint": "https://catalog.example/"}, "https://catalog.example"),
    "api": ({"UNITY_ENDPOINT": "https://c.example:8443/api/2.1/unity-catalog"}, "https://c.example:8443"),
    "loopback": ({"UNITY_ENDPOINT": "http://localhost:8080"}, "http://localhost:8080"),
    "loopback 6": ({"UNITY_ENDPOINT": "http://[::1]:8080"}, "http://[::1]:8080"),
    "plain": ({"UNITY_ENDPOINT": "http://c.example"}, None),
    "plain, allowed": (
        {"UNITY_ENDPOINT": "http://c.example", "UNITY_ALLOW_HTTP": "TRUE"},
        "http://c.example",
    ),
    "like loopback": ({"UNITY_ENDPOINT": "http://localhost.example"}, None),
    "login": ({"UNITY_ENDPOINT": "https://me:hunter2@c.example"}, None),
    "path": ({"UNITY_ENDPOINT": "https://c.example/other"}, None),
    "query": ({"UNITY_ENDPOINT": "https://c.example?token=hunter2"}, None),
    "scheme": ({"UNITY_ENDPOINT": "file:///etc/passwd"}, None),
    "port": ({"UNITY_ENDPOINT": "https://c.example:99999"}, None),
    "line": ({"UNITY_ENDPOINT": "https://c.example\r\nX: y"}, None),
    "switch": ({"UNITY_ENDPOINT": "http://c.example", "UNITY_ALLOW_HTTP": "perhaps"}, None),
    "none": ({}, None),
}


@pytest.mark.parametrize(("options", "expected"), ENDPOINTS.values(), ids=ENDPOINTS)
def test_endpoints_are_https_or_local(options: dict[str, str], expected: str | None) -> None:
    if expected is not None:
        assert unity_client.UnityServer.of(NAME, options).endpoint == expected
        return
    with pytest.raises(InvalidInputError) as caught:
        unity_client.UnityServer.of(NAME, options)
    assert caught.value.argument == "storage_options"
    assert "hunter2" not in str(caught.value)


def test_token_has_the_prefix_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def token(**options: str) -> tuple[str, str | None]:
        server = unity_client.UnityServer.of(NAME, options)
        return server.endpoint, server.token

    monkeypatch.setenv("DATABRICKS_HOST", "d.example")
    monkeypatch.setenv("DATABRICKS_TOKEN", "of-databricks")
    assert token() == ("https://d.example", "of-databricks")
    assert token(UNITY_ENDPOINT="u.example") == ("https://u.example", None)
    assert token(databricks_token="mine") == ("https://d.example", "mine")  # noqa: S106 -- of nobody
    monkeypatch.setenv("UNITY_TOKEN", "of-unity")
    assert token(UNITY_ENDPOINT="u.example") == ("https://u.example", "of-unity")
    monkeypatch.setenv("UNITY_ENDPOINT", "v.example")
    assert token() == ("https://v.example", "of-unity")
    assert token(DATABRICKS_HOST="e.example") == ("https://e.example", "of-databricks")


def _text(status: int, body: bytes, *headers: tuple[str, str]) -> Callable[[], Any]:
    return lambda: (status, [("Content-Type", "application/json"), *headers], body)


def _failed(status: int, code: str = "CODE", message: str = "the reason") -> Callable[[], Any]:
    return _text(status, json.dumps({"error_code": code, "message": message}).encode())


ENTRY = "/tables/shop.raw.sales"
LENDING = "/temporary-table-credentials"
# Answers, the error and what it reports.
ANSWERS: dict[str, tuple[str, Callable[[], Any], type[QbeastError], str]] = {
    "401": (ENTRY, _failed(401), StorageError, r"401 the reason \(CODE\)\. Check the token"),
    "403": (ENTRY, _failed(403), StorageError, r"It needs the grants USE CATALOG, USE SCHEMA and SELECT"),
    "404": (ENTRY, _failed(404), TableNotFoundError, r"does not exist.*register='uc://shop\.raw\.sales'"),
    "404 of another server": (ENTRY, _text(404, b"<html>"), StorageError, r"has no such page \(404\)"),
    "redirect": (ENTRY, _text(302, b"", ("Location", "http://127.0.0.1:1/x")), StorageError, "it redirects"),
    "page": (
        ENTRY,
        _text(200, b"<html>login</html>"),
        StorageError,
        "not one of Unity Catalog: Invalid JSON",
    ),
    "list": (ENTRY, _text(200, b"[1]"), StorageError, "should be an object"),
    "types": (ENTRY, _text(200, b'{"storage_location": {"a": 1}}'), StorageError, "storage_location: "),
    "deep": (ENTRY, _text(200, b"[" * 100_000), StorageError, "not one of Unity Catalog"),
    "numbers": (ENTRY, _text(200, b'{"table_id": 1e999}'), StorageError, "table_id: "),
    "huge": (ENTRY, _text(200, b" " * (17 << 20)), StorageError, "more than 16 MiB"),
    "echo": (ENTRY, _failed(400, message=f"bad Bearer {TOKEN}"), StorageError, r"bad Bearer \*\*\*"),
    "long reason": (ENTRY, _failed(400, message="x" * 100_000), StorageError, "400 xxx"),
    "no lending": (LENDING, _failed(403), StorageError, "EXTERNAL USE SCHEMA on its schema and SELECT"),
    "no bucket": (LENDING, _failed(400), StorageError, "did not lend credentials"),
    "header": (
        LENDING,
        _text(200, b'{"gcp_oauth_token":{"oauth_token":"a\\r\\nb"}}'),
        StorageError,
        "gcp_oauth_token",
    ),
    "expiry": (LENDING, _text(200, b'{"expiration_time":1e30}'), StorageError, "expiration_time"),
    "secret types": (
        LENDING,
        _text(200, b'{"gcp_oauth_token":{"oauth_token":["hunter2"]}}'),
        StorageError,
        "gcp_oauth",
    ),
}


@pytest.mark.parametrize(("path", "answer", "error", "report"), ANSWERS.values(), ids=ANSWERS)
def test_hostile_and_failed_answers_are_reported(
    service: UnityService, path: str, answer: Callable[[], Any], error: type[QbeastError], report: str
) -> None:
    service.replies[path] = answer
    with pytest.raises(error, match=report) as caught:
        Location.of(NAME, service.options)
    assert TOKEN not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert len(str(caught.value)) < 900
    assert service.named("GET") == [ENTRY], "not sent again, and to nobody else"


def test_busy_server_is_asked_again(service: UnityService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    busy = iter([_failed(503), _failed(429)])

    def answer() -> Any:
        following = next(busy, None)
        if following is None:
            del service.replies[ENTRY]
            return _text(200, json.dumps(service.entries["shop.raw.sales"]).encode())()
        return following()

    service.replies[ENTRY] = answer
    assert Location.of(NAME, service.options).uri == PLACE
    service.replies[ENTRY] = _failed(503)
    with pytest.raises(StorageError, match="Try again later"):
        Location.of(NAME, service.options)


@contextmanager
def dripping() -> Iterator[int]:
    """Run a server that answers a byte at a time, without an end."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                try:
                    peer.recv(4096)
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                    while True:
                        peer.sendall(b" ")
                        time.sleep(0.01)
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(5)
        assert not thread.is_alive()


def test_slow_answers_end_in_time() -> None:
    def read(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        with closing(connection), unity_client.watched(connection, 0.2):
            connection.request("GET", "/")
            with connection.getresponse() as reply:
                reply.read()

    with dripping() as port, pytest.raises(unity_client.TooMuchError, match=r"took more than 0\.2 seconds"):
        read(port)


@contextmanager
def recording() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """Run a store that has nothing, and records the paths and logins of requests."""
    seen = list[tuple[str, str | None]]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("Authorization")))
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815 -- the name of the method

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


AAD = {"azure_aad": {"aad_token": "of-azure"}, "expiration_time": EXPIRES_MS}
ABFSS = "abfss://data@account.dfs.core.windows.net/sales"
CLOUDS: dict[str, tuple[str, str, Mapping[str, Any], tuple[str, str | None]]] = {
    "azure": (ABFSS, "azure_storage_endpoint", AZURE, ("?sv=2023-11-03&sr=d&sig=hunter2%3D", None)),
    "azure token": (ABFSS, "azure_storage_endpoint", AAD, ("", "Bearer of-azure")),
    "google": ("gs://data/sales", "google_base_url", GCP, ("", "Bearer ya29.hunter2")),
}


@pytest.mark.parametrize(("place", "option", "answer", "expected"), CLOUDS.values(), ids=CLOUDS)
def test_credentials_reach_the_stores_of_each_cloud(
    service: UnityService,
    place: str,
    option: str,
    answer: Mapping[str, Any],
    expected: tuple[str, str | None],
) -> None:
    service.credentials = lambda _: answer
    service.add("shop.raw.sales", place)
    with recording() as (endpoint, seen):
        options = {**service.options, option: endpoint, "allow_http": "true", "max_retries": "0"}
        location = Location.of(NAME, options)
        with pytest.raises(FileNotFoundError):
            location.store.get("f")
        by_store = seen.copy()
        with pytest.raises(FileNotFoundError):
            pl.scan_parquet(f"{place}/f", glob=False, **store_arguments(location.storage_options)).collect()
    query, login = expected
    for requests in (by_store, seen[len(by_store) :]):
        assert requests
        assert all(path.endswith(query) and theirs == login for path, theirs in requests)


class Catalog:
    """Lends numbered credentials for 20 minutes by a clock that a test sets."""

    def __init__(self) -> None:
        self.now, self.count, self.fails = 0, 0, False

    def lend(self) -> Lent:
        if self.fails:
            msg = "the catalog is away"
            raise StorageError(msg, path=NAME)
        self.count += 1
        return Lent({"key": str(self.count)}, self.now + 1_200_000)

    def options(self) -> LentOptions:
        return LentOptions(self.lend, {"region": "x"}, self.lend(), clock=lambda: self.now)


def test_credentials_are_renewed_in_time() -> None:
    catalog = Catalog()
    options = catalog.options()
    same = options.current()
    catalog.now = 959_999
    assert options.current() is same
    catalog.now = 960_000
    assert dict(options) == {"region": "x", "key": "2"}
    assert options.lent() == ({"key": "2"}, 960_000 + 960_000)


def test_failed_renewal_raises_once_they_expired() -> None:
    catalog = Catalog()
    options = catalog.options()
    catalog.fails, catalog.now = True, 1_000_000
    assert options["key"] == "1"
    catalog.now = 1_199_999
    assert options["key"] == "1"
    catalog.now = 1_200_000
    with pytest.raises(StorageError, match="the catalog is away"):
        options.current()
    catalog.fails = False
    assert options["key"] == "2"


def test_clock_that_is_ahead_does_not_flood_the_catalog() -> None:
    catalog = Catalog()
    expired = Lent({"key": "0"}, -1)
    options = LentOptions(lambda: expired, {}, expired, clock=lambda: catalog.now)
    first = options.current()
    catalog.now = 29_999
    assert options.current() is first
    catalog.now = 30_000
    assert options.current() is not first


def test_one_thread_renews_for_all() -> None:
    catalog = Catalog()
    options = catalog.options()
    catalog.now = 1_000_000
    threads = [threading.Thread(target=options.current) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert catalog.count == 2
