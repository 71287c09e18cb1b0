"""What every part of a table's interface stands on: one snapshot, and moving on to the next."""

from __future__ import annotations

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.pages import PageReader
from qbeast_core.table.reader import Reader
from qbeast_core.table.snapshot import Snapshot, refresh

__all__ = ["TableBase"]


class TableBase:
    """A snapshot and its reader.

    Parameters
    ----------
    snapshot : Snapshot
        The version shown.
    pages : PageReader, optional
        Of an earlier version: files do not change, so what it knows of them is still true.

    Raises
    ------
    InvalidInputError
        If it is no snapshot: users call `qbeast.open_table`.
    NotQbeastTableError
        If the table has no Qbeast metadata.
    """

    def __init__(self, snapshot: Snapshot, *, pages: PageReader | None = None) -> None:
        _refuse_all_but_snapshots(snapshot)
        self._snapshot = snapshot
        self._reader = Reader(snapshot, pages=pages)

    @property
    def uri(self) -> str:
        """Path or address of the table."""
        return self._snapshot.uri

    @property
    def version(self) -> int:
        """The Delta version, 0 or more."""
        return self._snapshot.version

    def _newest(self) -> Snapshot:
        """Return the newest version, which a change starts from."""
        return refresh(self._snapshot)

    def _move_to(self, snapshot: Snapshot | None) -> None:
        """Show the version that a change of ours made; reads begun before keep theirs."""
        newest = snapshot if snapshot is not None else refresh(self._snapshot)
        self._reader = Reader(newest, pages=self._reader.pages)
        self._snapshot = newest


def _refuse_all_but_snapshots(snapshot: object) -> None:
    """Raise where somebody makes a table of a path."""
    if not isinstance(snapshot, Snapshot):
        msg = f"a Table is opened, not made: call qbeast.open_table(path); got {snapshot!r}"
        raise InvalidInputError(msg, argument="snapshot")
