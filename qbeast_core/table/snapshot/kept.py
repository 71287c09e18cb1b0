"""The last few of some things, by what they are asked for by."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Kept"]

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class Kept(Generic[KeyT, ValueT]):
    """What was put in or asked for last; safe to share between threads.

    Parameters
    ----------
    most : int
        Things that are kept; the one that nobody asked for longest goes first.

    Examples
    --------
    >>> kept = Kept[str, int](most=2)
    >>> for place, name in enumerate("abc"):
    ...     kept.put(name, place)
    >>> kept.get("a"), kept.get("c")
    (None, 2)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._things: OrderedDict[KeyT, ValueT] = OrderedDict()

    def get(self, key: KeyT) -> ValueT | None:
        """Return what was put in under a key; None: nothing, or not any more."""
        with self._lock:
            if key in self._things:
                self._things.move_to_end(key)
            return self._things.get(key)

    def put(self, key: KeyT, thing: ValueT) -> None:
        """Keep something under a key, instead of what was there."""
        with self._lock:
            self._things[key] = thing
            self._things.move_to_end(key)
            while len(self._things) > self._most:
                self._things.popitem(last=False)
