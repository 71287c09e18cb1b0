"""Rows into a file, or onto the standard output: complete, or not there at all."""

from __future__ import annotations

import errno
import glob
import os
import sys
from pathlib import Path
from typing import IO, Final, Literal, TypeAlias
from uuid import uuid4

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.store import is_folder, status_of
from qbeast_core.support.text import first_line

FileFormat: TypeAlias = Literal["parquet", "csv", "jsonl", "arrow"]

FORMATS: Final[tuple[FileFormat, ...]] = ("parquet", "csv", "jsonl", "arrow")

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
