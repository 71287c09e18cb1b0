"""Columns may be called as a program would call its own: every operation keeps theirs apart."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from tests.helpers.examples import examples
from tests.helpers.tables import folder, small_files, using

OWN = [
    *("end", "row", "place", "source_number", "source_row", "file", "same", "is_updated", "rows", "never"),
    *("group", "key_weight", "total_0", "total_1", "value_0", "centre_0", "least_0", "most_0", "by_0"),
]
USUAL = [
    *(
        "row",
        "rows",
        "len",
        "count",
        "file",
        "path",
        "value",
        "bound",
        "min",
        "max",
        "nulls",
        "weight",
        "cube",
        "met",
    ),
    *(
        "known",
        "index",
        "literal",
        "revision",
        "blocks",
        "element_count",
        "drawn",
        "most",
        "0.min",
        "c0",
        "__row_key",
    ),
    *(
        "__index_level_0__",
        "_metadata",
        "_file",
        "_change_type",
        "_commit_version",
        "qbeast_weight",
        "sampling",
    ),
]
NAMES = st.one_of(
    st.sampled_from([f"__qbeast_{name}" for name in OWN]),
    st.sampled_from(USUAL),
    st.text(
        st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]),
        min_size=1,
        max_size=9,
    ),
)
ALLOWED = NAMES.filter(lambda name: name not in {"*", "source"} and not name.startswith("^"))
FOUR = st.lists(ALLOWED, min_size=4, max_size=4, unique_by=str.lower)


def rows_of(names: list[str], first: int, count: int = 90) -> pl.DataFrame:
    """A key, a number that repeats, a text with nulls, a float; other names repeat the number."""
    key, number, text, share, *others = names
    mixed = pl.col(key) * 7919 % 31
    return pl.DataFrame({key: range(first, first + count)}).select(
        pl.col(key),
        mixed.alias(number),
        pl.when(pl.col(key) % 9 != 0).then(pl.format("t{}", pl.col(key) % 13)).alias(text),
        (pl.col(key) * 37 % 101 / 7).alias(share),
        *(mixed.alias(name) for name in others),
    )


def same(found: pl.DataFrame, wanted: pl.DataFrame, key: str) -> None:
    assert found.select(wanted.columns).sort(key).equals(wanted.sort(key))


def begin(path: Path, names: list[str], how: qbeast.Resources) -> pl.DataFrame:
    """Write and append; return the rows."""
    first, second = rows_of(names, 0), rows_of(names, 90)
    qbeast.write_table(first, path, columns=[names[0], f"{names[2]}:hash"], cube_size=40, resources=how)
    qbeast.write_table(second, path, mode="append", resources=how)
    return pl.concat([first, second])


def read(path: Path, names: list[str], rows: pl.DataFrame) -> None:
    """Read, count and estimate, compared with Polars."""
    key, number, text, share = names[:4]
    same(qbeast.read_table(path), rows, key)
    same(qbeast.read_table(path, where=pl.col(number) > 7), rows.filter(pl.col(number) > 7), key)
    table = qbeast.open_table(path)
    assert table.rows().lazy().select(pl.len()).collect().item() == table.count() == rows.height
    assert table.rows().lazy().select(pl.col(share).sum()).collect().item() == pytest.approx(
        rows[share].sum()
    )
    answers = table.rows().estimate(
        {"n": pl.len(), "s": pl.col(share).sum(), "q": pl.col(number).median()}, by=[text], error=0.5
    )
    assert set(answers.frame[text]) <= set(rows[text])


def change(path: Path, names: list[str], rows: pl.DataFrame, how: qbeast.Resources) -> pl.DataFrame:
    """Delete and update; return the rows."""
    number, share = names[1], names[3]
    table = qbeast.open_table(path)
    using(table, how).delete(pl.col(number) == 3)
    using(table, how).update(pl.col(number) == 5, {share: pl.col(share) + 1})
    rows = rows.filter(pl.col(number) != 3).with_columns(
        pl.when(pl.col(number) == 5).then(pl.col(share) + 1).otherwise(pl.col(share)).alias(share)
    )
    same(qbeast.read_table(path), rows, names[0])
    return rows


def merge(path: Path, names: list[str], rows: pl.DataFrame, how: qbeast.Resources) -> None:
    """Merge and optimize."""
    key, share = names[0], names[3]
    source = rows_of(names, 150, 50).with_columns(pl.lit(0.5).alias(share))
    qbeast.open_table(path, resources=how).merge(source, key)
    rows = pl.concat([rows.join(source, on=key, how="anti"), source])
    same(qbeast.read_table(path), rows, key)
    qbeast.open_table(path, resources=how).optimize(full=True)
    same(qbeast.read_table(path), rows, key)
    assert qbeast.open_table(path).check().ok


def live(path: Path, names: list[str], engine: Any) -> None:
    how = qbeast.Resources(engine=engine)
    with small_files(file_rows=80, page_rows=16):
        rows = begin(path, names, how)
        read(path, names, rows)
        merge(path, names, change(path, names, rows, how), how)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
@examples(1, sweep=30)
@given(names=FOUR, engine=st.sampled_from(["memory", "spill"]))
def test_table_works_with_any_column_names(names: list[str], engine: str) -> None:
    with folder() as path:
        live(path, names, engine)


MEMORY = qbeast.Resources(engine="memory")
ALL = list(dict.fromkeys([*(f"__qbeast_{name}" for name in OWN), *USUAL]))


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    """A table with all names at once, and its rows; to be copied."""
    path = tmp_path_factory.mktemp("all") / "t"
    return path, begin(path, ALL, MEMORY)


@pytest.mark.parametrize("step", ["read", "change", "merge"])
def test_table_works_with_all_names_at_once(
    step: str, begun: tuple[Path, pl.DataFrame], tmp_path: Path
) -> None:
    path, rows = shutil.copytree(begun[0], tmp_path / "t"), begun[1]
    if step == "read":
        read(path, ALL, rows)
    elif step == "change":
        change(path, ALL, rows, MEMORY)
    else:
        merge(path, ALL, rows, MEMORY)


def test_deletion_vectors_work_beside_internal_names(tmp_path: Path) -> None:
    from tests.helpers import deletion_vectors  # noqa: PLC0415

    names = {"id": "__qbeast_row", "x": "__qbeast_end"}
    qbeast.write_table(deletion_vectors.ROWS.rename(names), tmp_path, columns=[*names.values()])
    deletion_vectors.delete(tmp_path, deletion_vectors.GONE)
    actual = qbeast.read_table(tmp_path)
    assert actual.height == deletion_vectors.ROWS.height - len(deletion_vectors.GONE)


def test_column_named_like_pandas_index_is_kept(tmp_path: Path) -> None:
    rows = pl.DataFrame({"a": [1, 2, 3], "__index_level_0__": [4, 5, 6]})
    for number, given_rows in enumerate([rows, rows.to_arrow(), rows.to_pandas()]):
        qbeast.write_table(given_rows, tmp_path / str(number), columns=["a"])
        same(qbeast.read_table(tmp_path / str(number)), rows, "a")
    indexed = pd.DataFrame({"a": [1, 2, 3]}).tail(2)
    qbeast.write_table(indexed, tmp_path / "pandas", columns=["a"])
    assert qbeast.read_table(tmp_path / "pandas").sort("a").to_dict(as_series=False) == {"a": [2, 3]}


def test_nul_in_column_name_raises_everywhere(tmp_path: Path) -> None:
    rows = pl.DataFrame({"a": [1, 2], "b\0": [1, 2]})
    with pytest.raises(qbeast.InvalidInputError, match="NUL"):
        qbeast.write_table(rows, tmp_path / "t", columns=["a"])
    qbeast.write_table(rows.select("a"), tmp_path / "t", columns=["a"])
    with pytest.raises(qbeast.InvalidInputError, match="NUL"):
        qbeast.open_table(tmp_path / "t").merge(rows, "a")
