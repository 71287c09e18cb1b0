"""Edits of a table's log that no writer would make: odd values, texts cut or doubled; never a plausible lie.

A lie that fits all else the log says (other bounds, another cube) cannot be told by any reader, and is left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

Json = Any

TEXTS: Final = ["", " ", "null", "{}", "[]", "x", "-1", "1.0", "\0", "é", "9" * 18, "9" * 5000, "[" * 5000]
NO_NUMBERS: Final = [None, *TEXTS, [], {}, [[1]], {"a": 1}, [None]]
FAR_NUMBERS: Final = [2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**70, -(2**63), -(2**70), 10**400, 1e300]
NUMBERS: Final = [0, -1, 1, 7, 1.5, True, False, *FAR_NUMBERS]
ODD: Final = [*NO_NUMBERS, *NUMBERS]

GONE: Final = "<gone>"
"""Instead of a value: the key is taken out."""

BREAKERS: Final = ['"', "{", "\\", "é", "\0"]


@dataclass(frozen=True)
class Edit:
    """One change of the log.

    Attributes
    ----------
    kind : str
        ``"add"``, ``"stats"``, ``"tags"``, ``"settings"``: what holds the key. ``"twice"``: a key of the add, doubled.
    at : int
        Which add or metadata of the log, modulo their number.
    keys : tuple
        The way to the value. A key behind a text that is JSON goes on inside it.
    value : object
        What stands there now; a pair of a name in `TEXT_EDITS` and a place changes a text.
    """

    kind: str
    at: int
    keys: tuple[str | int, ...]
    value: Json

    @property
    def is_grave(self) -> bool:
        """Whether it may change which rows live, or what Delta itself makes of the log."""
        texts_alone = self.kind in {"tags", "settings"} and len(self.keys) == 1
        no_text = texts_alone and not isinstance(self.value, str | tuple)
        return self.kind in {"add", "twice"} or no_text or (self.kind == "stats" and not self.keys)


@dataclass(frozen=True)
class TextEdit:
    """A change of a text at a place, modulo its length."""

    name: str
    place: int = 0

    def apply(self, text: str) -> str:
        """Return the text, cut, doubled, or with a character that breaks it."""
        place = self.place % max(len(text), 1)
        if self.name == "cut":
            return text[:place]
        if self.name == "double":
            return text + text
        return text[:place] + self.name + text[place:]


def _values(*values: Json) -> st.SearchStrategy[Json]:
    return st.sampled_from(values)


def _text_edits() -> st.SearchStrategy[TextEdit]:
    return st.builds(TextEdit, _values("cut", "double", *BREAKERS), st.integers(0, 400))


def _edits(
    kind: str, keys: st.SearchStrategy[tuple[str | int, ...]], values: st.SearchStrategy[Json]
) -> st.SearchStrategy[Edit]:
    return st.builds(Edit, st.just(kind), st.integers(0, 7), keys, values)


def _ways(*choices: list[str | int] | str) -> st.SearchStrategy[tuple[str | int, ...]]:
    return st.tuples(*(st.just(one) if isinstance(one, str) else st.sampled_from(one) for one in choices))


TAGS: Final[list[str | int]] = ["blocks", "revision", "qbeast.layout", "qbeast.rules", "qbeast.keys"]
_FIRST: Final[list[str | int]] = [0, 1]


def tag_edits() -> st.SearchStrategy[Edit]:
    """Tags of a file: no text, odd texts, odd values inside."""
    weights = _ways("blocks", _FIRST, ["minWeight", "maxWeight"])
    return st.one_of(
        _edits("tags", _ways(TAGS), st.one_of(_values(GONE, *TEXTS, 7, None), _text_edits())),
        _edits("tags", _ways("blocks", _FIRST), _values(*ODD)),
        _edits("tags", weights, _values(GONE, *NO_NUMBERS, *FAR_NUMBERS)),
        _edits("tags", _ways("blocks", _FIRST, ["elementCount"]), _values(GONE, *ODD)),
        _edits("tags", _ways("blocks", _FIRST, ["cube"]), _values(GONE, *ODD)),
        _edits("tags", _ways("blocks", _FIRST, ["replicated", "more"]), _values(*NO_NUMBERS)),
        _edits("tags", _ways("qbeast.layout", ["v", "rows", "tail", "w", "hidden"]), _values(GONE, *ODD)),
    )


def stats_edits(columns: list[str | int]) -> st.SearchStrategy[Edit]:
    """Statistics of a file: the number of rows at will, bounds and nulls that cannot be."""
    bounds = ["minValues", "maxValues"]
    return st.one_of(
        _edits("stats", st.just(()), _text_edits()),
        _edits("stats", _ways(["numRecords"]), _values(GONE, *ODD)),
        _edits("stats", _ways([*bounds, "nullCount"]), _values(GONE, *NO_NUMBERS)),
        _edits("stats", _ways([*bounds], columns), _values(GONE, None, [], {}, [[1]], {"a": 1})),
        _edits("stats", _ways("nullCount", columns), _values(GONE, -1, 1.5, *NO_NUMBERS, *FAR_NUMBERS)),
        _edits("stats", _ways(["tightBounds"]), _values(*NO_NUMBERS)),
    )


def add_edits() -> st.SearchStrategy[Edit]:
    """What Delta itself reads of a file."""
    vector: dict[str, Json] = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    vectors = [{}, "x", [], vector, vector | {"storageType": "i"}, vector | {"storageType": "?"}]
    vectors += [vector | {"storageType": "p"}, vector | {"sizeInBytes": -1}, vector | {"cardinality": 2**70}]
    vectors += [vector | {"offset": 2**31}, vector | {"pathOrInlineDv": ""}]
    return st.one_of(
        _edits("add", _ways(["size", "modificationTime"]), _values(GONE, *ODD)),
        _edits("add", _ways(["path"]), _values("nope.parquet", "", ".", "é", "a\0b", 7, None)),
        _edits("add", _ways(["deletionVector"]), _values(*vectors)),
        _edits("add", _ways(["stats", "tags", "partitionValues"]), _values(GONE, *ODD)),
        _edits("twice", _ways(["stats", "tags", "size", "path"]), st.none()),
    )


SETTINGS: Final[list[str | int]] = [
    *("qbeast.lastRevisionID", "qbeast.revision.0", "qbeast.revision.1", "qbeast.revision.2"),
    *("qbeast.blocksDialect", "qbeast.columnSpecs", "qbeast.replicatedSet.1", "qbeast.highestRevisionID"),
]


def settings_edits() -> st.SearchStrategy[Edit]:
    """Qbeast's keys of the newest configuration."""
    revisions: list[str | int] = ["qbeast.revision.0", "qbeast.revision.1", "qbeast.revision.2"]
    inside: list[str | int] = ["columnTransformers", "transformations"]
    fields: list[str | int] = ["className", "columnName", "dataType", "minNumber", "maxNumber", "quantiles"]
    texts = st.one_of(_values(GONE, *TEXTS), _text_edits())
    top: list[str | int] = ["revisionID", "timestamp", "tableID", "desiredCubeSize", *inside, "more"]
    return st.one_of(
        _edits("settings", _ways(SETTINGS).filter(lambda keys: keys[0] != SETTINGS[0]), texts),
        _edits("settings", _ways([SETTINGS[0]]), texts.filter(lambda value: value != GONE)),
        _edits("settings", _ways(revisions, top), _values(GONE, *ODD)),
        _edits("settings", _ways(revisions, inside, _FIRST), _values(*NO_NUMBERS)),
        _edits("settings", _ways(revisions, inside, _FIRST, fields), _values(None, "", "x", [], {}, [[1]])),
    )


