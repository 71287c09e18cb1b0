"""Tables by their names in AWS Glue, with entries as Athena, Spark and crawlers write them: every function has them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import polars as pl
import pytest
from botocore.client import BaseClient
from deltalake import DeltaTable, write_deltalake

import qbeast
from tests.cli.running import run, run_error, run_json
from tests.helpers.buckets import new_bucket
from tests.helpers.glue_service import ENTRIES, glue_client, serving_glue

ROWS = pl.DataFrame({"id": range(200), "x": [(i * 7919) % 211 for i in range(200)]})
OTHERS = ROWS.with_columns(pl.col("id") + 200)
Options = dict[str, str]
Register = Callable[..., str]


@pytest.fixture(scope="module")
def register(s3_options: Options) -> Register:
    """Return a function that registers a path in a database of this module, and returns the name."""
    glue, database = glue_client(s3_options), f"shop{uuid4().hex[:8]}"
    glue.create_database(DatabaseInput={"Name": database})

    def registered(place: str, shape: str = "athena", **parts: Any) -> str:
        table = f"t{uuid4().hex[:8]}"
        glue.create_table(DatabaseName=database, TableInput={"Name": table, **ENTRIES[shape](place), **parts})
        return f"glue://{database}.{table}"

    return registered


@pytest.fixture(scope="module")
def shared(s3_options: Options) -> str:
    return f"s3://{new_bucket(s3_options)}"


@pytest.fixture
def place(shared: str) -> str:
    """A path where nothing is."""
    return f"{shared}/{uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def sales(shared: str, s3_options: Options) -> str:
    """The path of a table that no test changes."""
    qbeast.write_table(ROWS, f"{shared}/sales", columns=["id"], sample_by=["x"], storage_options=s3_options)
    return f"{shared}/sales"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that calls look up."""
    names: list[str] = []
    call = BaseClient._make_api_call  # noqa: SLF001 -- every request of boto3

    def counted(self: BaseClient, operation: str, options: Any) -> Any:
        if operation == "GetTable":
            names.append(f"glue://{options['DatabaseName']}.{options['Name']}")
        return call(self, operation, options)

    monkeypatch.setattr(BaseClient, "_make_api_call", counted)
    return names


@pytest.mark.parametrize("shape", ENTRIES)
def test_table_of_another_writer_is_read_by_name(
    place: str, s3_options: Options, register: Register, shape: str
) -> None:
    write_deltalake(place, ROWS, storage_options=s3_options)
    name = register(place, shape)
    table = qbeast.open_table(name, storage_options=s3_options)
    assert table.uri == place
    assert table.read().sort("id").equals(ROWS)
    assert qbeast.table_exists(name, storage_options=s3_options)


def test_table_is_changed_by_name(place: str, s3_options: Options, register: Register) -> None:
    write_deltalake(place, ROWS, storage_options=s3_options)
    name = register(place)
    assert qbeast.convert_table(name, ["id"], storage_options=s3_options).committed
    qbeast.write_table(OTHERS, name, mode="append", storage_options=s3_options)
    table = qbeast.open_table(name, storage_options=s3_options)
    table.delete("id < 100")
    expected = pl.concat([ROWS, OTHERS]).filter(pl.col("id") >= 100)
    theirs = pl.DataFrame(DeltaTable(place, storage_options=s3_options).to_pyarrow_table())
    assert theirs.select("id", "x").sort("id").equals(expected)
    assert qbeast.read_table(name, where="id < 150", storage_options=s3_options).height == 50


def test_files_are_vacuumed_and_dropped_by_name(place: str, s3_options: Options, register: Register) -> None:
    write_deltalake(place, ROWS, storage_options=s3_options)
    write_deltalake(place, OTHERS, mode="overwrite", storage_options=s3_options)
    name = register(place, "spark")
    table = qbeast.open_table(name, storage_options=s3_options)
    gone = table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert len(gone.files) == 1
    assert table.read().sort("id").equals(OTHERS)
    assert qbeast.drop_table(name, confirm=True, storage_options=s3_options).files
    assert not qbeast.table_exists(name, storage_options=s3_options)


