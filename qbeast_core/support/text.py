r"""Texts of messages: without secrets and control codes, with suggestions of similar names and calls.

Examples
--------
>>> for_people("\x1b[31mcannot reach\x1b[0m http://me:word@host:9000/a?sig=abc: \x1b]0;title\x07")
'cannot reach http://***@host:9000/a?*** \\x1b]0;title\\x07'
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from textwrap import wrap
from typing import Final

_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")
# Control characters except tab and line feed, marks that change the direction of writing, line separators.
HIDDEN: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

_BREAKING: Final = re.compile(rf"[\t\n]|{HIDDEN.pattern}")
_LITERAL: Final = re.compile(r" in column '(?:literal|scalar|)'")
# Stands for a date or time that is out of range, in casts that shall fail.
OUT_OF_RANGE: Final = str(2**127 - 1)
_BEYOND: Final = "a date or time is out of range: it is before the year -258,131 or after 262,071"
_MAX_VALUES: Final = 8
# Characters of a text that messages quote, and of a message.
MAX_QUOTED: Final = 300
_MAX_MESSAGE: Final = 4_000
# A text in quotes, as `repr` writes it, or a word.
_LONG: Final = re.compile(
    rf"""(?<!\w)(['"])((?:\\.|(?!\1)[^\\]){{{MAX_QUOTED + 1},}})\1(?!\w)|\S{{{MAX_QUOTED + 1},}}""", re.DOTALL
)
# The start of a syntax tree as Rust prints it: ``Ident { value: "a" }``, ``Number("1", false)``.
_TREE: Final = re.compile(r"\b[A-Z]\w*(?: \{|\([\[\"A-Z])")
_PAIRS: Final = {"{": "}", "(": ")", "[": "]"}
_MAX_CHARACTERS: Final = 100
_CODE: Final = re.compile(r"`[^`]*`")
_ADDRESS: Final = re.compile(
    r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*://)"
    r"(?:(?P<user>[^\s/?#'\"<>]*:[^\s/?#'\"<>]*|[^\s/?#'\"<>@]*)@)?"
    r"(?P<rest>[^\s?#'\"<>]*)"
    r"(?P<query>\?[^\s#'\"<>]*=[^\s#'\"<>]*)?"
)


class _Unquoted(str):
    """Text whose `repr` has no quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def without_trees(text: str) -> str:
    """Return a message of Polars without the syntax trees in it.

    >>> without_trees('array element Function(Function { name: "f", args: [Ident { value: "a" }] }) is not supported')
    'array element … is not supported'
    """
    start = _TREE.search(text)
    while start is not None:
        open_brackets = list[str]()
        end = len(text)
        for index in range(start.start(), len(text)):
            if text[index] in _PAIRS:
                open_brackets.append(_PAIRS[text[index]])
            elif open_brackets and text[index] == open_brackets[-1]:
                open_brackets.pop()
                if not open_brackets:
                    end = index + 1
                    break
        text = f"{text[: start.start()]}…{text[end:]}"
        start = _TREE.search(text)
    return text


def shortened(value: object) -> object:
    """Return a value for a `repr`: long tuples and texts shortened, other values unchanged.

    >>> shortened((1, 2)), shortened(tuple(range(1000)))
    ((1, 2), <1,000 values from 0 to 999>)
    """
    if isinstance(value, tuple) and len(value) > _MAX_VALUES:
        first, last = reprlib.repr(value[0]), reprlib.repr(value[-1])
        return _Unquoted(f"<{len(value):,} values from {first} to {last}>")
    is_long = isinstance(value, str) and len(value) > _MAX_CHARACTERS
    return _Unquoted(reprlib.repr(value)) if is_long else value


def visible(text: str) -> str:
    r"""Return a text with control characters, except tab and line feed, escaped as in Python.

    Characters that change the direction of writing are escaped too: they would show a different text.

    >>> visible("bell\x07 and \x1b[31mred\x1b[0m")
    'bell\\x07 and \\x1b[31mred\\x1b[0m'
    """
    return HIDDEN.sub(_escaped, text)


def on_one_line(text: str) -> str:
    r"""Return a text as `visible` does, with tabs and line feeds escaped too.

    >>> on_one_line("name = 'x\nINFO all is well'")
    "name = 'x\\nINFO all is well'"
    """
    return _BREAKING.sub(_escaped, text)


def wrapped(lines: Iterable[str], width: int | None) -> list[str]:
    """Return lines of at most this width; the parts of a long line are indented. Code in backquotes is not broken.

    >>> wrapped(["a line of words", "  one of a list"], 12)
    ['a line of', '  words', '  one of a', '    list']
    """
    if width is None:
        return list(lines)
    parts = list[str]()
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        whole = _CODE.sub(lambda code: code[0].replace(" ", "\0"), line.strip())
        broken = wrap(
            whole, width, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
        )
        parts += [part.replace("\0", " ") for part in broken]
    return parts


def short_name(uri: str) -> str:
    """Return the last part of a path or an address, for titles.

    >>> short_name("/data/sales/"), short_name("s3://bucket/sales")
    ('sales', 'sales')
    """
    return uri.rstrip("/").rpartition("/")[2]


def in_lines(lines: Iterable[str], width: int | None = None) -> str:
    r"""Join lines of at most this width; line feeds inside a line are escaped.

    >>> in_lines(["columns", "a\nb"])
    'columns\na\\nb'
    """
    return "\n".join(wrapped(map(on_one_line, lines), width))


def without_secrets(text: str) -> str:
    """Return a text with passwords and query strings of addresses masked; queries may contain signatures.

    >>> without_secrets("put of https://key:secret@store/t?X-Amz-Signature=f00 failed")
    'put of https://***@store/t?*** failed'
    >>> without_secrets("abfss://data@account.dfs.core.windows.net/t")
    'abfss://data@account.dfs.core.windows.net/t'
    """
    return _ADDRESS.sub(_masked, text) if "://" in text else text


def first_line(text: str) -> str:
    r"""Return the first line that is not empty: other libraries append their plans to messages.

    >>> first_line("no such column\n\nResolved plan until failure: ...")
    'no such column'
    """
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def reason_of(error: BaseException) -> str:
    """Return why Polars failed: its first line, without names that it gives to literals.

    >>> reason_of(ValueError("conversion from `i64` to `i32` failed in column 'literal' for 1 out of 1 values: [4]"))
    'conversion from `i64` to `i32` failed for 1 out of 1 values: [4]'
    """
    text = _LITERAL.sub("", first_line(str(error))).replace(
        "series 'literal' of dtype:", "a literal of dtype:"
    )
    return _BEYOND if OUT_OF_RANGE in text else text or type(error).__name__


def for_people(text: str) -> str:
    """Return a text on one line without secrets, colours and hidden characters.

    See `without_secrets` and `on_one_line`.
    """
    return on_one_line(_COLOURS.sub("", without_secrets(text)))


def excerpt(value: object) -> str:
    """Return the start of a text of a user, or of an expression, for messages.

    >>> excerpt("price < 1"), len(excerpt("x" * 1000))
    ('price < 1', 301)
    """
    text = str(value)
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"


def concise(message: str) -> str:
    """Return a message that quotes no more than the start of a long text, path or name, and leaves its own words.

    >>> concise(f"`where` {'x = 1 OR ' * 1000!r} has no such column")[-27:]
    "OR x =…' has no such column"
    """
    if len(message) <= MAX_QUOTED:
        return message
    text = _LONG.sub(_cut, message)
    half = _MAX_MESSAGE // 2  # the rest of a longer message is a list, or a text without quotes
    return text if len(text) <= _MAX_MESSAGE else f"{text[:half]} … {text[-half:]}"


def _cut(match: re.Match[str]) -> str:
    sign = match[1] or ""
    return f"{sign}{excerpt(match[2] or match[0])}{sign}"


def _masked(match: re.Match[str]) -> str:
    user = match["user"]
    secret = user is not None and (":" in user or match["scheme"].lower() in ("http://", "https://"))
    shown = "" if user is None else "***@" if secret else f"{user}@"
    return f"{match['scheme']}{shown}{match['rest']}{'' if match['query'] is None else '?***'}"


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


# The kind of file and the function of Polars that reads it, by file name ending.
SCANS: Final = {
    ".parquet": ("Parquet", "scan_parquet"),
    ".csv": ("CSV", "scan_csv"),
    ".ndjson": ("JSON", "scan_ndjson"),
    ".jsonl": ("JSON", "scan_ndjson"),
    ".arrow": ("Arrow", "scan_ipc"),
    ".ipc": ("Arrow", "scan_ipc"),
    ".feather": ("Arrow", "scan_ipc"),
}


# Similarity of a misspelled name.
_SIMILAR: Final = 0.6


def did_you_mean(names: Iterable[str], candidates: Iterable[str], cutoff: float = _SIMILAR) -> str:
    """Return a sentence, after a space, that suggests similar names; empty if there are none.

    >>> did_you_mean(["prices", "x"], ["id", "price"]), did_you_mean(["x"], ["price"])
    (" Did you mean 'price'?", '')
    """
    texts = list(candidates)
    matches = dict.fromkeys(match for name in names for match in similar(name, texts, cutoff)[:1])
    return f" Did you mean {' and '.join(map(repr, matches))}?" if matches else ""


def nearest(value: object, candidates: Iterable[object]) -> tuple[object, ...]:
    """Return the candidates, similar ones first.

    >>> nearest("prices", ["id", "price"])
    ('price', 'id')
    """
    values = list(candidates)
    first = similar(value, values) if isinstance(value, str) else []
    return tuple(dict.fromkeys([*first, *values]))


def similar(text: str, candidates: Iterable[object], cutoff: float = _SIMILAR) -> list[str]:
    """Return the candidates that are similar to a text, ignoring case, most similar first."""
    by_folded: dict[str, str] = {}
    for name in candidates:
        if isinstance(name, str):
            by_folded.setdefault(name.casefold(), name)
    return [by_folded[match] for match in get_close_matches(text.casefold(), by_folded, cutoff=cutoff)]


def convert_call(path: str) -> str:
    """Return the call that converts a table.

    >>> convert_call("t")
    "qbeast.convert_table('t', columns=[...])"
    """
    return f"qbeast.convert_table({path!r}, columns=[...])"


def write_call(path: str) -> str:
    """Return the call that creates a table."""
    return f"qbeast.write_table(rows, {path!r}, columns=[...])"


def copy_call(scan: str) -> str:
    """Return the call that copies the rows of a scan into a new table.

    >>> copy_call("pl.scan_csv('old')")
    "qbeast.write_table(pl.scan_csv('old'), new, columns=[...])"
    """
    return f"qbeast.write_table({scan}, new, columns=[...])"


def delta_copy_call(path: str, *, without: str | None = None) -> str:
    """Return the call that copies a Delta table with deltalake, which reads more tables correctly than Polars.

    >>> "SELECT * EXCLUDE" in delta_copy_call("old", without="v")
    True
    """
    quoted = None if without is None else without.replace('"', '""')
    query = "SELECT * FROM old" if quoted is None else f'SELECT * EXCLUDE ("{quoted}") FROM old'  # noqa: S608 - only shown
    scan = f'QueryBuilder().register("old", DeltaTable({path!r})).execute({query!r})'
    return f"from deltalake import DeltaTable, QueryBuilder; {copy_call(scan)}"
