"""Conflicts of a change with one commit of another writer, decided from both alone.

`qbeast_core.log.rebase` decides what depends on the table after these commits (schema, configuration, revisions),
`qbeast_core.table.index.thresholds` the thresholds of cubes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from qbeast_core.log.actions import Commit, Metadata
from qbeast_core.log.files.deletion_vector import file_key
from qbeast_core.log.intent import WriteIntent

_WHOLE: Final = ("schema_string", "name", "description", "partition_columns")


def find_conflict(intent: WriteIntent, winner: Commit) -> str | None:
    """Return why `intent` cannot follow `winner`; None if it can, rebuilt on the newer table."""
    # Appends commute with every commit, and an overwrite removes the files that are live when it lands. That leaves
    # three conflicts: both create the table, both touch a file, both are commits of one application.
    if intent.mode == "create":
        return "another writer created a table at this place"
    # With its deletion vector a path names one set of rows: a new vector means that rows were deleted meanwhile,
    # and a rewrite planned before would bring them back.
    replaced = {file_key(remove.path, remove.deletion_vector) for remove in intent.removes}
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
