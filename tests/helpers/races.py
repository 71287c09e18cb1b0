"""Other writers that commit between the data files of a change and its commit, and commits that fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from qbeast_core.errors import StorageError
from qbeast_core.io.remote import RemoteStore
from qbeast_core.io.store import LocalStore

__all__ = ["before_commits", "landing_first", "silent_commits"]

_VERSION = re.compile(r"_delta_log/\d{20}\.json")


@contextmanager
def before_commits(call: Callable[[], Any]) -> Generator[None]:
    """Call a function just before each attempt to put a version, also before those that it makes itself."""

    def after_call(put: Callable[..., None]) -> Callable[..., None]:
        def put_late(store: Any, path: str, data: Any) -> None:
            if _VERSION.fullmatch(path):
                call()
            put(store, path, data)

        return put_late

    with (
        mock.patch.object(LocalStore, "put_if_absent", after_call(LocalStore.put_if_absent)),
        mock.patch.object(RemoteStore, "put_if_absent", after_call(RemoteStore.put_if_absent)),
    ):
        yield


@contextmanager
def landing_first(other: Callable[[], Any], *, times: int = 1) -> Generator[None]:
    """Let another writer commit just before each of our first `times` attempts to commit."""
    left, inside = times, False

    def land() -> None:
        nonlocal left, inside
        if left and not inside:
            left, inside = left - 1, True
            try:
                other()
            finally:
                inside = False

    with before_commits(land):
        yield


@contextmanager
def silent_commits() -> Generator[None]:
    """Let a local store fail after it put a version, and whenever that version is read."""
    put, get, versions = LocalStore.put_if_absent, LocalStore.get, set[str]()
    silence = StorageError("the store does not answer", path="_delta_log")

    def put_in_silence(store: LocalStore, path: str, data: Any) -> None:
        put(store, path, data)
        if _VERSION.fullmatch(path):
            versions.add(path)
            raise silence

    def get_answered(store: LocalStore, path: str) -> bytes:
        if path in versions:
            raise silence
        return get(store, path)

    with (
        mock.patch.object(LocalStore, "put_if_absent", put_in_silence),
        mock.patch.object(LocalStore, "get", get_answered),
    ):
        yield
