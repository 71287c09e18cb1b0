"""The change that a writer publishes: planned once, turned into actions again at every attempt to commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qbeast_core.log.actions import AddFile, CdcFile, Metadata, RemoveFile, Txn
from qbeast_core.log.features import Brings
from qbeast_core.log.files.live_files import FileChangePlanner
from qbeast_core.log.protocol import WriteMode
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.revision import Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIntent:
    """One change to a table, independent of the version it will become."""

    # `create` needs a place without table; `overwrite` removes whatever is live when it lands and drops all
    # older revisions; `metadata` publishes `metadata` and what `files` decides, nothing if neither changes
    # anything.
    mode: WriteMode
    # The most that it brings, see `qbeast_core.log.features.Brings`: features of the table that do not bind
    # such a change are allowed.
    brings: Brings = "rows"
    # New files, one path once. Indexed ones carry `blocks` and no `blocks` tag, and a `revision` tag only if
    # they are of another revision than `revision`, the revision of files they replace: the rest is filled at every
    # attempt. Files without `blocks` are published as they are.
    adds: tuple[AddFile, ...] = ()
    # Live files this change replaces. It fails if another writer touches one of them first.
    removes: tuple[RemoveFile, ...] = ()
    # New files of the change data feed.
    changes: tuple[CdcFile, ...] = ()
    # What happens to the files that live when the change lands, decided again at every attempt
    # (`qbeast_core.log.files.live_files`): so it repeats live files alone, each as it is then.
    files: FileChangePlanner | None = None
    # What `adds` are indexed with. Its id counts if `new_revision` is false, and then only as long as the
    # table still holds this very revision under it. None: they are not indexed, and an overwrite drops the index.
    revision: Revision | None = None
    # Publish `revision` under the next free id. An overwrite always does.
    new_revision: bool = False
    # Drop the revisions that no file needs which lives when the change lands, and statistics that a user
    # gave.
    drops_unused: bool = False
    # The whole new metadata, without `revision`; None: as it is. Changes of others are merged key by key.
    metadata: Metadata | None = None
    # Dialect for a table that does not have one yet, or that is overwritten; None: the table's, else
    # `"documented"`.
    dialect: BlocksDialect | None = None
    # The application's own progress: a version at or below the table's means it is there already.
    txn: Txn | None = None
    # Name in the history; empty: by mode.
    operation: str = ""
    # More keys for the history, for example `operationMetrics`, which are written as texts. Ours win.
    commit_info: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def new_files(self) -> tuple[AddFile | CdcFile, ...]:
        """All files that exist only for this change. They are deleted if it fails."""
        return (*self.adds, *self.changes)
