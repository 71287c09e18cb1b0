"""What messages advise, in parts: their text is Python, the command line spells the same as options and commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from qbeast_core.plain_text import for_people

__all__ = ["Hint", "Message", "argument", "call"]


@dataclass(frozen=True, slots=True)
class Hint:
    """A cure: other arguments of the call that failed, or another call. As text it is Python.

    Attributes
    ----------
    arguments : mapping
        Values by name: text, numbers, True; a tuple of alternatives; a list of names, where ``...`` stands for those
        that the caller knows; None: the name alone.
    call : str
        A function of ``qbeast``, or a method such as ``"Table.files"``; empty: the call that failed.
    path : str or None
        The table that it is about.
    scan : str or None
        The function of Polars that reads `path`; its rows are to go into a new table.
    """

    arguments: Mapping[str, object]
    call: str = ""
    path: str | None = None
    scan: str | None = None

    def __str__(self) -> str:
        given = [f"{name}={_python(value)}" for name, value in self.arguments.items() if value is not None]
        given += [f"`{name}`" for name, value in self.arguments.items() if value is None]
        if not self.call:
            return ", ".join(given)
        if self.path is not None:
            given.insert(0, repr(self.path) if self.scan is None else f"pl.{self.scan}({self.path!r}), new")
        return f"{'' if '.' in self.call else 'qbeast.'}{self.call}({', '.join(given)})"


class Message(str):
    """A text with hints in it; those of messages that it is made of are among them.

    Parameters
    ----------
    *parts : str or Hint
        One after the other.
    """

    __slots__ = ("parts",)
    parts: tuple[str | Hint, ...]

    def __new__(cls, *parts: str | Hint) -> Self:
        """Join the parts."""
        flat = tuple(one for part in parts for one in (part.parts if isinstance(part, Message) else (part,)))
        made = super().__new__(cls, "".join(map(str, flat)))
        made.parts = flat
        return made

    def spelled(self, spell: Callable[[Hint], str]) -> str:
        """Return the text with its hints in other words."""
        return "".join(part if isinstance(part, str) else spell(part) for part in self.parts)

    def for_people(self) -> Message:
        """Return the same without secrets, colours and hidden characters."""
        return Message(*(for_people(part) if isinstance(part, str) else part for part in self.parts))


def argument(**arguments: object) -> Hint:
    """Advise arguments for the call that failed.

    Examples
    --------
    >>> print(argument(mode="overwrite", columns=["a", ...]))
    mode="overwrite", columns=['a', ...]
    >>> print(argument(mode=("append", "overwrite", "ignore")))
    mode="append", "overwrite" or "ignore"
    """
    return Hint(arguments)


def call(name: str, path: str | None = None, *, scan: str | None = None, **arguments: object) -> Hint:
    """Advise another call.

    Examples
    --------
    >>> print(call("convert_table", "t", columns=[...]))
    qbeast.convert_table('t', columns=[...])
    >>> print(call("write_table", "old", scan="scan_delta", columns=["day", ...]), call("Table.files"))
    qbeast.write_table(pl.scan_delta('old'), new, columns=['day', ...]) Table.files()
    """
    return Hint(arguments, name, None if path is None else for_people(path), scan)


def _python(value: object) -> str:
    match value:
        case str():
            return f'"{value}"'
        case float():
            return f"{value:g}"
        case tuple():
            *first, last = map(_python, value)
            return f"{', '.join(first)} or {last}"
        case list():
            return f"[{', '.join('...' if name is ... else repr(name) for name in value)}]"
        case _:
            return str(value)
