"""Object stores that other people wrote, each a server of its own on the loopback address.

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
    """A server that answers: where an empty bucket is, and the storage options that lead there."""

    uri: str
    options: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class RealStore:
    """A server: its program, what it is told, and how a bucket is made in it.

    Attributes
    ----------
    name : str
        Of the test.
    program : str
        Below the folder that `make stores` fills.
    arguments : callable
        Takes a port and an empty folder.
    environment : mapping
        For the program.
    bucket : callable
        Makes an empty bucket in the server at a port.
    """

    name: str
    program: str
    arguments: Callable[[int, Path], Sequence[str]]
    bucket: Callable[[int, str], Started]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def path(self) -> Path:
        """Of the program, whether it is there or not."""
        return _FOLDER / self.program

    @contextmanager
    def running(self, folder: Path) -> Iterator[Started]:
        """Start the server, with its data in a folder; give an empty bucket."""
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
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
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
    """Sign the one request that makes a container, as the documentation of Azure says under Shared Key."""
    when, version = formatdate(usegmt=True), "2021-08-06"
    headers = {"x-ms-date": when, "x-ms-version": version}
    what = "".join(f"{key}:{value}\n" for key, value in headers.items())
    signed = f"PUT\n{chr(10) * 11}{what}/{_AZURE_ACCOUNT}/{_AZURE_ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(_AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {_AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    endpoint = f"http://127.0.0.1:{port}/{_AZURE_ACCOUNT}"
    _ask("PUT", f"{endpoint}/{name}?restype=container", {**headers, "Content-Length": "0"})
    options = {
        "azure_storage_account_name": _AZURE_ACCOUNT,
        "azure_storage_account_key": _AZURE_KEY,
        "azure_storage_endpoint": endpoint,
        "azure_allow_http": "true",
    }
    return Started(f"az://{name}", options)


def _ask(method: str, url: str, headers: Mapping[str, str]) -> None:
    request = urllib.request.Request(url, headers=dict(headers), method=method)  # noqa: S310 -- of this machine
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
"""Of S3 and of Azure; no emulator of Google's was found that takes the XML uploads which `obstore` sends."""
