"""Parts, folds, seeds and strata: disjoint, complete, repeatable, and random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import qbeast
from tests.helpers.small_files import small_files

ROWS = 40_000
RANDOM = np.random.default_rng(9)
GROUPS = RANDOM.choice([None, "a", "b", "c", "rare"], ROWS, p=[0.1, 0.5, 0.2, 0.1998, 0.0002])
FRAME = pl.DataFrame(
    {
        "id": np.arange(ROWS),
        "user": RANDOM.integers(0, 2_000, ROWS),
        "group": pl.Series(GROUPS, dtype=pl.String),
        "x": RANDOM.random(ROWS),
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    path = tmp_path_factory.mktemp("splits") / "t"
    with small_files(file_rows=8_000, page_rows=100):
        qbeast.write_table(FRAME, path, columns=["id", "x"], cube_size=2_000)
    return qbeast.open_table(path)


def ids(frame: pl.LazyFrame | pl.DataFrame) -> set[int]:
    return set(frame.lazy().collect()["id"])


SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}


@pytest.mark.parametrize("seed", [0, 1, 12])
def test_parts_divide_the_rows(table: qbeast.Table, seed: int) -> None:
    parts = {name: ids(part) for name, part in table.rows().split(SHARES, seed=seed).items()}
    assert list(parts) == list(SHARES)
    assert set.union(*parts.values()) == set(range(ROWS))
    assert sum(map(len, parts.values())) == ROWS
    for name, share in SHARES.items():
        assert len(parts[name]) == pytest.approx(share * ROWS, abs=5 * (ROWS * share * (1 - share)) ** 0.5)
    assert parts == {name: ids(part) for name, part in table.rows().split(SHARES, seed=seed).items()}
    others = table.rows().split(SHARES, seed=seed + 1)
    assert len(parts["test"] & ids(others["test"])) < ROWS / 50


def test_parts_keep_the_rows_of_a_key_together(table: qbeast.Table) -> None:
    with pytest.warns(qbeast.UnindexedSampleWarning):
        parts = table.rows(where="x < 0.5", sample_by=["user"], columns=["user", "x"]).split(
            {"a": 0.3, "b": 0.5}
        )
    users = {name: set(part.collect()["user"]) for name, part in parts.items()}
    assert not users["a"] & users["b"]
    matching = FRAME.filter(pl.col("x") < 0.5)
    for name, part in parts.items():
        expected = matching.filter(pl.col("user").is_in(list(users[name]))).select("user", "x")
        assert part.collect().sort("user", "x").equals(expected.sort("user", "x"))


@pytest.mark.parametrize("count", [2, 5])
def test_each_row_is_validated_in_one_fold(table: qbeast.Table, count: int) -> None:
    folds = [(ids(training), ids(validation)) for training, validation in table.rows().folds(count, seed=3)]
    assert len(folds) == count
    assert set.union(*(validation for _, validation in folds)) == set(range(ROWS))
    for training, validation in folds:
        assert not training & validation
        assert len(training) + len(validation) == ROWS
        assert len(validation) == pytest.approx(ROWS / count, rel=0.05)


def test_seeds_choose_disjoint_samples(table: qbeast.Table) -> None:
    samples = [ids(table.rows(sample="10%", columns=["id"], seed=seed).lazy()) for seed in range(10)]
    assert samples[0] == ids(table.rows(sample=0.1).lazy())
    assert set.union(*samples) == set(range(ROWS))
    assert sum(map(len, samples)) == ROWS
    assert ids(qbeast.read_table(table.uri, sample=0.1, seed=13)) == samples[3]
    some = qbeast.scan_table(table.uri, rows=800, seed=4).collect()
    assert some.height == pytest.approx(800, rel=0.2)
    assert not ids(some) & ids(table.read(rows=800))


@pytest.mark.parametrize("by", ["group", ["group"], ["group", "flag"]])
def test_groups_give_equal_numbers(tmp_path: Path, by: Any) -> None:
    frame = FRAME.with_columns(flag=pl.col("id") % 2 == 0)
    qbeast.write_table(frame, tmp_path / "t", columns=["id", "x"], cube_size=2_000)
    keys = [by] if isinstance(by, str) else by
    chosen = qbeast.read_table(tmp_path / "t", rows=1_000, by=by, expand=True)
    assert chosen.columns == [*frame.columns, "sampling_weight"]
    counts = {row[:-1]: row[-1] for row in chosen.group_by(keys).len().iter_rows()}
    sizes = {row[:-1]: row[-1] for row in frame.group_by(keys).len().iter_rows()}
    assert counts.keys() == sizes.keys()
    small = {key for key, size in sizes.items() if size < 20}
    quota = (1_000 - sum(sizes[key] for key in small)) // (len(sizes) - len(small))
    assert counts == {key: sizes[key] if key in small else quota for key in sizes}
    assert chosen["id"].is_unique().all()
    assert (
        chosen.drop("sampling_weight").join(frame, on=frame.columns, how="anti", nulls_equal=True).is_empty()
    )
    assert chosen["sampling_weight"].sum() == pytest.approx(ROWS)
    again = qbeast.read_table(tmp_path / "t", rows=1_000, by=by)
    assert again.sort("id").equals(chosen.drop("sampling_weight").sort("id"))


def test_groups_are_random_rows_of_matches(table: qbeast.Table) -> None:
    chosen = table.read("x < 0.5 AND user > 100", columns=["id", "x"], rows=2_000, by="group", expand=True)
    assert chosen.columns == ["id", "x", "sampling_weight"]
    expected = FRAME.filter(pl.col("x") < 0.5, pl.col("user") > 100)
    assert chosen.join(expected, on=["id", "x"], how="anti").is_empty()
    total = (chosen["x"] * chosen["sampling_weight"]).sum()
    assert total == pytest.approx(expected["x"].sum(), rel=0.05)
    few = table.read("group = 'rare'", rows=1_000, by="group")
    assert few.sort("id").equals(FRAME.filter(pl.col("group") == "rare").sort("id"))
    assert table.read("x > 2", rows=10, by="group").is_empty()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda table: table.rows().split({}), "`shares` must map names"),
        (lambda table: table.rows().split([0.8, 0.2]), "`shares` must map names"),
        (lambda table: table.rows().split({"a": 0.6, "b": 0.6}), "add up to 1 or less"),
        (lambda table: table.rows().split({"a": "half"}), "`shares` must map names"),
        (lambda table: table.rows().split({"a": 0.5}, seed=-1), "`seed` must be a whole number"),
        (lambda table: table.rows().folds(1), "`count` must be a whole number, 2 or more"),
        (lambda table: table.rows(seed=1).lazy(), "`seed` chooses another sample"),
        (lambda table: table.rows(sample=0.7, seed=1).lazy(), "half the rows or less"),
        (lambda table: table.rows(sample=(0.1, 0.2), seed=1).lazy(), "begins at 0"),
        (lambda table: table.read(by="group"), "`by` divides a number of rows"),
        (lambda table: table.read(by="group", rows=9, sample=0.1), "without `sample`"),
        (lambda table: table.read(by="group", rows=2), "at least the number of groups, 5"),
        (lambda table: table.read(by="nothing", rows=9), "`by` must be different names"),
    ],
)
def test_invalid_arguments_are_named(table: qbeast.Table, call: Any, words: str) -> None:
    with pytest.raises(qbeast.InvalidInputError) as caught:
        call(table)
    assert words in str(caught.value)
