"""`qbeast metrics`, `advise`, `check`, `history`, `versions` and `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from qbeast_core.cli.answer import Answer, facts_of
from qbeast_core.cli.exits import FAULTS
from qbeast_core.cli.options import (
    absolute_paths_option,
    columns_option,
    flag,
    on_table,
    option,
    sample_option,
    version_option,
    where_option,
)

if TYPE_CHECKING:
    import qbeast
    from qbeast_core.support.process import ProgressCallback
    from qbeast_core.table.inspect.metrics import PlotKind


_DPI: Final = 150
_ENDINGS: Final = (".png", ".svg", ".pdf")


@on_table(
    "counting",
    option("--revision", "Only this revision; 0: rows without index.", type=int),
    version_option,
)
def metrics(table: qbeast.Table, *, revision: int | None) -> Answer:
    """Count cubes, blocks, files and rows of the index. No data file is opened."""
    counts = table.metrics(revision=revision)
    return Answer(parts=(repr(counts),), data=counts.model_dump(mode="json"))


@on_table(
    "comparing indexes",
    option(
        "--where queries", "A filter of later queries; may be repeated.", "SQL", multiple=True, required=True
    ),
    option("--most", "Maximum number of columns.", type=click.IntRange(1, 8), default=4, show_default=True),
    version_option,
    absolute_paths_option,
)
def advise(table: qbeast.Table, *, queries: Sequence[str], most: int) -> Answer:
    """Compare other indexes on a sample of the rows, by the bytes that filters would open.

    Each --where is a filter of later queries. Repeat one to give it more weight.
    """
    advice = table.advise(queries, most=most)
    names = (
        "columns",
        "importance",
        "cube_size",
        "keep",
        "bytes_opened",
        "bytes_opened_now",
        "design_effect",
    )
    frames = {name: getattr(advice, name).to_dicts() for name in ("queries", "alternatives")}
    return Answer(parts=(repr(advice),), data={**facts_of(advice, *names), **frames})


@on_table(
    "checking",
    flag("--log-only", "Check only the log, not the data files."),
    version_option,
    absolute_paths_option,
    progress=True,
)
def check(table: qbeast.Table, *, log_only: bool, progress: ProgressCallback | None) -> Answer:
    """Verify a table against the format. Exits with 1 if there are faults."""
    report = table.check(data=not log_only, progress=progress)
    data = {
        **facts_of(report, "ok", "data", "files", "blocks", "rows", "notes"),
        "faults": report.faults.to_dicts(),
    }
    return Answer(parts=(repr(report),), data=data, exit_code=0 if report.ok else FAULTS)


@on_table(
    "reading",
    option("-n --limit", "Maximum number of commits; all by default.", type=click.IntRange(min=1)),
    version_option,
)
def history(table: qbeast.Table, *, limit: int | None) -> Answer:
    """List commits, newest first."""
    from qbeast_core.cli.tables import table as drawn
    from qbeast_core.table.inspect.history import summary_of
    from qbeast_core.table.snapshot.log_files import read_history

    commits = read_history(table.planner.store, version=table.version, limit=limit)  # the log's own words
    rows = [(c["version"], _time(c), c.get("operation"), summary_of(c), _writer(c)) for c in commits]
    shown = drawn(("version", "time (UTC)", "operation", "summary", "by"), rows, right=(0,))
    return Answer(parts=(shown,), data={"commits": commits})


@on_table("listing", version_option)
def versions(table: qbeast.Table) -> Answer:
    """List versions, newest first, and which of them can be read.

    A vacuum deletes data files of old versions. No data file is opened.
    """
    from qbeast_core.cli.tables import table as drawn

    listed = table.versions()
    rows = [
        (
            number,
            None if time is None else f"{time:%Y-%m-%d %H:%M:%S}",
            operation,
            "yes" if readable else "no",
        )
        for number, time, operation, readable in listed.iter_rows()
    ]
    shown = drawn(("version", "time (UTC)", "operation", "readable"), rows, right=(0,))
    return Answer(parts=(shown,), data={"versions": listed.to_dicts()})


@on_table(
    "drawing",
    click.argument("kind", type=click.Choice(("tree", "space", "fraction")), default="tree"),
    option("-o --output", "Image file: .png, .svg or .pdf; KIND.png by default.", type=click.Path()),
    flag("--overwrite", "Replace the file if it exists."),
    columns_option("For space: two indexed columns. For fraction: columns to read."),
    where_option,
    sample_option,
    option("--revision", "Revision to draw; by default the newest in use.", type=int),
    version_option,
)
def plot(
    table: qbeast.Table, *, kind: PlotKind, output: str | None, overwrite: bool, **options: Any
) -> Answer:
    """Draw the tree, the space, or the cost of samples. The space shows the cubes that a query opens."""
    from qbeast_core.cli.output_file import fresh_file
    from qbeast_core.cli.tables import size_text
    from qbeast_core.errors import InvalidInputError

    name = output or f"{kind}.png"
    if not name.endswith(_ENDINGS):
        msg = f"{name!r} is not a picture. Choose one of {', '.join(_ENDINGS)}."
        raise InvalidInputError(msg, argument="output")
    file = fresh_file(name, overwrite=overwrite)
    table.plot(kind, **options).savefig(file, dpi=_DPI)
    size = file.stat().st_size
    return Answer(parts=(f"{name}: {size_text(size)}",), data={"kind": kind, "output": name, "bytes": size})


def _time(commit: Mapping[str, Any]) -> str | None:
    stamp = commit.get("timestamp")
    return None if stamp is None else f"{datetime.fromtimestamp(stamp / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _writer(commit: Mapping[str, Any]) -> object:
    return commit.get("engineInfo") or commit.get("clientVersion")
