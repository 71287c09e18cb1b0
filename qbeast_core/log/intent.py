"""What a writer wants to publish: planned once, turned into actions anew at every attempt to commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qbeast_core.log.actions import AddFile, Metadata, RemoveFile, Txn
from qbeast_core.log.live_files import FileChangePlanner
from qbeast_core.log.protocol import Brings, WriteMode
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.revision import Revision

__all__ = ["WriteIntent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIntent:
    """One change to a table, independent of the version it will become.

    Attributes
    ----------
    mode : {"append", "overwrite", "create", "metadata"}
        `create` needs a place without table; `overwrite` removes whatever is live when it lands and drops all
        older revisions; `metadata` publishes `metadata` and what `files` decides, nothing if neither changes
        anything.
    brings : {"rows", "files", "columns", "settings"}
        The most that it brings, see `qbeast_core.log.protocol.Brings`: features of the table that do not bind such
        a change do not stand in its way.
    adds : tuple of AddFile
        New files, one path once. Indexed ones carry `blocks` and no ``blocks`` tag, and a ``revision`` tag only
        if they are of another revision than `revision`, that of files they replace: the rest is filled at every
        attempt. Files without `blocks` are published as they are.
    removes : tuple of RemoveFile
        Live files this change replaces. It fails if another writer touches one of them first.
    files : callable or None
        What happens to the files that live when the change lands, decided anew at every attempt
        (`qbeast_core.log.live_files`): so it repeats live files alone, each as it stands then.
    revision : Revision or None
        What `adds` are indexed with. Its id counts if `new_revision` is false, and then only as long as the
        table still holds this very revision under it.
    new_revision : bool
        Publish `revision` under the next free id. An overwrite always does.
    drops_unused : bool
        Drop the revisions that no file needs which lives when the change lands, and statistics that a user gave.
    metadata : Metadata or None
        The whole new metadata, without `revision`; None: as it is. Changes of others are merged key by key.
    dialect : BlocksDialect or None
        Spelling for a table that does not have one yet, or that is overwritten; None: as found, else
        ``"documented"``.
    txn : Txn or None
        The application's own progress: a version at or below the table's means it is there already.
    operation : str
        Name in the history; empty: by mode.
    commit_info : Mapping
        More keys for the history, for example ``operationMetrics`` (texts by text). Ours win.
    """

    mode: WriteMode
    brings: Brings = "rows"
    adds: tuple[AddFile, ...] = ()
    removes: tuple[RemoveFile, ...] = ()
    files: FileChangePlanner | None = None
    revision: Revision | None = None
    new_revision: bool = False
    drops_unused: bool = False
    metadata: Metadata | None = None
    dialect: BlocksDialect | None = None
    txn: Txn | None = None
    operation: str = ""
    commit_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
