"""Write the data files of a plan: invisible until a commit names them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.io.store import Store
from qbeast_core.log.actions import AddFile
from qbeast_core.table.data_file import FileSettings, store_file
from qbeast_core.table.gather import RowSource
from qbeast_core.table.progress import Progress, ProgressCallback
from qbeast_core.tree.plan import FilePlan, IndexPlan

__all__ = ["World", "delete_data_files", "write_data_files"]

_MOST_WRITERS: Final = 4


@dataclass(frozen=True, slots=True)
class World:
    """What pure code must not ask for: the clock (milliseconds since 1970 UTC) and new ids."""

    now_ms: Callable[[], int]
    new_id: Callable[[], str]


def write_data_files(
    frame: pl.DataFrame,
    plan: IndexPlan,
    *,
    store: Store,
    settings: FileSettings,
    world: World,
    progress: ProgressCallback | None = None,
) -> list[AddFile]:
    """Write every file of the plan and return what a commit has to say about them.

    Files are encoded and stored a few at a time, so memory beyond `frame` is that of some files. If one
    fails, those written are deleted again as far as the store lets us.

    Parameters
    ----------
    frame : polars.DataFrame
        The rows, of the table's types.
    plan : IndexPlan
        Where they go.
    store : Store
        Below the table's root.
    settings : FileSettings
        What the files share.
    world : World
        Clock and ids.
    progress : callable, optional
        Told after every file.

    Returns
    -------
    list of AddFile
        In the order of the plan, with blocks still to be spelled.

    Raises
    ------
    StorageError
        If the store refuses; the table is as it was.
    """
    source = RowSource(frame)
    paths = [f"{world.new_id()}.parquet" for _ in range(plan.file_count)]
    done = 0
    with ThreadPoolExecutor(min(_MOST_WRITERS, os.cpu_count() or 1)) as pool:
        jobs = [
            pool.submit(
                _write_one,
                source,
                plan.file,
                number,
                store=store,
                path=path,
                settings=settings,
                world=world,
            )
            for number, path in enumerate(paths)
        ]
        try:
            for job in as_completed(jobs):
                job.result()
                done += 1
                if progress is not None:
                    progress(Progress("write", done, plan.file_count, frame.height))
        except BaseException:  # an interrupt and a panic of Rust too
            for job in jobs:
                job.cancel()
            pool.shutdown(wait=True)
            _delete(store, paths)
            raise
    return [job.result() for job in jobs]


def delete_data_files(store: Store, adds: Iterable[AddFile]) -> None:
    """Delete files that no commit names, as far as the store lets us.

    Parameters
    ----------
    store : Store
        Where they were written.
    adds : iterable of AddFile
        What a commit would have said; their paths need no decoding.
    """
    _delete(store, [add.path for add in adds])


def _write_one(
    source: RowSource,
    plan_of: Callable[[int], FilePlan],
    number: int,
    *,
    store: Store,
    path: str,
    settings: FileSettings,
    world: World,
) -> AddFile:
    file = plan_of(number)
    add = store_file(
        source.take(file.rows, file.order),
        file.weights,
        file.page_rows,
        store=store,
        path=path,
        settings=settings,
        now_ms=world.now_ms,
    )
    return add.model_copy(update={"blocks": file.blocks})


def _delete(store: Store, paths: list[str]) -> None:
    for path in paths:
        with suppress(StorageError):  # what cannot be deleted stays an orphan that vacuum removes
            store.delete(path)
