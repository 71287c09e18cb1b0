"""What we write in the JVM's dialect, held key by key against what the JVM wrote: same keys, order and JSON types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.format.collection import BUNDLE, commits_of, find, read_collection, swept

# What others need not know stands under names of ours.
OURS = "qbeast."
Shape = tuple[tuple[str, str], ...]

START = datetime(2024, 1, 1, tzinfo=UTC)
ROWS = pl.DataFrame(
    {
        "id": range(600),
        "i": [(i * 7919) % 601 for i in range(600)],
        "l": [i * 10**10 for i in range(600)],
        "f": [i / 3 for i in range(600)],
        "d": [i * 1.5 for i in range(600)],
        "m": [Decimal(i).scaleb(-2) for i in range(600)],
        "day": [date(2024, 1, 1) + timedelta(days=i) for i in range(600)],
        "t": [START + timedelta(minutes=i) for i in range(600)],
        "s": [f"key {i % 37}" for i in range(600)],
        "one": [5] * 600,
        "none": [None] * 600,
    },
    schema_overrides={"i": pl.Int32, "f": pl.Float32, "m": pl.Decimal(10, 2), "none": pl.Int64},
)


def shape(value: dict[str, Any]) -> Shape:
    return tuple((key, type(inner).__name__) for key, inner in value.items())


def actions_of(path: Path) -> Iterator[dict[str, Any]]:
    return chain.from_iterable(commits_of(path))


def revisions_of(path: Path) -> Iterator[dict[str, Any]]:
    for action in actions_of(path):
        for key, text in action.get("metaData", {}).get("configuration", {}).items():
            if key.startswith("qbeast.revision."):
                yield json.loads(text)


def spaces_of(path: Path) -> Iterator[tuple[str, str, Shape]]:
    """Class, type and shape of each transformer and transformation."""
    for revision in revisions_of(path):
        kinds = [item.get("dataType", "") for item in revision["columnTransformers"]]
        for part in ("columnTransformers", "transformations"):
            for kind, item in zip(kinds, revision[part], strict=False):
                yield item["className"], kind, shape(item)


def adds_of(path: Path) -> Iterator[dict[str, Any]]:
    for action in actions_of(path):
        if "add" in action and action["add"].get("tags"):
            yield action["add"]


def block_shapes_of(path: Path) -> Iterator[Shape]:
    for add in adds_of(path):
        if '"cubeId"' in add["tags"].get("blocks", ""):
            yield from map(shape, json.loads(add["tags"]["blocks"]))


def revision_shapes_of(path: Path) -> Iterator[Shape]:
    return map(shape, revisions_of(path))


@cache
def the_jvms(part: Callable[[Path], Iterator[Any]]) -> set[Any]:
    tables = [golden.path for golden in read_collection(BUNDLE) if golden.writer == "qbeast-spark-0.7.1"]
    return {item for path in tables for item in part(path)}


def written(path: Path, columns: list[str]) -> Path:
    qbeast.write_table(ROWS, path, columns=columns, cube_size=50, dialect="qbeast-spark")
    return path


def converted(path: Path, columns: list[str]) -> Path:
    ROWS.write_delta(path)
    qbeast.convert_table(path, columns, cube_size=50, dialect="qbeast-spark")
    qbeast.open_table(path).optimize()
    return path


def switched(path: Path, columns: list[str]) -> Path:
    qbeast.write_table(ROWS, path, columns=[f"{name}:{kind(name)}" for name in columns], cube_size=50)
    opened = qbeast.open_table(path)
    with pytest.warns(qbeast.HiddenColumnWarning):
        opened.switch_dialect("qbeast-spark")
    opened.optimize(full=True)
    return path


def kind(name: str) -> str:
    return "hash" if name == "s" else "linear"


INDEXED = ["i l", "f d s", "m day", "t s", "one none i"]
MAKERS = {"written": written, "converted": converted, "switched": switched}
FAST = ["written f d s", "written one none i", "converted t s", "switched m day"]
MADE = [f"{name} {columns}" for name in MAKERS for columns in INDEXED]
MADE.remove("switched one none i")


@pytest.mark.parametrize("made", swept(MADE, but=FAST))
def test_metadata_has_shapes_the_jvm_writes(made: str, tmp_path: Path) -> None:
    name, *columns = made.split()
    path = MAKERS[name](tmp_path / "table", columns)
    for part in (revision_shapes_of, spaces_of, block_shapes_of):
        assert set(part(path)) <= the_jvms(part)
    last = [add for add in adds_of(path) if '"cubeId"' in add["tags"]["blocks"]]
    assert last
    for add in last:
        assert {key for key in add["tags"] if not key.startswith(OURS)} == {"revision", "blocks"}
        assert all(isinstance(text, str) for text in add["tags"].values())


@pytest.mark.parametrize("name", MAKERS)
def test_metadata_and_statistics_have_jvm_keys(name: str, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path / "table", ["i", "s"])
    theirs = find("qbeast-spark-0.7.1/append_same").path
    (their_add, *_), (our_add, *_) = list(adds_of(theirs)), list(adds_of(path))
    assert dict(shape(our_add)) == dict(shape(their_add))
    assert dict(shape(json.loads(our_add["stats"]))) == dict(shape(json.loads(their_add["stats"])))
    actual = [
        [item["metaData"] for item in actions_of(where) if "metaData" in item][-1] for where in (path, theirs)
    ]
    ours, jvms = ({key: value for key, value in item.items() if value is not None} for item in actual)
    assert ours.keys() == jvms.keys()
    fields = [json.loads(item["schemaString"])["fields"][0] for item in (ours, jvms)]
    assert fields[0].keys() == fields[1].keys()
    needed = {"qbeast.lastRevisionID", "qbeast.revision.0", "qbeast.revision.1"}
    assert needed <= ours["configuration"].keys()
    assert needed - {"qbeast.revision.0"} <= jvms["configuration"].keys()


def test_only_our_own_key_differs_from_jvm(tmp_path: Path) -> None:
    theirs = [
        item["metaData"] for item in actions_of(find("qbeast-spark-0.8/dims3").path) if "metaData" in item
    ][-1]
    path = written(tmp_path / "table", ["i", "s"])
    ours = [item["metaData"] for item in actions_of(path) if "metaData" in item][-1]
    existing = {key for key in theirs["configuration"] if not key.startswith("qbeast.revision.")}
    own_values = {key for key in ours["configuration"] if not key.startswith("qbeast.revision.")}
    assert own_values - existing == {"qbeast.blocksDialect"}