def edits(columns: list[str], files: int) -> st.SearchStrategy[list[Edit]]:
    """One to three edits of a log with so many files, no two of them of one file, nor of the settings."""
    every = st.one_of(tag_edits(), tag_edits(), stats_edits([*columns]), settings_edits(), add_edits())
    return st.lists(
        every, min_size=1, max_size=3, unique_by=lambda one: -1 if one.kind == "settings" else one.at % files
    )


def apply(table: Path, edit: Edit) -> None:
    """Change the log of a table that has no checkpoint."""
    kind = "metaData" if edit.kind == "settings" else "add"
    places = []
    for commit in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        places += [(commit, actions, action) for action in actions if kind in action]
    commit, actions, action = places[-1] if kind == "metaData" else places[edit.at % len(places)]
    holder, keys = action[kind], edit.keys
    if kind == "metaData":
        holder = holder["configuration"]
    elif edit.kind == "stats":
        keys = ("stats", *keys)
    elif edit.kind == "tags":
        holder = holder["tags"]
    if edit.kind != "twice":
        _put(holder, keys, edit.value)
    lines = [json.dumps(one) for one in actions]
    if edit.kind == "twice":
        name = keys[0]
        number = actions.index(action)
        lines[number] = lines[number].replace(
            f'"{name}":', f'"{name}": {json.dumps(holder[name])}, "{name}":', 1
        )
    commit.write_text("".join(f"{line}\n" for line in lines))


def _put(holder: Json, keys: tuple[str | int, ...], value: Json) -> None:
    key, rest = keys[0], keys[1:]
    try:
        found = holder[key]
    except (KeyError, IndexError):
        found = None
    if rest and isinstance(found, str):
        inner = json.loads(found)
        _put(inner, rest, value)
        holder[key] = json.dumps(inner, separators=(",", ":"))
    elif rest and found is not None:
        _put(found, rest, value)
    elif rest:
        return
    elif isinstance(value, TextEdit):
        holder[key] = value.apply(found) if isinstance(found, str) else value.name
    elif value == GONE:
        if isinstance(holder, dict):
            holder.pop(key, None)
    elif isinstance(holder, dict) or key in range(len(holder)):
        holder[key] = value
