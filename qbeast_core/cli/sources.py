"""The rows of a write: files, folders, patterns, Delta tables, the standard input; read lazily."""

from __future__ import annotations

import glob
import io
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import polars as pl

import qbeast
from qbeast_core.cli.csv_types import scan_typed
from qbeast_core.cli.output_file import ENDINGS
from qbeast_core.errors import InvalidInputError
from qbeast_core.io.stores.local import is_folder, status_of
from qbeast_core.io.stores.resolve import GLUE
from qbeast_core.log.type_names import NAMES, type_of
from qbeast_core.resources import Resources, spill_folder_of
from qbeast_core.support.runtime import Progress, ProgressCallback, report
from qbeast_core.table.engine.choice import budget_of
from qbeast_core.table.engine.spill.spill_folder import SpillFolder

SourceFormat: TypeAlias = Literal["parquet", "csv", "jsonl", "arrow", "delta"]

_ENDINGS: Final[Mapping[str, SourceFormat]] = {**ENDINGS, ".tsv": "csv"}
_COMPRESSED: Final = (".gz", ".zst")

# Reads the standard input to its end; gives its bytes, or a file of them.
StandardInput = Callable[[], io.BytesIO | Path]

_SHARE: Final = 16  # of the budget: these bytes come on top of the rows that are read from them
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """How to read sources."""

    # Of all sources; None goes by their names.
    file_format: SourceFormat | None = None
    # Of columns of CSV and JSON lines; the types of other columns are those that all values have.
    types: Mapping[str, pl.DataType] = field(default_factory=dict[str, pl.DataType])
    # The same, where a source has such a column: the types of the table in an append.
    expected: Mapping[str, pl.DataType] = field(default_factory=dict[str, pl.DataType])
    separator: str = ","
    # Texts that mean null in CSV.
    null_values: Sequence[str] = ()
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    progress: ProgressCallback | None = field(default=None, repr=False)


def read_sources(sources: Sequence[str], options: SourceOptions, stdin: StandardInput) -> pl.LazyFrame:
    """Return the rows of all sources, one after the other; they must have the same columns."""
    if sources.count("-") > 1:
        msg = "the standard input can be read once"
        raise InvalidInputError(msg, argument="sources")
    frames = [_read(source, options, stdin) for source in sources]
    names = [frame.collect_schema().names() for frame in frames]
    unknown = sorted(set(options.types) - set(names[0]))
    if unknown:
        msg = f"--type names no such column(s): {unknown}; the source has {names[0]}"
        raise InvalidInputError(msg, argument="types")
    for source, own in zip(sources, names, strict=True):
        if own != names[0]:
            msg = f"{source!r} has the columns {own}, {sources[0]!r} has {names[0]}. Write them one by one."
            raise InvalidInputError(msg, argument="sources")
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical_relaxed")


def types_by_name(names: Mapping[str, str]) -> dict[str, pl.DataType]:
    """Return Polars types by their names in Delta, SQL or Polars.

    >>> types_by_name({"zip": "string", "paid": "decimal(9,2)"})
    {'zip': String, 'paid': Decimal(precision=9, scale=2)}
    """
    try:
        return {column: type_of(name) for column, name in names.items()}
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        msg = f"no such type: {', '.join(sorted(set(names.values())))}. There are {NAMES}."
        raise InvalidInputError(msg, argument="types") from error


def _read(source: str, options: SourceOptions, stdin: StandardInput) -> pl.LazyFrame:
    path, file_format = Path(source), options.file_format
    if source == "-":
        if file_format is None or file_format == "delta":
            msg = "the standard input needs a format. Give --format csv, jsonl, parquet or arrow."
            raise InvalidInputError(msg, argument="format")
        content = stdin()
        return _scan([content] if isinstance(content, Path) else content, file_format, options)
    if source.lower().startswith(GLUE):
        return _scan(source, file_format or "delta", options)
    if "://" in source:
        return _scan(source, file_format or _format_of([source], source), options)
    if is_folder(path):
        if file_format == "delta" or (file_format is None and (path / "_delta_log").is_dir()):
            return _scan(source, "delta", options)
        files = _files_below(path, file_format)
    elif status_of(path) is not None:
        files = [path]
    else:
        names = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute patterns
        files = [file for file in map(Path, names) if file.is_file()]
    if not files:
        what = (
            f"no Parquet, CSV, JSON lines or Arrow file in {source!r}" if path.is_dir() else f"no {source!r}"
        )
        msg = f"there is {what}"
        raise InvalidInputError(msg, argument="sources")
    return _scan(files, file_format or _format_of(map(str, files), source), options)


