"""Tables and sources in object stores: options of the store reach every command, and are told to nobody."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import boto3
import polars as pl
import pytest

from tests.cli.running import ROWS, complaint, run, said
from tests.helpers.s3_server import S3Server


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[str, list[str]]]:
    """A bucket, and the options that lead there."""
    server = S3Server()
    server.start()
    host, port = server.get_host_and_port()
    address, name = f"http://{host}:{port}", f"b{uuid4().hex[:12]}"
    keys = {"aws_access_key_id": "hunter2", "aws_secret_access_key": "hunter3", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=address, **keys).create_bucket(Bucket=name)
    options = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "hunter2",
        "AWS_SECRET_ACCESS_KEY": "hunter3",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    told = [part for key, text in options.items() for part in ("--storage-option", f"{key}={text}")]
    ROWS.write_csv(f"s3://{name}/rows.csv", storage_options=options)
    ROWS.write_delta(f"s3://{name}/plain", storage_options=options)
    yield f"s3://{name}", told
    server.stop()


def test_a_table_in_a_bucket_is_written_from_there_and_read(bucket: tuple[str, list[str]]) -> None:
    place, options = bucket
    table = f"{place}/t"
    assert said("write", f"{place}/rows.csv", table, "-c", "id,price", *options)["rows"] == 2000
    again = said("append", f"{place}/plain", table, "--format", "delta", *options)
    assert (again["version"], again["rows"]) == (1, 2000)
    assert said("show", table, "--count", "--where", "id < 10", *options)["count"] == 20
    run("sample", table, "0.5", "-o", "half.parquet", *options)
    assert pl.read_parquet("half.parquet")["id"].n_unique() * 2 == pl.read_parquet("half.parquet").height
    assert said("optimize", table, "--dry-run", *options)["files_removed"] >= 0
    assert said("check", table, *options)["ok"]


def test_secrets_are_not_told(bucket: tuple[str, list[str]]) -> None:
    place, options = bucket
    assert "hunter" not in complaint("show", f"{place}/nothing", *options, code=4)
    wrong = [one.replace("AWS_REGION", "AWS_REGIO") for one in options]
    line = complaint("show", f"{place}/t", *wrong, code=2)
    assert "aws_regio" in line
    assert "hunter" not in line
    line = complaint("write", f"{place}/no.csv", f"{place}/u", "-c", "id", *options, code=12)
    assert "hunter" not in line
