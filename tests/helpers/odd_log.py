"""Edits of a table's log that no writer would make: invalid values, and texts cut or doubled.

Wrong but consistent values (other bounds, another cube) cannot be detected by a reader, and are left out.
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
"""Used as a value: remove the key."""

BREAKERS: Final = ['"', "{", "\\", "é", "\0"]


@dataclass(frozen=True)
class Edit:
    """One change of the log.

    Attributes
    ----------
    kind : str
        The parent of the key: ``"add"``, ``"stats"``, ``"tags"``, ``"settings"``. ``"twice"`` doubles a key of the add.
    at : int
        Number of the add or metadata in the log, modulo their count.
    keys : tuple
        Path to the value. Keys after a JSON text continue inside it.
    value : object
        The new value; a `TextEdit` changes a text.
    """

    kind: str
    at: int
    keys: tuple[str | int, ...]
    value: Json

    @property
    def is_grave(self) -> bool:
        """Whether it may change the live rows, or the log for other Delta readers."""
        texts_alone = self.kind in {"tags", "settings"} and len(self.keys) == 1
        no_text = texts_alone and not isinstance(self.value, str | tuple)
        return self.kind in {"add", "twice"} or no_text or (self.kind == "stats" and not self.keys)


@dataclass(frozen=True)
class TextEdit:
    """A change of a text at a place, modulo its length."""

    name: str
    place: int = 0

    def apply(self, text: str) -> str:
        """Return the text cut, doubled, or with a breaking character inserted."""
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
    return st.tuples(*(st.just(keys) if isinstance(keys, str) else st.sampled_from(keys) for keys in choices))


TAGS: Final[list[str | int]] = ["blocks", "revision", "qbeast.layout", "qbeast.rules", "qbeast.keys"]
_FIRST: Final[list[str | int]] = [0, 1]
_OF_LAYOUT: Final[list[str | int]] = ["v", "tail", "directory", "bands", "box", "p", "hidden"]


def tag_edits() -> st.SearchStrategy[Edit]:
    """Edit tags of a file: missing and invalid texts, invalid values inside."""
    weights = _ways("blocks", _FIRST, ["minWeight", "maxWeight"])
    return st.one_of(
        _edits("tags", _ways(TAGS), st.one_of(_values(GONE, *TEXTS, 7, None), _text_edits())),
        _edits("tags", _ways("blocks", _FIRST), _values(*ODD)),
        _edits("tags", weights, _values(GONE, *NO_NUMBERS, *FAR_NUMBERS)),
        _edits("tags", _ways("blocks", _FIRST, ["elementCount"]), _values(GONE, *ODD)),
        _edits("tags", _ways("blocks", _FIRST, ["cube"]), _values(GONE, *ODD)),
        _edits("tags", _ways("blocks", _FIRST, ["replicated", "more"]), _values(*NO_NUMBERS)),
        _edits("tags", _ways("qbeast.layout", _OF_LAYOUT), _values(GONE, *ODD)),
        _edits("tags", _ways("qbeast.layout", ["bands", "box"], _FIRST), _values(*ODD)),
        _edits("tags", _ways("qbeast.layout", ["bands", "box"], _FIRST, _FIRST), _values(*ODD)),
    )


def stats_edits(columns: list[str | int]) -> st.SearchStrategy[Edit]:
    """Edit statistics of a file: any number of rows, impossible bounds and nulls."""
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
    """Edit the fields of a file that every Delta reader uses."""
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
    """Edit Qbeast's keys in the newest configuration."""
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
    """Draw one to three edits, at most one for each file and one for the settings."""
    edit = st.one_of(tag_edits(), tag_edits(), stats_edits([*columns]), settings_edits(), add_edits())
    return st.lists(
        edit,
        min_size=1,
        max_size=3,
        unique_by=lambda edit: -1 if edit.kind == "settings" else edit.at % files,
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
    lines = [json.dumps(line) for line in actions]
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
        old = holder[key]
    except (KeyError, IndexError):
        old = None
    if rest and isinstance(old, str):
        inner = json.loads(old)
        _put(inner, rest, value)
        holder[key] = json.dumps(inner, separators=(",", ":"))
    elif rest and old is not None:
        _put(old, rest, value)
    elif rest:
        return
    elif isinstance(value, TextEdit):
        holder[key] = value.apply(old) if isinstance(old, str) else value.name
    elif value == GONE:
        if isinstance(holder, dict):
            holder.pop(key, None)
    elif isinstance(holder, dict) or key in range(len(holder)):
        holder[key] = value
