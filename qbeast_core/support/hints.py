"""Hints of messages: the line to type instead of a name, an argument or a value of another library.

The words are in `words`. Names are compared in snake case, so ``toPandas`` is ``to_pandas``.

Examples
--------
>>> value_hint("mode", "upsert"), value_hint("mode", "errorIfExists"), value_hint("mode", "apend")
('Use qbeast.open_table(path).merge(rows, on=...).', 'Write mode="error".', '')
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from qbeast_core.support.calls import call_rule
from qbeast_core.support.text import copy_call, did_you_mean, similar
from qbeast_core.support.words import (
    CALLS,
    CONDITIONS,
    ESTIMATES,
    FUNCTIONS,
    KEYWORDS,
    MEMBERS,
    OF_CALLS,
    PROPERTIES,
    RESOURCES,
    RESULTS,
    ROWS,
    UNNEEDED,
    VALUES,
)

_MAX_TEXT: Final = 40
# Names of calls share many letters: a lower similarity means another name.
_SIMILAR: Final = 0.75
_SEEDS: Final = ("random_seed", "random_state", "seed")
_SEED: Final = (
    "A table fixes the rows of a sample, without a seed: those with the lowest weights. The same `sample` returns "
    "the same rows each time; for other rows, give a range such as sample=(0.1, 0.2), or `seed=` to read_table."
)
# Arguments of `Table.rows`, and calls that take a mapping.
_OF_READS: Final = ("by", "columns", "expand", "rows", "sample", "sample_by", "seed", "where")
_MAPPINGS: Final = (
    "Read.split",
    "Table.add_columns",
    "Table.set_importance",
    "Table.set_properties",
    "Table.widen_columns",
)
_KEEPS: Final = "A table keeps them: qbeast.open_table(path, resources={})."
# A condition of equal columns, and a new value of a column.
_EQUAL: Final = re.compile(r"(?:\w+\.)?(\w+)\s*={1,2}\s*(?:\w+\.)?(\w+)")
_ASSIGNMENT: Final = re.compile(r"(\w+)\s*=\s*([^=].*)", re.DOTALL)
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


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
    word = _snake(name)
    if word in MEMBERS:
        return _use(MEMBERS[word])
    if hasattr(read, name):
        return f" Use rows(...).{name}(...)."
    return _frame_hint(word, members, (scan, "rows().lazy()"), (frame, "read()"))


def method_hint(word: str) -> str:
    """Return what to use instead of an attribute of a method, after a space.

    >>> method_hint("compact")
    ' Use optimize().'
    """
    return _use(MEMBERS[word])


def read_hint(name: str, members: Iterable[str], *, scan: type, frame: type) -> str:
    """Return what to use instead of a name that rows do not have: of a lazy frame or a frame, or a similar one.

    >>> [read_hint(name, [], scan=str, frame=str) for name in ("toArrow", "upper", "_ipython_display_")]
    [' Use arrow().', ' Use lazy().upper(...).', '']
    """
    word = _snake(name)
    own = MEMBERS.get(word, "")
    if word in ROWS:
        return _use(ROWS[word])
    if own == "read()" or own.startswith("rows(...)."):
        return f" Use {own.removeprefix('rows(...).')}."
    return _frame_hint(word, members, (scan, "lazy()"), (frame, "read()"))


def result_hint(name: str, members: Collection[str], frame: type) -> str:
    """Return what to use instead of a name that a result does not have, of its frame if it has one.

    >>> result_hint("rows_update", ["rows_updated"], str), result_hint("execute", [], str)
    (" Did you mean 'rows_updated'?", ' The change is committed: leave it out.')
    >>> result_hint("upper", ["frame"], str), result_hint("x", ["files", "bytes"], str)
    (' Use frame.upper(...).', ' It has files, bytes.')
    """
    word = _snake(name)
    has_frame = "frame" in members
    words = ESTIMATES if has_frame else RESULTS
    if word in words:
        return _use(words[word])
    hint = _frame_hint(word, members, *([(frame, "frame")] if has_frame else []))
    return hint or f" It has {', '.join(members)}."


def result_item_hint(key: object, members: Collection[str]) -> str:
    """Return what to use instead of a key of a result in brackets, after a space.

    >>> result_item_hint("files", ["files"]), result_item_hint("n", ["frame"]), result_item_hint("n", ["to_dict"])
    (' Use .files.', " Use .frame['n'].", ' Use .to_dict().')
    """
    if key in members:
        return f" Use .{key}."
    if "frame" in members:
        return f" Use .frame[{key!r}]."
    return " Use .to_dict()." if "to_dict" in members else ""


def sql_hint(text: str) -> str:
    """Return what to write instead of a condition that is not SQL, as a sentence; empty if it is not known.

    >>> sql_hint("x => 5"), sql_hint("x = 5 LIMIT 3"), sql_hint("x = 5")
    ('Write >=.', 'Leave LIMIT out: rows(where).head(...) returns some rows.', '')
    """
    found = (line for pattern, line in CONDITIONS.items() if re.search(pattern, text, re.IGNORECASE))
    return next(found, "")


def condition_text(values: Mapping[str, object] | Sequence[tuple[str, str, object]]) -> str:
    r"""Return the condition in SQL of equal values by column, or of triples of a column, an operator and a value.

    >>> condition_text({"x": 5, "a b": "it's"}), condition_text([("x", ">", 5)])
    ('x = 5 AND "a b" = \'it\'\'s\'', 'x > 5')
    """
    triples = (
        [(name, "=", value) for name, value in values.items()] if isinstance(values, Mapping) else values
    )
    return " AND ".join(
        f"{_name(name)} {sign.replace('==', '=')} {_literal(value)}" for name, sign, value in triples
    )


def keys_hint(text: str) -> str:
    """Return the argument `on` of a merge for a condition of equal columns, as a sentence; empty if it is not one.

    >>> keys_hint("target.id = source.id AND t.day == s.day"), keys_hint("t.id > s.id")
    ('Write on=["id", "day"].', '')
    """
    pairs = [_EQUAL.fullmatch(part.strip()) for part in re.split(r"\bAND\b", text, flags=re.IGNORECASE)]
    names = [pair[1] for pair in pairs if pair is not None and pair[1] == pair[2]]
    return f"Write on=[{', '.join(map(quoted, names))}]." if len(names) == len(pairs) else ""


def values_hint(argument: str, values: object) -> str:
    """Return what to write instead of new values that are not a mapping, as a sentence; empty if it is not known.

    >>> values_hint("set", "y = y + 1"), values_hint("update", ["y"]), values_hint("insert", False)
    ('Write set={"y": "y + 1"}.', 'Write update={"y": "source.y"}.', 'Write when_not_matched="ignore".')
    """
    if isinstance(values, str) and (pair := _ASSIGNMENT.fullmatch(values.strip())):
        return f"Write {argument}={{{quoted(pair[1])}: {quoted(pair[2])}}}."
    if argument == "set":
        return ""
    if isinstance(values, list | tuple) and all(isinstance(name, str) for name in values):
        pairs = ", ".join(f"{quoted(name)}: {quoted(f'source.{name}')}" for name in values)
        return f"Write {argument}={{{pairs}}}."
    if isinstance(values, bool):
        clause = "when_matched" if argument == "update" else "when_not_matched"
        return "Leave it out." if values else f'Write {clause}="ignore".'
    return ""


def property_hint(name: str) -> str:
    """Return the property of Delta that a name means; empty if it is a name of the user.

    >>> property_hint("enableDeletionVectors"), property_hint("owner")
    ('delta.enableDeletionVectors', '')
    """
    return PROPERTIES.get(_snake(name), "")


def _frame_hint(word: str, members: Iterable[str], *kinds: tuple[type, str]) -> str:
    if word.startswith("_"):
        return ""
    for kind, call in kinds:
        if hasattr(kind, word):
            return f" Use {call}.{word}{'(...)' if callable(getattr(kind, word)) else ''}."
    return did_you_mean([word], members, _SIMILAR)


def _use(line: str) -> str:
    """Return a line of `words` as a sentence, after a space."""
    return f" {line}" if line.endswith(".") else f" Use {line}."


def _snake(name: str) -> str:
    return _HUMP.sub("_", name).lower()


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

    >>> [function_hint(name, [], lambda: ["optimize"]) for name in ("read_delta", "optimize", "optimize_table")]
    [" Did you mean 'read_table'?", ' Use qbeast.open_table(path).optimize(...).', \
' Use qbeast.open_table(path).optimize(...).']
    >>> function_hint("upsert", [], list)
    ' Use qbeast.open_table(path).merge(rows, on=...).'
    """
    if name.startswith("_"):
        return ""
    word = _snake(name)
    if word in FUNCTIONS:
        return f" Did you mean {FUNCTIONS[word]!r}?"
    word = word.removesuffix("_table")
    if word in ("clone", "copy"):
        return f" Use {copy_call('qbeast.scan_table(path)')}."
    if word in members():
        return f" Use qbeast.open_table(path).{word}(...)."
    line = MEMBERS.get(word, "")
    if not line or line.endswith("."):
        return did_you_mean([name], functions, _SIMILAR) or _use(line) * bool(line)
    call = line.replace("table.uri", "path")
    return f" Use {call if call.startswith('qbeast.') else f'qbeast.open_table(path).{call}'}."


