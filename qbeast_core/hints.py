"""What messages advise, in parts: their text is Python, the command line spells the same as options and commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Self

from qbeast_core.plain_text import for_people, on_one_line

_LONGEST_SHOWN: Final = 80
# What files of an ending hold, and the function of Polars that reads them.
SCANS: Final = {
    ".parquet": ("Parquet", "scan_parquet"),
    ".csv": ("CSV", "scan_csv"),
    ".ndjson": ("JSON", "scan_ndjson"),
    ".jsonl": ("JSON", "scan_ndjson"),
    ".arrow": ("Arrow", "scan_ipc"),
    ".ipc": ("Arrow", "scan_ipc"),
    ".feather": ("Arrow", "scan_ipc"),
}

# What `rows_of_delta` needs.
IMPORTS_OF_DELTA: Final = "from deltalake import DeltaTable, QueryBuilder; "


@dataclass(frozen=True, slots=True)
class Hint:
    """A cure: other arguments of the call that failed, or another call. As text it is Python."""

    # Values by name: text, numbers, True; a tuple of alternatives; a list of names, where `...` stands for
    # those that the caller knows; None: the name alone.
    arguments: Mapping[str, object]
    # A function of `qbeast`, or a method such as `"Table.files"`; empty: the call that failed.
    call: str = ""
    # The table that it is about.
    path: str | None = None
    # What reads `path`, its rows are to go into a new table: a function of Polars; or `scan_table`, which is
    # of `qbeast`; or `scan_delta`, which stands for `rows_of_delta`.
    scan: str | None = None
    # Whether rows of the caller's are given, to go into `path` where there is one.
    rows: bool = False
    # What the first argument was given, where that is what is wrong.
    given: object = None
    # What it takes instead, the likeliest first, where that can be listed.
    known: tuple[object, ...] = ()

    @property
    def argument(self) -> str | None:
        """Name of the argument that it is about, in Python; None: a call without any."""
        return next(iter(self.arguments), None)

    @property
    def value(self) -> object:
        """What that argument was given; None where that is not what is wrong."""
        return self.given

    @property
    def alternatives(self) -> tuple[object, ...]:
        """Values that it takes instead, the likeliest first; empty where they cannot be listed."""
        advised = next(iter(self.arguments.values()), None)
        if self.known or advised is None:
            return self.known
        return advised if isinstance(advised, tuple) else (advised,)

    def __str__(self) -> str:
        given = [f"{name}={_python(value)}" for name, value in self.arguments.items() if value is not None]
        given += [f"`{name}`" for name, value in self.arguments.items() if value is None]
        if not self.call:
            return ", ".join(given)
        if self.path is not None:
            given.insert(0, f"rows, {self._place}" if self.rows else self._place)
        elif self.rows:
            given.insert(0, "rows")
        first = IMPORTS_OF_DELTA if self.scan == "scan_delta" else ""
        return f"{first}{'' if '.' in self.call else 'qbeast.'}{self.call}({', '.join(given)})"

    @property
    def _place(self) -> str:
        path = self.path or ""
        match self.scan:
            case None:
                return repr(path)
            case "scan_delta":
                return f"{rows_of_delta(path)}, new"
            case scan:
                return f"{'qbeast' if scan == 'scan_table' else 'pl'}.{scan}({path!r}), new"


class Message(str):
    """A text with hints in it; those of messages that it is made of are among them."""

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
        """Return the same on one line, without secrets, colours and hidden characters."""
        return Message(*(for_people(part) if isinstance(part, str) else part for part in self.parts))


def argument(**arguments: object) -> Hint:
    """Advise arguments for the call that failed.

    >>> print(argument(mode="overwrite", columns=["a", ...]))
    mode="overwrite", columns=['a', ...]
    >>> print(argument(mode=("append", "overwrite", "ignore")))
    mode="append", "overwrite" or "ignore"
    """
    return Hint(arguments)


def call(
    name: str, path: str | None = None, *, scan: str | None = None, rows: bool = False, **arguments: object
) -> Hint:
    """Advise another call.

    >>> print(call("convert_table", "t", columns=[...]))
    qbeast.convert_table('t', columns=[...])
    >>> print(call("write_table", "t", rows=True, columns=[...]))
    qbeast.write_table(rows, 't', columns=[...])
    >>> print(call("suggest_columns", rows=True))
    qbeast.suggest_columns(rows)
    >>> print(call("write_table", "old", scan="scan_csv", columns=["day", ...]), call("Table.files"))
    qbeast.write_table(pl.scan_csv('old'), new, columns=['day', ...]) Table.files()
    """
    return Hint(arguments, name, None if path is None else for_people(path), scan, rows)


def rows_of_delta(path: str, *, without: str | None = None) -> str:
    r"""Return the expression that reads a Delta table: deltalake reads more of them right than Polars does.

    >>> rows_of_delta("old", without="v")
    'QueryBuilder().register("old", DeltaTable(\'old\')).execute(\'SELECT * EXCLUDE ("v") FROM old\')'
    """
    quoted = None if without is None else without.replace('"', '""')
    query = "SELECT * FROM old" if quoted is None else f'SELECT * EXCLUDE ("{quoted}") FROM old'  # noqa: S608 - it is shown
    return f'QueryBuilder().register("old", DeltaTable({path!r})).execute({query!r})'


def named(name: str, given: object = None, known: Iterable[object] = ()) -> Hint:
    """Name the argument that is wrong, with what it was given and what it takes.

    >>> hint = named("mode", "apend", ["error", "append"])
    >>> print(hint), hint.argument, hint.value, hint.alternatives
    `mode`
    (None, 'mode', 'apend', ('append', 'error'))
    """
    return Hint({name: None}, given=given, known=nearest(given, known))


def refusal(
    name: str, problem: str, outcome: str, *, given: object = None, known: Iterable[object] = ()
) -> Message:
    """Say that an argument cannot be what it was given, what is still true, and what was meant perhaps.

    >>> print(refusal("mode", 'must be "error" or "append"', "nothing was written", given="apend", known=["append"]))
    `mode` must be "error" or "append", not 'apend'; nothing was written. Did you mean mode="append"?
    """
    hint = named(name, given, known)
    parts = (hint, f" {problem}, not {_shown(given)}; {outcome}")
    if isinstance(given, str) and _matches(given, hint.known):
        return Message(*parts, ". Did you mean ", argument(**{name: hint.known[0]}), "?")
    return Message(*parts)


def nearest(given: object, known: Iterable[object]) -> tuple[object, ...]:
    """Return what is known, what looks like the given first.

    >>> nearest("prices", ["id", "price"])
    ('price', 'id')
    """
    listed = list(known)
    first = _matches(given, listed) if isinstance(given, str) else []
    return tuple(dict.fromkeys([*first, *listed]))


def did_you_mean(given: Iterable[str], known: Iterable[str]) -> str:
    """Return a sentence, with a blank before it, about names that look like those given; empty if there are none.

    >>> did_you_mean(["prices", "x"], ["id", "price"]), did_you_mean(["x"], ["price"])
    (" Did you mean 'price'?", '')
    """
    listed = list(known)
    found = dict.fromkeys(match for name in given for match in _matches(name, listed)[:1])
    return f" Did you mean {' and '.join(map(repr, found))}?" if found else ""


def _shown(value: object) -> str:
    """Return a wrong value for a message: in short, of large things the type alone.

    >>> _shown("apend"), _shown(2), _shown(range(9).__iter__())
    ("'apend'", '2', 'a range_iterator')
    """
    if isinstance(value, type):
        return f"a {value.__qualname__}"
    if value is None or isinstance(value, str | bytes | int | float | list | tuple | dict | set):
        text = repr(value)
        return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    return f"a {type(value).__qualname__}"


def _matches(given: str, known: Iterable[object]) -> list[str]:
    """Return the known texts that look like the given one, whatever the case of letters, the nearest first."""
    by_folded: dict[str, str] = {}
    for one in known:
        if isinstance(one, str):
            by_folded.setdefault(one.casefold(), one)
    return [by_folded[match] for match in get_close_matches(given.casefold(), by_folded)]


def _python(value: object) -> str:
    match value:
        case str():
            return f'"{on_one_line(value)}"'
        case float():
            return f"{value:g}"
        case tuple():
            *first, last = map(_python, value)
            return f"{', '.join(first)} or {last}"
        case list():
            return f"[{', '.join('...' if name is ... else repr(name) for name in value)}]"
        case _:
            return str(value)
