"""The last few of some things, by what they are asked for by, as far as they take little of the memory there is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final, Generic, TypeVar

from qbeast_core.io.machine import memory_of_machine

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

# What all things of one kind that are kept may take together, of the memory of the machine or its cgroup.
KEPT_SHARE: Final = 1 / 32


class Kept(Generic[KeyT, ValueT]):
    """What was put in or asked for last; safe to share between threads.

    >>> kept = Kept[str, str](most=2, size_of=len, most_bytes=4)
    >>> for name in ("ab", "cd", "e", "too long"):
    ...     kept.put(name, name)
    >>> [kept.get(name) for name in ("ab", "cd", "e", "too long")]
    [None, 'cd', 'e', None]
    """

    def __init__(self, most: int, size_of: Callable[[ValueT], int], *, most_bytes: int | None = None) -> None:
        self._most, self._size_of, self._most_bytes = most, size_of, most_bytes
        self._lock = Lock()
        self._things: OrderedDict[KeyT, tuple[ValueT, int]] = OrderedDict()

    @property
    def most_bytes(self) -> int:
        """What they may take together."""
        return int(memory_of_machine() * KEPT_SHARE) if self._most_bytes is None else self._most_bytes

    @property
    def size_bytes(self) -> int:
        """What they take together, as far as it is known."""
        with self._lock:
            return sum(size for _, size in self._things.values())

    def get(self, key: KeyT) -> ValueT | None:
        """Return what was put in under a key; None: nothing, or not any more."""
        with self._lock:
            found = self._things.get(key)
        if found is None:
            return None
        thing = found[0]
        size = self._size_of(thing)
        with self._lock:
            if key in self._things and self._things[key][0] is thing:  # else another one was put in meanwhile
                self._hold(key, thing, size)
        return thing

    def put(self, key: KeyT, thing: ValueT) -> None:
        """Keep something under a key, instead of what was there."""
        size = self._size_of(thing)
        with self._lock:
            self._hold(key, thing, size)

    def _hold(self, key: KeyT, thing: ValueT, size: int) -> None:
        most_bytes = self.most_bytes
        self._things.pop(key, None)
        if size > most_bytes:
            return
        self._things[key] = thing, size
        total = sum(size for _, size in self._things.values())
        while len(self._things) > self._most or total > most_bytes:
            _, (_, freed) = self._things.popitem(last=False)
            total -= freed
