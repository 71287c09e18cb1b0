"""Tables by their names in Unity Catalog, with keys that the catalog lends: every function has them."""

from __future__ import annotations

import io
import logging
import pickle
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from tests.cli.running import run_error, run_json
from tests.helpers.lent_keys import Lending, lending
from tests.helpers.unity_service import TOKEN, serving_unity

ROWS = pl.DataFrame({"id": range(200), "x": [(i * 7919) % 211 for i in range(200)]})
OTHERS = ROWS.with_columns(pl.col("id") + 200)
SECRETS = (TOKEN, "hunter2-secret", "hunter2-session")
_NUMBERS = count()


@pytest.fixture(scope="module")
def running() -> Iterator[Lending]:
    with lending() as started:
        yield started


@pytest.fixture
def lender(running: Lending) -> Lending:
    """The catalog and the store, without requests and with all grants."""
    return running.reset()


@pytest.fixture
def place() -> str:
    """An address where nothing is."""
    return f"s3://bucket/t{next(_NUMBERS)}"


@pytest.fixture
def sales(lender: Lending, place: str) -> str:
    """The name of an indexed table."""
    qbeast.write_table(ROWS, place, columns=["id"], storage_options=lender.own)
    return lender.catalog.add(f"shop.raw.sales{next(_NUMBERS)}", place)


def stored(lender: Lending, place: str) -> pl.DataFrame:
    """Return the rows at an address, read by another library."""
    return pl.DataFrame(DeltaTable(place, storage_options=lender.own).to_pyarrow_table()).sort("id")


def test_table_of_another_writer_is_converted(lender: Lending, place: str) -> None:
    write_deltalake(place, ROWS, storage_options=lender.own)
    name, options = lender.catalog.add("shop.raw.theirs", place), lender.options
    assert qbeast.convert_table(name, ["id"], storage_options=options).committed
    qbeast.write_table(OTHERS, name, mode="append", storage_options=options)
    assert stored(lender, place).select("id", "x").equals(pl.concat([ROWS, OTHERS]))
    assert qbeast.read_table(name, where="id >= 200", storage_options=options).height == 200
    assert qbeast.table_exists(name, storage_options=options)


def test_table_is_changed_by_name(lender: Lending, sales: str, place: str) -> None:
    table = qbeast.open_table(sales, storage_options=lender.options)
    assert (table.uri, table.delete("id < 100").rows_deleted) == (place, 100)
    table.update("id = 150", {"x": -1})
    table.merge(ROWS.head(3), on=["id"])
    table.optimize(full=True)
    expected = pl.concat([ROWS.filter(pl.col("id") >= 100), ROWS.head(3)]).with_columns(
        x=pl.when(pl.col("id") == 150).then(-1).otherwise("x")
    )
    assert stored(lender, place).select("id", "x").equals(expected.sort("id"))
    assert any(key.startswith("lent") for key in lender.keys.used)


def test_one_call_looks_a_name_up_once(lender: Lending, sales: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: qbeast.write_table(OTHERS, sales, mode="append", storage_options=lender.options),
        lambda: qbeast.read_table(sales, sample=0.5, storage_options=lender.options),
        lambda: qbeast.scan_table(sales, storage_options=lender.options).collect(),
        lambda: qbeast.open_table(sales, version=0, storage_options=lender.options).refresh(),
    ]
    for number, call in enumerate(calls, 1):
        call()
        assert [len(lender.catalog.named(method)) for method in ("GET", "POST")] == [number, number]


def test_credentials_are_renewed_within_operations(lender: Lending, sales: str) -> None:
    lender.seconds = 1
    table = qbeast.open_table(sales, storage_options=lender.options)
    rows, lazy = table.rows().shuffled(7), table.rows().lazy()
    first = next(iter(rows))
    tasks = table.rows().tasks()

    def slow(step: qbeast.Progress) -> None:
        if step.stage == "read":
            time.sleep(1.1)

    table.optimize(full=True, progress=slow)
    assert lazy.collect().sort("id").equals(ROWS)
    time.sleep(1.1)
    assert pl.concat([first, *rows]).sort("id").equals(ROWS)
    assert pl.concat([frame for task in tasks for frame in task.read()]).sort("id").equals(ROWS)
    assert len(table.refresh()) == 200
    assert len({key for key in lender.keys.used if key.startswith("lent")}) >= 4


def test_expired_credentials_of_a_lost_grant_raise(lender: Lending, sales: str) -> None:
    lender.seconds = 0.2
    table = qbeast.open_table(sales, storage_options=lender.options)
    lender.catalog.operations = set()
    time.sleep(0.3)
    with pytest.raises(qbeast.StorageError, match=r"did not lend credentials.*EXTERNAL USE SCHEMA"):
        table.read()


