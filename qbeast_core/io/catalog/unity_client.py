"""Requests to a server of Unity Catalog. Answers are bounded in size and time, and redirects are not followed."""

from __future__ import annotations

import http.client
import ipaddress
import os
import re
import socket
import time
from base64 import b64encode
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Timer
from typing import Any, Final, NoReturn, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from qbeast_core.errors import InvalidInputError, StorageError, TableNotFoundError
from qbeast_core.io.catalog.lent import CATALOG_OPTIONS
from qbeast_core.support.text import excerpt, first_line, without_secrets

_Answer = TypeVar("_Answer", bound=BaseModel)

_ROOT: Final = "/api/2.1/unity-catalog"
# Pairs of the address of a server and its token, as names of options and of variables of the environment.
_SERVERS: Final = (("UNITY_ENDPOINT", "UNITY_TOKEN"), ("DATABRICKS_HOST", "DATABRICKS_TOKEN"))
_ALLOW_HTTP: Final = "UNITY_ALLOW_HTTP"
_ALLOW_LOCAL: Final = "UNITY_ALLOW_LOCAL_PATHS"
OPTIONS: Final = frozenset(name.lower() for name in (*_SERVERS[0], *_SERVERS[1], _ALLOW_HTTP, _ALLOW_LOCAL))
_SWITCHES: Final = {"true": True, "1": True, "false": False, "0": False, "": False}