def value_hint(argument: str, value: object) -> str:
    """Return what to write instead of a value, as a sentence; empty if it is not known."""
    words = VALUES.get(argument, {})
    line = words.get(value.lower(), words.get(_snake(value), "")) if isinstance(value, str) else ""
    return line if not line or line.endswith(".") else f'Write {argument}="{line}".'


def wrong_call(
    call: Callable[..., object], values: Sequence[object], keywords: Mapping[str, object]
) -> TypeError:
    """Return the error of a call that its rule does not allow, with what to write instead."""
    rule, name = call_rule(call), call.__qualname__
    names = list(rule.names or ())
    if rule.names is not None and not keywords.keys() <= rule.names:
        return _unknown_keyword(call, names, values, keywords)
    own = "self" in names
    known = _known_call(name)
    line = CALLS.get(known, "")
    if not line and known.startswith("Read.") and len(values) > rule.most == 1:
        line = f'rows("...", columns=[...]).{known.removeprefix("Read.")}()'
    cure = f" Write {line}." if line else ""
    if len(values) > rule.most:
        most, given = rule.most - own, len(values) - own
        taken = f"{most or 'no'} positional argument{'s' * (most != 1)}"
        return TypeError(f"{name}() takes {taken}, not {given}.{cure}")
    missing = [item for item in (*rule.required[len(values) :], *rule.by_name) if item not in keywords]
    return TypeError(f"{name}() lacks {' and '.join(map(repr, missing))}.{cure}")