def test_reads_only_are_refused_before_any_work(lender: Lending, sales: str, place: str) -> None:
    lender.catalog.operations = {"READ"}
    table = qbeast.open_table(sales, storage_options=lender.options)
    assert len(table.read()) == 200
    changes: list[Callable[[], object]] = [
        lambda: qbeast.write_table(OTHERS, sales, mode="append", storage_options=lender.options),
        lambda: qbeast.write_table(OTHERS, sales, ["id"], mode="overwrite", storage_options=lender.options),
        lambda: qbeast.write_table(
            ROWS[:3], sales, mode="overwrite", where="id < 3", storage_options=lender.options
        ),
        lambda: qbeast.convert_table(sales, ["id"], storage_options=lender.options),
        lambda: qbeast.drop_table(sales, confirm=True, storage_options=lender.options),
        lambda: table.delete("id = 1"),
        lambda: table.update("id = 1", {"x": 1}),
        lambda: table.merge(ROWS.head(3), on=["id"]),
        lambda: table.optimize(full=True),
        lambda: table.reindex(["x"]),
        lambda: table.vacuum(dry_run=False),
        table.repair,
        lambda: table.set_properties({"a": "b"}),
        lambda: table.restore(0),
    ]
    writes = lender.store.writes
    for change in changes:
        with pytest.raises(qbeast.UnsupportedTableError, match=r"reads only. Request the grant MODIFY"):
            change()
    assert lender.store.writes == writes
    assert stored(lender, place).equals(ROWS)


def test_managed_table_is_read_and_not_changed(lender: Lending, place: str) -> None:
    write_deltalake(place, ROWS, storage_options=lender.own)
    name = lender.catalog.add("shop.raw.managed", place, table_type="MANAGED")
    table = qbeast.open_table(name, storage_options=lender.options)
    assert table.read().sort("id").equals(ROWS)
    with pytest.raises(qbeast.UnsupportedTableError, match="the catalog manages it"):
        table.delete("id = 1")
    assert [body["operation"] for _, path, body in lender.catalog.requests if "credentials" in path] == [
        "READ"
    ]


def test_own_credentials_are_used_where_none_are_lent(lender: Lending, sales: str) -> None:
    options, lend = {**lender.options, **lender.own}, lender.catalog.credentials
    answers: list[Callable[[str], Any]] = [
        lambda _: {"aws_temp_credentials": None, "expiration_time": None},
        lambda _: {},
    ]
    try:
        for lender.catalog.credentials in answers:
            assert len(qbeast.open_table(sales, storage_options=options)) == 200
    finally:
        lender.catalog.credentials = lend
    refusal = b'{"error_code":"FAILED_PRECONDITION","message":"S3 bucket configuration not found"}'
    lender.catalog.replies["/temporary-table-credentials"] = lambda: (400, [], refusal)
    assert len(qbeast.open_table(sales, storage_options=options)) == 200
    with pytest.raises(qbeast.StorageError, match="S3 bucket configuration not found"):
        qbeast.open_table(sales, storage_options=lender.options)


def test_two_servers_are_kept_apart(lender: Lending, place: str, sales: str) -> None:
    other = f"{place}-other"
    qbeast.write_table(OTHERS, other, columns=["id"], storage_options=lender.own)
    with serving_unity() as second:
        second.token = "another"  # noqa: S105 - of nobody
        second.credentials = lender.lend
        name = second.add(sales.removeprefix("uc://"), other)
        place_of_store = {key: value for key, value in lender.options.items() if "UNITY" not in key}
        theirs = qbeast.open_table(name, storage_options={**place_of_store, **second.options})
        ours = qbeast.open_table(sales, storage_options=lender.options)
        assert (theirs.uri, ours.uri) == (other, place)
        assert theirs.read().sort("id").equals(OTHERS)
        assert ours.read().sort("id").equals(ROWS)


def test_new_table_is_registered(lender: Lending, place: str) -> None:
    name = "uc://shop.raw.new"
    rows = ROWS.with_columns(day=pl.date(2026, 11, 30), money=pl.lit("1.25").cast(pl.Decimal(9, 2)))
    options: dict[str, Any] = {"storage_options": lender.options, "register": name}
    assert not qbeast.table_exists(name, storage_options=lender.options)
    qbeast.write_table(rows, place, ["id"], partition_by=["day"], comment="sales", **options)
    entry = lender.catalog.requests[-1][2]
    assert (entry["storage_location"], entry["comment"], entry["table_type"]) == (place, "sales", "EXTERNAL")
    texts = {column["name"]: (column["type_text"], column["type_name"]) for column in entry["columns"]}
    assert texts == {
        "id": ("bigint", "LONG"),
        "x": ("bigint", "LONG"),
        "day": ("date", "DATE"),
        "money": ("decimal(9,2)", "DECIMAL"),
    }
    qbeast.write_table(rows, place, mode="append", **options)
    assert len(qbeast.open_table(name, storage_options=lender.options)) == 400
    assert lender.catalog.named("POST").count("/tables") == 1


