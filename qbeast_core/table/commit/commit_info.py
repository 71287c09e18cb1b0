"""The `commitInfo` of a commit: operation, time, writer, and the id that identifies it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from qbeast_core.log.actions import CommitInfo, RemoveFile
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.protocol import WriteMode, in_commit_timestamps
from qbeast_core.log.rebase import Rebased
from qbeast_core.table.snapshot.snapshot import Snapshot

_OPERATIONS: Final[Mapping[WriteMode, str]] = {
    "append": "WRITE",
    "overwrite": "WRITE",
    "create": "CREATE TABLE AS SELECT",
    "metadata": "SET TBLPROPERTIES",
}
# Operations that read: the rows they add depend on rows of the table, even if they remove no file.
_READING: Final = frozenset({"MERGE"})
_MODES: Final[Mapping[WriteMode, str]] = {
    "append": "Append",
    "overwrite": "Overwrite",
    "create": "ErrorIfExists",
}


def commit_info(
    intent: WriteIntent, rebased: Rebased, head: Snapshot | None, *, txn_id: str, now_ms: int
) -> CommitInfo:
    """Return the provenance of one attempt."""
    adds = rebased.adds
    removes = [action for action in rebased.actions if isinstance(action, RemoveFile)]
    info: dict[str, Any] = {"operationParameters": _parameters(intent.mode), **intent.commit_info}
    info |= {"timestamp": now_ms, "operation": intent.operation or _OPERATIONS[intent.mode]}
    if in_commit_timestamps(rebased.protocol, rebased.metadata):
        # Timestamps increase with versions even if the clocks of writers differ.
        info["inCommitTimestamp"] = now_ms if head is None else max(now_ms, head.timestamp_ms + 1)
    if head is not None:
        info["readVersion"] = head.version
    metrics = {"numFiles": len(adds), "numOutputBytes": sum(add.size for add in adds)}
    metrics |= {"numRemovedFiles": len(removes)} if removes else {}
    intent_metrics: Mapping[str, str] = intent.commit_info.get("operationMetrics", {})
    info |= {
        "isolationLevel": "Serializable",
        "isBlindAppend": intent.mode == "append" and not removes and intent.operation not in _READING,
        "operationMetrics": {key: str(value) for key, value in metrics.items()} | dict(intent_metrics),
        "engineInfo": _engine(),
        "txnId": txn_id,
    }
    return CommitInfo.model_validate(info)


def _parameters(mode: WriteMode) -> dict[str, str]:
    return {"mode": _MODES[mode], "partitionBy": "[]"} if mode in _MODES else {}


@cache
def _engine() -> str:
    try:
        return f"qbeast/{importlib.metadata.version('qbeast')}"
    except importlib.metadata.PackageNotFoundError:  # run from a copy of the sources
        return "qbeast"