def _files_below(folder: Path, file_format: SourceFormat | None) -> list[Path]:
    """Return the files of a folder that can be read; hidden ones and those of other programs do not count."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        and (kind := _known(path.name)) is not None
        and file_format in (None, kind)
    )


def _scan(where: Any, file_format: SourceFormat, options: SourceOptions) -> pl.LazyFrame:
    """Read literal paths, an address, or bytes."""
    store = None if options.storage_options is None else dict(options.storage_options)
    patterns = isinstance(where, str)  # an address; paths have been expanded
    if options.types and file_format in ("parquet", "arrow", "delta"):
        msg = f"--type is for CSV and JSON lines; {file_format} has types of its own"
        raise InvalidInputError(msg, argument="types")
    match file_format:
        case "parquet":
            return pl.scan_parquet(where, glob=patterns, storage_options=store)
        case "arrow":
            return pl.scan_ipc(where, glob=patterns, storage_options=store)
        case "delta":
            # Our tables may hold copies of rows, which other readers return twice.
            return qbeast.open_table(where, storage_options=store).scan()
        case "jsonl":
            lines = [glob.escape(str(path)) for path in where] if isinstance(where, list) else where
            return _scan_json(lines, options, store)
        case "csv":
            scan = partial(
                pl.scan_csv,
                where,
                glob=patterns,
                separator=options.separator,
                null_values=list(options.null_values) or None,
                try_parse_dates=True,
                storage_options=store,
            )
            return scan_typed(scan, _types(options), partial(report, options.progress, Progress("read")))


def _scan_json(where: Any, options: SourceOptions, store: dict[str, str] | None) -> pl.LazyFrame:
    """Read JSON lines file by file: Polars takes the fields of the first for all, and drops those of others."""
    if isinstance(where, list) and len(where) > 1:
        return pl.concat([_scan_json([one], options, store) for one in where], how="diagonal_relaxed")
    lines = partial(pl.scan_ndjson, where, infer_schema_length=None, storage_options=store)
    if not _types(options):
        return lines()
    names = set(lines().collect_schema())  # Polars rejects types of columns that are not there
    types = {name: dtype for name, dtype in _types(options).items() if name in names}
    carriers = {name: _carrier(dtype) for name, dtype in types.items()}
    return lines(schema_overrides=carriers).with_columns(pl.col(name).cast(types[name]) for name in types)


def _types(options: SourceOptions) -> dict[str, pl.DataType]:
    """Return the types to read text with; the library rejects those that text cannot have."""
    flat = {name: dtype for name, dtype in options.expected.items() if not dtype.is_nested()}
    return {name: dtype for name, dtype in {**flat, **options.types}.items() if dtype != pl.Binary()}


def _carrier(dtype: pl.DataType) -> pl.DataType:
    """Return a type that Polars reads from JSON (2.1 panics on others) and casts without loss."""
    if dtype.is_decimal():
        return pl.String()
    return pl.Int32() if dtype in (pl.Int8(), pl.Int16()) else dtype


def _known(name: str) -> SourceFormat | None:
    path = Path(name)
    return _ENDINGS.get((path.with_suffix("") if path.suffix in _COMPRESSED else path).suffix.lower())


def _format_of(names: Iterable[str], source: str) -> SourceFormat:
    """Return the one format of the files of a source, by the endings of their names."""
    formats: dict[SourceFormat, None] = {}
    for name in names:
        file_format = _known(name)
        if file_format is None:
            msg = (
                f"{name!r} has no known ending. Give --format parquet, csv, jsonl (one JSON object a line), arrow "
                "or delta."
            )
            raise InvalidInputError(msg, argument="format")
        formats[file_format] = None
    if len(formats) > 1:
        msg = f"{source!r} holds files of several formats, {', '.join(formats)}. Choose one with --format."
        raise InvalidInputError(msg, argument="format")
    return next(iter(formats))


@contextmanager
def standard_input(resources: Resources) -> Generator[StandardInput]:
    """Give what reads the standard input; its temporary file is gone afterwards."""
    with ExitStack() as stack:

        def read() -> io.BytesIO | Path:
            # Polars installs a handler that lets a read go on after Ctrl-C: a read that waits could not be stopped.
            if sys.platform != "win32":
                signal.siginterrupt(signal.SIGINT, True)  # noqa: FBT003 - a function of C, without keywords
            max_bytes = budget_of(resources).memory_bytes // _SHARE
            first = sys.stdin.buffer.read(max_bytes + 1)
            if len(first) <= max_bytes:
                return io.BytesIO(first)
            folder = SpillFolder(spill_folder_of(resources))
            stack.callback(folder.close)
            path = Path(folder.new_path())
            with folder.writing(), path.open("wb") as file:
                file.write(first)
                shutil.copyfileobj(sys.stdin.buffer, file, _CHUNK_BYTES)
            return path

        yield read
