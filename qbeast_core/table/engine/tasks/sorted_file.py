"""Write a data file of sorted rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.files.tag_copy import RevisionKey
from qbeast_core.space.arrays import I32Array
from qbeast_core.spec.block import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.data_files import FileSettings, store_file
from qbeast_core.table.engine.target import FileTarget
from qbeast_core.tree.bands.shape import FileShape


def settings_for(
    target: FileTarget,
    rows: pl.DataFrame,
    indexed: tuple[str, ...],
    *,
    revision: Revision | None = None,
    size_bytes: int | None = None,
) -> FileSettings:
    """Choose the settings of files for such rows, indexed by a revision or not; see `FileSettings.of`."""
    settings = FileSettings.of(
        rows, indexed, target.configuration, dialect=target.dialect, size_bytes=size_bytes
    )
    return (
        settings if revision is None else replace(settings, revision=RevisionKey.of(revision, target.columns))
    )


def store_sorted(
    target: FileTarget,
    rows: pl.DataFrame,
    weights: I32Array,
    settings: FileSettings,
    *,
    path: str,
    shape: FileShape,
    blocks: Sequence[Block] = (),
) -> AddFile:
    """Write a file of arranged rows, which repeats the tags of `blocks`. Return it without blocks."""
    put = target.store.put
    return store_file(rows, weights, shape, put=put, path=path, settings=settings, blocks=blocks)[0]
