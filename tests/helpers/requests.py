"""Requests of this process to local stores, counted."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import polars as pl
from polars.expr.string import ExprStringNameSpace

from qbeast_core.io.store import LocalStore
from qbeast_core.table.data.schema import LOG_DIRECTORY
from tests.helpers.small_files import resized

__all__ = ["Request", "counted", "decoded_tags", "of_data", "of_log", "read_bytes"]


@dataclass(frozen=True)
class Request:
    """A request: the method, the path, and how many bytes were read."""

    method: str
    path: str
    bytes: int = 0


@contextmanager
def counted() -> Generator[list[Request]]:
    """Record what is read and listed."""
    seen: list[Request] = []
    get, get_ranges, list_files, size = (
        LocalStore.get,
        LocalStore.get_ranges,
        LocalStore.list,
        LocalStore.size,
    )

    def whole(self: LocalStore, path: str) -> bytes:
        seen.append(Request("get", path))
        data = get(self, path)
        seen[-1] = Request("get", path, len(data))
        return data

    def ranges(self: LocalStore, path: str, wanted: Any) -> list[memoryview]:
        seen.append(Request("get_ranges", path, sum(length for _, length in wanted)))
        return get_ranges(self, path, wanted)

    def listed(self: LocalStore, prefix: str) -> list[str]:
        seen.append(Request("list", prefix))
        return list_files(self, prefix)

    def sized(self: LocalStore, path: str) -> int:
        seen.append(Request("size", path))
        return size(self, path)

    with mock.patch.multiple(LocalStore, get=whole, get_ranges=ranges, list=listed, size=sized):
        yield seen


def of_log(requests: list[Request]) -> list[Request]:
    return [request for request in requests if request.path.startswith(LOG_DIRECTORY)]


def of_data(requests: list[Request]) -> list[Request]:
    return [request for request in requests if not request.path.startswith(LOG_DIRECTORY)]


def read_bytes(requests: list[Request]) -> int:
    """Return the bytes that were read of data files."""
    return sum(request.bytes for request in of_data(requests))


@contextmanager
def decoded_tags() -> Generator[list[None]]:
    """Record the calls of Polars that decode the blocks of files: each decodes those of many files."""
    decode, calls = ExprStringNameSpace.json_decode, list[None]()

    def recorded(self: ExprStringNameSpace, dtype: Any, *rest: Any, **options: Any) -> pl.Expr:
        if isinstance(dtype, pl.List):  # layouts are structs
            calls.append(None)
        return decode(self, dtype, *rest, **options)

    with mock.patch.object(ExprStringNameSpace, "json_decode", recorded), resized(few_tag_bytes=0):
        yield calls
