"""A table's settings without what cannot be read of them."""

from __future__ import annotations

from typing import Final

from qbeast_core.log.actions import Metadata
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.revision import STAGING_REVISION_ID
from qbeast_core.spec.table_config import BLOCKS_DIALECT, REVISION_PREFIX, TableConfig

_STAGING: Final = f"{REVISION_PREFIX}{STAGING_REVISION_ID}"


def repaired_settings(metadata: Metadata, dialect: BlocksDialect) -> Metadata | None:
    """Return the metadata of a table with the settings that can be read alone; None: nothing can be repaired.

    It goes on with the newest revision that can be read; where none tells the indexed columns, nothing is repaired.

    >>> from qbeast_core.spec.revision import staging_revision
    >>> staging = staging_revision(["x"], timestamp_ms=9, table_id="t", cube_size=9)
    >>> broken = {"qbeast.revision.0": staging.to_json(), "qbeast.lastRevisionID": "one"}
    >>> found = repaired_settings(Metadata(id="a", schema_string="{}", configuration=broken), "documented")
    >>> found.configuration["qbeast.lastRevisionID"]
    '0'
    """
    config = TableConfig.from_configuration(metadata.configuration)
    if not config.faults or (config.newest_fault is not None and config.last_revision_id is None):
        return None
    repaired = config.without_faults()
    if BLOCKS_DIALECT in config.faults:
        repaired = repaired.with_entries({BLOCKS_DIALECT: dialect})
    latest = repaired.latest
    if _STAGING in config.faults and latest is not None:
        repaired = repaired.with_entries({_STAGING: latest.staging().to_json()})
    return metadata.model_copy(update={"configuration": repaired.to_configuration()})
