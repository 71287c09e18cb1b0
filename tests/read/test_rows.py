"""`Table.rows` returns a `Read`: it never changes, and all of its methods return the same rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.api import keywords
from tests.helpers.requests import counted, read_bytes
from tests.helpers.tables import assert_same_rows

ROWS = pl.DataFrame({"id": range(4000), "x": [i * 7919 % 4001 for i in range(4000)]}).with_columns(
    kind=pl.col("id") % 5
)
ENDS: dict[str, Callable[[qbeast.Read], pl.DataFrame]] = {
    "lazy": lambda read: read.lazy().collect(),
    "read": lambda read: read.read(),
    "head": lambda read: read.head(10_000),
    "batches": lambda read: pl.concat(read.batches(batch_rows=300)),
    "shuffled": lambda read: pl.concat(read.shuffled(3)),
    "arrow": lambda read: pl.DataFrame(read.arrow()),
    "stream": lambda read: pl.DataFrame(pa.RecordBatchReader.from_stream(read).read_all()),
    "pandas": lambda read: pl.from_pandas(read.pandas()),
    "tasks": lambda read: pl.concat(part for task in read.tasks() for part in task.read()),
    "split": lambda read: pl.concat(read.split({"a": 0.3, "b": 0.7}).values()).collect(),
    "folds": lambda read: pl.concat(valid for _, valid in read.folds(3)).collect(),
    "sql": lambda read: read.sql("SELECT * FROM self").collect(),
    "pickle": lambda read: pickle.loads(pickle.dumps(read)).read(),  # noqa: S301 -- our own
}
SAMPLES: dict[str, dict[str, Any]] = {
    "all": {},
    "sample": {"sample": 0.3},
    "rows": {"rows": 200},
    "seed": {"sample": 0.1, "seed": 2},
    "other key": {"sample": 0.5, "sample_by": ["kind", "x"]},
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    path = tmp_path_factory.mktemp("read") / "t"
    qbeast.write_table(ROWS, path, columns=["id", "x"], cube_size=200)
    return qbeast.open_table(path)


@pytest.mark.filterwarnings("ignore::qbeast.UnindexedSampleWarning")
@pytest.mark.parametrize("sample", SAMPLES)
def test_all_methods_return_the_same_rows(table: qbeast.Table, sample: str) -> None:
    asked = SAMPLES[sample]
    read = table.rows("x < 3000", **asked)
    expected = read.read()
    assert_same_rows(expected, ROWS.filter(pl.col("x") < 3000).join(expected, on="id", how="semi"), "id")
    if not asked:
        assert expected.height == ROWS.filter(pl.col("x") < 3000).height
    for name, end in ENDS.items():
        if asked and name in {"split", "folds"}:
            with pytest.raises(qbeast.InvalidInputError, match="has no meaning for split"):
                end(read)
        else:
            assert_same_rows(end(read), expected, "id")
    assert read.count() == expected.height


def test_read_keeps_its_version(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id"])
    table = qbeast.open_table(tmp_path)
    read, few = table.rows(), table.rows("x < 100", rows=20)
    first = few.read()
    table.delete("id < 1000")
    assert (read.count(), read.read().height, read.lazy().collect().height) == (4000, 4000, 4000)
    assert_same_rows(few.read(), first, "id")
    assert (table.rows().count(), read.sql("SELECT count(*) FROM self").collect().item()) == (3000, 4000)
    assert "version 0" in repr(read)
    with pytest.raises(FrozenInstanceError):
        read.sample = 0.5  # type: ignore[misc]


def test_weights_of_a_number_of_rows_are_read_once(table: qbeast.Table) -> None:
    read, fresh = (table.rows("x < 2000", rows=50) for _ in range(2))
    expected = read.count()
    with counted() as again:
        assert read.count() == expected
    with counted() as first:
        assert fresh.count() == expected
    assert 0 < read_bytes(again) < read_bytes(first)


@pytest.mark.parametrize(
    ("asked", "end", "argument"),
    [
        ({"rows": 10, "by": "kind"}, "tasks", "by"),
        ({"rows": 10, "by": "kind"}, "explain", "by"),
        ({"rows": 10, "by": "kind"}, "shuffled", "by"),
        ({"expand": True}, "tasks", "expand"),
        ({"by": "kind"}, "count", "by"),
        ({"seed": 3}, "count", "seed"),
    ],
)
def test_arguments_without_meaning_are_refused(
    table: qbeast.Table, asked: dict[str, Any], end: str, argument: str
) -> None:
    with pytest.raises(qbeast.InvalidInputError) as caught:
        getattr(table.rows(**asked), end)()
    assert caught.value.argument == argument


@pytest.mark.parametrize("asked", [{"rows": 10}, {"expand": True}, {"sample": 0.2, "seed": 3}])
def test_estimates_refuse_what_they_cannot_use(table: qbeast.Table, asked: dict[str, Any]) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="has no meaning for estimate") as caught:
        table.rows(**asked).estimate("count(*)")
    assert caught.value.argument == list(asked)[-1]


def test_stratified_rows_have_all_forms(table: qbeast.Table) -> None:
    read = table.rows("x < 3000", rows=50, by="kind")
    for rows in (read.read(), read.lazy().collect(), pl.DataFrame(read.arrow()), pl.concat(read.batches())):
        assert rows["kind"].value_counts().sort("kind")["count"].to_list() == [10] * 5


GROUPS: dict[str, tuple[type, ...]] = {
    "Table.rows": (keywords.ReadKeywords,),
    "Table.read": (keywords.ReadKeywords,),
    "Table.count": (keywords.ReadKeywords,),
    "Table.delete": (keywords.ChangeKeywords,),
    "Table.update": (keywords.ChangeKeywords,),
    "Table.merge": (keywords.ChangeKeywords,),
    "Table.optimize": (keywords.CommitKeywords,),
    "Table.reindex": (keywords.CommitKeywords,),
    "Read.estimate": (keywords.EstimateKeywords,),
    "open_table": (keywords.OpenKeywords,),
    "scan_table": (keywords.ReadKeywords, keywords.OpenKeywords),
    "read_table": (keywords.ReadKeywords, keywords.OpenKeywords),
    "write_table": (keywords.ChangeKeywords,),
    "estimate": (keywords.EstimateKeywords, keywords.OpenKeywords),
}


@pytest.mark.parametrize("name", GROUPS)
def test_signature_shows_each_keyword(name: str) -> None:
    owner, _, method = name.rpartition(".")
    places = [getattr(qbeast, owner)] if owner else [qbeast, *([bridge] if name in bridge.__all__ else [])]
    for place in places:
        shown = signature(getattr(place, method)).parameters
        for group in GROUPS[name]:
            for keyword in group.__annotations__:
                assert shown[keyword].kind is Parameter.KEYWORD_ONLY, keyword
        assert not [item for item in shown.values() if item.kind is Parameter.VAR_KEYWORD]
