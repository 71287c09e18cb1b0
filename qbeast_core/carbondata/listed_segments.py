"""Data files that no ``.segment`` file lists: of a segment's folder by its index files, of a plain folder all."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from qbeast_core.carbondata.deletes import BlockDeletes
from qbeast_core.carbondata.json_files import Load
from qbeast_core.carbondata.segments import LiveFile, Place, Stores, indexed_files
from qbeast_core.errors import DamagedFileError, UnsupportedTableError

_INDEXES: Final = (".carbonindex", ".carbonindexmerge")


def listed_files(stores: Stores, load: Load, deletes: BlockDeletes) -> list[LiveFile]:
    """Return the live data files of a segment, by the index files in its folder."""
    place = Place.of(stores.table, f"Fact/Part0/Segment_{load.merged_into or load.name}")
    names = [path.rpartition("/")[2] for path in place.list_files() if path.endswith(_INDEXES)]
    found = [file for name in names for file in indexed_files(place, name, load, deletes)]
    return list({file.path: file for file in _not_abandoned(found, load)}.values())


def _not_abandoned(files: list[LiveFile], load: Load) -> list[LiveFile]:
    """Leave out what updates that never ended wrote beside the segment's files, in CarbonData before 1.3.1.

    Files of the load have the least time in their names; those of updates count if theirs lies in the range that the
    table status tells. Times of the load itself are texts of an unknown time zone there, and are not compared.
    """
    first, last = load.update_start, load.update_end
    if not (first.isdecimal() and last.isdecimal()):
        return files
    times = [_written_ms(file.path) for file in files]
    loaded = min((one for one in times if one is not None), default=0)
    return [
        file
        for file, time_ms in zip(files, times, strict=True)
        if time_ms is None or time_ms == loaded or int(first) <= time_ms <= int(last)
    ]


def _written_ms(path: str) -> int | None:
    """Return the time in a data file's name, None if there is none.

    >>> _written_ms("Fact/Part0/Segment_0/part-0-0_batchno0-0-1502698524040.carbondata")
    1502698524040
    """
    text = path.rpartition("-")[2].partition(".")[0]
    return int(text) if text.isdecimal() else None


def files_of_folder(stores: Stores, load: Load) -> list[LiveFile]:
    """Return all data files of a folder without a table status, with what index files tell of them."""
    paths = stores.table.list("")
    found = {path: LiveFile(stores.table, path, "") for path in paths if path.endswith(".carbondata")}
    for path in paths:
        if not path.endswith(_INDEXES):
            continue
        folder, _, name = path.rpartition("/")
        with suppress(DamagedFileError, UnsupportedTableError):  # the data files tell all of it themselves
            for file in indexed_files(Place.of(stores.table, folder), name, load, {}):
                if file.path in found:
                    found[file.path] = replace(file, size_bytes=-1)
    return list(found.values())