def _unknown_keyword(
    call: Callable[..., object],
    names: Sequence[str],
    values: Sequence[object],
    keywords: Mapping[str, object],
) -> TypeError:
    """Return the error of a call with an unknown keyword argument, with what to use instead."""
    known = [name for name in names if name != "self"]
    unknown = {name: value for name, value in keywords.items() if name not in known}
    name = next(iter(unknown))
    columns: object = getattr(values[0], "columns", ()) if values else ()
    if isinstance(columns, list) and unknown.keys() <= set(columns):
        hint = _column_hint(call.__name__, unknown, known)
    else:
        where = _known_call(call.__qualname__)
        hint = _keyword_hint(where, name, known, unknown[name]) or _mapping_hint(where, unknown, known)
    return TypeError(f"{call.__qualname__}() got an unexpected keyword argument {name!r}.{hint}")


def _known_call(name: str) -> str:
    """Return the name of a call as `words` has it: tables and rows of Spark have the same methods."""
    return name.removeprefix("Spark")


def _column_hint(call: str, values: Mapping[str, object], known: Sequence[str]) -> str:
    """Return the call with a condition, or with new values, for arguments that are names of columns."""
    if "set" in known:
        texts = {name: _literal(value) for name, value in values.items()}
        numbers = {name: repr(value) for name, value in values.items() if isinstance(value, int | float)}
        shown = {name: numbers.get(name, quoted(text)) for name, text in texts.items()}
        pairs = ", ".join(f"{quoted(name)}: {text}" for name, text in shown.items())
        return f" Write {call}(where, {{{pairs}}})."
    if "where" not in known:
        return ""
    return f" Write {call}({quoted(condition_text(values))})."


