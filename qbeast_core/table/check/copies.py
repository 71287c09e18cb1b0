"""Copies of rows in layouts before 0.6.0: each has its original, and no row is there twice (format 11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.io.stores.store import Store
from qbeast_core.space.arrays import U64Array
from qbeast_core.table.check.faults import Fault
from qbeast_core.table.data.footers import stored_size
from qbeast_core.table.data.parquet_scan import scan_files
from qbeast_core.table.data.whole_batches import SCAN_ERRORS, whole_batches

_SEED: Final = 20_240


def copy_faults(
    blocks: pl.DataFrame, store: Store, schema: pl.Schema, options: dict[str, str]
) -> Iterator[Fault]:
    """Yield the faults of revisions that may hold copies: with blocks of the old layout, or marked as copies."""
    for revision in blocks.filter(pl.col("legacy") | pl.col("replicated"))["revision"].unique().sort():
        yield from _of_revision(blocks.filter(revision=revision), revision, store, schema, options)


def _of_revision(
    mine: pl.DataFrame, revision: int, store: Store, schema: pl.Schema, options: dict[str, str]
) -> Iterator[Fault]:
    """Compare the rows of one revision with each other, by a hash of all columns: 8 bytes a row."""
    kinds = mine.group_by("path", maintain_order=True).agg(
        pl.col("replicated").all(), pl.col("replicated").any().alias("some"), pl.col("legacy").all()
    )
    whole = kinds.filter(pl.col("replicated") == pl.col("some"))  # mixed files are a fault of their own
    single = whole.filter(~pl.col("replicated"))
    own = {path: _hashes(store, path, schema, options) for path in single["path"]}
    yield from _doubled({path: own[path] for path in single.filter("legacy")["path"]}, revision)
    originals = np.unique(np.concatenate([np.zeros(0, np.uint64), *own.values()]))
    for path in whole.filter("replicated")["path"]:
        alone = ~np.isin(_hashes(store, path, schema, options), originals)
        if alone.any():
            count = int(alone.sum())
            message = f"{count:,} row(s) marked as copies are in no other file: no read returns them"
            yield Fault("copy-alone", message, int(np.argmax(alone)), path=path, revision=revision)


def _doubled(own: dict[str, U64Array], revision: int) -> Iterator[Fault]:
    """Find rows that an earlier file holds too, alike in every column."""
    rows = np.concatenate([np.zeros(0, np.uint64), *own.values()])
    _, first = np.unique(rows, return_index=True)
    fresh = np.zeros(len(rows), np.bool_)
    fresh[first] = True
    end = 0
    for path, keys in own.items():
        start, end = end, end + len(keys)
        _, at = np.unique(keys, return_index=True)
        repeated = ~fresh[start:end][at]  # rows alike inside one file are the data's own
        if repeated.any():
            message = (
                f"{int(repeated.sum()):,} of its {len(keys):,} rows are in another file of the revision as well: "
                "either the data repeats itself, or a bug of a writer before 0.6.0 left copies without a tag"
            )
            yield Fault("rows-doubled", message, int(at[repeated].min()), path=path, revision=revision)


def _hashes(store: Store, path: str, schema: pl.Schema, options: dict[str, str]) -> U64Array:
    """Give each row of a file as one number made of all its columns."""
    nothing = np.zeros(0, np.uint64)
    if stored_size(store, path) is None:
        return nothing
    try:
        lazy = scan_files(store, [path], list(schema), schema, storage_options=options)
        batches = whole_batches(lazy, [path], lambda _: lazy)
        return np.concatenate([nothing, *(batch.hash_rows(seed=_SEED).to_numpy() for batch in batches)])
    except (*SCAN_ERRORS, OSError):
        return nothing  # a fault of the file
