"""Every operation that writes a file lists its heavy keys and shuffles their rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import qbeast
from qbeast_core.tree.grid import frame_weights
from qbeast_core.tree.keys import HeavyKeys, parse_heavy

ROWS = 10_000


def rows(seed: int) -> pl.DataFrame:
    """Rows in the order of `n`, of which two keys have many."""
    random = np.random.default_rng(seed)
    x = pl.Series(random.normal(size=ROWS)).set(pl.Series(random.random(ROWS) < 0.3), None)
    x = x.set(pl.Series(random.random(ROWS) < 0.1), 0.25)
    return pl.DataFrame({"x": x, "n": np.arange(ROWS) + seed * ROWS})


def lists_are_true(path: Path, *, keys: int = 2) -> None:
    table = qbeast.open_table(str(path))
    actual = 0
    for file, tag in table.snapshot.files.select("path", "keys").iter_rows():
        stored = pl.read_parquet(path / file)
        weights = frame_weights(stored, ["x"])
        listed = parse_heavy(tag, stored.height)
        exact = HeavyKeys.of(np.sort(weights), together=True)
        assert listed is not None
        assert (listed.weights.tolist(), listed.rows.tolist()) == (
            exact.weights.tolist(),
            exact.rows.tolist(),
        )
        for weight, count, first in zip(listed.weights, listed.rows, listed.firsts, strict=True):
            assert first >= 0
            assert (weights[first : first + count] == weight).all()
            if count >= 500:
                actual += 1
                order = stored["n"][int(first) : int(first + count)].to_numpy().argsort().argsort()
                assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 5 / count**0.5
    assert actual >= keys


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_every_write_lists_heavy_keys(tmp_path: Path) -> None:
    qbeast.write_table(rows(0), tmp_path, columns=["x"], cube_size=1_000)
    lists_are_true(tmp_path)
    qbeast.write_table(rows(1), tmp_path, mode="append")
    lists_are_true(tmp_path, keys=4)
    table = qbeast.open_table(tmp_path)
    table.update("n < 17000", {"n": pl.col("n") + 1})
    lists_are_true(tmp_path)
    table.delete("n >= 7000 AND n < 13000")
    lists_are_true(tmp_path)
    table.optimize(full=True)
    lists_are_true(tmp_path)
