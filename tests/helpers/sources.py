"""Ways to give rows to an operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

__all__ = ["KINDS", "given_as"]

KINDS = ("frame", "query", "parquet", "dataset", "reader", "iterator")


def given_as(rows: pl.DataFrame, kind: str, folder: Path, batch_rows: int) -> Any:
    """Return rows in batches; files are written below the folder."""
    batches = list(rows.iter_slices(batch_rows)) or [rows]
    tables = [batch.to_arrow(compat_level=pl.CompatLevel.oldest()) for batch in batches]
    match kind:
        case "query":
            return rows.lazy()
        case "parquet":
            for number, batch in enumerate(batches):
                batch.write_parquet(folder / f"{number:06}.parquet")
            return pl.scan_parquet(folder / "*.parquet")
        case "dataset":
            return ds.dataset(tables)
        case "reader":
            return pa.concat_tables(tables).to_reader()
        case "iterator":
            return iter([rows.clear(), *batches, rows.clear()])
        case _:
            return rows
