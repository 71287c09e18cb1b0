"""Data files with other copies of their tags than our writer makes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from qbeast_core.table.data import files

__all__ = ["Copy", "spoiled_copies"]

Copy = dict[str, str]


@contextmanager
def spoiled_copies(spoil: Callable[[Copy], Mapping[str, str]]) -> Generator[None]:
    """Write data files with changed copies of tags: the footer of a written file is not easily changed."""
    dump = files.dump_copy

    def dump_spoiled(*args: Any) -> Mapping[str, str]:
        return spoil(dump(*args))

    with mock.patch.object(files, "dump_copy", dump_spoiled):
        yield
