"""Arguments that had another name: the old one works for a version longer, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def renamed(**names: str) -> Callable[[Callable[_Given, _Answer]], Callable[_Given, _Answer]]:
    """Let callers go on using old names of arguments.

    >>> @renamed(predicate="where")
    ... def count(where: str) -> int:
    ...     return len(where)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     print(count(predicate="a < 1"), caught[0].message)
    5 count(predicate=...) is called where= now; the old name goes with the next version
    """

    def decorate(call: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
        asked = signature(call)

        @wraps(call)
        def translated(*args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
            for old in names.keys() & kwargs.keys():
                new, value = names[old], kwargs.pop(old)
                if new in asked.bind_partial(*args, **kwargs).arguments:
                    msg = f"{call.__name__}() got {new}=, and {old}=, its old name"
                    raise TypeError(msg)
                message = f"{call.__name__}({old}=...) is called {new}= now; the old name goes with the next version"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                kwargs[new] = value
            return call(*args, **kwargs)

        return translated

    return decorate
