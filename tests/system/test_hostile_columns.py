"""Columns may be called as a program would call its own: every operation keeps theirs apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from tests.helpers.examples import examples
from tests.helpers.tables import folder, small_files

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


def rows_of(names: list[str], first: int, count: int = 300) -> pl.DataFrame:
    """A key, a number that repeats, a text with nulls, a float."""
    key, number, text, share = names
    return pl.DataFrame({key: range(first, first + count)}).select(
        pl.col(key),
        (pl.col(key) * 7919 % 31).alias(number),
        pl.when(pl.col(key) % 9 != 0).then(pl.format("t{}", pl.col(key) % 13)).alias(text),
        (pl.col(key) * 37 % 101 / 7).alias(share),
    )


def same(found: pl.DataFrame, wanted: pl.DataFrame, key: str) -> None:
    assert found.select(wanted.columns).sort(key).equals(wanted.sort(key))


def live(path: Path, names: list[str], engine: Any) -> None:
    """Write, append, read, estimate, change, merge and optimize, each time compared with Polars."""
    key, number, text, share = names
    rows = rows_of(names, 0)
    with small_files(file_rows=80, page_rows=16):
        qbeast.write_table(
            rows, path, columns=[key, f"{text}:hash"], cube_size=40, resources=qbeast.Resources(engine=engine)
        )
        qbeast.write_table(
            rows_of(names, 300), path, mode="append", resources=qbeast.Resources(engine=engine)
        )
        rows = pl.concat([rows, rows_of(names, 300)])
        same(qbeast.read_table(path, where=pl.col(number) > 7), rows.filter(pl.col(number) > 7), key)
        table = qbeast.open_table(path)
        assert table.scan().select(pl.len()).collect().item() == table.count() == rows.height
        assert table.scan().select(pl.col(share).sum()).collect().item() == pytest.approx(rows[share].sum())
        answers = table.estimate(
            {"n": pl.len(), "s": pl.col(share).sum(), "q": pl.col(number).median()}, by=[text], error=0.5
        )
        assert set(answers.frame[text]) <= set(rows[text])
        table.delete(pl.col(number) == 3, resources=qbeast.Resources(engine=engine))
        table.update(
            pl.col(number) == 5, {share: pl.col(share) + 1}, resources=qbeast.Resources(engine=engine)
        )
        rows = rows.filter(pl.col(number) != 3).with_columns(
            pl.when(pl.col(number) == 5).then(pl.col(share) + 1).otherwise(pl.col(share)).alias(share)
        )
        source = rows_of(names, 550, 100).with_columns(pl.lit(0.5).alias(share))
        table.merge(source, key, resources=qbeast.Resources(engine=engine))
        rows = pl.concat([rows.join(source, on=key, how="anti"), source])
        same(table.refresh().scan().collect(), rows, key)
        table.refresh().optimize(full=True, resources=qbeast.Resources(engine=engine))
    same(qbeast.read_table(path), rows, key)
    assert qbeast.open_table(path).check().ok


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
@examples(3, sweep=300)
@given(names=FOUR, engine=st.sampled_from(["memory", "spill"]))
def test_table_works_with_any_column_names(names: list[str], engine: str) -> None:
    with folder() as path:
        live(path, names, engine)


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
@pytest.mark.parametrize("engine", ["memory", pytest.param("spill", marks=pytest.mark.sweep)])
def test_table_works_with_our_internal_names(engine: str, tmp_path: Path) -> None:
    """All of them at once, in the order that no draw is likely to have."""
    names = [f"__qbeast_{name}" for name in OWN]
    for at in range(0, len(names), 4):
        some = (names[at:] + names)[:4]
        live(tmp_path / str(at), some, engine)


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
