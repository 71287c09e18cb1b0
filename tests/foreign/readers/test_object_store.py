"""Tables in object stores: a server of Python with each change, and servers that are no mocks in sweeps."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Thread

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from werkzeug.serving import make_server

import qbeast
from qbeast_core.io.location import open_store
from tests.helpers.buckets import client, new_bucket
from tests.helpers.races import landing_first
from tests.helpers.real_stores import STORES, RealStore, Started

ROWS = pl.DataFrame(
    {"id": range(2000), "x": [(i * 7919) % 2003 for i in range(2000)], "t": ["a", "b é", None, ""] * 500}
)
INDEXED = ["id", "x"]
Place = tuple[str, dict[str, str]]


@pytest.fixture(scope="module")
def shared(s3_options: dict[str, str]) -> str:
    return new_bucket(s3_options)


@pytest.fixture
def refusing_server() -> Iterator[str]:
    """Address of a server that refuses all credentials."""

    def refuse(_environ: object, start: Callable[..., object]) -> list[bytes]:
        start("403 Forbidden", [("Content-Type", "application/xml")])
        return [b"<Error><Code>SignatureDoesNotMatch</Code><Message>wrong key</Message></Error>"]

    server = make_server("127.0.0.1", 0, refuse)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture
def place(shared: str, s3_options: dict[str, str], tmp_path: Path) -> Place:
    return f"s3://{shared}/some tables/{tmp_path.name}", s3_options


def test_rows_of_two_writes_are_read_and_sampled(place: Place) -> None:
    uri, options = place
    for rows in (ROWS.head(100), ROWS.tail(100)):
        qbeast.write_table(rows, uri, columns=INDEXED, mode="append", storage_options=options)
    expected = pl.concat([ROWS.head(100), ROWS.tail(100)])
    target = pl.col("x") < 500
    actual = qbeast.read_table(uri, where=target, storage_options=options)
    assert actual.sort("id").equals(expected.filter(target).sort("id"))
    assert 0 < qbeast.read_table(uri, sample=0.3, storage_options=options).height < 150


@pytest.fixture(
    scope="module", params=[None, *STORES], ids=lambda store: store.name if store is not None else "moto"
)
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    store: RealStore | None = request.param
    if store is None:
        options = request.getfixturevalue("s3_options")
        yield Started(f"s3://{new_bucket(options)}", options)
        return
    if not store.path.exists():
        pytest.skip(f"{store.name} is not installed: `make stores` does it where there are Go and Node")
    with store.running(tmp_path_factory.mktemp("store") / "data") as started:
        yield started


@pytest.mark.sweep
def test_table_has_a_whole_life_in_the_store(started: Started) -> None:
    uri, options = f"{started.uri}/some tables/t é", started.options
    qbeast.write_table(ROWS, uri, columns=INDEXED, cube_size=500, storage_options=options)
    more = ROWS.with_columns(pl.col("id") + 2000)
    qbeast.write_table(more, uri, mode="append", storage_options=options)
    table = qbeast.open_table(uri, storage_options=options)
    expected = pl.concat([ROWS, more])
    target = (pl.col("x") < 500) & pl.col("t").is_not_null()
    assert table.rows().lazy().filter(target).collect().sort("id").equals(expected.filter(target).sort("id"))
    few = qbeast.read_table(uri, sample=0.05, storage_options=options)
    some = qbeast.read_table(uri, sample=0.3, columns=["t", "id"], storage_options=options)
    assert 0 < few.height < some.height
    assert set(few["id"]) < set(some["id"]) < set(expected["id"])

    table.delete(pl.col("id") < 100)
    table.update(pl.col("x") == 7, {"t": pl.lit("u")})
    table.optimize()
    expected = expected.filter(pl.col("id") >= 100).with_columns(
        t=pl.when(pl.col("x") == 7).then(pl.lit("u")).otherwise("t")
    )
    assert table.read().sort("id").equals(expected.sort("id"))
    assert table.check().ok
    theirs = pl.DataFrame(DeltaTable(uri, storage_options=options).to_pyarrow_table(columns=ROWS.columns))
    assert theirs.sort("id").equals(expected.sort("id"))
    assert qbeast.read_table(uri, version=0, storage_options=options).sort("id").equals(ROWS)
    assert table.vacuum().files == ()
    gone = table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert gone.files
    assert table.read().height == expected.height


@pytest.mark.sweep
def test_changes_hide_rows_in_the_store(shared: str, s3_options: dict[str, str], tmp_path: Path) -> None:
    uri, rows = f"s3://{shared}/{tmp_path.name}", ROWS.head(300)
    qbeast.write_table(rows, uri, columns=INDEXED, deletion_vectors=True, storage_options=s3_options)
    table, gone = qbeast.open_table(uri, storage_options=s3_options), (pl.col("id") % 30).eq(7)
    results = [table.delete(gone), table.update("id = 8", {"t": "'u'"})]
    new = rows.filter(pl.col("id") == 9).with_columns(t=pl.lit("v"))
    results.append(table.merge(new, "id"))
    assert [result.plan["action"].to_list() for result in results] == [["hide"]] * 3
    values = {8: "u", 9: "v"}
    expected = rows.filter(~gone).with_columns(t=pl.col("id").replace_strict(values, default=pl.col("t")))
    assert table.read().sort("id").equals(expected)
    assert pl.scan_delta(uri, storage_options=s3_options).collect().sort("id").equals(expected)
    assert table.check().ok
    files = client(s3_options).list_objects_v2(Bucket=shared, Prefix=f"{tmp_path.name}/deletion_vector_")
    assert files["KeyCount"] == 3


@pytest.mark.sweep
def test_text_options_work_for_files_of_others(place: Place) -> None:
    uri, options = place
    options = {**options, "max_retries": "2", "retry_timeout": "9s", "timeout": "30s"}
    qbeast.write_table(ROWS, uri, columns=INDEXED, storage_options=options)
    write_deltalake(uri, ROWS, mode="append", storage_options=options)
    assert qbeast.read_table(uri, sample=0.5, storage_options=options).height < 3000
    (task,) = qbeast.open_table(uri, storage_options=options).rows().tasks()
    assert sorted(scan.pages is None for scan in task.parts) == [False, True]
    assert pl.concat(task.read()).sort("id").equals(pl.concat([ROWS, ROWS]).sort("id"))


def test_missing_table_differs_from_missing_store(place: Place) -> None:
    uri, options = place
    with pytest.raises(qbeast.TableNotFoundError, match="some tables/"):
        qbeast.scan_table(uri, storage_options=options)
    nobody = {**options, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "max_retries": "0", "retry_timeout": "1s"}
    with pytest.raises(qbeast.StorageError):
        qbeast.scan_table(uri, storage_options=nobody)


BROKEN_STORES = {
    "NoSuchBucket": ({}, "the bucket or container does not exist"),
    "Forbidden": ({"AWS_ENDPOINT_URL": "refusing"}, "refuses these credentials"),
    "lookup": ({"AWS_ENDPOINT_URL": "http://nowhere.invalid"}, "cannot be reached"),
    "refused": ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "cannot be reached"),
}


@pytest.mark.parametrize("raw", BROKEN_STORES)
def test_messages_of_stores_are_short_and_have_the_text_as_cause(
    s3_options: dict[str, str], raw: str, refusing_server: str
) -> None:
    changed, reason = BROKEN_STORES[raw]
    options = {**s3_options, **changed, "max_retries": "0", "retry_timeout": "1s"}
    if options["AWS_ENDPOINT_URL"] == "refusing":
        options["AWS_ENDPOINT_URL"] = refusing_server
    uri = "s3://no-such-bucket/t"
    calls: list[Callable[[], object]] = [
        lambda: qbeast.open_table(uri, storage_options=options),
        lambda: qbeast.write_table(ROWS, uri, columns=INDEXED, mode="append", storage_options=options),
        lambda: qbeast.table_exists(uri, storage_options=options),
    ]
    for call in calls:
        with pytest.raises(qbeast.StorageError, match=reason) as caught:
            call()
        message = str(caught.value)
        assert message.endswith("Nothing was changed.") == caught.value.in_change
        assert len(message) < 300
        assert raw in str(caught.value.__cause__)


@pytest.mark.sweep
def test_bucket_tables_are_converted_and_restored(place: Place) -> None:
    uri, options = place
    ROWS.write_parquet(f"{uri}/a b.parquet", storage_options=options)
    result = qbeast.convert_table(uri, INDEXED, storage_options=options)
    assert (result.version, result.created_log, result.rows) == (0, True, 2000)
    assert qbeast.write_table(ROWS, uri, mode="overwrite", storage_options=options).version == 1
    table = qbeast.open_table(uri, storage_options=options)
    assert table.restore(0).version == 2
    assert table.read().sort("id").equals(ROWS)
    table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    with pytest.raises(qbeast.VersionNotFoundError, match="a vacuum took them"):
        table.restore(1)
    with pytest.raises(qbeast.TableNotFoundError):
        qbeast.convert_table(f"{uri}/nothing", INDEXED, storage_options=options)


@pytest.mark.sweep
def test_bucket_table_is_checked_repaired_and_plotted(place: Place) -> None:
    uri, options = place
    qbeast.write_table(ROWS, uri, columns=INDEXED, storage_options=options, cube_size=500)
    table = qbeast.open_table(uri, storage_options=options)
    assert table.check().ok
    assert table.metrics().revisions[-1].rows == 2000
    assert table.plot("space", where=pl.col("id") < 99).axes
    store = open_store(uri, options)
    commit = f"_delta_log/{0:020}.json"
    store.put(commit, store.get(commit).replace(b'"numRecords\\":2000', b'"numRecords\\":1999'))
    table = qbeast.open_table(uri, storage_options=options)
    assert set(table.check().faults["code"]) == {"blocks-count", "rows-count"}
    assert table.repair().repaired_files["actions"].to_list() == [["set statistics"]]
    assert table.check().ok
    store.delete(DeltaTable(uri, storage_options=options).get_add_actions()["path"][0].as_py())
    assert set(table.check().faults["code"]) == {"file-missing"}


def test_log_path_in_bucket_names_its_table(place: Place) -> None:
    uri, options = place
    qbeast.write_table(ROWS.head(10), uri, columns=INDEXED, storage_options=options)
    for tried in (
        lambda: qbeast.open_table(f"{uri}/_delta_log", storage_options=options),
        lambda: qbeast.convert_table(f"{uri}/_delta_log", columns=["id"], storage_options=options),
        lambda: qbeast.write_table(ROWS, f"{uri}/_delta_log", columns=INDEXED, storage_options=options),
    ):
        with pytest.raises(qbeast.TableNotFoundError, match=f"the table's folder: '{uri}'"):
            tried()


@pytest.mark.sweep
def test_losing_optimize_leaves_no_file(place: Place) -> None:
    uri, options = place
    for rows in (ROWS.head(500), ROWS.tail(500)):
        qbeast.write_table(rows, uri, columns=["id:hash"], mode="append", storage_options=options)
    table = qbeast.open_table(uri, storage_options=options)
    with (
        landing_first(lambda: qbeast.open_table(uri, storage_options=options).optimize()),
        pytest.raises(qbeast.CommitConflictError),
    ):
        table.optimize()
    assert table.refresh().version == 2
    files = [path for path in open_store(uri, options).list("") if path.endswith(".parquet")]
    assert len(files) == 3  # two appends and one optimize


WRITERS, COMMITS, PUTS = 8, 5, 40


def _put(uri: str, options: Mapping[str, str], writer: int) -> list[int]:
    """Try to create each of some files; return those that this process was told it created."""
    store, won = open_store(uri, options), []
    for number in range(PUTS):
        try:
            store.put_if_absent(f"_delta_log/{number}", f"writer {writer}".encode())
        except FileExistsError:
            continue
        won.append(number)
    return won


def _append(uri: str, options: Mapping[str, str], writer: int) -> None:
    for number in range(COMMITS):
        first = (writer * COMMITS + number) * 100
        rows = pl.DataFrame({"id": range(first, first + 100)})
        qbeast.write_table(rows, uri, mode="append", columns=["id"], storage_options=options)


@pytest.fixture(scope="module")
def writers() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(WRITERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.sweep
def test_only_one_process_creates_each_file(started: Started, writers: ProcessPoolExecutor) -> None:
    uri = f"{started.uri}/puts"
    jobs = [writers.submit(_put, uri, started.options, writer) for writer in range(WRITERS)]
    won = [job.result() for job in jobs]
    assert sorted(number for numbers in won for number in numbers) == list(range(PUTS))
    store = open_store(uri, started.options)
    for writer, numbers in enumerate(won):
        assert all(store.get(f"_delta_log/{number}") == f"writer {writer}".encode() for number in numbers)


@pytest.mark.sweep
def test_eight_processes_lose_no_commit(started: Started, writers: ProcessPoolExecutor) -> None:
    uri = f"{started.uri}/race"
    jobs = [writers.submit(_append, uri, started.options, writer) for writer in range(WRITERS)]
    for job in jobs:
        job.result(timeout=300)
    table = qbeast.open_table(uri, storage_options=started.options)
    assert table.version == WRITERS * COMMITS - 1
    assert table.read()["id"].sort().to_list() == list(range(WRITERS * COMMITS * 100))
    assert table.check().ok
