"""A task of a conversion, in a worker: it reads Parquet files for what the log will say about them.

Workers import this alone: what plans a conversion takes as long to import again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from qbeast_core.io.store import open_store
from qbeast_core.log.actions import dump_commit
from qbeast_core.table.maintenance.parquet_folder import ParquetFolder, add_files

__all__ = ["ADDS", "AddJob", "look_at_files"]

ADDS: Final = "number int, adds binary"
"""Columns of what `look_at_files` yields."""

_ADDS_SCHEMA: Final = pa.schema([("number", pa.int32()), ("adds", pa.binary())])


@dataclass(frozen=True, slots=True, eq=False)
class AddJob:
    """What a worker must know to look at files: where they are, which columns they have, and the time of now."""

    uri: str
    folder: ParquetFolder
    now_ms: int
    storage_options: Mapping[str, str] = field(repr=False)


def look_at_files(job: AddJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield an add for each file, as a line of the log, in a worker.

    Parameters
    ----------
    job : AddJob
        What is known of all of them.
    batches : iterator of pyarrow.RecordBatch
        Numbers and paths of files.
    """
    store = open_store(job.uri, job.storage_options)
    for batch in batches:
        for number, path in zip(
            batch.column("number").to_pylist(), batch.column("path").to_pylist(), strict=True
        ):
            some = replace(job.folder, paths=(path,))
            adds = add_files(store, some, now_ms=job.now_ms, storage_options=job.storage_options)
            yield pa.record_batch([[number], [dump_commit(adds)]], schema=_ADDS_SCHEMA)
