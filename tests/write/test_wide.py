"""Tables of many columns: what is done per column asks nothing of all columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.helpers.tables import small_files


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often all columns of a frame are listed; Polars makes the list anew each time."""
    counted: Counter[str] = Counter()

    def counting(plain: Any, name: str) -> Any:
        call = plain.fget if isinstance(plain, property) else plain

        def counted_call(*args: Any, **kwargs: Any) -> Any:
            counted[name] += 1
            return call(*args, **kwargs)

        return property(counted_call) if isinstance(plain, property) else counted_call

    for name in ("schema", "columns", "dtypes"):
        monkeypatch.setattr(pl.DataFrame, name, counting(getattr(pl.DataFrame, name), name))
    monkeypatch.setattr(
        pl.LazyFrame, "collect_schema", counting(pl.LazyFrame.collect_schema, "collect_schema")
    )
    return counted


PROBES = ("write", "filter", "update")


def looks_of_operations(
    path: Path, looks: Counter[str], columns: int, names: Sequence[str]
) -> dict[str, int]:
    """Return how often operations list the columns of a frame, on tables alike but for their columns."""
    rows = pl.DataFrame({f"c{i}": [float(i + k) for k in range(50)] for i in range(columns)})
    low = pl.col("c0") < 10
    operations = {
        "write": lambda: qbeast.write_table(rows, path, columns=["c0", "c1"], cube_size=10),
        "append": lambda: qbeast.write_table(rows, path, mode="append"),
        "read": lambda: qbeast.read_table(path),
        "sample": lambda: qbeast.read_table(path, sample=0.3),
        "filter": lambda: qbeast.read_table(path, where=low),
        "explain": lambda: qbeast.open_table(path).rows(low).explain().files,
        "merge": lambda: qbeast.open_table(path).merge(rows.head(5), on="c0", when_not_matched="ignore"),
        "update": lambda: qbeast.open_table(path).update(low, {"c2": 0.0}),
        "delete": lambda: qbeast.open_table(path).delete(low),
        "optimize": lambda: qbeast.open_table(path).optimize(full=True),
    }
    actual = {}
    with small_files():
        for name in names or operations:
            looks.clear()
            operations[name]()
            actual[name] = looks.total()
    return actual


@pytest.mark.parametrize(
    ("names", "columns"), [(PROBES, (5, 35)), pytest.param((), (50, 150), marks=pytest.mark.sweep)]
)
def test_operations_do_not_list_columns_per_column(
    names: Sequence[str], columns: tuple[int, int], tmp_path: Path, looks: Counter[str]
) -> None:
    few, many = (looks_of_operations(tmp_path / f"{count}", looks, count, names) for count in columns)
    # Once more for each file, say, but not for each column: of those there are many more.
    grown = {name: (few[name], many[name]) for name in few if many[name] > few[name] + 10}
    assert not grown