def test_one_call_looks_a_name_up_once(
    place: str, s3_options: Options, register: Register, requests: list[str]
) -> None:
    qbeast.write_table(ROWS, place, columns=["id"], storage_options=s3_options)
    name = register(place)
    assert requests == []
    calls: list[Callable[[], object]] = [
        lambda: qbeast.write_table(OTHERS, name, mode="append", storage_options=s3_options),
        lambda: qbeast.write_table(
            ROWS[:3], name, mode="overwrite", where="id < 3", storage_options=s3_options
        ),
        lambda: qbeast.read_table(name, sample=0.5, storage_options=s3_options),
        lambda: qbeast.open_table(name, version=0, storage_options=s3_options).refresh(),
    ]
    for count, call in enumerate(calls, 1):
        call()
        assert requests == [name] * count


def test_pickled_table_has_the_path(
    sales: str, s3_options: Options, register: Register, requests: list[str]
) -> None:
    table = qbeast.open_table(register(sales), storage_options=s3_options)
    for thing in (table, table.rows().tasks()):
        assert b"glue:" not in pickle.dumps(thing)
    again = pickle.loads(pickle.dumps(table))  # noqa: S301 -- made a moment ago
    assert (again.uri, len(again), len(requests)) == (sales, 200, 1)


def test_tables_are_joined_by_name(sales: str, s3_options: Options, register: Register) -> None:
    name = register(sales)
    table = qbeast.open_table(name, storage_options=s3_options)
    actual = table.rows().estimate("count(*)", join=(name, ["x"], "semi"), error=0.5)
    assert actual.frame.row(0)[0] == pytest.approx(200, rel=0.5)


def test_missing_name_is_not_created(
    sales: str, s3_options: Options, register: Register, requests: list[str]
) -> None:
    name = f"{register(sales)}_new"
    with pytest.raises(qbeast.TableNotFoundError, match=r"Write a new table to its path") as caught:
        qbeast.write_table(ROWS, name, columns=["id"], mode="append", storage_options=s3_options)
    assert str(caught.value).endswith("Nothing was changed.")
    assert len(requests) == 1
    assert not qbeast.table_exists(name, storage_options=s3_options)
    assert not qbeast.table_exists("glue://no_such_database.t", storage_options=s3_options)


def test_refused_entry_is_not_opened(sales: str, s3_options: Options, register: Register) -> None:
    with pytest.raises(qbeast.UnsupportedTableError, match="a managed table"):
        qbeast.open_table(register(sales, TableType="MANAGED_TABLE"), storage_options=s3_options)


def test_table_of_lake_formation_is_read_with_its_credentials(
    sales: str, s3_options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent = {"AccessKeyId": "lent", "SecretAccessKey": "key", "SessionToken": "token"}
    with serving_glue() as service:
        for name in ("GLUE", "LAKEFORMATION"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{name}", service.endpoint)
        entry = {
            "IsRegisteredWithLakeFormation": True,
            "CatalogId": "123456789012",
            **ENTRIES["athena"](sales),
        }
        service.replies.update(GetTable={"Table": entry}, GetTemporaryGlueTableCredentials=lent)
        table = qbeast.open_table("glue://shop.sales", storage_options=s3_options)
    assert table.read().sort("id").equals(ROWS)
    assert table.snapshot.location.storage_options["aws_session_token"] == lent["SessionToken"]
    assert len(qbeast.open_table(sales, storage_options=s3_options)) == 200


@pytest.fixture(scope="module")
def reports(s3_options: Options) -> list[str]:
    """The options for commands."""
    return [part for key, value in s3_options.items() for part in ("--storage-option", f"{key}={value}")]


def test_commands_take_names(sales: str, place: str, register: Register, reports: list[str]) -> None:
    name = register(sales)
    assert run_json("show", name, "--count", *reports)["count"] == 200
    copied = run_json("write", name, place, "-c", "id", *reports)
    assert copied["rows"] == 200
    joined = ("--join", f"{name}:x:semi", "--error", "50%")
    assert run_json("estimate", name, "count(*)", *joined, *reports)["rows"]


def test_commands_report_refused_names(sales: str, register: Register, reports: list[str]) -> None:
    name = register(sales, TableType="VIRTUAL_VIEW")
    assert "a view in AWS Glue" in run_error("show", name, *reports, code=7)
    assert "does not exist in AWS Glue" in run_error("show", f"{name}_none", *reports, code=4)
    assert "glue://database.table" in run_error("show", "glue://sales", code=2)
    assert run("--help").output.count("glue://db.table") == 1
