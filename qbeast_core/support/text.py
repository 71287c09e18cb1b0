r"""Texts of messages: without secrets and control codes, with suggestions of similar names and calls.

Examples
--------
>>> for_people("\x1b[31mcannot reach\x1b[0m http://me:word@host:9000/a?sig=abc: \x1b]0;title\x07")
'cannot reach http://***@host:9000/a?*** \\x1b]0;title\\x07'
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from inspect import CO_VARARGS, CO_VARKEYWORDS, Parameter, Signature, signature, unwrap
from textwrap import wrap
from typing import Final, ForwardRef

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


# What a table has instead of usual names of other libraries.
_APPEND: Final = 'qbeast.write_table(rows, table.uri, mode="append")'
_COPY: Final = "qbeast.write_table(table.rows(), new, columns=table.indexed_columns)"
_CLUSTER: Final = "optimize(): it clusters by the indexed columns, which reindex(columns=[...]) changes"
_FILES: Final = "rows().files()"
_ROLLBACK: Final = "restore(version)"
_SPLIT: Final = 'rows().split({"train": 0.8, "test": 0.2})'
_SQL: Final = 'sql("SELECT ... FROM self")'
_VERSION: Final = "qbeast.open_table(table.uri, version=...)"
_VERSIONS: Final = "versions() or history()"
_WHERE: Final = "read(where=...) or rows().lazy().filter(...)"
_MEMBERS: Final = {
    "add_column": "add_columns({...})",
    "alter_column": "widen_columns({...})",
    "append": _APPEND,
    "as_of": _VERSION,
    "at_version": _VERSION,
    "cast": "widen_columns({...}) or rows().lazy().cast({...})",
    "clone": _COPY,
    "cluster_by": _CLUSTER,
    "collect": "read()",
    "collect_schema": "schema",
    "compact": "optimize()",
    "copy": _COPY,
    "current_snapshot": "snapshot",
    "deep_clone": _COPY,
    "df": "read()",
    "drop": "drop_column(...), or qbeast.drop_table(path, confirm=True) for the whole table",
    "dtypes": "schema",
    "execute": _SQL,
    "extend": _APPEND,
    "file_uris": _FILES,
    "filter": _WHERE,
    "get_add_actions": _FILES,
    "height": "count()",
    "iloc": "rows().head(...)",
    "insert": _APPEND,
    "inspect": "history(), rows().files() or metrics()",
    "iter_batches": "rows(...).batches()",
    "iterrows": "rows().batches()",
    "lazy": "rows().lazy()",
    "limit": "rows().head(...)",
    "load_as_version": _VERSION,
    "loc": _WHERE,
    "location": "uri",
    "manage_snapshots": _ROLLBACK,
    "num_rows": "count()",
    "overwrite": 'qbeast.write_table(rows, table.uri, mode="overwrite")',
    "partitions": _FILES,
    "path": "uri",
    "pl": "read()",
    "printSchema": "schema",
    "randomSplit": _SPLIT,
    "random_split": _SPLIT,
    "rename": "rename_column(...) or rows().lazy().rename({...})",
    "rollback": _ROLLBACK,
    "sample": "read(sample=0.01)",
    "scan": "rows(...).lazy()",
    "scan_tasks": "rows(...).tasks()",
    "select": "read(columns=[...])",
    "shallow_clone": _COPY,
    "shape": "count() and columns",
    "snapshot_at": _VERSION,
    "snapshots": _VERSIONS,
    "split": _SPLIT,
    "table_uri": "uri",
    "take": "rows().head(...)",
    "time_travel": _VERSION,
    "to_arrow": "rows(...).arrow()",
    "to_csv": "rows().lazy().sink_csv(path)",
    "to_df": "read()",
    "to_pandas": "rows(...).pandas()",
    "to_parquet": "rows().lazy().sink_parquet(path)",
    "to_polars": "read(...)",
    "to_pyarrow_dataset": "rows().arrow() or rows().batches()",
    "to_pyarrow_table": "rows().arrow()",
    "to_torch": "rows(...).torch()",
    "train_test_split": _SPLIT,
    "truncate": "delete(True)",
    "upsert": "merge(rows, on=...)",
    "vstack": _APPEND,
    "where": _WHERE,
    "width": "columns",
    "withColumn": "rows().lazy().with_columns(...)",
    "with_column": "rows().lazy().with_columns(...)",
    "with_columns": "rows().lazy().with_columns(...), or add_columns({...}) for a column of the table",
    "write": _APPEND,
    "write_csv": "rows().lazy().sink_csv(path)",
    "write_ipc": "rows().lazy().sink_ipc(path)",
    "write_ndjson": "rows().lazy().sink_ndjson(path)",
    "write_parquet": "rows().lazy().sink_parquet(path)",
    "z_order": _CLUSTER,
    "zorder": _CLUSTER,
}


# Arguments that reads of other libraries have, and those of ours.
_SEEDS: Final = ("random_seed", "random_state", "seed")
_SEED: Final = (
    " A table fixes the rows of a sample, without a seed: those with the lowest weights. The same `sample` returns "
    "the same rows each time; for other rows, give a range such as sample=(0.1, 0.2), or `seed=` to read_table."
)
# Arguments of `Table.rows`, and of the table.
_OF_READS: Final = ("by", "columns", "expand", "rows", "sample", "sample_by", "seed", "where")
_RESOURCES: Final = ("memory_bytes", "resources", "spill_dir")
_KEEPS: Final = "A table keeps them: qbeast.open_table(path, resources={})."
# Arguments of other libraries; a call is offered the first of ours that it has.
_KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "append": ("mode",),
    "as_of": ("version",),
    "batch_size": ("batch_rows",),
    "by": ("on",),
    "cluster_by": ("columns",),
    "clustering_columns": ("columns",),
    "columns_to_index": ("columns",),
    "commit_properties": ("commit_metadata",),
    "condition": ("where", "queries", "on"),
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
    "join_cols": ("on",),
    "left_on": ("on",),
    "limit": ("rows", "limit", "count"),
    "merge_schema": ("schema_mode",),
    "n": ("rows", "limit", "count"),
    "n_rows": ("rows", "limit", "count"),
    "overwrite": ("mode",),
    "overwrite_schema": ("schema_mode",),
    "partition_cols": ("partition_by",),
    "partition_columns": ("partition_by",),
    "partitions": ("partition_by",),
    "predicate": ("where", "queries", "on"),
    "replace_where": ("where",),
    "select": ("columns",),
    "set": ("update",),
    "table": ("path",),
    "table_uri": ("path",),
    "timestamp": ("version",),
    "timestamp_as_of": ("version",),
    "updates": ("set", "update"),
    "uri": ("path",),
    "values": ("set", "insert"),
    "version_as_of": ("version",),
    "where": ("queries",),
    "yes": ("confirm",),
    "z_order": ("columns",),
    "z_order_by": ("columns",),
    "zorder": ("columns",),
}

# What an optimize has instead of columns.
_CLUSTERS: Final = " An optimize clusters by the indexed columns; reindex(columns=[...]) changes them."

# Functions of the package for usual names of other libraries.
_FUNCTIONS: Final = {
    "DeltaTable": "open_table",
    "convert": "convert_table",
    "convert_to_delta": "convert_table",
    "create_table": "write_table",
    "delete_table": "drop_table",
    "delta_table": "open_table",
    "drop": "drop_table",
    "exists": "table_exists",
    "is_delta_table": "table_exists",
    "is_table": "table_exists",
    "load": "open_table",
    "load_table": "open_table",
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


_MAX_TEXT: Final = 40
# Similarity of a misspelled name. Names of calls share so many letters that less suggests others.
_SIMILAR: Final = 0.6
_SIMILAR_CALL: Final = 0.75


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


def member_hint(
    name: str, members: Iterable[str], *, read: type, scan: type, frame: type, columns: Iterable[str] = ()
) -> str:
    """Return what to use instead of a name that a table does not have, after a space; empty if it is not known.

    >>> import polars as pl
    >>> kinds = {"read": str, "scan": pl.LazyFrame, "frame": pl.DataFrame}
    >>> member_hint("optimise", ["optimize", "read"], **kinds)
    " Did you mean 'optimize'?"
    >>> [member_hint(name, [], **kinds, columns=["x"]) for name in ("sort", "flags", "x")]
    [' Use rows().lazy().sort(...).', ' Use read().flags.', " It is a column: use read(columns=['x'])."]
    """
    if name in columns:
        return f" It is a column: use read(columns=[{name!r}])."
    if name in _MEMBERS:
        return f" Use {_MEMBERS[name]}."
    if hasattr(read, name):
        return f" Use rows(...).{name}(...)."
    return read_hint(name, members, scan=scan, frame=frame, calls=("rows().lazy()", "read()"))


def read_hint(
    name: str,
    members: Iterable[str],
    *,
    scan: type,
    frame: type,
    calls: tuple[str, str] = ("lazy()", "read()"),
) -> str:
    """Return what to use instead of a name that rows do not have: of a lazy frame or a frame, or a similar one.

    >>> [read_hint(name, [], scan=str, frame=str) for name in ("to_arrow", "upper", "_ipython_display_")]
    [' Use arrow().', ' Use lazy().upper(...).', '']
    """
    if name.startswith("_"):
        return ""
    own = _MEMBERS.get(name, "")
    if own == "read()" or own.startswith("rows(...)."):
        return f" Use {own.removeprefix('rows(...).')}."
    for rows, kind in zip(calls, (scan, frame), strict=True):
        if hasattr(kind, name):
            arguments = "(...)" if callable(getattr(kind, name)) else ""
            return f" Use {rows}.{name}{arguments}."
    return did_you_mean([name], members, _SIMILAR_CALL)


def item_hint(key: object, columns: Iterable[str]) -> str:
    """Return what to use instead of a key in brackets, as a sentence.

    >>> item_hint("x", ["x"]), item_hint("prise", ["price"])
    ("Use read(columns=['x']) or rows().lazy().", "Use read(columns=[...]) or rows().lazy(). Did you mean 'price'?")
    >>> item_hint(slice(5), ["x"])
    'Use read(rows=...) or rows().lazy().slice(...).'
    """
    names = [key] if isinstance(key, str) else list(key) if isinstance(key, list | tuple) else []
    known = list(columns)
    if isinstance(key, int | slice):
        return "Use read(rows=...) or rows().lazy().slice(...)."
    if names and all(name in known for name in names):
        return f"Use read(columns={names!r}) or rows().lazy()."
    if not names:  # an expression, or a mask
        return "Use read(where=...) or rows().lazy().filter(...)."
    unknown = [str(name) for name in names if name not in known]
    return f"Use read(columns=[...]) or rows().lazy().{did_you_mean(unknown, known)}"


def function_hint(name: str, functions: Iterable[str], members: Callable[[], Iterable[str]]) -> str:
    """Return what to use instead of a name that the package does not have, after a space; empty if it is not known.

    >>> function_hint("read_delta", [], list), function_hint("optimize", [], lambda: ["optimize"])
    (" Did you mean 'read_table'?", ' Use qbeast.open_table(path).optimize(...).')
    """
    if name.startswith("_"):
        return ""
    if name in _FUNCTIONS:
        return f" Did you mean {_FUNCTIONS[name]!r}?"
    if name in ("clone", "copy", "copy_table"):
        return f" Use {copy_call('qbeast.scan_table(path)')}."
    if name in members():
        return f" Use qbeast.open_table(path).{name}(...)."
    return did_you_mean([name], functions, _SIMILAR_CALL)


def argument_names(call: Callable[..., object]) -> AbstractSet[str] | None:
    """Return the names of the arguments of a function, also of a decorated one, in order; None: it takes any.

    >>> argument_names(lambda where, *, columns=None: where), argument_names(lambda **options: options)
    (dict_keys(['where', 'columns']), None)
    """
    code = unwrap(call).__code__
    group = keyword_group(call)
    if code.co_flags & CO_VARKEYWORDS and group is None:
        return None
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return dict.fromkeys([*names, *(group or ())]).keys()


def keyword_group(call: Callable[..., object]) -> Mapping[str, object] | None:
    """Return the types of the keyword arguments that a function takes as ``**keywords: Unpack[Group]``, by name."""
    function = unwrap(call)
    code = function.__code__
    if not code.co_flags & CO_VARKEYWORDS:
        return None
    place = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    annotation = str(function.__annotations__.get(code.co_varnames[place]))
    if not annotation.startswith("Unpack["):
        return None
    group: Mapping[str, object] = function.__globals__[annotation[7:-1]].__annotations__
    return group


def expanded_signature(call: Callable[..., object]) -> Signature:
    """Return the signature of a function with a parameter for each member of its keyword group."""
    own = signature(call)
    parameters = [item for item in own.parameters.values() if item.kind is not Parameter.VAR_KEYWORD]
    group = (keyword_group(call) or {}).items()
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=_OMITTED, annotation=_plain(kind))
        for name, kind in group
    ]
    return own.replace(parameters=[*parameters, *added])


class _Omitted:
    """The default of a keyword argument of a group, as stubs write it."""

    def __repr__(self) -> str:
        return "..."


_OMITTED: Final = _Omitted()


def _plain(kind: object) -> object:
    """Return an annotation as the text in the source."""
    return kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind


def unknown_keyword(
    call: Callable[..., object], values: Sequence[object], keywords: Mapping[str, object]
) -> TypeError:
    """Return the error of a call with an unknown keyword argument, with what to use instead."""
    known = [name for name in argument_names(call) or () if name != "self"]
    unknown = {name: value for name, value in keywords.items() if name not in known}
    name = next(iter(unknown))
    columns: object = getattr(values[0], "columns", ()) if values else ()
    if isinstance(columns, list) and unknown.keys() <= set(columns):
        hint = _column_hint(call.__name__, unknown, known)
    elif "shares" in known and all(isinstance(value, float) for value in unknown.values()):
        shares = ", ".join(f'"{key.removesuffix("_size")}": {value}' for key, value in unknown.items())
        hint = f" Write {call.__name__}({{{shares}}})."
    else:
        hint = _keyword_hint(call.__qualname__, name, known)
    return TypeError(f"{call.__qualname__}() got an unexpected keyword argument {name!r}.{hint}")


def _column_hint(call: str, values: Mapping[str, object], known: Sequence[str]) -> str:
    """Return the call with a condition, or with new values, for arguments that are names of columns."""
    texts = {name: _literal(value) for name, value in values.items()}
    if "set" in known:
        numbers = {name: repr(value) for name, value in values.items() if isinstance(value, int | float)}
        shown = {name: numbers.get(name, _quoted(text)) for name, text in texts.items()}
        pairs = ", ".join(f"{_quoted(name)}: {text}" for name, text in shown.items())
        return f" Write {call}(where, {{{pairs}}})."
    if "where" not in known:
        return ""
    names = {name: name if name.isidentifier() else '"' + name.replace('"', '""') + '"' for name in texts}
    condition = " AND ".join(f"{names[name]} = {text}" for name, text in texts.items())
    return f" Write {call}({_quoted(condition)})."


def _literal(value: object) -> str:
    """Return a value in SQL; three dots if it is not a short text or a number."""
    if isinstance(value, str) and len(value) <= _MAX_TEXT:
        return "'" + value.replace("'", "''") + "'"
    return str(value) if isinstance(value, int | float) else "..."


def _quoted(text: str) -> str:
    return repr(text) if '"' in text or "\\" in text else f'"{text}"'


def _keyword_hint(call: str, unknown: str, known: Sequence[str]) -> str:
    if unknown in _SEEDS and "sample" in known:
        return _SEED
    if call.startswith("Read.") and unknown in _OF_READS:
        return f" Pass it to Table.rows: rows({unknown}=...).{call.removeprefix('Read.')}(...)."
    if unknown in _RESOURCES:
        value = "..." if unknown == "resources" else f"qbeast.Resources({unknown}=...)"
        return f" Write resources={value}." if "resources" in known else f" {_KEEPS.format(value)}"
    usual = usual_arguments(unknown, known)
    if call == "Table.optimize" and "columns" in (unknown, *usual):
        return _CLUSTERS
    return did_you_mean([next((name for name in usual if name in known), unknown)], known, _SIMILAR_CALL)


def usual_arguments(unknown: str, known: Iterable[str]) -> Sequence[str]:
    """Return the arguments of ours that an argument of another library may mean.

    >>> [usual_arguments(name, ["where", "memory"]) for name in ("filters", "filtr", "memry")]
    [('where', 'queries'), ('where', 'queries'), ()]
    """
    if unknown in _KEYWORDS:
        return _KEYWORDS[unknown]
    matches = [] if similar(unknown, known, _SIMILAR_CALL) else similar(unknown, _KEYWORDS, _SIMILAR_CALL)
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
