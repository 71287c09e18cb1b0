"""Rules for rows that a table declares: constraints, invariants, generated, default and identity columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

import orjson

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.log.actions import Metadata, Protocol
from qbeast_core.log.columns import PHYSICAL_NAME
from qbeast_core.log.protocol import is_bound

CONSTRAINT: Final = "delta.constraints."
_GENERATION: Final = "delta.generationExpression"
_DEFAULT: Final = "CURRENT_DEFAULT"
_INVARIANT: Final = "delta.invariants"
_START: Final = "delta.identity.start"
_STEP: Final = "delta.identity.step"
_HIGH_WATER_MARK: Final = "delta.identity.highWaterMark"
_SHOWN: Final = 40  # characters of an invalid value
_EXPLICIT: Final = "delta.identity.allowExplicitInsert"


@dataclass(frozen=True, slots=True)
class Identity:
    """A column of numbers that writers draw, each once."""

    column: str
    start: int
    step: int
    # The last number drawn. None: none was drawn yet.
    high_water_mark: int | None
    # Whether rows may have numbers of their own.
    allows_values: bool

    @property
    def first(self) -> int:
        """The next number to draw."""
        return self.start if self.high_water_mark is None else self.high_water_mark + self.step


@dataclass(frozen=True, slots=True)
class DeclaredRules:
    """The rules of a table, as texts of Spark SQL."""

    # By the name of the constraint.
    constraints: Mapping[str, str] = field(default_factory=dict[str, str])
    # By the path of the field.
    invariants: Mapping[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    # By column.
    generated: Mapping[str, str] = field(default_factory=dict[str, str])
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    identities: tuple[Identity, ...] = ()
    # Paths of fields that hold no nulls: fields inside of structs, and computed columns.
    not_null: tuple[tuple[str, ...], ...] = ()

    def same_checks(self, other: DeclaredRules) -> bool:
        """Return whether rows that follow these rules also follow the other rules."""
        ours, theirs = (
            (rules.constraints, rules.invariants, rules.generated, rules.not_null) for rules in (self, other)
        )
        return ours == theirs


NO_RULES: Final = DeclaredRules()


def declared_rules(metadata: Metadata, protocol: Protocol) -> DeclaredRules | None:
    """Return the rules for writers of a table; None if it has no rules.

    >>> protocol = Protocol(min_reader_version=1, min_writer_version=4)
    >>> field = '{"name":"x","type":"long","metadata":{"delta.generationExpression":"y + 1"}}'
    >>> metadata = Metadata(id="t", schema_string=f'{{"type":"struct","fields":[{field}]}}')
    >>> declared_rules(metadata, protocol).generated
    {'x': 'y + 1'}
    >>> declared_rules(metadata, Protocol(min_reader_version=1, min_writer_version=3)) is None
    True
    """
    text, keys = metadata.schema_string, metadata.configuration
    constrained = any(key.startswith(CONSTRAINT) for key in keys)
    # Most tables have no rules, and a search is much faster than reading a wide schema.
    if not constrained and not any(mark in text for mark in (_DEFAULT, '"delta.', '"nullable":false')):
        return None
    columns: list[dict[str, Any]] = orjson.loads(text)["fields"]
    rules = DeclaredRules(
        constraints={
            key.removeprefix(CONSTRAINT): expression
            for key, expression in sorted(keys.items())
            if key.startswith(CONSTRAINT) and is_bound("checkConstraints", protocol)
        },
        invariants=dict(_invariants(columns)) if is_bound("invariants", protocol) else {},
        generated=_texts(columns, _GENERATION) if is_bound("generatedColumns", protocol) else {},
        defaults=_texts(columns, _DEFAULT) if is_bound("allowColumnDefaults", protocol) else {},
        identities=_identities(columns) if is_bound("identityColumns", protocol) else (),
    )
    computed = [
        ((column["name"],), column)
        for column in columns
        if column["name"] in {*rules.generated, *rules.defaults}
    ]
    fields = (*computed, *_inner_fields(columns))
    not_null = tuple(path for path, inner in fields if not inner.get("nullable", True))
    rules = replace(rules, not_null=not_null)
    return None if rules == NO_RULES else rules


def with_high_water_marks(schema_string: str, identities: Sequence[Identity], count: int) -> str:
    """Return a schema after `count` numbers of each identity column were drawn.

    >>> field = '{"name":"x","type":"long","metadata":{"delta.identity.start":5,"delta.identity.step":2}}'
    >>> with_high_water_marks(f'{{"fields":[{field}]}}', [Identity("x", 5, 2, None, False)], 3)[-36:]
    '"delta.identity.highWaterMark":9}}]}'
    """
    if not count or not identities:
        return schema_string
    marks = {identity.column: identity.first + identity.step * (count - 1) for identity in identities}
    return _marked(schema_string, marks)


def keeping_high_water_marks(schema_string: str, newer: Iterable[str]) -> str:
    """Return an older schema with the marks of newer ones, oldest first, so that no number is drawn twice.

    Columns are the same if their names in files are: they may have been renamed since.
    """
    marks: dict[str, int] = {}
    for schema in newer:
        columns: list[dict[str, Any]] = orjson.loads(schema)["fields"] if _HIGH_WATER_MARK in schema else []
        names = {column["name"]: _name_in_files(column) for column in columns}
        marks |= {
            names[identity.column]: identity.high_water_mark
            for identity in _identities(columns)
            if identity.high_water_mark is not None
        }
    return _marked(schema_string, marks, _name_in_files) if marks else schema_string


def identity_columns(schema_string: str) -> frozenset[str]:
    """Return the names in files of the identity columns of a schema."""
    if _START not in schema_string and _STEP not in schema_string:
        return frozenset()
    columns: list[dict[str, Any]] = orjson.loads(schema_string)["fields"]
    return frozenset(
        _name_in_files(column) for column in columns if not {_START, _STEP}.isdisjoint(_notes(column))
    )


def _name_in_files(column: Mapping[str, Any]) -> str:
    return str(_notes(column).get(PHYSICAL_NAME, column["name"]))


def _marked(
    schema_string: str,
    marks: Mapping[str, int],
    name_of: Callable[[Mapping[str, Any]], str] = itemgetter("name"),
) -> str:
    whole = orjson.loads(schema_string)
    before = [dict(column.get("metadata") or {}) for column in whole["fields"]]
    for column, notes in zip(whole["fields"], before, strict=True):
        mark = marks.get(name_of(column))
        if mark is not None and not {_START, _STEP}.isdisjoint(notes):
            column["metadata"] = {**notes, _HIGH_WATER_MARK: mark}
    changed = before != [column.get("metadata") or {} for column in whole["fields"]]
    return orjson.dumps(whole).decode() if changed else schema_string


def _notes(column: Mapping[str, Any]) -> Mapping[str, Any]:
    notes: Mapping[str, Any] = column.get("metadata") or {}
    return notes


def _texts(columns: Sequence[Mapping[str, Any]], key: str) -> dict[str, str]:
    return {column["name"]: str(_notes(column)[key]) for column in columns if key in _notes(column)}


def _identities(columns: Sequence[Mapping[str, Any]]) -> tuple[Identity, ...]:
    return tuple(
        Identity(
            column=column["name"],
            start=_number(column, _START),
            step=_number(column, _STEP),
            high_water_mark=_number(column, _HIGH_WATER_MARK)
            if notes.get(_HIGH_WATER_MARK) is not None
            else None,
            allows_values=bool(notes.get(_EXPLICIT)),
        )
        for column in columns
        if not {_START, _STEP}.isdisjoint(notes := _notes(column))
    )


def _number(column: Mapping[str, Any], key: str) -> int:
    value = _notes(column).get(key, 1)
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        message = (
            f"{key!r} of the identity column {column['name']!r} is not an integer: {str(value)[:_SHOWN]!r}; "
            "reads and samples work. Correct it with the program that wrote the table."
        )
        raise InvalidMetadataError(message) from error


def _invariants(columns: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[str, ...], str]]:
    for path, column in (*(((column["name"],), column) for column in columns), *_inner_fields(columns)):
        text = _notes(column).get(_INVARIANT)
        if text is not None:
            yield path, _expression(text)


def _expression(invariant: Any) -> str:
    """Return the expression of an invariant; the whole text if it has another form, which no parser accepts."""
    try:
        return str(orjson.loads(invariant)["expression"]["expression"])
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return str(invariant)


def _inner_fields(
    columns: Sequence[Mapping[str, Any]], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield the fields of structs in structs, with their paths; Delta checks none in lists and maps."""
    for column in columns:
        dtype, path = column["type"], (*above, column["name"])
        if isinstance(dtype, dict) and dtype.get("type") == "struct":
            yield from (((*path, inner["name"]), inner) for inner in dtype["fields"])
            yield from _inner_fields(dtype["fields"], path)
