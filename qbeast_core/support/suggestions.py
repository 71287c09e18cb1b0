"""Suggestions in error messages: similar names, and calls that read other tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Final, ParamSpec, TypeVar

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


# What a table has instead of usual names of other libraries.
_MEMBERS: Final = {
    "append": 'qbeast.write_table(rows, table.uri, mode="append")',
    "collect": "read()",
    "drop": "qbeast.drop_table(path, confirm=True)",
    "filter": "read(where=...) or scan().filter(...)",
    "head": "read(rows=10)",
    "insert": 'qbeast.write_table(rows, table.uri, mode="append")',
    "limit": "read(rows=10)",
    "overwrite": 'qbeast.write_table(rows, table.uri, mode="overwrite")',
    "sample": "read(sample=0.01)",
    "select": "read(columns=[...])",
    "to_df": "read()",
    "to_polars": "read()",
    "upsert": "merge(rows, on=...)",
    "write": 'qbeast.write_table(rows, table.uri, mode="append")',
}


# Arguments that reads of other libraries have, and those of ours.
_SEEDS: Final = ("random_seed", "random_state", "seed")
_SEED: Final = (
    " A table fixes the rows of a sample, without a seed: those with the lowest weights. The same `sample` returns "
    "the same rows each time; for other rows, give a range such as sample=(0.1, 0.2)."
)
_KEYWORDS: Final = {
    "filter": "where",
    "filters": "where",
    "frac": "sample",
    "fraction": "sample",
    "n_rows": "rows",
    "predicate": "where",
    "select": "columns",
}

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


def did_you_mean(names: Iterable[str], candidates: Iterable[str]) -> str:
    """Return a sentence, after a space, that suggests similar names; empty if there are none.

    >>> did_you_mean(["prices", "x"], ["id", "price"]), did_you_mean(["x"], ["price"])
    (" Did you mean 'price'?", '')
    """
    texts = list(candidates)
    matches = dict.fromkeys(match for name in names for match in similar(name, texts)[:1])
    return f" Did you mean {' and '.join(map(repr, matches))}?" if matches else ""


def nearest(value: object, candidates: Iterable[object]) -> tuple[object, ...]:
    """Return the candidates, similar ones first.

    >>> nearest("prices", ["id", "price"])
    ('price', 'id')
    """
    values = list(candidates)
    first = similar(value, values) if isinstance(value, str) else []
    return tuple(dict.fromkeys([*first, *values]))


def similar(text: str, candidates: Iterable[object]) -> list[str]:
    """Return the candidates that are similar to a text, ignoring case, most similar first."""
    by_folded: dict[str, str] = {}
    for name in candidates:
        if isinstance(name, str):
            by_folded.setdefault(name.casefold(), name)
    return [by_folded[match] for match in get_close_matches(text.casefold(), by_folded)]


def member_hint(name: str, members: Iterable[str], of_rows: Iterable[str]) -> str:
    """Return what to use instead of a name that a table does not have, after a space; empty if it is not known.

    >>> member_hint("optimise", ["optimize", "read"], ["sort"]), member_hint("sort", [], ["sort"])
    (" Did you mean 'optimize'?", ' Use scan().sort(...).')
    """
    if name in _MEMBERS:
        return f" Use {_MEMBERS[name]}."
    return f" Use scan().{name}(...)." if name in of_rows else did_you_mean([name], members)


def hints_keywords(call: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Add to the error of an unknown keyword argument what to use instead.

    >>> hints_keywords(lambda sample=None: sample)(seed=3)
    Traceback (most recent call last):
    ...
    TypeError: <lambda>() got an unexpected keyword argument 'seed'. A table fixes the rows of a sample, without...
    """
    code = call.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @wraps(call)
    def checked(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        unknown = next((name for name in kwargs if name not in known), None)
        if unknown is None:
            return call(*args, **kwargs)
        hint = _SEED if unknown in _SEEDS else did_you_mean([_KEYWORDS.get(unknown, unknown)], known)
        msg = f"{call.__qualname__}() got an unexpected keyword argument {unknown!r}.{hint}"
        raise TypeError(msg)

    return checked


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
