"""The digest of the keys of a merge's source, made in workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl
import pyarrow as pa

from qbeast_core.table.dml.merge.key_digest import KeyDigest, digest_of, merge_digests
from qbeast_core.table.dml.merge.rules import MergeRules
from qbeast_spark_bridge.worker.transport import batch_of, gathered, longs_as_decimals

# Columns of what `digest_keys` yields.
DIGESTS: Final = "digest binary"

_DIGESTS_SCHEMA: Final = pa.schema([("digest", pa.binary())])


def digest_keys(
    argument: tuple[MergeRules, Sequence[str], dict[int, tuple[int, int]]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the digest of a partition's keys, in a worker; nothing for no rows."""
    rules, names, decimals = argument
    total: KeyDigest | None = None
    for table in gathered(batches, names):
        digest = digest_of(rules, pl.DataFrame(longs_as_decimals(table, decimals)))
        total = digest if total is None else merge_digests([total, digest])
    if total is not None:
        yield batch_of(_DIGESTS_SCHEMA, [pickle.dumps(total)])
