"""Keys that hold much of a table: what is promised holds whether they are in a sample or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import qbeast

ROWS = 100_000


def rows(share: float, *, key: float | None = None, seed: int = 1) -> pl.DataFrame:
    """Rows of which one key has a share, whose values are smaller than those of others."""
    random = np.random.default_rng(seed)
    heavy = random.random(ROWS) < share
    x = pl.Series(random.normal(size=ROWS))
    return pl.DataFrame(
        {
            "x": x.set(pl.Series(heavy), key),
            "w": np.where(heavy, random.random(ROWS) * 0.5, random.random(ROWS)),
        }
    )


@pytest.mark.parametrize(
    ("key", "share", "where", "error"),
    [
        (None, 0.25, "w < 0.5", 0.05),
        (None, 0.05, "w < 0.5", 0.02),
        (None, 0.25, "w < 0.5 AND (x < -1 OR x IS NULL)", 0.05),
        (0.5, 0.3, None, 0.02),
        (0.5, 0.3, "x BETWEEN 0.4 AND 0.6", 0.05),
    ],
)
@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_answers_with_heavy_keys_keep_their_promise(
    tmp_path: Path, key: float | None, share: float, where: str | None, error: float
) -> None:
    frame = rows(share, key=key)
    qbeast.write_table(frame, str(tmp_path), columns=["x"])
    asked: dict[str, Any] = {"n": pl.col("w").count(), "sum": pl.col("w").sum()}
    found = qbeast.open_table(str(tmp_path)).estimate(asked, where=where, error=error)
    kept = frame if where is None else frame.filter(pl.sql_expr(where))
    assert found.met
    for name, truth in (("n", kept.height), ("sum", kept["w"].sum())):
        assert found.frame[name].item() == pytest.approx(truth, rel=error)


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_a_sample_that_lacks_keys_is_called_unreliable(tmp_path: Path) -> None:
    frame = rows(0.25)
    qbeast.write_table(frame, str(tmp_path), columns=["x"])
    table = qbeast.open_table(str(tmp_path))
    for limit in ({"sample": 0.1}, {"error": 0.05, "max_fraction": 0.1}):
        found = table.estimate({"n": pl.len()}, where="w < 0.5", **limit)
        low, high, reliable = found.frame.select("n_low", "n_high", "reliable").row(0)
        assert not reliable or low <= frame.filter(pl.col("w") < 0.5).height <= high
        assert reliable or "other numbers of rows" in found.notes[0]