def _name(column: str) -> str:
    """Return the name of a column in SQL."""
    return column if column.isidentifier() else '"' + column.replace('"', '""') + '"'


def _literal(value: object) -> str:
    """Return a value in SQL; three dots if it is not a short text or a number."""
    if isinstance(value, str) and len(value) <= _MAX_TEXT:
        return "'" + value.replace("'", "''") + "'"
    return str(value) if isinstance(value, int | float) else "..."


def quoted(text: str) -> str:
    """Return a text in quotes, doubly if it has none of them."""
    return repr(text) if '"' in text or "\\" in text else f'"{text}"'


def _mapping_hint(call: str, values: Mapping[str, object], known: Sequence[str]) -> str:
    """Return the call with a mapping, for names that were given as arguments."""
    if call not in _MAPPINGS:
        return ""
    names = [name.removesuffix("_size") if "shares" in known else name for name in values]
    is_text = "properties" in known
    texts = [
        quoted(_text(value)) if is_text or isinstance(value, str) else str(value) for value in values.values()
    ]
    pairs = ", ".join(f"{quoted(name)}: {text}" for name, text in zip(names, texts, strict=True))
    return f" Write {call.rpartition('.')[2]}({{{pairs}}})."


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _keyword_hint(call: str, unknown: str, known: Sequence[str], value: object) -> str:
    word = _snake(unknown)
    usual = usual_arguments(word, known)
    line = line_of(call, (word, *usual)) or _other_place(call, unknown, known)
    if line:
        return f" {line}"
    if "on" in usual and call == "Table.merge" and isinstance(value, str) and keys_hint(value):
        return f" {keys_hint(value)}"
    if "since" in usual and isinstance(value, int):
        return f" Write since={value - 1}: the changes begin after this version."
    ours = next((name for name in usual if name.partition("=")[0] in known), "")
    return f" Write {ours}." if "=" in ours else did_you_mean([ours or unknown], known, _SIMILAR)


def line_of(call: str, words: Iterable[str]) -> str:
    """Return what an argument is in a call, or why it needs none, as a sentence; empty if that is not known.

    >>> line_of("Table.check", ["fix"])
    'A check changes nothing: call repair().'
    """
    of_call = {**UNNEEDED, **OF_CALLS[""], **OF_CALLS.get(call, {})}
    return next((of_call[word] for word in words if word in of_call), "")


def _other_place(call: str, unknown: str, known: Sequence[str]) -> str:
    """Return where an argument belongs that other calls have, as a sentence."""
    place = RESOURCES.get(_snake(unknown))
    if place is not None:
        if place in known:
            return f"Write {place}=..."
        value = f"qbeast.Resources({place}=...)" if place else "..."
        return f"Write resources={value}." if "resources" in known else _KEEPS.format(value)
    if unknown in _SEEDS and "sample" in known:
        return _SEED
    if unknown not in _OF_READS:
        return ""
    if call.startswith("Read."):
        return f"Pass it to Table.rows: rows({unknown}=...).{call.removeprefix('Read.')}(...)."
    is_open = call == "open_table"
    return f"Pass it to a read: qbeast.read_table(path, {unknown}=...)." if is_open else ""


def usual_arguments(unknown: str, known: Iterable[str]) -> Sequence[str]:
    """Return the arguments of ours that an argument of another library may mean, perhaps with a value.

    >>> [usual_arguments(name, ["where", "memory"]) for name in ("filters", "filtr", "memry", "append")]
    [('where', 'queries'), ('where', 'queries'), (), ('mode="append"',)]
    """
    if unknown in KEYWORDS:
        return KEYWORDS[unknown]
    matches = [] if similar(unknown, known, _SIMILAR) else similar(unknown, KEYWORDS, _SIMILAR)
    return KEYWORDS[matches[0]] if matches else ()
