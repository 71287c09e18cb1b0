"""Other writers that commit between the data files of a change and its commit, and commits that fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from qbeast_core.io.remote import RemoteStore
from qbeast_core.io.store import LocalStore

__all__ = ["before_commits", "landing_first"]

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
