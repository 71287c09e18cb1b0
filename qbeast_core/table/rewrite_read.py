"""Rows of some files of a snapshot, without those that no read returns, in groups that fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.query.weights import ALL_WEIGHTS
from qbeast_core.space.arrays import I64Array
from qbeast_core.table.index_state import IndexState
from qbeast_core.table.portion import Place, Portion, Wanted, read_portion
from qbeast_core.table.reader import Reader

__all__ = ["read_files", "row_groups"]

_WIDE: Final = 48
_NARROW: Final = 8


def read_files(reader: Reader, numbers: I64Array, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the rows of some live files, in the table's types; rows that a deletion vector hides are left out.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    numbers : ndarray of int64
        Numbers of files in the snapshot.
    columns : sequence of str, optional
        Columns to read, at least one; all by default.

    Raises
    ------
    StorageError, FileNotFoundError
        If a file cannot be read.
    """
    snapshot = reader.snapshot
    names = list(snapshot.schema) if columns is None else list(columns)
    paths = [(reader.paths[number], reader.deleted_rows.get(number)) for number in numbers.tolist()]
    portion = Portion(
        whole=tuple(path for path, hidden in paths if hidden is None),
        hiding=tuple((path, hidden) for path, hidden in paths if hidden is not None),
    )
    wanted = Wanted(tuple(names), snapshot.schema, reader.indexed, ALL_WEIGHTS)
    place = Place(reader.store, reader.pages, snapshot.storage_options)
    none = pl.DataFrame(schema={name: snapshot.schema[name] for name in names})
    return pl.concat([none, *read_portion(portion, wanted, place)], rechunk=False)


def row_groups(state: IndexState, numbers: I64Array, *, group_bytes: int) -> list[I64Array]:
    """Cut files into groups whose rows take about `group_bytes` of memory each, neighbours in the tree together.

    Parameters
    ----------
    state : IndexState
        The table.
    numbers : ndarray of int64
        Numbers of live files.
    group_bytes : int
        Estimated from the columns' types: 8 bytes a number, 48 a text or nested value.

    Returns
    -------
    list of ndarray of int64
        Every number once; a file larger than a group is a group of its own.
    """
    if not len(numbers):
        return []
    widths = [
        _WIDE if dtype.is_nested() or isinstance(dtype, pl.String | pl.Binary) else _NARROW
        for dtype in state.snapshot.schema.dtypes()
    ]
    rows = state.snapshot.files["num_records"].fill_null(0).to_numpy()[numbers]
    deepest = (
        state.blocks.sort("rows", descending=True, maintain_order=True)
        .unique("file", keep="first", maintain_order=True)
        .select("file", "cube")
    )
    listed = pl.DataFrame({"file": numbers, "bytes": rows * sum(widths)})
    ordered = listed.join(deepest, on="file", how="left").sort("cube", "file", nulls_last=False)
    ends = ordered["bytes"].cum_sum().to_numpy()
    group = np.maximum(ends - 1, 0) // group_bytes
    cuts = np.flatnonzero(np.diff(group)) + 1
    return np.split(ordered["file"].to_numpy(), cuts)
