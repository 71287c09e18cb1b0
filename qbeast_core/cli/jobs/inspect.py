"""Metrics, faults, history and pictures of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import qbeast
from qbeast_core.cli.answer import Answer
from qbeast_core.cli.exits import FAULTS
from qbeast_core.cli.files import fresh_file
from qbeast_core.cli.grid import grid, size_text
from qbeast_core.cli.jobs.opening import on_table
from qbeast_core.errors import InvalidInputError
from qbeast_core.query.fractions import Sample
from qbeast_core.runtime import ProgressCallback
from qbeast_core.table.inspect.history import summary_of
from qbeast_core.table.snapshot.log_files import read_history

if TYPE_CHECKING:
    from qbeast_core.table.inspect.plot import PlotKind

_DPI: Final = 150
_ENDINGS: Final = (".png", ".svg", ".pdf")


@on_table("counting")
def metrics(table: qbeast.Table, _progress: ProgressCallback | None, *, revision: int | None) -> Answer:
    """Count what the index consists of."""
    found = table.metrics(revision=revision)
    return Answer(parts=(repr(found),), data=found.model_dump(mode="json"))


@on_table("checking")
def check(table: qbeast.Table, progress: ProgressCallback | None, *, log_only: bool) -> Answer:
    """Verify a table; faults make the exit code."""
    report = table.check(data=not log_only, progress=progress)
    data = {
        "ok": report.ok,
        "data": report.data,
        "files": report.files,
        "blocks": report.blocks,
        "rows": report.rows,
        "faults": report.faults.to_dicts(),
        "notes": list(report.notes),
    }
    return Answer(parts=(repr(report),), data=data, exit_code=0 if report.ok else FAULTS)


@on_table("reading")
def history(table: qbeast.Table, _progress: ProgressCallback | None, *, limit: int | None) -> Answer:
    """List commits, newest first."""
    commits = read_history(table.reader.store, version=table.version, limit=limit)  # the log's own words
    listed = [
        (one["version"], _time(one), one.get("operation"), summary_of(one), _by(one)) for one in commits
    ]
    shown = grid(("version", "time (UTC)", "operation", "summary", "by"), listed, right=("version",))
    return Answer(parts=(shown,), data={"commits": commits})


@on_table("drawing")
def plot(
    table: qbeast.Table,
    _progress: ProgressCallback | None,
    *,
    kind: PlotKind,
    output: str | None,
    overwrite: bool,
    columns: Sequence[str] | None,
    where: str | None,
    sample: Sample | None,
    revision: int | None,
) -> Answer:
    """Draw a picture into a file."""
    name = output or f"{kind}.png"
    if not name.endswith(_ENDINGS):
        msg = f"{name!r} is no picture; nothing was drawn. Choose one of {', '.join(_ENDINGS)}."
        raise InvalidInputError(msg, argument="output")
    file = fresh_file(name, overwrite=overwrite)
    figure = table.plot(kind, columns=columns, where=where, sample=sample, revision=revision)
    figure.savefig(file, dpi=_DPI)
    size = file.stat().st_size
    return Answer(parts=(f"{name}: {size_text(size)}",), data={"kind": kind, "output": name, "bytes": size})


def _time(commit: Mapping[str, Any]) -> str | None:
    stamp = commit.get("timestamp")
    return None if stamp is None else f"{datetime.fromtimestamp(stamp / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _by(commit: Mapping[str, Any]) -> str | None:
    found = commit.get("engineInfo") or commit.get("clientVersion")
    return None if found is None else str(found)
