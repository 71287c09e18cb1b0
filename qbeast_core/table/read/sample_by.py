"""Samples by the hash of any columns: also of tables without an index, which are then read completely."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final

from qbeast_core.errors import UnindexedSampleWarning, invalid_argument
from qbeast_core.query.plan.weight_range import Sample
from qbeast_core.support.runtime import caller_stacklevel
from qbeast_core.table.index.unindexed import index_call
from qbeast_core.table.read.reader import Reader, different_names
from qbeast_core.tree.space.index_values import can_be_hashed

# Ids of the tables that a warning was shown for.
_WARNED: Final[set[str]] = set()


def sampled_by(reader: Reader, columns: Sequence[str] | None) -> Reader:
    """Return the reader whose samples select rows by the hash of these columns; None: by the index of the table.

    If the index is of these columns, it is used.
    """
    if columns is None:
        return reader
    schema = reader.snapshot.schema
    names = different_names(columns, list(schema), argument="sample_by")
    unfit = {name: schema[name] for name in names if not can_be_hashed(schema[name])}
    if unfit:
        problem = f"must name columns with a hash; no hash is known for the types of {unfit}"
        invalid_argument("sample_by", problem, value=names)
    if tuple(names) == reader.hashed and not reader.hashes_differ:
        return reader
    return Reader(reader.snapshot, tuple(names))


def reader_of_estimate(reader: Reader, columns: Sequence[str] | None, sample: Sample | None) -> Reader:
    """Return the reader of an estimate: without an index on these columns, it reads all rows. Warn of that."""
    reader = sampled_by(reader, columns)
    reader.weights_of(sample)  # raises if a sample needs other arguments
    warn_of_full_read(reader)
    return reader


def warn_of_full_read(reader: Reader) -> None:
    """Warn, once per table, if samples read all files."""
    snapshot = reader.snapshot
    reads_all = reader.sample_by is not None or not snapshot.config.is_indexed
    if not reads_all or snapshot.metadata.id in _WARNED:
        return
    if snapshot.config.is_indexed:
        columns = list(reader.hashed)
        now = Reader(snapshot).hashed
        reason = f"is sampled by {list(now)}, not by {columns}"
        cure = f"Leave sample_by out to sample by {list(now)}, or write a table with sample_by={columns}"
    else:
        reason = "has no index"
        cure = f"Index it, which moves no data, and sample by the same columns: {index_call(snapshot)}"
    message = f"samples and estimates read all files of {snapshot.uri!r}, because it {reason}. {cure}."
    warnings.warn(message, UnindexedSampleWarning, stacklevel=caller_stacklevel())
    _WARNED.add(snapshot.metadata.id)
