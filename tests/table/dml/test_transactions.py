"""A change that says how far an application has come is made once, whoever repeats it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import qbeast
from tests.helpers.races import landing_first
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
NEW = pl.DataFrame({ROW: [5, 90_000], "a": [1, 2], "s": ["x", "y"], "f": [0.5, 1.5], "d": [None, None]}).cast(
    {"d": pl.Date}
)
CHANGES: dict[str, Callable[[qbeast.Table, tuple[str, int]], qbeast.ChangeResult]] = {
    "delete": lambda table, txn: table.delete(pl.col(ROW) < 50, txn=txn),
    "update": lambda table, txn: table.update(pl.col(ROW) < 50, {"f": pl.col("f") + 1}, txn=txn),
    "merge": lambda table, txn: table.merge(NEW, ROW, txn=txn),
    "nothing": lambda table, txn: table.delete(pl.col(ROW) < -1, txn=txn),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_with_transaction_happens_once(path: Path, table: qbeast.Table, name: str) -> None:
    first = CHANGES[name](table, ("job", 3))
    assert (first.committed, first.version) == (True, 2)
    rows = table.scan().collect()
    for version in (3, 2):
        again = CHANGES[name](qbeast.open_table(path), ("job", version))
        assert (again.committed, again.version, again.files) == (False, 2, 0)
        assert (again.rows_deleted, again.rows_updated, again.rows_inserted) == (0, 0, 0)
    assert_same_rows(qbeast.read_table(path), rows)
    assert CHANGES[name](qbeast.open_table(path), ("job", 4)).version == 3
    assert qbeast.open_table(path).check().ok


def test_concurrent_transaction_is_applied_once(path: Path, rows: pl.DataFrame) -> None:
    with landing_first(lambda: qbeast.open_table(path).merge(NEW, ROW, txn=("job", 1))):
        late = qbeast.open_table(path).merge(NEW, ROW, txn=("job", 1))
    assert (late.committed, late.rows_updated, late.version) == (False, 0, 2)
    expected = pl.concat([rows.filter(pl.col(ROW) != 5), NEW.select(rows.columns)])
    assert_same_rows(qbeast.read_table(path), expected)
    with pytest.raises(qbeast.InvalidInputError, match="`txn` must be"):
        qbeast.open_table(path).delete(where=True, txn=("", 1))
