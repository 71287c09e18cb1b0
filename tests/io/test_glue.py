"""A name of AWS Glue has one form, its entry leads to S3 or is refused, and errors of the catalog are ours."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from qbeast_core.errors import (
    InvalidInputError,
    MissingDependencyError,
    QbeastError,
    StorageError,
    TableNotFoundError,
    UnsupportedTableError,
)
from qbeast_core.io.address import parts_of_name, resolve_location
from qbeast_core.io.catalog.glue import find_table
from qbeast_core.io.catalog.glue_entry import address_of
from qbeast_core.io.location import Location
from tests.helpers.glue_service import ENTRIES, GlueService, serving_glue

NAME = "glue://shop.orders"
PLACE = "s3://bucket/orders"
KEYS = {
    "AWS_REGION": "eu-west-1",
    "aws_access_key_id": "hunter2",
    "secret_access_key": "hunter3",
    "Token": "hunter4",
    "max_retries": "0",
    "timeout": "9s",
}
VENDED = {"AccessKeyId": "lent", "SecretAccessKey": "key", "SessionToken": "token", "Expiration": 1764340000}


@pytest.fixture(scope="module")
def running() -> Iterator[GlueService]:
    with serving_glue() as service:
        yield service


@pytest.fixture
def service(running: GlueService, monkeypatch: pytest.MonkeyPatch) -> GlueService:
    """A server to which the environment leads, as for stores that have no catalog."""
    for name in ("GLUE", "LAKEFORMATION"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{name}", running.endpoint)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    running.replies.clear()
    running.requests.clear()
    return running


def entry(**parts: Any) -> dict[str, Any]:
    return {**ENTRIES["athena"](PLACE), **parts}


def storage(**parts: Any) -> dict[str, Any]:
    return {"StorageDescriptor": {**ENTRIES["athena"](PLACE)["StorageDescriptor"], **parts}}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("glue://shop.orders", (None, "shop", "orders")),
        ("GLUE://Shop.Orders_2-b", (None, "shop", "orders_2-b")),
        ("glue://123456789012/shop.orders", ("123456789012", "shop", "orders")),
        ("glue://größe.注文", (None, "größe", "注文")),
        (f"glue://{'d' * 255}.{'t' * 255}", (None, "d" * 255, "t" * 255)),
    ],
)
def test_name_has_a_catalog_a_database_and_a_table(text: str, parts: tuple[str | None, str, str]) -> None:
    assert parts_of_name(resolve_location(text)) == parts


@pytest.mark.parametrize(
    "text",
    [
        "glue://",
        "glue://orders",
        "glue://shop.",
        "glue://.orders",
        "glue://a.b.c",
        "glue://shop.orders/",
        "glue://12/shop.orders",
        "glue://123456789012:other/shop.orders",
        "glue://١٢٣٤٥٦٧٨٩٠١٢/shop.orders",
        "glue://shop/orders",
        "glue://shop.or ders",
        "glue://shop.orders?versionId=1",
        "glue://me:hunter2@shop.orders",
        f"glue://shop.{'t' * 256}",
        f"glue://{'x' * 100_000}",
    ],
)
def test_other_form_of_a_name_is_refused(text: str) -> None:
    with pytest.raises(
        InvalidInputError, match=r"glue://database\.table or glue://123456789012/database"
    ) as caught:
        Location.of(text)
    assert caught.value.argument == "path"
    assert len(str(caught.value)) < 700
    assert "hunter" not in str(caught.value)


def test_name_with_one_slash_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="path objects lose a slash"):
        Location.of("glue:/shop.orders")


def test_name_without_boto3_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingDependencyError, match=r"boto3.*pip install 'qbeast\[glue\]'") as caught:
        Location.of(NAME)
    assert (caught.value.dependency, caught.value.extra) == ("boto3", "glue")


@pytest.mark.parametrize("shape", ENTRIES.values(), ids=ENTRIES.keys())
def test_entry_of_others_leads_to_the_table(shape: Any) -> None:
    assert address_of(NAME, shape(PLACE)) == PLACE


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("S3://bucket/orders/", PLACE),
        ("s3a://bucket/orders", "s3a://bucket/orders"),
        ("s3n://bucket/orders", PLACE),
        ("s3://bucket/an é order=1", "s3://bucket/an é order=1"),
        ("s3://bucket", "s3://bucket"),
    ],
)
def test_location_becomes_an_address_of_the_store(location: str, expected: str) -> None:
    assert address_of(NAME, entry(**storage(Location=location))) == expected


@pytest.mark.parametrize(
    "parameters",
    [
        {"spark.sql.sources.provider": "DELTA"},
        {"spark.sql.sources.provider": "qbeast"},
        {"table_type": "delta"},
        {"classification": "Delta"},
        {"classification": "parquet", "spark.sql.sources.provider": "delta"},
    ],
)
def test_parameters_mark_a_delta_table(parameters: dict[str, str]) -> None:
    assert address_of(NAME, entry(Parameters=parameters)) == PLACE


def test_entry_without_a_type_is_external() -> None:
    assert address_of(NAME, entry(TableType=None)) == PLACE


def serde(**parameters: str) -> dict[str, Any]:
    return {"SerdeInfo": {"Parameters": parameters}}


PLACEHOLDER = "s3://warehouse/shop.db/orders-__PLACEHOLDER__"
LINK = {"CatalogId": "210987654321", "DatabaseName": "their", "Name": "orders"}
HUDI = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
MANIFESTS = "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"
REFUSED = {
    "managed": (entry(TableType="MANAGED_TABLE"), "a managed table"),
    "view": (entry(TableType="VIRTUAL_VIEW"), "a view"),
    "view of several engines": (entry(ViewDefinition={"IsProtected": True}), "a view"),
    "governed": (entry(TableType="GOVERNED"), "of the type 'GOVERNED'"),
    "link": ({"TargetTable": LINK}, r"a resource link.*'glue://210987654321/their\.orders'"),
    "federated": (entry(FederatedTable={"Identifier": "x"}), "of another catalog"),
    "Iceberg": (entry(Parameters={"table_type": "ICEBERG"}), "an Iceberg table"),
    "Iceberg too": (
        entry(Parameters={"table_type": "ICEBERG", "spark.sql.sources.provider": "delta"}),
        "Iceberg",
    ),
    "Hudi": (entry(Parameters={"spark.sql.sources.provider": "hudi"}), "a Hudi table"),
    "Hudi of Hive": (entry(Parameters={}, **storage(InputFormat=HUDI)), "a Hudi table"),
    "manifests": (entry(**storage(InputFormat=MANIFESTS)), "a list of manifests"),
    "Parquet": (entry(Parameters={"classification": "parquet"}), "of the format 'parquet'"),
    "unknown": (entry(Parameters=None), "of an unknown format"),
    "no location": (entry(**storage(Location="")), "without a location"),
    "no storage": (entry(StorageDescriptor=None), "without a location"),
    "placeholder": (entry(**storage(Location=PLACEHOLDER)), "without a location"),
    "two": (entry(**storage(**serde(path="s3://bucket/other"))), "at two places.*other.*orders"),
    "local": (entry(**storage(Location="/etc")), "at '/etc' in AWS Glue. Entries are followed to S3 only"),
    "file": (entry(**storage(Location="file:///etc")), "at 'file:///etc'"),
    "file of Spark": (entry(**storage(Location=PLACEHOLDER, **serde(path="file:/etc"))), "at 'file:/etc'"),
    "other store": (entry(**storage(Location="gs://bucket/orders")), "at 'gs://bucket/orders'"),
    "another name": (entry(**storage(Location="glue://shop.orders")), "at 'glue://"),
    "long": (entry(**storage(Location=f"s3://bucket/{'x' * 3_000}")), "at 's3://bucket/xxx"),
    "up": (entry(**storage(Location="s3://bucket/../other")), "location that cannot be used.*empty part"),
    "control": (entry(**storage(Location="s3://bucket/a\nb")), "location that cannot be used"),
    "password": (entry(**storage(Location="s3://me:hunter2@bucket/a")), "location that cannot be used"),
}


@pytest.mark.parametrize(("described", "report"), REFUSED.values(), ids=REFUSED.keys())
def test_other_entry_is_refused_with_its_kind(described: dict[str, Any], report: str) -> None:
    with pytest.raises(UnsupportedTableError, match=report) as caught:
        address_of(NAME, described)
    error = caught.value
    assert (error.path, error.argument) == (NAME, "path")
    assert NAME in str(error)
    assert "hunter" not in str(error)
    assert len(str(error)) < 900


def test_catalog_id_is_requested(service: GlueService) -> None:
    service.replies["GetTable"] = {"Table": entry()}
    found = find_table("glue://123456789012/shop.orders", KEYS)
    assert (found.uri, found.storage_options) == (PLACE, KEYS)
    find_table(NAME, KEYS)
    (_, first, signed), (_, second, _) = service.requests
    assert first == {"CatalogId": "123456789012", "DatabaseName": "shop", "Name": "orders"}
    assert second == {"DatabaseName": "shop", "Name": "orders"}
    assert "Credential=hunter2/" in signed
    assert "/eu-west-1/glue/" in signed


def test_endpoint_of_the_store_is_that_of_the_catalog(
    service: GlueService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.replies["GetTable"] = {"Table": entry()}
    nowhere = {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    assert find_table(NAME, nowhere).uri == PLACE  # the environment has one for Glue alone
    monkeypatch.delenv("AWS_ENDPOINT_URL_GLUE")
    with pytest.raises(StorageError, match=r"EndpointConnectionError.*AWS_ENDPOINT_URL_GLUE"):
        find_table(NAME, nowhere)
    assert find_table(NAME, {**KEYS, "endpoint": service.endpoint}).uri == PLACE


def test_region_of_the_environment_is_used(service: GlueService, monkeypatch: pytest.MonkeyPatch) -> None:
    service.replies["GetTable"] = {"Table": entry()}
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    find_table(NAME, {key: value for key, value in KEYS.items() if key != "AWS_REGION"})
    assert "/ap-south-1/glue/" in service.requests[0][2]


ERRORS = {
    "EntityNotFoundException": (TableNotFoundError, "Write a new table to its path, and register it"),
    "AccessDeniedException": (StorageError, "permission for glue:GetTable"),
    "UnrecognizedClientException": (StorageError, "Check the credentials"),
    "ExpiredTokenException": (StorageError, "Check the credentials"),
    "ThrottlingException": (StorageError, "Try again later"),
    "InternalServiceException": (StorageError, "Try again later"),
    "SomethingElse": (StorageError, "Check the endpoint"),
}


@pytest.mark.parametrize(("code", "expected"), ERRORS.items(), ids=ERRORS.keys())
def test_error_of_the_catalog_has_code_and_cause(
    service: GlueService, code: str, expected: tuple[type[QbeastError], str]
) -> None:
    service.replies["GetTable"] = ("400 Bad Request", code)
    with pytest.raises(
        expected[0], match=rf"'glue://shop\.orders'.*: the reason \({code}\)\. .*{expected[1]}"
    ) as caught:
        find_table(NAME, KEYS)
    assert "hunter" not in str(caught.value)


def test_server_without_a_catalog_is_named(service: GlueService) -> None:
    service.replies["GetTable"] = b"<Error><Code>MethodNotAllowed</Code></Error>"
    with pytest.raises(StorageError, match=r"did not return the table.*AWS_ENDPOINT_URL_GLUE"):
        find_table(NAME, KEYS)


@pytest.mark.parametrize(
    ("change", "error", "report"),
    [
        ({"AWS_REGION": ""}, StorageError, r"region.*NoRegionError.*\(AWS_REGION\)"),
        ({"AWS_REGION": "no region"}, StorageError, "InvalidRegionError"),
        ({"endpoint": "host:9"}, StorageError, r"Invalid endpoint: host:9 \(ValueError\)"),
        ({"secret_access_key": ""}, InvalidInputError, "go together"),
        ({"aws_access_key_id": "", "secret_access_key": ""}, InvalidInputError, "go together"),
        (
            {"aws_access_key_id": "", "secret_access_key": "", "Token": ""},
            StorageError,
            r"NoCredentialsError.*Check the credentials",
        ),
    ],
)
def test_unusable_options_are_named(
    service: GlueService,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
    error: type[QbeastError],
    report: str,
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    if "endpoint" in change:
        monkeypatch.delenv("AWS_ENDPOINT_URL_GLUE")
    with pytest.raises(error, match=report) as caught:
        find_table(NAME, {**KEYS, **change})
    assert caught.value.argument == "storage_options"
    assert service.requests == []


def lake(**parts: Any) -> dict[str, Any]:
    return {"Table": entry(IsRegisteredWithLakeFormation=True, CatalogId="123456789012", **parts)}


def test_lake_formation_lends_credentials_for_the_store(service: GlueService) -> None:
    service.replies.update(GetTable=lake(), GetTemporaryGlueTableCredentials=VENDED)
    location = Location.of(NAME, KEYS)
    assert location.uri == PLACE
    assert location.storage_options == {
        "AWS_REGION": "eu-west-1",
        "max_retries": "0",
        "timeout": "9s",
        "aws_access_key_id": "lent",
        "aws_secret_access_key": "key",
        "aws_session_token": "token",
    }
    assert location.options_of_others == KEYS  # the credentials are for this table
    _, (operation, request, signed) = service.requests
    assert operation == "GetTemporaryGlueTableCredentials"
    assert request["TableArn"] == "arn:aws:glue:eu-west-1:123456789012:table/shop/orders"
    assert request["Permissions"] == ["SELECT", "INSERT", "DELETE", "DESCRIBE", "ALTER"]
    assert "SupportedPermissionTypes" not in request
    assert "Credential=hunter2/" in signed


def test_reader_gets_credentials_for_reads(service: GlueService) -> None:
    def denied_for_changes(request: dict[str, Any]) -> Any:
        reads = request["Permissions"] == ["SELECT"]
        return VENDED if reads else ("403 Forbidden", "AccessDeniedException")

    service.replies.update(GetTable=lake(), GetTemporaryGlueTableCredentials=denied_for_changes)
    location = Location.of(NAME, KEYS)
    assert location.storage_options["aws_access_key_id"] == "lent"
    assert len(service.requests) == 3
    with pytest.raises(UnsupportedTableError, match=r"grants SELECT on it alone. Request INSERT"):
        location.refuse_changes()


@pytest.mark.parametrize(
    ("reply", "requests", "report"),
    [
        (("403 Forbidden", "AccessDeniedException"), 3, "lakeformation:GetDataAccess"),
        (("400 Bad Request", "PermissionTypeMismatchException"), 2, "for the whole table"),
        (("500 Internal Error", "InternalServiceException"), 2, "Try again later"),
        ({"AccessKeyId": "lent"}, 2, "Open the table by its path"),
    ],
)
def test_missing_credentials_of_lake_formation_raise(
    service: GlueService, reply: Any, requests: int, report: str
) -> None:
    service.replies.update(GetTable=lake(), GetTemporaryGlueTableCredentials=reply)
    with pytest.raises(StorageError, match=rf"Lake Formation did not return credentials .*{NAME}.*{report}"):
        Location.of(NAME, KEYS)
    assert len(service.requests) == requests


def test_refused_entry_requests_no_credentials(service: GlueService) -> None:
    service.replies["GetTable"] = lake(TableType="MANAGED_TABLE")
    with pytest.raises(UnsupportedTableError, match="managed"):
        Location.of(NAME, KEYS)
    assert len(service.requests) == 1


def test_credentials_of_lake_formation_are_renewed(service: GlueService) -> None:
    numbers = count(1)

    def lent(_: object) -> dict[str, Any]:
        return {**VENDED, "AccessKeyId": f"lent-{next(numbers)}", "Expiration": time.time() + 0.3}

    service.replies.update(GetTable=lake(), GetTemporaryGlueTableCredentials=lent)
    options = Location.of(NAME, KEYS).storage_options
    assert options["aws_access_key_id"] == "lent-1"
    time.sleep(0.3)
    assert options["aws_access_key_id"] == "lent-2"
    assert [operation for operation, _, _ in service.requests].count("GetTable") == 1
