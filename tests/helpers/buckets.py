"""An S3 server in this process, and new buckets in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import uuid4

import boto3

from tests.helpers.s3_server import S3Server

__all__ = ["client", "new_bucket", "serving"]

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@contextmanager
def serving() -> Iterator[dict[str, str]]:
    """Run a server; yield the storage options to connect to it."""
    server = S3Server()
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield {**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true"}
    finally:
        server.stop()


def client(options: Mapping[str, str], service: str = "s3"):
    """Return a boto3 client of a service of the server."""
    return boto3.client(
        service,
        endpoint_url=options["AWS_ENDPOINT_URL"],
        region_name=options["AWS_REGION"],
        aws_access_key_id=options["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=options["AWS_SECRET_ACCESS_KEY"],
    )


def new_bucket(options: Mapping[str, str]) -> str:
    """Create a bucket with a new name."""
    name = f"b{uuid4().hex[:12]}"
    client(options).create_bucket(Bucket=name)
    return name
