"""Random logs of a few commits: most lines are plain, some are odd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.helpers.odd_log import ODD

Json = Any


class Raw(str):
    """The text of a number."""

    __slots__ = ()


def _raw(texts: str) -> list[Json]:
    return [Raw(text) for text in texts.split()]


_TIMES = ["2020-01-01T00:00:00.000Z", "1969-12-31T23:59:59.999999Z", "2020-01-01T00:00:00.5-08:00"]
_ODD_TIMES = ["+12020-01-01T00:00:00Z", "2020-01-01T00:00:00.1234567Z", "0001-01-01T00:00:00Z", *_TIMES]
_LOCAL_TIMES = ["2020-01-01 00:00:00", "2020-06-01T12:00:00.5", "9999-12-31 23:59:59.999"]
_REALS = [0, 7, *_raw("3.4 -0.0 1e30 1E-5 0.1000000000000000055511151231257827 16777217")]
_CENTS = [7, *_raw("1.5 -12345678.90 99999999.99 0.10")]
# Values of statistics by type: plain ones, and odd ones.
_VALUES: dict[str, tuple[list[Json], list[Json]]] = {
    "long": ([0, 2**53 + 1, -(2**63), 2**63 - 1], [2**63, *_raw("1.0 1.5 -0")]),
    "byte": ([0, -128, 127], [128]),
    "integer": ([1, -(2**31)], [2**31]),
    "string": (["", "a", "é\U0010ffff", "x" * 40], [7]),
    "double": (_REALS, _raw("1e300 1e400")),
    "float": (_REALS, _raw("1e300 1e400")),
    "boolean": ([True, False], ["true"]),
    "date": (["2020-01-01", "0001-01-01", "9999-12-31"], ["2020-1-1", "20200101", "2020-01-01T00:00:00Z"]),
    "timestamp": (_TIMES, [*_LOCAL_TIMES, *_ODD_TIMES]),
    "timestamp_ntz": (_LOCAL_TIMES, _ODD_TIMES),
    "decimal(10,2)": (_CENTS, _raw("1.555 1e2 100000000.00 99999999.999")),
    "binary": ([], ["AA=="]),
}
_ARRAY = {"type": "array", "elementType": "long", "containsNull": True}
_MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
_ODD_TYPES = [
    "void",
    "variant",
    "char(3)",
    "decimal(10, 2)",
    "decimal(40,2)",
    7,
    {"type": "struct", "fields": []},
]
_NOTES = [{"comment": "x"}, {"b": 1, "a": True}]
_ODD_NOTES = [{"n": [1]}, {"f": 1.5}, {"x": None}, {"delta.columnMapping.id": 1}, 7]
_VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "sizeInBytes": 40,
    "cardinality": 6,
}
_VECTORS = [_VECTOR, {**_VECTOR, "offset": 4}, {**_VECTOR, "offset": 8}]
_ODD_VECTORS = [{**_VECTOR, "offset": "4"}, {**_VECTOR, "cardinality": None}, {}]
_TAGS = [None, {}, {"INSERTION_TIME": None}, {"revision": "1", "blocks": "[]", "qbeast.rules": "1"}]
_ODD_TAGS = [
    {"revision": "x"},
    {"revision": 1},
    {"revision": "-1"},
    {"state": "FLOODED", "cube": ""},
    {"blocks": [1]},
]
_PATHS = ["a.parquet", "b.parquet", "c.parquet", "k/d.parquet"]
_ODD_PATHS = ["e%2Bf", "e+f", "/abs.parquet", "é"]
_READ = ["deletionVectors", "timestampNtz"]
_WRITTEN = ["appendOnly", "rowTracking", "domainMetadata", "invariants"]
_UNUSUAL = ["typeWidening", "unheard", "v2Checkpoint", "columnMapping", "variantType"]
_CONFIGURATIONS = [
    {"delta.appendOnly": "true"},
    {"delta.checkpointInterval": "x"},
    {"delta.enableDeletionVectors": "true"},
    {"qbeast.revision.1": "{}"},
]
_ODD_CONFIGURATIONS = [
    {"delta.columnMapping.mode": "name"},
    {"delta.dataSkippingNumIndexedCols": "1"},
    {"delta.dataSkippingNumIndexedCols": "x"},
    {"delta.dataSkippingStatsColumns": "a"},
    {"delta.enableInCommitTimestamps": "true"},
    {"x": None},
]
_OTHERS: list[dict[str, Json]] = [
    {"commitInfo": {"timestamp": 5, "operation": "WRITE"}},
    {"commitInfo": {"timestamp": "x", "inCommitTimestamp": 9}},
    {"txn": {"appId": "a", "version": 1}},
    {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
    {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}},
    {"cdc": {"path": "x", "partitionValues": {}, "size": 1, "dataChange": False}},
]
_ODD_OTHERS = [
    {"unheard": {"x": 1}},
    {"checkpointMetadata": {"version": 1}},
    {"txn": {"appId": 7}},
    {"cdc": 7},
]


class _Drawn:
    """Draws of one log."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        # How many of a hundred choices are odd: none in half of the logs.
        self.odd = draw(st.sampled_from([0, 0, 1, 3]))

    def rarely(self, percent: int) -> bool:
        return self.draw(st.sampled_from([False] * (100 - percent) + [True] * percent))

    def one(self, plain: list[Json], odd: list[Json]) -> Json:
        return self.draw(st.sampled_from(odd if not plain or self.rarely(self.odd) else plain))

    def schema(self) -> dict[str, Json]:
        names = self.draw(st.lists(st.sampled_from("abcdé"), min_size=1, max_size=4, unique=True))
        fields = [self._field(name, self.one([*_VALUES, _ARRAY, _MAP], _ODD_TYPES)) for name in names]
        if self.rarely(30):
            kinds = self.draw(st.lists(st.sampled_from(["long", "date", "binary"]), min_size=1, max_size=2))
            inner = [self._field(f"i{at}", kind) for at, kind in enumerate(kinds)]
            fields.append(self._field("s", {"type": "struct", "fields": inner}))
        if self.rarely(self.odd):
            fields.append(self._field("A", "long"))
        return {"type": "struct", "fields": fields}

    def _field(self, name: str, dtype: Json) -> dict[str, Json]:
        notes = self.one([{}] * 4 + _NOTES, _ODD_NOTES)
        return {"name": name, "type": dtype, "nullable": True, "metadata": notes}

    def commits(self) -> list[str]:
        schema = self.schema()
        commits: list[list[Json]] = [[self._protocol(), self._metadata(schema)]]
        for _ in range(self.draw(st.integers(1, 4))):
            commits.append([self._action(schema) for _ in range(self.draw(st.integers(1, 4)))])
            if self.rarely(10):
                schema = self.schema()
                commits[-1].append(self._metadata(schema))
            if self.rarely(5):
                commits[-1].append(self._protocol())
        if self.draw(st.booleans()):
            commits = [commits[0] + commits[1], *commits[2:]]
        texts = ["".join(f"{compact(action)}\n" for action in commit) for commit in commits]
        at = self.draw(st.integers(0, len(texts) - 1))
        text = texts[at]
        odd = [
            text[:-1],
            text[:-5],
            text + "\n",
            text * 2,
            "",
            "\n",
            "[]\n",
            "7\n",
            "{}\n",
            text.replace(":", ": "),
        ]
        texts[at] = self.one([text], odd)
        return texts

    def _action(self, schema: dict[str, Json]) -> Json:
        kind = self.draw(st.sampled_from(["add", "add", "add", "remove", "other"]))
        return self.one(_OTHERS, _ODD_OTHERS) if kind == "other" else {kind: self._file(schema, kind)}

    def _file(self, schema: dict[str, Json], kind: str) -> dict[str, Json]:
        found: dict[str, Json] = {
            "path": self.one(_PATHS, _ODD_PATHS),
            "dataChange": True,
            "partitionValues": {},
        }
        if self.rarely(20):
            found["deletionVector"] = self.one(_VECTORS, _ODD_VECTORS)
        if kind == "add":
            found |= {"size": self.draw(st.integers(0, 9)), "modificationTime": 1}
            found |= {"stats": self._stats(schema), "tags": self.one(_TAGS, _ODD_TAGS)}
            if self.rarely(30):
                found |= {"baseRowId": 7, "defaultRowCommitVersion": 1, "clusteringProvider": "liquid"}
        else:
            found |= {"deletionTimestamp": 1, "extendedFileMetadata": True, "size": 1}
        return self._spoilt(found, "stats")

    def _spoilt(self, found: dict[str, Json], name: str) -> dict[str, Json]:
        """Return an action, rarely with an odd value or without a key."""
        if self.rarely(self.odd):
            found[self.draw(st.sampled_from([*found, name]))] = self.draw(st.sampled_from(ODD))
        if self.rarely(self.odd):
            found.pop(self.draw(st.sampled_from([*found])))
        return found

    def _stats(self, schema: dict[str, Json]) -> Json:
        fields = schema["fields"]
        kinds: dict[str, Json] = {"numRecords": self.one([0, 5, 2**40], ODD)}
        for kind in ("minValues", "maxValues"):
            kinds[kind] = {each["name"]: self._value(each["type"]) for each in fields if not self.rarely(10)}
        kinds["nullCount"] = {
            each["name"]: self._nulls(each["type"]) for each in fields if not self.rarely(10)
        }
        if self.rarely(10):
            kinds.pop(self.draw(st.sampled_from(["minValues", "maxValues", "nullCount"])))
        text = compact(kinds)
        odd = ["{", "[]", text[:-1] + ',"numRecords":1}', text.replace('"a":', '"a":1,"a":')]
        return self.one([text] * 8 + [None, "", text.replace(",", ", ")], odd)

    def _value(self, dtype: Json) -> Json:
        if isinstance(dtype, dict) and dtype["type"] == "struct" and not self.rarely(self.odd):
            fields = dtype["fields"]
            return {each["name"]: self._value(each["type"]) for each in fields if not self.rarely(20)}
        plain, odd = _VALUES.get(dtype, ([], [])) if isinstance(dtype, str) else ([], [])
        return self.one([*plain, None], [*odd, *ODD])

    def _nulls(self, dtype: Json) -> Json:
        if isinstance(dtype, dict) and dtype["type"] == "struct":
            return {each["name"]: self._nulls(each["type"]) for each in dtype["fields"]}
        return self.one([0, 1, None], ODD)

    def _protocol(self) -> dict[str, Json]:
        old = {"minReaderVersion": 1, "minWriterVersion": self.draw(st.integers(1, 6))}
        named = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": _READ}
        writers = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": _WRITTEN}
        usual = [old, writers, *[{**named, "writerFeatures": [*_WRITTEN, *_READ]}] * 4]
        names = st.one_of(st.none(), st.lists(st.sampled_from([*_READ, *_WRITTEN, *_UNUSUAL]), max_size=3))
        odd = {
            "minReaderVersion": self.draw(st.integers(0, 4)),
            "minWriterVersion": self.draw(st.integers(0, 8)),
            "readerFeatures": self.draw(names),
            "writerFeatures": self.draw(names),
        }
        return {"protocol": self.one(usual, [odd])}

    def _metadata(self, schema: dict[str, Json]) -> dict[str, Json]:
        found: dict[str, Json] = {
            "id": "i",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema, ensure_ascii=False),
            "partitionColumns": self.one([[]], [["a"], ["zz"]]),
            "configuration": self.one([{}, *_CONFIGURATIONS], _ODD_CONFIGURATIONS),
            "createdTime": self.draw(st.sampled_from([1, None])),
        }
        return {"metaData": self._spoilt(found, "name")}


def compact(value: Json) -> str:
    """Return JSON without spaces."""
    if isinstance(value, Raw):
        return str.__str__(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{compact(key)}:{compact(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@st.composite
def logs(draw: st.DrawFn) -> list[str]:
    """Draw the texts of the commits of a table."""
    return _Drawn(draw).commits()


def put(root: Path, texts: list[str]) -> None:
    """Write the commits of a new table."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    for version, text in enumerate(texts):
        (log / f"{version:020d}.json").write_text(text, encoding="utf-8")
