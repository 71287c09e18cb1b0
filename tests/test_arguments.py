"""Conditions, columns and samples have one name, one meaning and one order everywhere."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction, signature
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_spark_bridge.tables import SparkTable
from tests.helpers.tables import assert_same_rows

ROWS = pl.DataFrame({"id": range(3000), "x": [i * 7919 % 3001 for i in range(3000)]})
LOW = pl.col("x") < 300


@pytest.fixture
def path(tmp_path: Path) -> Path:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id", "x"], cube_size=100)
    return tmp_path / "t"


READS: dict[str, Callable[..., Any]] = {
    "scan_table": lambda path, **asked: qbeast.scan_table(path, **asked).collect(),
    "read_table": qbeast.read_table,
    "lazy": lambda path, **asked: qbeast.open_table(path).read(**asked),
    "read": lambda path, **asked: qbeast.open_table(path).read(**asked),
    "batches": lambda path, **asked: pl.concat(
        [ROWS.clear(), *qbeast.open_table(path).rows(**asked).batches(batch_bytes=1000)]
    ),
    "arrow": lambda path, **asked: pl.from_arrow(qbeast.open_table(path).rows(**asked).arrow()),
    "tasks": lambda path, **asked: pl.concat(
        frame for task in qbeast.open_table(path).rows(**asked).tasks() for frame in task.read()
    ),
}
TELLS: dict[str, Callable[..., Any]] = {
    "explain": lambda path, **asked: qbeast.open_table(path).rows(**asked).explain().files,
    "files": lambda path, **asked: qbeast.open_table(path).rows(**asked).files(),
    "count": lambda path, **asked: pl.DataFrame({"n": [qbeast.open_table(path).count(**asked)]}),
    "estimate": lambda path, sample=1.0, **asked: (
        qbeast.estimate(path, {"n": pl.len()}, sample=sample, **asked).frame
    ),
}


@pytest.mark.parametrize("name", READS | TELLS)
def test_unknown_arguments_have_hints(path: Path, name: str) -> None:
    ask = (READS | TELLS)[name]
    with pytest.raises(
        TypeError, match=r"argument 'random_state'\. A table fixes the rows of a sample, without"
    ):
        ask(path, sample=0.1, random_state=3)
    with pytest.raises(TypeError, match="Did you mean 'where'"):
        ask(path, filter="x < 300")
    with pytest.raises(TypeError, match=r"argument 'xyz'\.$"):
        ask(path, xyz=1)


@pytest.mark.parametrize("call", [bridge.read_table, bridge.estimate])
def test_unknown_arguments_have_hints_on_spark(call: Any) -> None:
    with pytest.raises(TypeError, match="A table fixes the rows of a sample"):
        call(None, "t", sample=0.1, random_state=3)


def public_calls() -> dict[str, Callable[..., Any]]:
    """Return all functions, and all methods of tables."""
    calls = {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in (qbeast, bridge)
        for name in module.__all__
    }
    for table in (qbeast.Table, qbeast.CarbonTable):
        calls |= {f"{table.__name__}.{name}": getattr(table, name) for name in dir(table)}
    calls |= {f"SparkTable.{name}": call for name, call in vars(SparkTable).items()}
    return {
        name: call
        for name, call in calls.items()
        if isfunction(call) and "._" not in name and set(signature(call).parameters) - {"self"}
    }


def test_misspelt_arguments_of_all_calls_have_hints() -> None:
    calls = public_calls()
    assert len(calls) > 60
    for name, call in calls.items():
        last = [argument for argument in signature(call).parameters if argument != "self"][-1]
        with pytest.raises(TypeError, match=rf"'{last}x'\. Did you mean '{last}'\?") as caught:
            call(**{f"{last}x": 1})
        assert str(caught.value).startswith(
            f"{name.split('.', 1)[1] if 'Table.' not in name else name}() got"
        )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.vacuum(days=3), "'retention_hours'"),
        (lambda t: t.update("id = 1", values={}), "'set'"),
        (lambda t: t.merge(ROWS, keys="id"), "'on'"),
        (lambda t: t.delete(predicate="id = 1"), "'where'"),
        (lambda t: t.history(n=3), "'limit'"),
        (lambda t: t.read(n=3), "'rows'"),
        (lambda _: qbeast.write_table(ROWS, "t", partition_cols=["id"]), "'partition_by'"),
        (lambda _: qbeast.write_table(ROWS, "t", overwrite=True), 'mode="overwrite"'),
        (lambda _: qbeast.drop_table("t", yes=True), "confirm=True"),
    ],
)
def test_arguments_of_other_libraries_have_hints(
    path: Path, call: Callable[[qbeast.Table], Any], words: str
) -> None:
    with pytest.raises(TypeError, match=f"(Did you mean|Write) {words}"):
        call(qbeast.open_table(path))


@pytest.mark.parametrize("name", READS | TELLS)
def test_condition_is_an_expression_or_sql(path: Path, name: str) -> None:
    ask = (READS | TELLS)[name]
    by_expression, by_text = ask(path, where=LOW), ask(path, where="x < 300")
    assert by_expression.equals(by_text)
    if name in READS:
        assert_same_rows(by_text, ROWS.filter(LOW), "id")
    for wrong in ("x <", "missing > 1", "x + 1", "x = 'a'", pl.col("missing") > 1, 7):
        with pytest.raises(qbeast.InvalidInputError, match=r"^`where` ") as caught:
            ask(path, where=wrong)
        assert caught.value.argument == "where"


@pytest.mark.parametrize("name", READS | TELLS)
def test_sample_is_fraction_pair_or_text(path: Path, name: str) -> None:
    ask = (READS | TELLS)[name]
    for text, sample in {"30%": 0.3, "0.7%": 0.007, "0.25": 0.25, "10%:0.35": (0.1, 0.35)}.items():
        assert ask(path, sample=text).equals(ask(path, sample=sample))
    numbers = (-0.1, 1.1, float("nan"), (0.5, 0.4), (0.0, 1.5), (-1.0, 0.5), (0.1,))
    for wrong in ("much", "101%", "1:2:3", "", "20%:10%", "nan", "%", *numbers):
        with pytest.raises(qbeast.InvalidInputError, match="sample"):
            ask(path, sample=wrong)


def test_readers_share_their_argument_order() -> None:
    shared = ["where", "columns", "sample", "sample_by", "version"]
    tables = (qbeast.Table, SparkTable)
    readers = [qbeast.scan_table, qbeast.read_table, bridge.read_table]
    readers += [getattr(table, name) for table in tables for name in ("rows", "read", "count")]
    for reader in readers:
        names = [name for name in signature(reader).parameters if name not in {"self", "spark", "path"}]
        here = [name for name in names if name in shared]
        assert here[:4] == shared[:4] == names[:4], reader
    assert [signature(qbeast.read_table).parameters[name].kind.name for name in shared] == [
        "KEYWORD_ONLY"
    ] * 5


def test_missing_columns_error_names_suggest_columns(tmp_path: Path) -> None:
    with pytest.raises(qbeast.InvalidColumnsError, match=r"qbeast\.suggest_columns\(rows\)"):
        qbeast.write_table(ROWS, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert (
        qbeast.write_table(ROWS, tmp_path / "new", columns=qbeast.suggest_columns(ROWS).columns).version == 0
    )


@pytest.mark.parametrize("name", READS)
def test_columns_come_in_their_order(path: Path, name: str) -> None:
    rows = (
        READS[name](path, columns=["x", "id"], where="x < 300")
        if name != "batches"
        else pl.concat(qbeast.open_table(path).rows("x < 300", columns=["x", "id"]).batches())
    )
    assert_same_rows(rows, ROWS.filter(LOW).select("x", "id"), "id")
    with pytest.raises(qbeast.InvalidInputError, match="Did you mean 'id'"):
        READS[name](path, columns=["idd"])


def test_weight_of_a_sample_comes_last(path: Path) -> None:
    rows = qbeast.scan_table(path, columns=["x"], sample=0.5, expand=True).collect()
    assert rows.columns == ["x", "sampling_weight"]
    assert rows["sampling_weight"].unique().to_list() == [2.0]


def test_batches_stay_below_their_size(path: Path) -> None:
    table = qbeast.open_table(path)
    batches = list(table.rows(columns=["id"], sample=0.5).batches(batch_bytes=800))
    assert {batch.height for batch in batches} <= set(range(1, 101))
    assert pl.concat(batches).height == table.count(sample=0.5)
    with pytest.raises(qbeast.InvalidInputError, match="batch_bytes"):
        table.rows().batches(batch_bytes=0)
