"""Data files that no ``.segment`` file lists: of a segment's folder by its index files, of a plain folder all."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from qbeast_core.carbondata.deletes import BlockDeletes
from qbeast_core.carbondata.json_files import Load
from qbeast_core.carbondata.segments import LiveFile, Place, Stores, indexed_files
from qbeast_core.errors import DamagedFileError, UnsupportedTableError

__all__ = ["files_of_folder", "listed_files"]

_INDEXES: Final = (".carbonindex", ".carbonindexmerge")


def listed_files(stores: Stores, load: Load, deletes: BlockDeletes) -> list[LiveFile]:
    """Return the live data files of a segment, by the index files in its folder.

    Parameters
    ----------
    stores : Stores
        Of the table.
    load : Load
        Its entry in the table status.
    deletes : BlockDeletes
        What the update status says of its blocks.
    """
    place = Place.of(stores.table, f"Fact/Part0/Segment_{load.merged_into or load.name}")
    names = [path.rpartition("/")[2] for path in place.list_files() if path.endswith(_INDEXES)]
    found = [file for name in names for file in indexed_files(place, name, load, deletes)]
    return list({file.path: file for file in found}.values())


def files_of_folder(stores: Stores) -> list[LiveFile]:
    """Return all data files of a folder without a table status, with what index files tell of them.

    Parameters
    ----------
    stores : Stores
        Of the folder.
    """
    load = Load.model_validate({"loadName": "", "loadStatus": "Success"})
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
