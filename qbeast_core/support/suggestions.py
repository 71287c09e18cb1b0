"""Suggestions in error messages: similar names, and calls that read other tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from inspect import CO_VARKEYWORDS, unwrap
from typing import Final

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
_ROWS: Final = "read(rows=10)"
_APPEND: Final = 'qbeast.write_table(rows, table.uri, mode="append")'
_MEMBERS: Final = {
    "add_column": "add_columns({...})",
    "append": _APPEND,
    "collect": "read()",
    "compact": "optimize()",
    "drop": "qbeast.drop_table(path, confirm=True)",
    "filter": "read(where=...) or scan().filter(...)",
    "head": _ROWS,
    "height": "count()",
    "insert": _APPEND,
    "limit": _ROWS,
    "num_rows": "count()",
    "overwrite": 'qbeast.write_table(rows, table.uri, mode="overwrite")',
    "rollback": "restore(version)",
    "sample": "read(sample=0.01)",
    "select": "read(columns=[...])",
    "shape": "count() and columns",
    "to_df": "read()",
    "upsert": "merge(rows, on=...)",
    "where": "read(where=...) or scan().filter(...)",
    "write": _APPEND,
    "write_csv": "scan().sink_csv(path)",
    "write_ipc": "scan().sink_ipc(path)",
    "write_ndjson": "scan().sink_ndjson(path)",
    "write_parquet": "scan().sink_parquet(path)",
}


# Arguments that reads of other libraries have, and those of ours.
_SEEDS: Final = ("random_seed", "random_state", "seed")
_SEED: Final = (
    " A table fixes the rows of a sample, without a seed: those with the lowest weights. The same `sample` returns "
    "the same rows each time; for other rows, give a range such as sample=(0.1, 0.2), or `seed=` to read_table."
)
# Arguments of other libraries; a call is offered the first of ours that it has.
_KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "append": ("mode",),
    "by": ("on",),
    "columns_to_index": ("columns",),
    "condition": ("where", "queries"),
    "data": ("df",),
    "days": ("retention_hours",),
    "description": ("comment",),
    "exists": ("mode",),
    "filter": ("where", "queries"),
    "filters": ("where", "queries"),
    "force": ("confirm",),
    "frac": ("sample",),
    "fraction": ("sample",),
    "hours": ("retention_hours",),
    "if_exists": ("mode",),
    "index": ("columns",),
    "index_columns": ("columns",),
    "indexed_columns": ("columns",),
    "key": ("on",),
    "keys": ("on",),
    "limit": ("rows", "limit"),
    "n": ("rows", "limit"),
    "n_rows": ("rows", "limit"),
    "overwrite": ("mode",),
    "overwrite_schema": ("schema_mode",),
    "partition_cols": ("partition_by",),
    "partition_columns": ("partition_by",),
    "partitions": ("partition_by",),
    "predicate": ("where", "queries"),
    "replace_where": ("where",),
    "select": ("columns",),
    "table": ("path",),
    "table_uri": ("path",),
    "timestamp": ("version",),
    "updates": ("set",),
    "uri": ("path",),
    "values": ("set",),
    "where": ("queries",),
    "yes": ("confirm",),
}

# Functions of the package for usual names of other libraries.
_FUNCTIONS: Final = {
    "delete_table": "drop_table",
    "delta_table": "open_table",
    "load": "open_table",
    "open": "open_table",
    "read": "read_table",
    "read_delta": "read_table",
    "read_parquet": "read_table",
    "scan": "scan_table",
    "scan_delta": "scan_table",
    "scan_parquet": "scan_table",
    "write": "write_table",
    "write_delta": "write_table",
    "write_deltalake": "write_table",
}


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


def member_hint(
    name: str,
    members: Iterable[str],
    *,
    of_scan: Iterable[str],
    of_frame: Iterable[str],
    columns: Iterable[str] = (),
) -> str:
    """Return what to use instead of a name that a table does not have, after a space; empty if it is not known.

    >>> member_hint("optimise", ["optimize", "read"], of_scan=["sort"], of_frame=["rows"])
    " Did you mean 'optimize'?"
    >>> [member_hint(name, [], of_scan=["sort"], of_frame=["rows"], columns=["x"]) for name in ("sort", "rows", "x")]
    [' Use scan().sort(...).', ' Use read().rows(...).', " It is a column: use read(columns=['x'])."]
    """
    if name in columns:
        return f" It is a column: use read(columns=[{name!r}])."
    if name in _MEMBERS:
        return f" Use {_MEMBERS[name]}."
    if name in of_scan:
        return f" Use scan().{name}(...)."
    return f" Use read().{name}(...)." if name in of_frame else did_you_mean([name], members)


def item_hint(key: object, columns: Iterable[str]) -> str:
    """Return what to use instead of a key in brackets, as a sentence.

    >>> item_hint("x", ["x"]), item_hint("prise", ["price"])
    ("Use read(columns=['x']) or scan().", "Use read(columns=[...]) or scan(). Did you mean 'price'?")
    >>> item_hint(slice(5), ["x"])
    'Use read(rows=...) or scan().slice(...).'
    """
    names = [key] if isinstance(key, str) else list(key) if isinstance(key, list | tuple) else []
    known = list(columns)
    if isinstance(key, int | slice):
        return "Use read(rows=...) or scan().slice(...)."
    if names and all(name in known for name in names):
        return f"Use read(columns={names!r}) or scan()."
    if not names:  # an expression, or a mask
        return "Use read(where=...) or scan().filter(...)."
    unknown = [str(name) for name in names if name not in known]
    return f"Use read(columns=[...]) or scan().{did_you_mean(unknown, known)}"


def function_hint(name: str, functions: Iterable[str], members: Callable[[], Iterable[str]]) -> str:
    """Return what to use instead of a name that the package does not have, after a space; empty if it is not known.

    >>> function_hint("read_delta", [], list), function_hint("optimize", [], lambda: ["optimize"])
    (" Did you mean 'read_table'?", ' Use qbeast.open_table(path).optimize(...).')
    """
    if name.startswith("_"):
        return ""
    if name in _FUNCTIONS:
        return f" Did you mean {_FUNCTIONS[name]!r}?"
    if name in members():
        return f" Use qbeast.open_table(path).{name}(...)."
    return did_you_mean([name], functions)


def argument_names(call: Callable[..., object]) -> AbstractSet[str] | None:
    """Return the names of the arguments of a function, also of a decorated one, in order; None: it takes any.

    >>> argument_names(lambda where, *, columns=None: where), argument_names(lambda **options: options)
    (dict_keys(['where', 'columns']), None)
    """
    code = unwrap(call).__code__
    if code.co_flags & CO_VARKEYWORDS:
        return None
    return dict.fromkeys(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]).keys()


def unknown_keyword(call: Callable[..., object], keywords: Iterable[str]) -> TypeError:
    """Return the error of an unknown keyword argument, with what to use instead."""
    known = argument_names(call) or ()
    unknown = next(name for name in keywords if name not in known)
    hint = _keyword_hint(unknown, list(known))
    return TypeError(f"{call.__qualname__}() got an unexpected keyword argument {unknown!r}.{hint}")


def _keyword_hint(unknown: str, known: Sequence[str]) -> str:
    if unknown in _SEEDS and "sample" in known:
        return _SEED
    names = [name for name in known if name != "self"]
    usual = next((name for name in usual_arguments(unknown, names) if name in names), unknown)
    return did_you_mean([usual], names)


def usual_arguments(unknown: str, known: Iterable[str]) -> Sequence[str]:
    """Return the arguments of ours that an argument of another library may mean.

    >>> [usual_arguments(name, ["where", "memory"]) for name in ("filters", "filtr", "memry")]
    [('where', 'queries'), ('where', 'queries'), ()]
    """
    if unknown in _KEYWORDS:
        return _KEYWORDS[unknown]
    matches = [] if similar(unknown, known) else similar(unknown, _KEYWORDS)
    return _KEYWORDS[matches[0]] if matches else ()


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
