"""Output of a command: rows into complete files, and tables on the terminal."""

from __future__ import annotations

import errno
import glob
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import NoneType
from typing import IO, Any, Final, Literal, TypeAlias
from uuid import uuid4

import click
import orjson
import polars as pl
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.store import is_folder, status_of
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.support.frames import shown_times
from qbeast_core.support.process import terminal_columns
from qbeast_core.support.text import first_line, on_one_line, visible

FileFormat: TypeAlias = Literal["parquet", "csv", "jsonl", "arrow"]

# Formats by the endings of file names.
ENDINGS: Final[dict[str, FileFormat]] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}


# Methods of a LazyFrame that write a format.
_SINKS: Final[dict[FileFormat, str]] = {
    "parquet": "sink_parquet",
    "csv": "sink_csv",
    "jsonl": "sink_ndjson",
    "arrow": "sink_ipc",
}


class OutputFile:
    """A file to be written, checked before any row is read."""

    def __init__(self, name: str, *, file_format: FileFormat | None = None, overwrite: bool = False) -> None:
        self.name = name
        self.file_format: FileFormat = file_format or _format_of(name)
        self._path = None if name == "-" else fresh_file(name, overwrite=overwrite)
        self._overwrite = overwrite

    def write(self, rows: pl.LazyFrame) -> int | None:
        """Write the rows, a few at a time; return how many bytes it took, None on the standard output."""
        try:
            if self._path is None:
                self._print(rows)
                return None
            partial = self._path.with_name(f".{self._path.name}.{uuid4().hex}.partial")
            try:
                self._sink(rows, partial)
                self._publish(partial, self._path)
            finally:
                partial.unlink(missing_ok=True)
        except pl.exceptions.PolarsError as error:
            msg = (
                f"the rows cannot be written as {self.file_format}: {first_line(str(error))}; there is no new file. "
                "Choose .parquet, or leave columns out with columns=[...]."
            )
            raise InvalidInputError(msg, argument="output") from error
        return self._path.stat().st_size

    def count(self) -> int:
        """Return the rows of the file that was written."""
        if self.file_format == "parquet":
            rows = pl.scan_parquet(self.name, glob=False)
        elif self.file_format == "arrow":
            rows = pl.scan_ipc(self.name, glob=False)
        elif self.file_format == "csv":
            rows = pl.scan_csv(self.name, glob=False, infer_schema=False)
        else:
            rows = pl.scan_ndjson(glob.escape(self.name))
        return int(rows.select(pl.len()).collect().item())

    def _publish(self, partial: Path, path: Path) -> None:
        """Give a complete file its name; one that another process wrote meanwhile stays."""
        if not self._overwrite:
            try:
                os.link(partial, path)
            except FileExistsError:
                raise _file_exists(self.name) from None
            except OSError:  # the file system has no links
                fresh_file(self.name, overwrite=False)
            else:
                return
        partial.replace(path)

    def _print(self, rows: pl.LazyFrame) -> None:
        try:
            self._sink(rows, sys.stdout.buffer)
        except OSError as error:
            if error.errno is None and "os error 32" in str(error):  # as Polars writes it
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from error
            raise

    def _sink(self, rows: pl.LazyFrame, where: Path | IO[bytes]) -> None:
        getattr(rows, _SINKS[self.file_format])(where)


def fresh_file(name: str, *, overwrite: bool) -> Path:
    """Return the path of a file that may be made."""
    path = Path(name)
    if "://" in name:
        msg = f"{name!r} is an address. Write a local file, and copy it."
        raise InvalidInputError(msg, argument="output")
    if not is_folder(path.parent):
        msg = f"the folder {os.fspath(path.parent)!r} does not exist. Create it first."
        raise InvalidInputError(msg, argument="output")
    if is_folder(path):
        msg = f"{name!r} is a folder. Name a file."
        raise InvalidInputError(msg, argument="output")
    if status_of(path) is not None and not overwrite:
        raise _file_exists(name)
    return path


def _file_exists(name: str) -> InvalidInputError:
    msg = f"there is a file {name!r}. Give overwrite=True, or choose another name."
    return InvalidInputError(msg, argument="output")


