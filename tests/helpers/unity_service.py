"""A server of Unity Catalog on the loopback address, with answers as real servers give them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from tests.helpers.wsgi import serving

__all__ = ["AWS", "AZURE", "GCP", "NONE", "STATIC", "UnityService", "serving_unity"]

ROOT = "/api/2.1/unity-catalog"
TOKEN = "hunter2-of-the-catalog"  # noqa: S105 - of nobody
EXPIRES_MS = 4_102_444_800_000  # in 2100

# Answers to requests of credentials: of Databricks on each cloud, of the open server with keys that it was given, and
# of one without any.
_EMPTY = {"aws_temp_credentials": None, "azure_user_delegation_sas": None, "gcp_oauth_token": None}
AWS = {
    "aws_temp_credentials": {
        "access_key_id": "lent-key",
        "secret_access_key": "hunter2-secret",
        "session_token": "hunter2-session",
        "access_point": "",
    },
    "expiration_time": EXPIRES_MS,
    "url": "s3://bucket/sales",
}
AZURE = {
    "azure_user_delegation_sas": {"sas_token": "sv=2023-11-03&sr=d&sig=hunter2%3D"},
    "expiration_time": EXPIRES_MS,
    "url": "abfss://data@account.dfs.core.windows.net/sales",
}
GCP = {"gcp_oauth_token": {"oauth_token": "ya29.hunter2"}, "expiration_time": EXPIRES_MS}
STATIC = {**_EMPTY, "aws_temp_credentials": AWS["aws_temp_credentials"], "expiration_time": None}
NONE = {**_EMPTY, "expiration_time": None}

Reply = tuple[int, Any]


def _error(status: int, code: str, message: str) -> Reply:
    return status, {"error_code": code, "message": message, "details": []}


@dataclass
class UnityService:
    """Entries by their full names, what is granted, and the requests that came."""

    endpoint: str = ""
    token: str | None = TOKEN
    entries: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    schemas: set[str] = field(default_factory=lambda: {"shop.raw"})
    operations: set[str] = field(default_factory=lambda: {"READ", "READ_WRITE", "PATH_CREATE_TABLE"})
    credentials: Callable[[str], Mapping[str, Any]] = lambda _: NONE
    # Replaces the answers to requests of a path.
    replies: dict[str, Callable[[], Any]] = field(default_factory=dict[str, Callable[[], Any]])
    requests: list[tuple[str, str, dict[str, Any]]] = field(
        default_factory=list[tuple[str, str, dict[str, Any]]]
    )

    @property
    def options(self) -> dict[str, str]:
        return {"UNITY_ENDPOINT": self.endpoint, **({"UNITY_TOKEN": self.token} if self.token else {})}

    def add(self, full_name: str, location: str, **parts: Any) -> str:
        """Add the entry of an external Delta table; return its name for qbeast."""
        catalog, schema, name = full_name.split(".")
        self.entries[full_name] = {
            "name": name,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [],
            "storage_location": location,
            "comment": None,
            "properties": {},
            "owner": None,
            "created_at": 1764340000000,
            "table_id": str(uuid4()),
            **parts,
        }
        return f"uc://{full_name}"

    def named(self, operation: str) -> list[str]:
        """Return the paths of the requests by a method."""
        return [path for method, path, _ in self.requests if method == operation]

    def __call__(self, environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
        text = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        raw = environ["RAW_URI"].removeprefix(ROOT)
        body = json.loads(text) if text else {}
        self.requests.append((environ["REQUEST_METHOD"], raw, body))
        reply = self.replies.get(raw, self.replies.get("*"))
        if reply is not None:
            status, headers, content = reply()
        else:
            status, document = self._answer(environ.get("HTTP_AUTHORIZATION"), raw, body)
            headers, content = [("Content-Type", "application/json")], json.dumps(document).encode()
        start(f"{status} ...", headers)
        return [content]

    def _answer(self, login: str | None, path: str, body: Mapping[str, Any]) -> Reply:
        if self.token is not None and login != f"Bearer {self.token}":
            return _error(401, "UNAUTHENTICATED", f"the credential {login} is not valid")
        kind, _, name = path.removeprefix("/").partition("/")
        answers = {"tables": self._table, "schemas": self._schema}
        if name and kind in answers:
            return answers[kind](unquote(name))
        if kind == "tables":
            return self._created(body)
        if not kind.startswith("temporary-"):
            return _error(404, "ENDPOINT_NOT_FOUND", path)
        if body["operation"] not in self.operations:
            return _error(
                403, "PERMISSION_DENIED", "User does not have EXTERNAL USE SCHEMA on Schema 'shop.raw'."
            )
        return 200, self.credentials(body["operation"])

    def _table(self, full_name: str) -> Reply:
        if full_name in self.entries:
            return 200, self.entries[full_name]
        return _error(404, "TABLE_DOES_NOT_EXIST", f"Table '{full_name}' does not exist.")

    def _schema(self, full_name: str) -> Reply:
        if full_name in self.schemas:
            return 200, {"name": full_name.rpartition(".")[2], "full_name": full_name}
        return _error(404, "SCHEMA_DOES_NOT_EXIST", f"Schema '{full_name}' does not exist.")

    def _created(self, body: Mapping[str, Any]) -> Reply:
        full_name = ".".join(body[part] for part in ("catalog_name", "schema_name", "name"))
        if full_name in self.entries:
            return _error(400, "TABLE_ALREADY_EXISTS", f"Table already exists: {full_name}")
        self.add(full_name, body["storage_location"], columns=body["columns"])
        return 200, self.entries[full_name]


@contextmanager
def serving_unity() -> Iterator[UnityService]:
    """Run a server."""
    service = UnityService()
    with serving(service, threaded=True) as service.endpoint:
        yield service
