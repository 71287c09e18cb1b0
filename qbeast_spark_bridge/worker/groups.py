"""Group parts of rows by their size. It imports little, because every worker that reads loads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

_Part = TypeVar("_Part")


def grouped(parts: Iterable[tuple[_Part, int]], size_bytes: int) -> Iterator[list[_Part]]:
    """Group parts with their sizes. A group ends when it has `size_bytes`, and is emptied before the next one.

    >>> [list(group) for group in grouped([("a", 2), ("b", 3), ("c", 1)], 4)]
    [['a', 'b'], ['c']]
    """
    group: list[_Part] = []
    total = 0
    for part, size in parts:
        group.append(part)
        total += size
        if total >= size_bytes:
            yield group
            group.clear()  # the caller still has the list: its parts would stay in memory
            total = 0
    if group:
        yield group
