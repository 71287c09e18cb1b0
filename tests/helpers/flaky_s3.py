"""An S3 server that fails on request: moto with lost replies, errors and delays.

Writes are served one after the other, so exactly one of many conditional puts wins, as in S3.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

__all__ = ["PATIENCE", "Fault", "FlakyS3"]

Fault = Literal["409", "412", "503", "lost", "dropped", "slow"]
"""The fault of a write.

``409``: a race without a winner yet. ``412``: the same with a wrong answer. ``503``: the store is overloaded.
``lost`` and ``dropped``: the write is stored, and the answer is an error or missing. ``slow``: clients time out.
"""

KEYS: Final = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
PATIENCE: Final = 0.7
"""Timeout of an impatient client, in seconds."""

_BUCKET: Final = "bucket"
_REFUSED: Final = {
    "409": ("409 Conflict", "ConditionalRequestConflict"),
    "412": ("412 Precondition Failed", "PreconditionFailed"),
    "503": ("503 Slow Down", "SlowDown"),
    "lost": ("500 Internal Server Error", "InternalError"),
}
_App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Quiet(WSGIRequestHandler):
    def log(self, *_args: object) -> None:
        """Do not log."""


@dataclass
class FlakyS3:
    """The server, in threads of this process.

    Attributes
    ----------
    writes : int
        Number of write requests since the last call of `fail`.
    """

    app: _App = field(default_factory=lambda: DomainDispatcherApplication(create_backend_app))
    writes: int = 0
    _failing: tuple[Fault, range, str] | None = None
    _count: threading.Lock = field(default_factory=threading.Lock)
    _one: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_Quiet)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.client = boto3.client("s3", endpoint_url=self.url, **KEYS)
        self.client.create_bucket(Bucket=_BUCKET)

    def stop(self) -> None:
        self._server.shutdown()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def options(self) -> dict[str, str]:
        """Storage options of a client with long timeouts, for slow machines."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "max_retries": "2",
            "retry_timeout": "3600s",
            "timeout": "3600s",
        }

    @property
    def hasty(self) -> dict[str, str]:
        """Storage options of a client with short timeouts."""
        return {**self.options, "retry_timeout": "10s", "timeout": f"{int(PATIENCE * 1000)}ms"}

    def upload(self, folder: Path, name: str) -> str:
        """Copy a table into the bucket and return its address."""
        for path in folder.rglob("*"):
            if path.is_file():
                key = f"{name}/{path.relative_to(folder).as_posix()}"
                self.client.put_object(Bucket=_BUCKET, Key=key, Body=path.read_bytes())
        return f"s3://{_BUCKET}/{name}"

    def fail(self, fault: Fault | None, at: range = range(1), *, path: str = "") -> None:
        """Fail the writes with these numbers, counted from now among paths that contain `path`."""
        with self._count:
            self.writes = 0
            self._failing = None if fault is None else (fault, at, path)

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self.app(environ, start_response)
        fault = self._fault(environ)
        if fault == "slow":
            time.sleep(2 * PATIENCE)
        if fault in ("409", "412", "503"):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return _answer(fault, start_response)
        with self._one:
            body = list(self.app(environ, start_response if fault != "lost" else lambda *_: None))
        if fault == "lost":
            return _answer(fault, start_response)
        if fault == "dropped":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return body

    def _fault(self, environ: dict[str, Any]) -> Fault | None:
        with self._count:
            fault, at, path = self._failing or (None, range(0), "")
            if path not in environ["PATH_INFO"]:
                return None
            self.writes += 1
            conditional = "HTTP_IF_NONE_MATCH" in environ
            due = self.writes - 1 in at and (conditional or fault not in ("409", "412"))
            return fault if due else None


def _answer(fault: Fault, start_response: Callable[..., Any]) -> Iterable[bytes]:
    status, code = _REFUSED[fault]
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>told to</Message></Error>".encode()
    start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]
