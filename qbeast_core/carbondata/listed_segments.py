"""The data files of a segment without a ``.segment`` file: all that index files in its folder name."""

from __future__ import annotations

from typing import Final

from qbeast_core.carbondata.deletes import BlockDeletes
from qbeast_core.carbondata.json_files import Load
from qbeast_core.carbondata.segments import LiveFile, Place, Stores, indexed_files

__all__ = ["listed_files"]

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
