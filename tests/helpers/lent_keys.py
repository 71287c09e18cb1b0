"""An S3 server that knows keys which a catalog lends: some expire, and some are for reads only."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app

from tests.helpers.flaky_s3 import FlakyS3
from tests.helpers.unity_service import UnityService, serving_unity

__all__ = ["Lending", "LentKeys", "lending"]

_EXPIRED = b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"
_DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>denied</Message></Error>"


@dataclass
class LentKeys:
    """The server's keys: until when each is valid, in seconds since 1970, and whether it may write."""

    keys: dict[str, tuple[float, bool]] = field(default_factory=lambda: {"k": (float("inf"), True)})
    used: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        found = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        key = "" if found is None else found[1]
        until, may_write = self.keys.get(key, (0.0, False))
        self.used.append(key)
        writes = environ["REQUEST_METHOD"] not in ("GET", "HEAD")
        if time.time() < until and (may_write or not writes):
            return self._app(environ, start)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        body = _DENIED if time.time() < until else _EXPIRED
        start("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]


@dataclass
class Lending:
    """A catalog that lends keys of a store for some seconds."""

    catalog: UnityService
    store: FlakyS3
    keys: LentKeys
    # None: they do not expire.
    seconds: float | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def lend(self, operation: str) -> dict[str, Any]:
        key = f"lent-{next(self.numbers)}"
        until = None if self.seconds is None else time.time() + self.seconds
        self.keys.keys[key] = (float("inf") if until is None else until, operation != "READ")
        secrets = {
            "access_key_id": key,
            "secret_access_key": "hunter2-secret",
            "session_token": "hunter2-session",
        }
        return {
            "aws_temp_credentials": secrets,
            "expiration_time": None if until is None else int(until * 1000),
        }

    def reset(self) -> Lending:
        """Forget requests, and grant all again."""
        self.seconds = None
        self.catalog.operations = {"READ", "READ_WRITE", "PATH_CREATE_TABLE"}
        self.catalog.replies.clear()
        self.catalog.requests.clear()
        return self

    @property
    def own(self) -> dict[str, str]:
        """Options of the store with its own key."""
        return self.store.options

    @property
    def options(self) -> dict[str, str]:
        """Options of the catalog, and of the store without a key."""
        place = {key: value for key, value in self.own.items() if "ACCESS" not in key}
        return {**place, **self.catalog.options}


@contextmanager
def lending() -> Iterator[Lending]:
    """Run a catalog and a store."""
    keys = LentKeys()
    store = FlakyS3(app=keys)
    store.start()
    try:
        with serving_unity() as catalog:
            started = Lending(catalog, store, keys)
            catalog.credentials = started.lend
            yield started
    finally:
        store.stop()
