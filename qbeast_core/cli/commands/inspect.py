"""`qbeast metrics`, `check`, `history` and `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from qbeast_core.cli.answer import Answer, facts_of
from qbeast_core.cli.exits import FAULTS
from qbeast_core.cli.opening import on_table
from qbeast_core.cli.options import (
    absolute_paths_option,
    columns_option,
    command,
    sample_option,
    table_argument,
    version_option,
    where_option,
)

if TYPE_CHECKING:
    import qbeast
    from qbeast_core.query.plan.fractions import Sample
    from qbeast_core.support.runtime import ProgressCallback
    from qbeast_core.table.inspect.plot import PlotKind


_DPI: Final = 150
_ENDINGS: Final = (".png", ".svg", ".pdf")


@command(
    table_argument,
    click.option("--revision", type=int, help="This revision alone; 0 is what is not indexed."),
    version_option,
    short_help="Count cubes, blocks, files and rows.",
)
@on_table("counting")
def metrics(table: qbeast.Table, _progress: ProgressCallback | None, *, revision: int | None) -> Answer:
    """Count cubes, blocks, files and rows of the index; no data file is opened."""
    found = table.metrics(revision=revision)
    return Answer(parts=(repr(found),), data=found.model_dump(mode="json"))


@command(
    table_argument,
    click.option("--log-only", is_flag=True, help="Look at the log alone, not into the data files: fast."),
    version_option,
    absolute_paths_option,
    short_help="Verify a table against the format.",
)
@on_table("checking")
def check(table: qbeast.Table, progress: ProgressCallback | None, *, log_only: bool) -> Answer:
    """Verify a table against the format; exits with 1 if there are faults."""
    report = table.check(data=not log_only, progress=progress)
    data = {
        **facts_of(report, "ok", "data", "files", "blocks", "rows", "notes"),
        "faults": report.faults.to_dicts(),
    }
    return Answer(parts=(repr(report),), data=data, exit_code=0 if report.ok else FAULTS)


@command(
    table_argument,
    click.option(
        *("-n", "--limit"),
        type=click.IntRange(min=1),
        help="Commits at most; all that the log has by default.",
    ),
    version_option,
)
@on_table("reading")
def history(table: qbeast.Table, _progress: ProgressCallback | None, *, limit: int | None) -> Answer:
    """List what was committed, newest first."""
    from qbeast_core.cli.tables import table as drawn
    from qbeast_core.table.inspect.history import summary_of
    from qbeast_core.table.snapshot.log_files import read_history

    commits = read_history(table.reader.store, version=table.version, limit=limit)  # the log's own words
    listed = [
        (one["version"], _time(one), one.get("operation"), summary_of(one), _by(one)) for one in commits
    ]
    shown = drawn(("version", "time (UTC)", "operation", "summary", "by"), listed, right=(0,))
    return Answer(parts=(shown,), data={"commits": commits})


@command(
    table_argument,
    click.argument("kind", type=click.Choice(("tree", "space", "fraction")), default="tree"),
    click.option(
        *("-o", "--output"),
        type=click.Path(),
        help="File of the picture: .png, .svg or .pdf; KIND.png by default.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace the file if there is one."),
    columns_option("Of the space: two indexed columns. Of the fraction: columns to return."),
    where_option,
    sample_option,
    click.option("--revision", type=int, help="Which tree or space; the newest in use by default."),
    version_option,
    short_help="Draw tree, space or cost of samples.",
)
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
    """Draw the tree of cubes, the space with the boxes that a query opens, or the bytes that samples open."""
    from qbeast_core.cli.files import fresh_file
    from qbeast_core.cli.tables import size_text
    from qbeast_core.errors import InvalidInputError

    name = output or f"{kind}.png"
    if not name.endswith(_ENDINGS):
        msg = f"{name!r} is not a picture; nothing was drawn. Choose one of {', '.join(_ENDINGS)}."
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
