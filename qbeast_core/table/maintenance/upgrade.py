"""Bring a table of before 0.6.0 up to date: new tags for the same files, in one commit (format 11)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from qbeast_core.errors import InvalidMetadataError, NotQbeastTableError, QbeastWarning, check_choice
from qbeast_core.io.location import Location
from qbeast_core.log.actions import AddFile
from qbeast_core.log.replay import FLAT_KEYS, block_from_flat_tags
from qbeast_core.log.values import FileChange, LastChange, LiveFiles, retag
from qbeast_core.results import Result
from qbeast_core.spec.blocks import BlocksDialect, dump_blocks, parse_blocks
from qbeast_core.spec.table_config import REPLICATED_SET_PREFIX
from qbeast_core.support.process import caller_stacklevel
from qbeast_core.support.text import convert_call
from qbeast_core.table.commit import commit_metadata
from qbeast_core.table.snapshot.snapshot import load_snapshot

Copies: TypeAlias = Literal["keep", "drop"]

_FLAT: Final = frozenset({"state", *FLAT_KEYS.values()})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UpgradeResult(Result):
    """Outcome of `qbeast.upgrade_table`.

    Attributes
    ----------
    version : int
        Version of the table that is up to date; the present one when there was nothing to do, or a dry run.
    committed : bool
        Whether anything was committed.
    dry_run : bool
        Whether the counts are only planned.
    retagged_files : int
        Files that got new tags.
    kept_copies : int
        Live files that still hold copies of rows: qbeast passes over them, other readers do not.
    dropped_copies : int
        Files that this call took out of the table. Their rows are in other files.
    """

    retagged_files: int
    kept_copies: int
    dropped_copies: int


def upgrade(location: Location, *, replicated: Copies | None, dry_run: bool = False) -> UpgradeResult:
    """Upgrade a table; see `qbeast.upgrade_table` for the options and errors."""
    check_choice("replicated", replicated, (None, *get_args(Copies)))
    snapshot, uri = load_snapshot(location), location.uri
    if not snapshot.config.is_indexed:
        cure = f"Convert it instead: {convert_call(uri)}."
        msg = f"{uri!r} is a Delta table without Qbeast index. {cure}"
        raise NotQbeastTableError(msg, path=uri)
    configuration = snapshot.config.without(REPLICATED_SET_PREFIX).to_configuration()
    plan = _Upgrade(drop=replicated == "drop")
    outcome = commit_metadata(
        snapshot,
        snapshot.metadata.model_copy(update={"configuration": configuration}),
        "files",
        operation="UPGRADE",
        parameters={"replicated": replicated or "keep"},
        files=plan,
        dry_run=dry_run,
    )
    if plan.kept and replicated is None and not dry_run:
        message = (
            f"{plan.kept} file(s) of {uri!r} hold copies of rows that other files hold too. qbeast skips them; other "
            'readers of Delta tables return those rows twice. Use replicated="drop" to take the files out of the '
            'table, or "keep" to silence this warning.'
        )
        warnings.warn(QbeastWarning(message), stacklevel=caller_stacklevel())
    return UpgradeResult(
        version=outcome.version,
        committed=outcome.committed,
        dry_run=dry_run,
        retagged_files=len(plan.change.adds),
        kept_copies=plan.kept,
        dropped_copies=len(plan.change.removed),
    )


class _Upgrade(LastChange):
    """Plans the new tags of the files; counts of the newest plan."""

    def __init__(self, *, drop: bool) -> None:
        super().__init__(self._retag)
        self._drop, self.kept = drop, 0

    def _retag(self, live: LiveFiles, dialect: BlocksDialect) -> FileChange:
        self.kept = 0
        return retag(live, lambda add, listed: self._edit(add, dialect, listed=listed))

    def _edit(self, add: AddFile, dialect: BlocksDialect, *, listed: bool) -> AddFile | None:
        tags = {key: text for key, text in (add.tags or {}).items() if text is not None}
        try:
            blocks = parse_blocks(tags["blocks"]) if "blocks" in tags else []
            if not blocks and "cube" in tags:
                blocks = [block_from_flat_tags(tags)]
        except InvalidMetadataError:
            return add  # no reader relies on such tags
        if any(block.replicated for block in blocks):
            # Readers disagree on unlisted files; of copies none is needed, so all are made to agree.
            if all(block.replicated for block in blocks) and (self._drop or not listed):
                return None
            self.kept += 1
        kept = {key: text for key, text in tags.items() if key not in _FLAT}
        if len(kept) == len(tags):
            return add
        return add.model_copy(update={"tags": {"blocks": dump_blocks(blocks, dialect=dialect), **kept}})
