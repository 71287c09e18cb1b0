"""The version that an append of ours makes, derived from the version before without reading the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qbeast_core.log.actions import Action, AddFile, CommitInfo, Txn
from qbeast_core.log.grown_files import joined, with_adds
from qbeast_core.logs import LOG
from qbeast_core.query.tags import DecodedTags, tags_of_blocks
from qbeast_core.table.snapshot.log_files import fingerprint
from qbeast_core.table.snapshot.snapshot import Snapshot, keep, timestamp_of


def after_append(
    head: Snapshot, actions: Sequence[Action], info: CommitInfo, adds: Sequence[AddFile]
) -> Snapshot | None:
    """Return the version after `head` if our commit only adds files; None: it must be loaded.

    `adds` are the same files as in the actions, with their blocks as values.
    """
    if any(not isinstance(action, AddFile | Txn) for action in actions):
        return None
    files = with_adds(head.files, [action for action in actions if isinstance(action, AddFile)])
    if files is None:
        return None
    version = head.version + 1
    LOG.debug("knows version %d of %s: %d files", version, head.uri, files.height)
    newest = replace(
        head,
        version=version,
        timestamp_ms=timestamp_of(info),
        files=files,
        fingerprint=fingerprint(head.source.store, version),
        tags=_tags(head, adds),
    )
    keep(newest)
    return newest


def _tags(head: Snapshot, adds: Sequence[AddFile]) -> DecodedTags | None:
    """Return the tags of the new version; None: they have to be decoded."""
    tags = head.decoded_tags
    added = [add.blocks for add in adds if add.blocks]
    if tags is None or len(added) < len(adds):
        return None
    new = tags_of_blocks(added, first_file=head.files.height)
    return DecodedTags(joined(tags.blocks, new), tags.unreadable)
