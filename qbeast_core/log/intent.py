"""The intent of a write: planned once, and compared with the commits of other writers at each attempt to commit.

`qbeast_core.log.rebase` decides what depends on the table after these commits (schema, configuration, revisions),
`qbeast_core.table.index.thresholds` decides by the thresholds of cubes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from qbeast_core.log.actions import AddFile, CdcFile, Commit, Metadata, RemoveFile, Txn
from qbeast_core.log.files.deletion_vector import file_key
from qbeast_core.log.files.file_changes import FileChangePlanner
from qbeast_core.log.protocol import Brings, WriteMode
from qbeast_core.spec.blocks import BlocksDialect, FilePath
from qbeast_core.spec.revision import Revision

_WHOLE: Final = ("schema_string", "name", "description", "partition_columns")


@dataclass(frozen=True, slots=True)
class MarkedFile:
    """A live file that gets a new deletion vector."""

    before: AddFile
    after: AddFile


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIntent:
    """One change to a table, for whichever version it becomes."""

    # `create` needs a place without a table. `overwrite` removes all files that are live when it is committed, and all
    # older revisions. `metadata` publishes `metadata` and the result of `files`, or nothing if neither is a change.
    mode: WriteMode
    # The largest change, see `qbeast_core.log.protocol.Brings`. Features of the table that only restrict larger changes
    # are allowed.
    brings: Brings = "rows"
    # New files with different paths. Indexed files have `blocks` and no tags of them, which each attempt fills in. They
    # have a `revision` tag only if their revision is not `revision` but that of files they replace. Files without
    # `blocks` are published unchanged.
    adds: tuple[AddFile, ...] = ()
    # Live files to replace. The change fails if another writer changes one of them first.
    removes: tuple[RemoveFile, ...] = ()
    # Live files whose deleted rows change. The change fails if another writer changes one of them first.
    marked: tuple[MarkedFile, ...] = ()
    # Files with the new deletion vectors, by path in the table.
    vector_files: tuple[str, ...] = ()
    # New files of the change data feed.
    changes: tuple[CdcFile, ...] = ()
    # Plans what happens to live files, see `qbeast_core.log.files.file_changes`. Each attempt plans again, for the
    # files that are live then.
    files: FileChangePlanner | None = None
    # Revision of `adds`. If `new_revision` is false, the table must still have this revision under its id. None: `adds`
    # are not indexed, and an overwrite drops the index.
    revision: Revision | None = None
    # Whether to publish `revision` under the next free id. An overwrite always does.
    new_revision: bool = False
    # Whether to drop the revisions that no live file needs, and statistics that a user set.
    drops_unused: bool = False
    # The new metadata, without `revision`; None: no change. Changes of other writers are merged by key.
    metadata: Metadata | None = None
    # Features for readers and writers that the new metadata needs.
    features: tuple[str, ...] = ()
    # Dialect of a table that has none yet or is overwritten. None: that of the table, else `"documented"`.
    dialect: BlocksDialect | None = None
    # Transaction of an application. If the table has its version or a later one, the change is already committed.
    txn: Txn | None = None
    # Name in the history. Empty: the name of the mode.
    operation: str = ""
    # More keys for the history, such as `operationMetrics`, written as texts. Keys of this library take precedence.
    commit_info: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def new_paths(self) -> list[str]:
        """Decoded paths of the files that exist only for this change. They are deleted if it fails."""
        files: tuple[AddFile | CdcFile, ...] = (*self.adds, *self.changes)
        return [*(FilePath.of_log(file.path).text for file in files), *self.vector_files]


def find_conflict(intent: WriteIntent, winner: Commit) -> str | None:
    """Return why `intent` cannot follow `winner`; None if it can, rebuilt on the newer table."""
    # Appends commute with every commit, and an overwrite removes the files that are live when it lands. That leaves
    # three conflicts: both create the table, both touch a file, both are commits of one application.
    if intent.mode == "create":
        return "another writer created a table at this place"
    # With its deletion vector a path names one set of rows: a new vector means that rows were deleted meanwhile,
    # and a rewrite planned before would bring them back.
    olds: list[AddFile | RemoveFile] = [*intent.removes, *(marked.before for marked in intent.marked)]
    replaced = {file_key(old.path, old.deletion_vector) for old in olds}
    changed = {file_key(add.path, add.deletion_vector) for add in winner.adds}
    changed |= {file_key(remove.path, remove.deletion_vector) for remove in winner.removes}
    touched = replaced & changed
    if touched:
        return f"version {winner.version} changed {min(touched)[0]}, which this change replaces"
    if intent.txn is None:
        return None
    # A lower version of the application came while we planned: two of its writers run at once. (A version at or
    # above ours is our progress: `already_applied` comes first.)
    if any(txn.app_id == intent.txn.app_id for txn in winner.txns):
        return f"version {winner.version} is another commit of the application {intent.txn.app_id!r}"
    return None


def already_applied(intent: WriteIntent, winner: Commit) -> bool:
    """Return whether `winner` brought the application to the version of `intent`, or beyond."""
    ours = intent.txn
    return ours is not None and any(
        txn.app_id == ours.app_id and txn.version >= ours.version for txn in winner.txns
    )


def merge_metadata(*, base: Metadata, ours: Metadata, theirs: Metadata) -> Metadata | str:
    """Return `theirs` with our changes since `base`, or the reason of a conflict.

    Keys of the configuration are merged one by one; the schema, the name and the description each as a whole.

    >>> base = Metadata(id="t", schema_string="{}", configuration={"a": "1"})
    >>> ours = base.model_copy(update={"configuration": {"a": "1", "b": "2"}})
    >>> theirs = base.model_copy(update={"configuration": {"a": "3"}})
    >>> dict(merge_metadata(base=base, ours=ours, theirs=theirs).configuration)
    {'a': '3', 'b': '2'}
    """
    configuration, clashes = _three_way(base.configuration, ours.configuration, theirs.configuration)
    if clashes:
        return f"another writer set {', '.join(clashes)} to something else"
    sides = [{name: getattr(metadata, name) for name in _WHOLE} for metadata in (base, ours, theirs)]
    fields, clashes = _three_way(*sides)
    if clashes:
        return f"another writer changed the table's {', '.join(clashes)} too"
    return theirs.model_copy(update={**fields, "configuration": configuration})


def _three_way(
    base: Mapping[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return `theirs` with our changes since `base`, and the keys that both changed differently."""
    changed = [key for key in {**base, **ours} if ours.get(key) != base.get(key)]
    clashes = [key for key in changed if theirs.get(key) not in (base.get(key), ours.get(key))]
    kept = {key: value for key, value in theirs.items() if key not in changed}
    return kept | {key: ours[key] for key in changed if key in ours}, clashes
