"""Pictures of a table in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from qbeast_core.cli.answer import Answer
from qbeast_core.cli.bars import progress_bar
from qbeast_core.cli.files import fresh_file
from qbeast_core.cli.filters import parse_where
from qbeast_core.cli.grid import size_text
from qbeast_core.cli.jobs.opening import open_table, warnings_told
from qbeast_core.errors import InvalidInputError

if TYPE_CHECKING:
    from qbeast_core.table.inspect.plot import PlotKind

__all__ = ["plot_table"]

_DPI: Final = 150
_ENDINGS: Final = (".png", ".svg", ".pdf")


def plot_table(
    path: str,
    *,
    kind: PlotKind,
    output: str | None,
    overwrite: bool,
    columns: Sequence[str] | None,
    where: str | None,
    sample: float | tuple[float, float] | None,
    revision: int | None,
    version: int | str | None,
    storage_options: Mapping[str, str],
) -> Answer:
    """Draw a picture into a file."""
    name = output or f"{kind}.png"
    if not name.endswith(_ENDINGS):
        msg = f"{name!r} is no picture; nothing was drawn. Choose one of {', '.join(_ENDINGS)}."
        raise InvalidInputError(msg, argument="output")
    file = fresh_file(name, overwrite=overwrite)
    table = open_table(path, storage_options, version)
    with progress_bar("drawing"), warnings_told():
        figure = table.plot(
            kind,
            columns=columns,
            predicate=parse_where(where, table.schema),
            sample=sample,
            revision=revision,
        )
        figure.savefig(file, dpi=_DPI)
    size = file.stat().st_size
    data = {"table": table.uri, "version": table.version, "kind": kind, "output": name, "bytes": size}
    return Answer(parts=(f"{name}: {size_text(size)}",), data=data)
