"""Names of files in ``_delta_log``: which commit or checkpoint each one is, and which checkpoint to read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["LAST_CHECKPOINT", "LOG_DIRECTORY", "CheckpointFiles", "commit_path", "newest_checkpoint"]

LOG_DIRECTORY: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{LOG_DIRECTORY}/_last_checkpoint"

_CHECKPOINT: Final = re.compile(
    r"(?P<version>\d{20})\.checkpoint\."
    r"(?:(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|(?P<uuid>[0-9a-f-]{36})\.(?:parquet|json)|parquet)"
)


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A whole checkpoint: its version and the paths of its files, relative to the table."""

    version: int
    paths: tuple[str, ...]


def commit_path(version: int) -> str:
    """Return the path of a version's commit, relative to the table.

    Examples
    --------
    >>> commit_path(7)
    '_delta_log/00000000000000000007.json'
    """
    return f"{LOG_DIRECTORY}/{version:020d}.json"


def newest_checkpoint(names: Iterable[str], *, version: int) -> CheckpointFiles | None:
    """Return the newest checkpoint up to `version` of which no part is missing.

    Classic, multi-part and UUID-named (V2) checkpoints count; any other name is ignored: hints, checksums,
    compacted logs, temporary files.

    Parameters
    ----------
    names : iterable of str
        Paths or file names found in the log's directory, in any order.
    version : int
        The newest version that counts.

    Examples
    --------
    >>> newest_checkpoint(["00000000000000000010.checkpoint.parquet", "_last_checkpoint"], version=12)
    CheckpointFiles(version=10, paths=('_delta_log/00000000000000000010.checkpoint.parquet',))
    >>> newest_checkpoint(["00000000000000000010.checkpoint.0000000001.0000000002.parquet"], version=12)
    """
    parts: dict[tuple[int, int], set[str]] = {}
    for name in {path.rpartition("/")[2] for path in names}:
        match = _CHECKPOINT.fullmatch(name)
        if match is None or int(match["version"]) > version:
            continue
        key = (int(match["version"]), int(match["parts"] or 1))
        # Several whole checkpoints of one version hold the same: one UUID-named file is enough.
        parts.setdefault(key, set()).add(name)
    whole = [
        (number, sorted(found) if count > 1 else [min(found, key=len)])
        for (number, count), found in parts.items()
        if count == 1 or len(found) == count
    ]
    if not whole:
        return None
    number, found = max(whole)
    return CheckpointFiles(number, tuple(f"{LOG_DIRECTORY}/{name}" for name in found))
