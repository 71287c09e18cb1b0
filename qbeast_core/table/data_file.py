"""One data file: how it is encoded, and what the log says about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.io.codecs import choose_uncompressed
from qbeast_core.io.dictionaries import choose_dictionary
from qbeast_core.io.parquet_write import encode_data_file
from qbeast_core.io.store import Store
from qbeast_core.io.value_bytes import page_rows_within, refuse_huge_values
from qbeast_core.log.actions import AddFile
from qbeast_core.log.stats import file_stats, stats_columns
from qbeast_core.space.arrays import I32Array
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.layout import PageLayout, dump_layout
from qbeast_core.table.gather import RowSource
from qbeast_core.tree.key_sketch import KeySketch
from qbeast_core.tree.key_tag import KEYS_TAG, dump_keys

__all__ = ["FileSettings", "store_file"]

_RULES: Final = "1"
_TRIED_ROWS: Final = 1 << 14
_TRIED_PAGE_ROWS: Final = 2048
_STRIDE: Final = 2_654_435_761


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What all files of a write share.

    Parameters
    ----------
    dictionary : list of str
        Leaf columns to dictionary encode.
    uncompressed : list of str
        Leaf columns that compression does not shrink.
    statistics : tuple of str
        Columns with statistics per page: the indexed ones.
    stats_columns : list
        Leaf columns with statistics in the log.
    hidden_weights : bool
        Whether files get the column `_qbeast_weight`; not where a JVM may read them without the table's schema.
    """

    dictionary: list[str]
    uncompressed: list[str]
    statistics: tuple[str, ...]
    stats_columns: list[tuple[str, ...]]
    hidden_weights: bool

    @staticmethod
    def of(
        frame: pl.DataFrame,
        indexed: tuple[str, ...],
        configuration: Mapping[str, str],
        *,
        dialect: BlocksDialect,
    ) -> FileSettings:
        """Derive the settings from the rows, some of which are encoded to see, and the table.

        Raises
        ------
        InvalidInputError
            If a value is too large for Parquet.
        """
        refuse_huge_values(frame)
        listed = stats_columns(frame.schema, configuration)
        listed += [(name,) for name in indexed if (name,) not in listed]
        dictionary = choose_dictionary(frame)
        uncompressed: list[str] = []
        if frame.height:
            # Rows from all over the input, each once, in no order: that is how a file will hold them.
            some = (np.arange(min(_TRIED_ROWS, frame.height), dtype=np.int64) * _STRIDE) % frame.height
            rows, order = np.unique(some, return_inverse=True)
            uncompressed = choose_uncompressed(
                RowSource(frame).take(rows, order), page_rows=_TRIED_PAGE_ROWS, dictionary=dictionary
            )
        return FileSettings(dictionary, uncompressed, indexed, listed, dialect != "qbeast-spark")


def store_file(
    rows: pl.DataFrame,
    weights: I32Array,
    page_rows: int,
    *,
    store: Store,
    path: str,
    settings: FileSettings,
    now_ms: Callable[[], int],
) -> AddFile:
    """Encode and store rows in the order given.

    Parameters
    ----------
    rows : polars.DataFrame
        Of the table's types, in the order of the file.
    weights : ndarray of int32, shape (rows,)
        Their weights, equal keys side by side.
    page_rows : int
        Rows of a data page, or fewer where values are large.
    store : Store
        Below the table's root.
    path : str
        Name of the file, not used before.
    settings : FileSettings
        How it is encoded.
    now_ms : callable
        The clock, milliseconds since 1970 UTC.

    Returns
    -------
    AddFile
        Without `blocks`.

    Raises
    ------
    StorageError
        If the store refuses.
    """
    page_rows = page_rows_within(rows, page_rows)
    encoded = encode_data_file(
        rows,
        weights=weights if settings.hidden_weights else None,
        page_rows=page_rows,
        statistics=settings.statistics,
        dictionary=settings.dictionary,
        uncompressed=settings.uncompressed,
    )
    store.put(path, encoded.data)
    tags = {"qbeast.rules": _RULES, KEYS_TAG: dump_keys(KeySketch.of(weights))}
    if encoded.tail_bytes:
        tags["qbeast.layout"] = dump_layout(
            PageLayout(
                page_rows=page_rows,
                tail_bytes=encoded.tail_bytes,
                weights=tuple((weights[::page_rows] >> 16).tolist()),
                has_hidden_weights=settings.hidden_weights,
            )
        )
    return AddFile(
        path=path,
        size=encoded.size_bytes,
        modification_time=now_ms(),
        stats=file_stats(rows, columns=settings.stats_columns),
        tags=tags,
    )
