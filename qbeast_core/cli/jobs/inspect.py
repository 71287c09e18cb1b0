"""Metrics, faults and history of a table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from qbeast_core.cli.answer import Answer
from qbeast_core.cli.bars import progress_bar
from qbeast_core.cli.exits import FAULTS
from qbeast_core.cli.grid import grid
from qbeast_core.cli.jobs.opening import open_table, warnings_told

__all__ = ["check_table", "show_history", "show_metrics"]

_METRICS: Final = (("numOutputRows", "rows"), ("numFiles", "files"))


def show_metrics(
    path: str, *, revision: int | None, version: int | str | None, storage_options: Mapping[str, str]
) -> Answer:
    """Count what the index consists of."""
    table = open_table(path, storage_options, version)
    with progress_bar("counting"), warnings_told():
        metrics = table.metrics(revision=revision)
    return Answer(parts=(repr(metrics),), data={"table": table.uri, **metrics.model_dump(mode="json")})


def check_table(
    path: str,
    *,
    log_only: bool,
    version: int | str | None,
    allow_absolute_paths: bool,
    storage_options: Mapping[str, str],
) -> Answer:
    """Verify a table; faults make the exit code."""
    table = open_table(path, storage_options, version, allow_absolute_paths=allow_absolute_paths)
    with progress_bar("checking") as progress, warnings_told():
        report = table.check(data=not log_only, progress=progress)
    data = {
        "table": report.uri,
        "version": report.version,
        "ok": report.ok,
        "data": report.data,
        "files": report.files,
        "blocks": report.blocks,
        "rows": report.rows,
        "faults": report.faults.to_dicts(),
        "notes": list(report.notes),
    }
    return Answer(parts=(repr(report),), data=data, exit_code=0 if report.ok else FAULTS)


def show_history(
    path: str, *, limit: int | None, version: int | str | None, storage_options: Mapping[str, str]
) -> Answer:
    """List commits, newest first."""
    table = open_table(path, storage_options, version)
    with progress_bar("reading"):
        commits = table.history(limit)
    listed = [(one["version"], _time(one), one.get("operation"), _did(one), _by(one)) for one in commits]
    shown = grid(("version", "time (UTC)", "operation", "added", "by"), listed, right=("version",))
    return Answer(parts=(shown,), data={"table": table.uri, "version": table.version, "commits": commits})


def _time(commit: Mapping[str, Any]) -> str | None:
    stamp = commit.get("timestamp")
    return None if stamp is None else f"{datetime.fromtimestamp(stamp / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _did(commit: Mapping[str, Any]) -> str:
    """Say how many rows and files a commit brought, where it tells."""
    metrics = commit.get("operationMetrics") or {}
    return ", ".join(
        f"{int(metrics[key]):,} {unit}" for key, unit in _METRICS if str(metrics.get(key, "")).isdecimal()
    )


def _by(commit: Mapping[str, Any]) -> str | None:
    found = commit.get("engineInfo") or commit.get("clientVersion")
    return None if found is None else str(found)
