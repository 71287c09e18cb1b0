"""Run a change of rows: plan on the newest version, rewrite what it means, and again where that was outrun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import polars as pl

from qbeast_core.errors import CommitConflictError, UnsupportedTableError
from qbeast_core.log.protocol import Brings, WriteMode, check_writable
from qbeast_core.space.arrays import BoolArray
from qbeast_core.table.data_files import World
from qbeast_core.table.dml_result import ChangedBy, ChangeResult
from qbeast_core.table.dml_work import Work
from qbeast_core.table.index_state import IndexState
from qbeast_core.table.progress import Progress, ProgressCallback
from qbeast_core.table.reader import Reader
from qbeast_core.table.rewrite import refuse_copies, rewrite
from qbeast_core.table.rewrite_job import GROUP_BYTES, Replaced, Rewrite
from qbeast_core.table.snapshot import Snapshot, refresh
from qbeast_core.table.write_options import check_metadata

__all__ = ["MOST_PLANS", "Change", "ChangeOptions", "run_change"]

MOST_PLANS: Final = 12
"""Versions a change is planned on before it gives up."""

_CHANGE_FEED: Final = "delta.enableChangeDataFeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """What every change of rows is told besides which rows."""

    dry_run: bool = False
    commit_metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    progress: ProgressCallback | None = None


class Change(Protocol):
    """A delete, an update or a merge, whatever the version it will be planned on."""

    @property
    def operation(self) -> ChangedBy:
        """Its name in the history."""
        ...

    @property
    def mode(self) -> WriteMode:
        """``"overwrite"`` if rows may go or change, ``"append"`` if rows only come."""
        ...

    @property
    def brings(self) -> Brings:
        """``"rows"`` if rows may come or change, ``"files"`` if they only go."""
        ...

    def work(self, reader: Reader) -> Work:
        """Find what is to be done to a version; refuse what cannot be meant."""
        ...

    def concerns(self, reader: Reader, files: BoolArray) -> bool:
        """Tell whether the change would have to look at a row in some of the files of a version."""
        ...


def run_change(
    reader: Reader, change: Change, options: ChangeOptions, world: World
) -> tuple[ChangeResult, Snapshot]:
    """Apply a change to the table as it is now, as if nobody else wrote meanwhile.

    Parameters
    ----------
    reader : Reader
        Of some version of the table.
    change : Change
        What to do.
    options : ChangeOptions
        How.
    world : World
        Clock and ids.

    Returns
    -------
    tuple of ChangeResult and Snapshot
        What was done, and the newest version known.
    """
    check_metadata(options.commit_metadata)
    for _ in range(MOST_PLANS - 1):
        reader = _renewed(reader)
        try:
            return _attempt(reader, change, options, world)
        except CommitConflictError:
            if refresh(reader.snapshot) is reader.snapshot:
                raise  # nobody was faster: another plan would fail in the same way
    return _attempt(_renewed(reader), change, options, world)


def _renewed(reader: Reader) -> Reader:
    newest = refresh(reader.snapshot)
    return reader if newest is reader.snapshot else Reader(newest, pages=reader.pages)


def _attempt(
    reader: Reader, change: Change, options: ChangeOptions, world: World
) -> tuple[ChangeResult, Snapshot]:
    snapshot, state = reader.snapshot, IndexState(reader.snapshot)
    _check_changeable(snapshot, change)
    refuse_copies(state)
    begun = world.now_ms()
    _tell(options, Progress("read"))
    work = change.work(reader)
    if options.dry_run or work.is_nothing:
        return work.result(snapshot, change.operation, dry_run=options.dry_run), snapshot

    def metrics(replaced: Replaced) -> Mapping[str, int]:
        return work.metrics(replaced, snapshot) | {"executionTimeMs": world.now_ms() - begun}

    job = Rewrite(
        files=work.rewritten,
        dropped=work.dropped,
        change=work.change,
        keeps_places=True,
        keeps_keys=work.keeps_keys,
        added=work.added,
        brings=change.brings,
        data_change=True,
        operation=change.operation,
        parameters=work.parameters,
        commit_metadata=options.commit_metadata,
        metrics=metrics,
        still_holds=_Outrun(reader, change),
        progress=options.progress,
        group_bytes=GROUP_BYTES,
    )
    replaced = rewrite(reader, state, job, world)
    newest = None if replaced is None or replaced.outcome is None else replaced.outcome.snapshot
    result = work.result(snapshot, change.operation, replaced=replaced)
    _tell(options, Progress("done", result.files, result.files, 0 if replaced is None else replaced.rows))
    return result, newest if newest is not None else refresh(snapshot)


def _tell(options: ChangeOptions, progress: Progress) -> None:
    if options.progress is not None:
        options.progress(progress)


def _check_changeable(snapshot: Snapshot, change: Change) -> None:
    check_writable(
        snapshot.protocol, snapshot.metadata, mode=change.mode, path=snapshot.uri, brings=change.brings
    )
    if snapshot.metadata.configuration.get(_CHANGE_FEED, "").lower() == "true":
        msg = (
            f"{snapshot.uri} keeps a feed of changed rows ({_CHANGE_FEED}), which qbeast does not write; nothing was "
            "changed. Appends and optimize work. If nobody reads the feed, end it with "
            f"Table.set_properties({{{_CHANGE_FEED!r}: None}}); or let another Delta engine change rows here."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature=_CHANGE_FEED)


class _Outrun:
    """Why a planned change must not follow commits that came after its version; None: it may."""

    def __init__(self, reader: Reader, change: Change) -> None:
        self._reader, self._change = reader, change

    def __call__(self, newest: Snapshot) -> str | None:
        planned = self._reader.snapshot
        if newest.schema_json != planned.schema_json:
            return "another writer changed the schema"
        _check_changeable(newest, self._change)
        key = ["path", "deletion_vector"]
        known = planned.files.select(key).with_columns(pl.lit(value=True).alias("known"))
        joined = newest.files.select(key).join(
            known, on=key, how="left", nulls_equal=True, maintain_order="left"
        )
        fresh = joined["known"].is_null().to_numpy()
        if not np.any(fresh):
            return None
        if self._change.concerns(Reader(newest, pages=self._reader.pages), fresh):
            return "another writer added rows that this change has to look at"
        return None
