"""What operations do with the files of local tables and with temporary files; disks that fail."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from qbeast_core.io.store import LocalStore

__all__ = ["SpilledFile", "failing_puts", "located_files", "nth", "put_files", "watched_spills"]


@contextmanager
def put_files() -> Generator[list[str]]:
    """Record the paths of files that are put from now on, except versions."""
    paths, put = list[str](), LocalStore.put

    def put_recorded(store: LocalStore, path: str, data: Any) -> None:
        paths.append(path)
        put(store, path, data)

    with mock.patch.object(LocalStore, "put", put_recorded):
        yield paths


@contextmanager
def located_files() -> Generator[list[str]]:
    """Record the paths of files that are read or written from now on, once for each time that they are opened."""
    paths, locate = list[str](), LocalStore.locate

    def locate_recorded(store: LocalStore, path: str) -> str:
        paths.append(path)
        return locate(store, path)

    with mock.patch.object(LocalStore, "locate", locate_recorded):
        yield paths


@contextmanager
def failing_puts(fails: Callable[[str], bool], error: BaseException) -> Generator[list[str]]:
    """Raise an error instead of putting files with certain paths. Record the paths of all, failed ones too."""
    paths, put = list[str](), LocalStore.put

    def put_or_raise(store: LocalStore, path: str, data: Any) -> None:
        paths.append(path)
        if fails(path):
            raise error
        put(store, path, data)

    with mock.patch.object(LocalStore, "put", put_or_raise):
        yield paths


def nth(number: int) -> Callable[[str], bool]:
    """Return whether a path is the n-th of those passed."""
    count = itertools.count(1)
    return lambda _: next(count) == number


class SpilledFile(io.FileIO):
    """A temporary file of rows; a function is called after each write."""

    def __init__(self, path: str, written: Callable[[SpilledFile], None]) -> None:
        super().__init__(path, "wb")
        self._written = written

    def write(self, data: Any) -> int:
        size = super().write(data)
        self._written(self)
        return size


@contextmanager
def watched_spills(written: Callable[[SpilledFile], None]) -> Generator[None]:
    """Call a function after each write of rows to a temporary file."""

    def opened(path: str, *, buffer_size: int | None = None) -> SpilledFile:
        del buffer_size
        return SpilledFile(path, written)

    with mock.patch("pyarrow.output_stream", opened):
        yield
