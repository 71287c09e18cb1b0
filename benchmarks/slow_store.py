"""A slow object store: serves a folder by S3's read requests, each with a fixed latency.

It supports the requests of readers (GET with ranges, HEAD, listings), records every request, and answers any
number of requests concurrently.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"
ASKED = "/-/asked"
OPTIONS = {
    "AWS_ACCESS_KEY_ID": "k",
    "AWS_SECRET_ACCESS_KEY": "s",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The requests of a read.

    Attributes
    ----------
    requests : int
        Number of requests.
    round_trips : int
        Length of the longest chain of requests, each started after the answer to the previous one.
    most_at_once : int
        Maximum number of concurrent requests.
    bytes : int
        Bytes of all bodies of answers.
    """

    requests: int
    round_trips: int
    most_at_once: int
    bytes: int


class SlowStore:
    """A running store; `uri(name)` is a folder in it, `asked()` returns the requests since the last call."""

    def __init__(self, port: int) -> None:
        self._endpoint = f"http://127.0.0.1:{port}"
        self.options = {**OPTIONS, "AWS_ENDPOINT_URL": self._endpoint}

    def uri(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def asked(self) -> Asked:
        with urllib.request.urlopen(f"{self._endpoint}{ASKED}") as answer:  # noqa: S310 -- a local server
            requests = json.load(answer)
        spans = sorted(((start, end) for start, end, _ in requests), key=lambda span: span[1])
        trips, last = 0, -1.0
        for start, end in spans:
            if start >= last:
                trips, last = trips + 1, end
        steps = sorted([(start, 1) for start, _, _ in requests] + [(end, -1) for _, end, _ in requests])
        max_concurrent = max(accumulate(step for _, step in steps), default=0)
        return Asked(len(requests), trips, max_concurrent, sum(size for _, _, size in requests))


@contextmanager
def serving(folder: Path, *, latency_s: float = 0.03) -> Iterator[SlowStore]:
    """Serve a folder in a separate process."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(str(folder), latency_s, send), daemon=True)
    process.start()
    try:
        yield SlowStore(receive.recv())
    finally:
        process.terminate()
        process.join()


def _serve(folder: str, latency_s: float, send: Any) -> None:
    asyncio.run(_Server(Path(folder), latency_s).run(send))


class _Server:
    def __init__(self, folder: Path, latency_s: float) -> None:
        self._folder, self._latency_s = folder, latency_s
        self._asked: list[tuple[float, float, int]] = []

    async def run(self, send: Any) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=1024)
        send.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")
                method, target, _ = first.split(" ")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
                }
                if target == ASKED:
                    body, self._asked = json.dumps(self._asked).encode(), []
                    writer.write(_answer("200 OK", body, {}))
                else:
                    start = time.monotonic()
                    await asyncio.sleep(self._latency_s)
                    whole, size = self._answered(method, target, headers)
                    self._asked.append((start, time.monotonic(), size))
                    writer.write(whole)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answered(self, method: str, target: str, headers: dict[str, str]) -> tuple[bytes, int]:
        """Return an answer, and the number of bytes of its body."""
        url = urlsplit(target)
        key = unquote(url.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        if not key:
            body = self._listing(parse_qs(url.query))
            return _answer("200 OK", body, {"Content-Type": "application/xml"}), len(body)
        path = self._folder / key
        if not path.is_file():
            return _answer("404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>", {}), 0
        about = path.stat()
        fields = {"ETag": f'"{about.st_mtime_ns}"', "Last-Modified": formatdate(about.st_mtime, usegmt=True)}
        if method == "HEAD":
            return _answer("200 OK", b"", {**fields, "Content-Length": str(about.st_size)}), 0
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("range", ""))
        if match is None:
            body = path.read_bytes()
            return _answer("200 OK", body, fields), len(body)
        start, last = match[1], match[2]
        begin = int(start) if start else max(about.st_size - int(last), 0)
        end = min(int(last) + 1, about.st_size) if start and last else about.st_size
        with path.open("rb") as file:
            file.seek(begin)
            body = file.read(end - begin)
        fields["Content-Range"] = f"bytes {begin}-{end - 1}/{about.st_size}"
        return _answer("206 Partial Content", body, fields), len(body)

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        below = self._folder / prefix.rpartition("/")[0]
        paths = sorted(str(path.relative_to(self._folder)) for path in below.rglob("*") if path.is_file())
        names = [name for name in paths if name.startswith(prefix) and name > after]
        shared: list[str] = []
        if "delimiter" in query:
            inner = {name for name in names if "/" in name[len(prefix) :]}
            shared = sorted({prefix + name[len(prefix) :].split("/")[0] + "/" for name in inner})
            names = [name for name in names if name not in inner]
        files = "".join(self._listed(name) for name in names)
        folders = "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in shared
        )
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><IsTruncated>false</IsTruncated>'
            f"<Prefix>{escape(prefix)}</Prefix>{files}{folders}</ListBucketResult>"
        ).encode()

    def _listed(self, name: str) -> str:
        about = (self._folder / name).stat()
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(about.st_mtime))
        return (
            f"<Contents><Key>{escape(name)}</Key><LastModified>{when}</LastModified>"
            f'<ETag>"{about.st_mtime_ns}"</ETag><Size>{about.st_size}</Size></Contents>'
        )


def _answer(status: str, body: bytes, headers: dict[str, str]) -> bytes:
    fields = {"Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body
