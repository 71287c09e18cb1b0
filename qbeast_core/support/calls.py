"""Which arguments functions take, also decorated ones and those with a group of keyword arguments.

Examples
--------
>>> call_rule(lambda where, *, key: where).by_name
('key',)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from inspect import CO_VARARGS, CO_VARKEYWORDS, Parameter, Signature, signature, unwrap
from typing import Final, ForwardRef, NamedTuple


class CallRule(NamedTuple):
    """Which arguments a function takes: names (None: any), how many by position, and which are required."""

    names: AbstractSet[str] | None
    most: int
    required: tuple[str, ...]
    by_name: tuple[str, ...]


def call_rule(call: Callable[..., object]) -> CallRule:
    """Return the rule of a function, also of a decorated one.

    >>> call_rule(lambda where, columns=None, *, key: where)[1:]
    (2, ('where',), ('key',))
    """
    function = unwrap(call)
    code = function.__code__
    names = code.co_varnames
    positional = names[: code.co_argcount]
    by_name = names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    defaults = function.__kwdefaults__ or {}
    return CallRule(
        _names_of(call),
        10**6 if code.co_flags & CO_VARARGS else len(positional),
        positional[: len(positional) - len(function.__defaults__ or ())],
        tuple(name for name in by_name if name not in defaults),
    )


def _names_of(call: Callable[..., object]) -> AbstractSet[str] | None:
    """Return the names of the arguments of a function, also of a decorated one, in order; None: it takes any.

    >>> call_rule(lambda where, *, columns=None: where).names, call_rule(lambda **options: options).names
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
