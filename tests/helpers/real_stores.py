"""Real object stores, each a server on the loopback address.

`make stores` installs them beside the virtual environment's packages.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Final
from uuid import uuid4

from tests.helpers.buckets import client

__all__ = ["STORES", "RealStore", "Started"]

_FOLDER: Final = Path(sys.prefix) / "stores"
_PATIENCE_S: Final = 60.0

_AZURE_ACCOUNT: Final = "devstoreaccount1"
_AZURE_KEY: Final = base64.b64encode(b"a key that only this test knows.").decode()


@dataclass(frozen=True)
class Started:
    """A running server: the address of an empty bucket, and its storage options."""

    uri: str
    options: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class RealStore:
    """A server: its program, its arguments, and a function that creates a bucket.

    Attributes
    ----------
    name : str
        Name in the test's id.
    program : str
        Path below the folder of `make stores`.
    arguments : callable
        Arguments of the program, from a port and an empty folder.
    environment : mapping
        Environment of the program.
    bucket : callable
        Creates an empty bucket in the server at a port.
    """

    name: str
    program: str
    arguments: Callable[[int, Path], Sequence[str]]
    bucket: Callable[[int, str], Started]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def path(self) -> Path:
        """Path of the program; it may be missing."""
        return _FOLDER / self.program

    @contextmanager
    def running(self, folder: Path) -> Iterator[Started]:
        """Start the server with its data in a folder; yield an empty bucket."""
        port = _free_port()
        folder.mkdir(parents=True)
        with (folder.parent / f"{self.name}.log").open("wb") as log:
            process = subprocess.Popen(
                [self.path, *self.arguments(port, folder)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder.parent), **self.environment},
            )
            try:
                _wait(port, process)
                yield self.bucket(port, f"b{uuid4().hex[:12]}")
            finally:
                process.terminate()
                process.wait(timeout=_PATIENCE_S)


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        with socket.socket() as client_socket:
            if client_socket.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError


def _s3_bucket(port: int, name: str) -> Started:
    options = {
        "AWS_ACCESS_KEY_ID": "some-user",
        "AWS_SECRET_ACCESS_KEY": "some-secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }
    client(options).create_bucket(Bucket=name)
    return Started(f"s3://{name}", options)


def _azure_container(port: int, name: str) -> Started:
    """Create a container by a request signed with a Shared Key, as documented by Azure."""
    when, version = formatdate(usegmt=True), "2021-08-06"
    headers = {"x-ms-date": when, "x-ms-version": version}
    what = "".join(f"{key}:{value}\n" for key, value in headers.items())
    signed = f"PUT\n{chr(10) * 11}{what}/{_AZURE_ACCOUNT}/{_AZURE_ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(_AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {_AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    endpoint = f"http://127.0.0.1:{port}/{_AZURE_ACCOUNT}"
    _send("PUT", f"{endpoint}/{name}?restype=container", {**headers, "Content-Length": "0"})
    options = {
        "azure_storage_account_name": _AZURE_ACCOUNT,
        "azure_storage_account_key": _AZURE_KEY,
        "azure_storage_endpoint": endpoint,
        "azure_allow_http": "true",
    }
    return Started(f"az://{name}", options)


def _send(method: str, url: str, headers: Mapping[str, str]) -> None:
    request = urllib.request.Request(url, headers=dict(headers), method=method)  # noqa: S310 -- a local server
    with urllib.request.urlopen(request, timeout=_PATIENCE_S):  # noqa: S310 -- as above
        pass


STORES: Final = (
    RealStore(
        "versitygw",
        "versitygw",
        lambda port, folder: ["--port", f"127.0.0.1:{port}", "posix", str(folder)],
        _s3_bucket,
        {"ROOT_ACCESS_KEY": "some-user", "ROOT_SECRET_KEY": "some-secret"},
    ),
    RealStore(
        "azurite",
        "node_modules/.bin/azurite-blob",
        lambda port, folder: [
            *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
            *("--location", str(folder), "--silent", "--skipApiVersionCheck"),
        ],
        _azure_container,
        {"AZURITE_ACCOUNTS": f"{_AZURE_ACCOUNT}:{_AZURE_KEY}"},
    ),
)
"""Stores for S3 and Azure; no emulator of Google's store accepts the XML uploads of `obstore`."""
