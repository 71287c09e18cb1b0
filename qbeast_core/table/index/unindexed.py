"""Tables without an index: Delta tables that were never converted, and tables with ``columns=[]``."""

from __future__ import annotations

from qbeast_core.errors import InvalidMetadataError, NotQbeastTableError
from qbeast_core.log.protocol import damaged_index
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.table_config import SAMPLE_BY
from qbeast_core.support.text import convert_call
from qbeast_core.table.snapshot.snapshot import Snapshot


def index_call(snapshot: Snapshot) -> str:
    """Return the call that begins an index, without moving data."""
    return "Table.reindex([...])" if snapshot.config.is_left_unindexed else convert_call(snapshot.uri)


def latest_revision(snapshot: Snapshot) -> Revision:
    """Return the newest revision that can be read. Raise if the table has no index."""
    refuse_unindexed(snapshot)
    config = snapshot.config
    if config.latest is None or SAMPLE_BY in config.faults:
        raise InvalidMetadataError(damaged_index(config, path=snapshot.uri))
    return config.latest


def refuse_unindexed(snapshot: Snapshot) -> None:
    """Raise if a table has no index, for an operation that needs one."""
    if snapshot.config.is_indexed:
        return
    uri = snapshot.uri
    what = (
        "a table without index" if snapshot.config.is_left_unindexed else "a Delta table without Qbeast index"
    )
    msg = f"{uri!r} is {what}, and this needs one. Index it, which moves no data: {index_call(snapshot)}."
    raise NotQbeastTableError(msg, path=uri)