def test_register_fails_before_or_after_the_write(lender: Lending, place: str, sales: str) -> None:
    def write(register: Any, **options: Any) -> None:
        qbeast.write_table(
            ROWS,
            place,
            ["id"],
            mode="overwrite",
            register=register,
            storage_options=lender.options,
            **options,
        )

    elsewhere = lender.catalog.add("shop.raw.elsewhere", f"{place}x")
    for register, error, message in [
        (elsewhere, qbeast.InvalidInputError, "is registered at"),
        ("uc://shop.none.new", qbeast.TableNotFoundError, "the schema of"),
        ("uc://shop.raw.a b", qbeast.InvalidInputError, "no names with spaces"),
        ("sales", qbeast.InvalidInputError, "must be a name in Unity Catalog"),
        (3, qbeast.InvalidInputError, "must be a name in Unity Catalog"),
    ]:
        with pytest.raises(error, match=message):
            write(register)
    with pytest.raises(qbeast.InvalidInputError, match="`register` is for writes of whole tables"):
        write("uc://shop.raw.new2", where="id < 1000")
    assert len(qbeast.open_table(sales, storage_options=lender.options).history()) == 1
    refusal = b'{"error_code":"PERMISSION_DENIED","message":"no CREATE TABLE"}'
    lender.catalog.replies["/tables"] = lambda: (403, [], refusal)
    with pytest.raises(
        qbeast.StorageError, match=r"was written, but.*CREATE TABLE `shop`\.`raw`\.`new2`"
    ) as caught:
        write("uc://shop.raw.new2")
    assert caught.value.changed
    assert len(qbeast.open_table(sales, storage_options=lender.options).history()) == 2


def test_no_secret_of_the_catalog_is_shown_or_pickled(
    lender: Lending, sales: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    table = qbeast.open_table(sales, storage_options=lender.options)
    read = table.rows("id < 50", sample=0.5)
    shown = [
        repr(table),
        repr(table.snapshot.location),
        str(read.explain()),
        repr(read),
        repr(read.tasks()),
        str(read.lazy()),
    ]
    shown += [repr(table.snapshot), repr(table.snapshot.location.storage_options), str(table.history())]
    errors: list[Callable[[], object]] = [
        lambda: qbeast.open_table(f"{sales}_none", storage_options=lender.options),
        lambda: qbeast.open_table(sales, storage_options={**lender.options, "UNITY_TOKEN": f"{TOKEN}x"}),
        lambda: qbeast.open_table(
            sales, storage_options={**lender.options, "UNITY_TOKEN": f"{TOKEN}\n{TOKEN}"}
        ),
        lambda: qbeast.open_table(
            sales, storage_options={**lender.options, "UNITY_ENDPOINT": "http://127.0.0.1:9"}
        ),
        lambda: qbeast.open_table(
            sales, storage_options={**lender.options, "UNITY_ENDPOINT": f"http://me:{TOKEN}@127.0.0.1:9"}
        ),
        lambda: qbeast.open_table(
            sales, storage_options={**lender.options, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
        ),
    ]
    for call in errors:
        with pytest.raises(qbeast.QbeastError) as caught:
            call()
        error: BaseException | None = caught.value
        while error is not None:
            shown += [str(error), repr(error), repr(vars(error))]
            error = error.__cause__ or error.__context__
    plan = io.BytesIO()
    pickle.dump((table, read.tasks(), table.snapshot.location), plan)
    lazy = read.lazy()
    texts = [*shown, caplog.text, lazy.explain(optimized=False)]
    assert not [text for text in texts if any(secret in text for secret in SECRETS)]
    assert TOKEN.encode() not in plan.getvalue()
    assert b"uc://" not in plan.getvalue()
    again = pickle.loads(plan.getvalue())  # noqa: S301 -- made a moment ago
    assert again[0].read().sort("id").equals(ROWS)


def test_commands_take_names(lender: Lending, sales: str, place: str) -> None:
    options = [
        part for key, value in lender.options.items() for part in ("--storage-option", f"{key}={value}")
    ]
    assert run_json("show", sales, "--count", *options)["count"] == 200
    copied = run_json("write", sales, f"{place}c", "-c", "id", "--register", "uc://shop.raw.copied", *options)
    assert copied["rows"] == 200
    assert run_json("show", "uc://shop.raw.copied", "--count", *options)["count"] == 200
    assert "does not exist in Unity Catalog" in run_error("show", f"{sales}_none", *options, code=4)
    assert "uc://catalog.schema.table" in run_error("vacuum", "uc://a.b", code=2)
    assert "its server is not known" in run_error("show", sales, code=2)