_MAX_BYTES: Final = 16 << 20  # the entry of a table of 10,000 columns has 5 MB
_SILENT_SECONDS: Final = 20
_TOTAL_SECONDS: Final = 60
_PAUSES_SECONDS: Final = (0.5, 2.0)
_BUSY: Final = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class UnityServer:
    """The address of a server, and how it is reached."""

    endpoint: str
    # Options that were passed; the environment has the rest.
    given: Mapping[str, str] = field(repr=False)
    # Names of the token.
    token_name: str
    is_loopback: bool = False

    @staticmethod
    def of(name: str, storage_options: Mapping[str, str]) -> UnityServer:
        """Return the server in the options or the environment. Its token is the one with the same prefix."""
        given = {
            key.lower(): value for key, value in storage_options.items() if key.lower() in CATALOG_OPTIONS
        }
        for source in (given, {key.lower(): value for key, value in os.environ.items()}):
            for address, token in _SERVERS:
                if source.get(address.lower()):
                    endpoint, is_loopback = _endpoint(address, source[address.lower()], given)
                    return UnityServer(endpoint, given, token, is_loopback)
        msg = (
            f"{name!r} is a name of Unity Catalog, and its server is not known. Set UNITY_ENDPOINT and UNITY_TOKEN, or "
            "DATABRICKS_HOST and DATABRICKS_TOKEN, in `storage_options` or the environment."
        )
        raise InvalidInputError(msg, argument="storage_options")

    @property
    def token(self) -> str | None:
        """The token, as it is now: a long process may change the environment."""
        token = _setting(self.token_name, self.given).strip()
        if re.search(r"[^!-~]", token):
            _refuse(self.token_name, "has a character that no token has")
        return token or None

    @property
    def allows_local_paths(self) -> bool:
        """Whether an entry may lead to files of this machine."""
        return self.is_loopback and _is_on(_ALLOW_LOCAL, self.given)

    def get(self, path: str, answer: type[_Answer], failure: Failure) -> _Answer:
        """Request a document."""
        return self._parsed(self._text(path, None, failure, ()), answer, failure)

    def post(self, path: str, body: Mapping[str, Any], answer: type[_Answer], failure: Failure) -> _Answer:
        """Send a request that changes nothing, and return the answer."""
        return self._parsed(self._text(path, body, failure, ()), answer, failure)

    def post_or_status(
        self,
        path: str,
        body: Mapping[str, Any],
        answer: type[_Answer],
        failure: Failure,
        refusals: Collection[int],
    ) -> _Answer | int:
        """Send a request that changes nothing, and return the answer, or one of some status codes."""
        text = self._text(path, body, failure, refusals)
        return text if isinstance(text, int) else self._parsed(text, answer, failure)

    def create(self, path: str, body: Mapping[str, Any], failure: Failure) -> None:
        """Create an object. The request is not sent again if it is unknown whether it arrived."""
        self._text(path, body, failure, (), pauses=())

    def _text(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        failure: Failure,
        refusals: Collection[int],
        *,
        pauses: Sequence[float] = _PAUSES_SECONDS,
    ) -> bytes | int:
        """Return the text of an answer, or one of some status codes; raise for others."""
        sent = None if body is None else orjson.dumps(body)
        for pause in (*pauses, None):
            try:
                status, text = self._sent(path, sent)
            except TooMuchError as error:
                failure.invalid(self.endpoint, str(error))
            except (OSError, http.client.HTTPException, ValueError) as error:
                if pause is None or isinstance(error, ValueError):  # ValueError: of a header or the address
                    failure.unreachable(self.endpoint, _shown(error, self.token))
            else:
                if 200 <= status < 300:
                    return text
                if status in refusals:
                    return status
                if pause is None or status not in _BUSY:
                    failure.refused(self.endpoint, status, _Refusal.of(text, self.token))
            time.sleep(pause)
        raise AssertionError  # the last pause is None

    def _parsed(self, text: bytes | int, answer: type[_Answer], failure: Failure) -> _Answer:
        try:
            return answer.model_validate_json(cast("bytes", text))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # Outside of the handler: the error has the answer, which may have secrets.
        place = ".".join(map(str, first["loc"]))
        return failure.invalid(self.endpoint, f"{place}: {first['msg']}" if place else first["msg"])

    def _sent(self, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        headers = {"Accept": "application/json", "User-Agent": "qbeast"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = _connection(self.endpoint, uses_proxy=not self.is_loopback)
        with closing(connection), watched(connection, _TOTAL_SECONDS):
            connection.request("GET" if body is None else "POST", f"{_ROOT}{path}", body, headers)
            with connection.getresponse() as reply:
                status, text = reply.status, reply.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            msg = f"its answer has more than {_MAX_BYTES >> 20} MiB"
            raise TooMuchError(msg)
        return status, text


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The reason of a server that refused a request."""

    code: str
    reason: str

    @staticmethod
    def of(text: bytes, token: str | None) -> _Refusal:
        try:
            document: Any = orjson.loads(text)
        except orjson.JSONDecodeError:
            document = None
        parts = cast("dict[str, object]", document) if isinstance(document, dict) else {}
        code, reason = str(parts.get("error_code") or ""), str(parts.get("message") or "")
        return _Refusal(
            excerpt(_masked(code, token)), excerpt(first_line(_masked(reason, token))).rstrip(".")
        )

    def __str__(self) -> str:
        return f"{self.reason} ({self.code})" if self.reason and self.code else self.reason or self.code


@dataclass(frozen=True, slots=True)
class Failure:
    """Errors of a request: what failed, and how to fix it."""

    name: str
    problem: str
    # Grants that the request needs.
    grants: str
    # What does not exist if the server has no such object, and the fix.
    missing: str = ""
    cure: str = ""
    # What else the caller can do if the request is refused.
    instead: str = ""

    def unreachable(self, endpoint: str, cause: str) -> NoReturn:
        """Raise the error of a request without an answer."""
        msg = (
            f"{self.problem}: the server {endpoint} cannot be reached: {cause}. Check its address (UNITY_ENDPOINT or "
            "DATABRICKS_HOST) and the network, or try again later."
        )
        raise StorageError(msg, path=self.name)

    def invalid(self, endpoint: str, cause: str) -> NoReturn:
        """Raise the error of an answer that cannot be used."""
        msg = (
            f"{self.problem}: the answer of {endpoint} is not one of Unity Catalog: {cause}. Check its address "
            "(UNITY_ENDPOINT or DATABRICKS_HOST)."
        )
        raise StorageError(msg, path=self.name)

    def refused(self, endpoint: str, status: int, refusal: _Refusal) -> NoReturn:
        """Raise the error of a refused request."""
        if status == 404 and refusal.code and self.missing:
            msg = f"{self.missing}: {refusal}. {self.cure}"
            raise TableNotFoundError(msg, path=self.name)
        if 300 <= status < 400 or (status == 404 and not refusal.code):
            self.invalid(endpoint, "it redirects" if status < 400 else "it has no such page (404)")
        cause = str(refusal) or http.client.responses.get(status, "")
        cures = {
            401: "Check the token (UNITY_TOKEN or DATABRICKS_TOKEN): it may be missing, wrong or expired.",
            403: f"It needs the grants {self.grants}.",
        }
        cure = cures.get(status, "Try again later." if status in _BUSY else "Check the name and the grants.")
        msg = f"{self.problem}: {endpoint} refuses the request: {status} {cause}. {cure}{self.instead}"
        raise StorageError(msg, path=self.name)


def quoted_path(name: str) -> str:
    """Return a name as one part of a path.

    >>> quoted_path("shop.raw.über sales/x")
    'shop.raw.%C3%BCber%20sales%2Fx'
    """
    return quote(name, safe="")


def _endpoint(source: str, text: str, given: Mapping[str, str]) -> tuple[str, bool]:
    """Return the address of a server without its path, and whether it is on this machine."""
    text = text.strip()
    parts = urlsplit(text if "://" in text else f"https://{text}")
    shown = repr(without_secrets(text.partition("?")[0]))
    host, path = parts.hostname or "", parts.path.rstrip("/").removesuffix(_ROOT)
    try:
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        has_port = False
    is_plain = not (parts.username or parts.password or parts.query or parts.fragment or path)
    if not (host and has_port and is_plain) or re.search(r"[^!-~]", text):
        _refuse(source, f"must be an address such as https://host, not {shown}")
    is_loopback = _is_loopback(host)
    if parts.scheme not in ("http", "https"):
        _refuse(source, f"must begin with https://, not {shown}")
    if parts.scheme == "http" and not is_loopback and not _is_on(_ALLOW_HTTP, given):
        _refuse(
            source,
            f"is {shown}: the token would be sent unencrypted. Use https://, or set {_ALLOW_HTTP}=true",
        )
    return f"{parts.scheme}://{parts.netloc}", is_loopback


def _refuse(source: str, rule: str) -> NoReturn:
    msg = f"{source} {rule}."
    raise InvalidInputError(msg, argument="storage_options")


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _setting(name: str, given: Mapping[str, str]) -> str:
    return given.get(name.lower(), os.environ.get(name, ""))


def _is_on(name: str, given: Mapping[str, str]) -> bool:
    text = _setting(name, given).strip().lower()
    if text not in _SWITCHES:
        _refuse(name, f"must be true or false, not {excerpt(text)!r}")
    return _SWITCHES[text]


class AnswerModel(BaseModel):
    """Base of answers: what is not used is ignored, and values are never shown."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, strict=True)


def _masked(text: str, token: str | None) -> str:
    """Return a text of a server without the token, which it may repeat."""
    return without_secrets(text.replace(token, "***") if token else text)


def _shown(error: Exception, token: str | None) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return excerpt(first_line(_masked(text, token))).rstrip(".") or type(error).__name__


class TooMuchError(Exception):
    """An answer that is larger or slower than any of a real server."""


@contextmanager
def watched(connection: http.client.HTTPConnection, seconds: float) -> Generator[None]:
    """Connect, and close the connection of a request that takes longer, however slowly its server answers."""
    late, sockets = list[bool](), list[socket.socket]()

    def stop() -> None:
        late.append(True)
        for opened in sockets or [connection.sock]:
            with suppress(OSError, AttributeError):
                opened.shutdown(socket.SHUT_RDWR)

    timer = Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        sockets.append(connection.sock)  # the connection forgets it once the headers of the answer are there
        yield
    except (OSError, http.client.HTTPException, ValueError):
        if not late:
            raise
    finally:
        timer.cancel()
    if late:
        msg = f"its answer took more than {seconds} seconds"
        raise TooMuchError(msg)


def _connection(endpoint: str, *, uses_proxy: bool) -> http.client.HTTPConnection:
    """Return a connection to a server, through the proxy of the environment if there is one."""
    target = urlsplit(endpoint)
    host, port = target.hostname or "", target.port or (443 if target.scheme == "https" else 80)
    kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
    proxy = getproxies().get(target.scheme) if uses_proxy and not proxy_bypass(host) else None
    if not proxy:
        return kind(host, port, timeout=_SILENT_SECONDS)
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    headers = {"Proxy-Authorization": f"Basic {b64encode(login.encode()).decode()}"} if parts.username else {}
    connection = kind(parts.hostname or "", parts.port or 80, timeout=_SILENT_SECONDS)
    connection.set_tunnel(host, port, headers)
    return connection
