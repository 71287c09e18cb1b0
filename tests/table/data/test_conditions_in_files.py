"""What a condition does to rows inside a reader of files is the condition's fault, not the file's."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import qbeast


@pytest.mark.parametrize("condition", ["CAST(s AS INT) = 1", pl.col("s").cast(pl.Int32) == 1])
def test_non_numeric_text_does_not_damage_files(tmp_path: Path, condition: str | pl.Expr) -> None:
    qbeast.write_table(
        pl.DataFrame({"row": range(4), "s": ["1", "x", "2", "y"]}), tmp_path / "t", columns=["row"]
    )
    with pytest.raises(qbeast.InvalidInputError, match="cannot be evaluated"):
        qbeast.open_table(tmp_path / "t").delete(condition)
