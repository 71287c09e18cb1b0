"""Hints of messages: the line to type instead of a name, an argument or a value of another library.

The words are in `words`. Names are compared in snake case, so ``toPandas`` is ``to_pandas``.

Examples
--------
>>> value_hint("mode", "upsert"), value_hint("mode", "errorIfExists"), value_hint("mode", "apend")
('Use qbeast.open_table(path).merge(rows, on=...).', 'Write mode="error".', '')
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from inspect import CO_VARARGS, CO_VARKEYWORDS, Parameter, Signature, signature, unwrap
from typing import Final, ForwardRef, NamedTuple, NoReturn

from qbeast_core.support.text import copy_call, did_you_mean, similar
from qbeast_core.support.words import (
    CALLS,
    FUNCTIONS,
    KEYWORDS,
    MEMBERS,
    OF_CALLS,
    OF_METHODS,
    RESOURCES,
    RESULTS,
    ROWS,
    UNNEEDED,
    VALUES,
)

_MAX_TEXT: Final = 40
# Names of calls share so many letters that a similarity below this suggests others.
_SIMILAR: Final = 0.75
_SEEDS: Final = ("random_seed", "random_state", "seed")
_SEED: Final = (
    "A table fixes the rows of a sample, without a seed: those with the lowest weights. The same `sample` returns "
    "the same rows each time; for other rows, give a range such as sample=(0.1, 0.2), or `seed=` to read_table."
)
# Arguments of `Table.rows`, and arguments that map names to values.
_OF_READS: Final = ("by", "columns", "expand", "rows", "sample", "sample_by", "seed", "where")
_MAPPINGS: Final = ("importance", "properties", "shares")
_ADDITIONS: Final = ("Table.add_columns", "Table.widen_columns")
_KEEPS: Final = "A table keeps them: qbeast.open_table(path, resources={})."
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


def result_hint(name: str, members: Iterable[str], frame: type | None = None) -> str:
    """Return what to use instead of a name that a result does not have; a result with a frame has `frame`.

    >>> result_hint("rows_update", ["rows_updated"]), result_hint("execute", [])
    (" Did you mean 'rows_updated'?", ' The change is committed: leave it out.')
    """
    word = _snake(name)
    if frame is None:
        return _use(RESULTS[word]) if word in RESULTS else did_you_mean([name], members)
    return _frame_hint(word, members, (frame, "frame"))


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


class CallRule(NamedTuple):
    """Which arguments a function takes: names (None: any), how many by position, and which are required."""

    names: AbstractSet[str] | None
    most: int
    required: tuple[str, ...]
    by_name: tuple[str, ...]

    def allows(self, values: Sequence[object], keywords: Mapping[str, object]) -> bool:
        """Return whether a call has arguments that the function takes."""
        return (
            (self.names is None or keywords.keys() <= self.names)
            and len(values) <= self.most
            and all(name in keywords for name in self.required[len(values) :])
            and all(name in keywords for name in self.by_name)
        )


def call_rule(call: Callable[..., object]) -> CallRule:
    """Return the rule of a function, also of a decorated one.

    >>> rule = call_rule(lambda where, columns=None, *, key: where)
    >>> rule.allows(["x"], {"key": 1}), rule.allows([], {"key": 1}), rule.allows(["x"], {"keys": 1})
    (True, False, False)
    """
    function = unwrap(call)
    code = function.__code__
    names = code.co_varnames
    positional = names[: code.co_argcount]
    by_name = names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    defaults = function.__kwdefaults__ or {}
    return CallRule(
        argument_names(call),
        10**6 if code.co_flags & CO_VARARGS else len(positional),
        positional[: len(positional) - len(function.__defaults__ or ())],
        tuple(name for name in by_name if name not in defaults),
    )


def wrong_call(
    call: Callable[..., object], values: Sequence[object], keywords: Mapping[str, object]
) -> TypeError:
    """Return the error of a call that its rule does not allow, with what to write instead."""
    rule, name = call_rule(call), call.__qualname__
    if rule.names is not None and not keywords.keys() <= rule.names:
        return unknown_keyword(call, values, keywords)
    own = "self" in rule.names if rule.names is not None else False
    line = CALLS.get(_known_call(name), "")
    cure = f" Write {line}." if line else ""
    if len(values) > rule.most:
        return TypeError(
            f"{name}() takes {rule.most - own} arguments by position, not {len(values) - own}.{cure}"
        )
    missing = [item for item in (*rule.required[len(values) :], *rule.by_name) if item not in keywords]
    return TypeError(f"{name}() lacks {' and '.join(map(repr, missing))}.{cure}")


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
    else:
        where = _known_call(call.__qualname__)
        hint = _keyword_hint(where, name, known, unknown[name]) or _mapping_hint(where, unknown, known)
    return TypeError(f"{call.__qualname__}() got an unexpected keyword argument {name!r}.{hint}")


def refusing_methods(call: Callable[..., object]) -> None:
    """Give a method the attributes that other libraries have there; a call of one raises an error with a hint."""
    for word, line in OF_METHODS.get(call.__qualname__, {}).items():

        def refused(*_: object, _line: str = line, **__: object) -> NoReturn:
            msg = f"{call.__qualname__} is a method, without attributes.{_use(_line)}"
            raise TypeError(msg)

        setattr(call, word, refused)


def _known_call(name: str) -> str:
    """Return the name of a call as `words` has it: tables and rows of Spark have the same methods."""
    return name.removeprefix("Spark")


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


def _mapping_hint(call: str, values: Mapping[str, object], known: Sequence[str]) -> str:
    """Return the call with a mapping, for names that were given as arguments."""
    if not (call in _ADDITIONS or any(name in known for name in _MAPPINGS)):
        return ""
    names = [name.removesuffix("_size") if "shares" in known else name for name in values]
    is_text = "properties" in known
    texts = [
        _quoted(_text(value)) if is_text or isinstance(value, str) else str(value)
        for value in values.values()
    ]
    pairs = ", ".join(f"{_quoted(name)}: {text}" for name, text in zip(names, texts, strict=True))
    return f" Write {call.rpartition('.')[2]}({{{pairs}}})."


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _keyword_hint(call: str, unknown: str, known: Sequence[str], value: object) -> str:
    word = _snake(unknown)
    usual = usual_arguments(word, known)
    of_call = {**UNNEEDED, **OF_CALLS[""], **OF_CALLS.get(call, {})}
    lines = (of_call[name] for name in (word, *usual) if name in of_call)
    line = next(lines, "") or _other_place(call, unknown, known)
    if line:
        return f" {line}"
    if "since" in usual and isinstance(value, int):
        return f" Write since={value - 1}: the changes begin after this version."
    ours = next((name for name in usual if name.partition("=")[0] in known), "")
    return f" Write {ours}." if "=" in ours else did_you_mean([ours or unknown], known, _SIMILAR)


def _other_place(call: str, unknown: str, known: Sequence[str]) -> str:
    """Return where an argument belongs that other calls have, as a sentence."""
    place = RESOURCES.get(_snake(unknown))
    if place is not None:
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
