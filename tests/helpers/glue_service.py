"""Entries of AWS Glue, as others write them, and a server that answers the calls that moto does not have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.buckets import client
from tests.helpers.wsgi import serving

__all__ = ["ENTRIES", "GlueService", "glue_client", "serving_glue"]

_SEQUENCE = "org.apache.hadoop.mapred.SequenceFileInputFormat"
_LAZY = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"


def _athena(place: str) -> dict[str, Any]:
    """CREATE EXTERNAL TABLE ... LOCATION ... TBLPROPERTIES ('table_type' = 'DELTA')."""
    return {
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"EXTERNAL": "TRUE", "table_type": "DELTA", "transient_lastDdlTime": "1764340000"},
        "StorageDescriptor": {
            "Location": f"{place}/",
            "InputFormat": _SEQUENCE,
            "SerdeInfo": {"SerializationLibrary": _LAZY, "Parameters": {"serialization.format": "1"}},
        },
    }


def _spark(place: str) -> dict[str, Any]:
    """CREATE TABLE ... USING delta LOCATION ..., of Spark on EMR."""
    return {
        "TableType": "EXTERNAL_TABLE",
        "Owner": "hadoop",
        "Parameters": {
            "EXTERNAL": "TRUE",
            "spark.sql.create.version": "3.5.1-amzn-0",
            "spark.sql.partitionProvider": "catalog",
            "spark.sql.sources.provider": "delta",
        },
        "StorageDescriptor": {
            "Columns": [{"Name": "col", "Type": "array<string>"}],
            "Location": "s3://warehouse/shop.db/orders-__PLACEHOLDER__",
            "InputFormat": _SEQUENCE,
            "SerdeInfo": {
                "SerializationLibrary": _LAZY,
                "Parameters": {"path": place, "serialization.format": "1"},
            },
        },
    }


def _crawler(place: str) -> dict[str, Any]:
    """An entry of a crawler that makes native Delta tables."""
    return {
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "UPDATED_BY_CRAWLER": "nightly",
            "classification": "delta",
            "delta.lastUpdateVersion": "0",
        },
        "StorageDescriptor": {
            "Location": f"{place}/",
            "InputFormat": _SEQUENCE,
            "SerdeInfo": {"SerializationLibrary": _LAZY, "Parameters": {"path": f"{place}/"}},
        },
    }


ENTRIES: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "athena": _athena,
    "spark": _spark,
    "crawler": _crawler,
}


def glue_client(options: Mapping[str, str]):
    """Return a boto3 client of Glue in moto's server."""
    return client(options, "glue")


@dataclass
class GlueService:
    """Replies by operation: a document, or the status and the code of an error; and the requests that came."""

    endpoint: str = ""
    replies: dict[str, Any] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)

    def answer(self, environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
        body = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        target = environ.get("HTTP_X_AMZ_TARGET", environ["PATH_INFO"])
        operation = target.replace("/", ".").rpartition(".")[2]
        self.requests.append((operation, body, environ["HTTP_AUTHORIZATION"]))
        reply = self.replies[operation]
        reply = reply(body) if callable(reply) else reply
        if isinstance(reply, bytes):
            start("400 Bad Request", [("Content-Type", "application/xml")])
            return [reply]
        status, document, code = ("200 OK", reply, "")
        if isinstance(reply, tuple):
            status, code = reply
            document = {"__type": code, "Message": "the reason"}
        start(status, [("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-ErrorType", code)])
        return [json.dumps(document).encode()]


@contextmanager
def serving_glue() -> Iterator[GlueService]:
    """Run a server on the loopback address."""
    service = GlueService()
    with serving(service.answer) as service.endpoint:
        yield service