def _format_of(name: str) -> FileFormat:
    try:
        return ENDINGS[Path(name).suffix.lower()]
    except KeyError:
        msg = f"{name!r} has no known ending. Give --format parquet, csv, jsonl or arrow."
        raise InvalidInputError(msg, argument="format") from None


_MAX_CHARACTERS: Final = 40
_GAP: Final = 2
_UNLIMITED: Final = 100_000

# How values are shown, if not by `str`.
_TEXTS: Final[Mapping[type, Callable[[Any], str]]] = {
    NoneType: lambda _: "null",
    bool: lambda value: str(value).lower(),
    float: "{:.6g}".format,
    datetime: partial(datetime.isoformat, sep=" "),
    bytes: bytes.hex,
    pl.Series: lambda value: str(value.to_list()),
}

# Formats a number of bytes: `8.09 MB`.
size_text: Final = partial(decimal, precision=2)


def draw(parts: Sequence[Any]) -> None:
    """Print texts and tables one below the other."""
    console = Console(width=terminal_columns() or _UNLIMITED, highlight=False, markup=False, emoji=False)
    with console.capture() as drawn:
        for part in parts:
            shown = visible(part) if isinstance(part, str) else part
            console.print(shown, soft_wrap=isinstance(part, str | Text))
    for line in drawn.get().splitlines():
        click.echo(line.rstrip())  # rich fills lines up with blanks


def remark(text: str) -> Text:
    """Return a text beside the answer, shown faintly."""
    return Text(on_one_line(text), style="dim")


def table(
    heads: Sequence[str | Text], rows: Sequence[Sequence[object]], *, right: Sequence[int] = ()
) -> Table:
    """Return a small table; columns at the positions `right` hold numbers."""
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for number, head in enumerate(heads):
        drawn.add_column(head, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*("" if cell is None else on_one_line(str(cell)) for cell in row))
    return drawn


def frame_table(rows: pl.DataFrame, *, schema: pl.Schema | None = None) -> list[Any]:
    """Return a table of rows under names and types, and a remark about columns that do not fit on the screen.

    `schema` has the types of columns that are texts here.
    """
    names = [on_one_line(name) for name in rows.columns]
    dtypes = [(rows.schema if schema is None else schema)[name] for name in rows.columns]
    types = [type_text(dtype) for dtype in dtypes]
    cells = [[_cell(value) for value in column] for column in shown_times(rows).iter_columns()]
    widths = [
        max(map(len, (name, dtype, *column))) for name, dtype, column in zip(names, types, cells, strict=True)
    ]
    shown = _fitting(widths)
    heads = [
        Text.assemble(name, "\n", (dtype, "dim not bold")) for name, dtype in zip(names, types, strict=True)
    ]
    numbers = [at for at, dtype in enumerate(dtypes[:shown]) if dtype.is_numeric()]
    drawn = table(heads[:shown], list(zip(*cells[:shown], strict=True)), right=numbers)
    others = names[shown:]
    note = f"and {len(others)} more column(s), see --select: {', '.join(others)}"
    return [drawn, remark(note)] if others else [drawn]


def type_text(dtype: pl.DataType) -> str:
    """Return Delta's name of a type, which ``--type`` takes; of nested types only the outer one.

    >>> type_text(pl.Int64()), type_text(pl.List(pl.String))
    ('long', 'array')
    """
    try:
        name = orjson.loads(schema_to_delta(pl.Schema({"x": dtype})))["fields"][0]["type"]
    except InvalidInputError:  # a type that no table has
        return str(dtype)
    return name if isinstance(name, str) else str(name["type"])


def _fitting(widths: Sequence[int]) -> int:
    """Return how many columns fit on the screen, at least 1."""
    left = terminal_columns() or _UNLIMITED
    for number, width in enumerate(widths):
        left -= width + _GAP
        if left < -_GAP:
            return max(number, 1)
    return len(widths)


def _cell(value: Any) -> str:
    text = visible(_TEXTS.get(type(value), str)(value)).replace("\n", " ")
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
