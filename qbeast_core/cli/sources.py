"""The rows of a write: files, folders, patterns, Delta tables, the standard input; read lazily."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import orjson
import polars as pl

import qbeast
from qbeast_core.cli.output_file import ENDINGS
from qbeast_core.cli.text_faults import TextFile, place_of, refuse_others
from qbeast_core.cli.text_types import converted, inferred_types, misfits
from qbeast_core.cli.workspace import Workspace
from qbeast_core.errors import InvalidInputError
from qbeast_core.io.address import GLUE
from qbeast_core.io.store import is_folder, status_of
from qbeast_core.log.schema import NAMES, schema_to_delta, type_of
from qbeast_core.support.process import Progress, ProgressCallback, report
from qbeast_core.support.text import excerpt
from qbeast_core.table.data.frames import little_read_ahead

SourceFormat: TypeAlias = Literal["parquet", "csv", "jsonl", "arrow", "delta"]

_ENDINGS: Final[Mapping[str, SourceFormat]] = {**ENDINGS, ".tsv": "csv"}
_COMPRESSED: Final = (".gz", ".zst")
_TEXT: Final = ("csv", "jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """How to read sources."""

    # Of all sources; None goes by their names.
    file_format: SourceFormat | None = None
    # Of columns of CSV and JSON lines; the types of other columns are those that all values have.
    types: Mapping[str, pl.DataType] = field(default_factory=dict[str, pl.DataType])
    # The same, where a source has such a column: the types of the table in an append.
    expected: Mapping[str, pl.DataType] = field(default_factory=dict[str, pl.DataType])
    # None: a tab in files that end with .tsv, else a comma.
    separator: str | None = None
    # Of dates and times, in the notation of `strftime`; None: ISO 8601.
    date_format: str | None = None
    # Texts that mean null in CSV.
    null_values: Sequence[str] = ()
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    progress: ProgressCallback | None = field(default=None, repr=False)


def read_sources(sources: Sequence[str], options: SourceOptions, workspace: Workspace) -> pl.LazyFrame:
    """Return the rows of all sources; they must have the same columns. All text files have one set of types."""
    if sources.count("-") > 1:
        msg = "the standard input can be read once"
        raise InvalidInputError(msg, argument="sources")
    places = [(source, *_place(source, options, workspace)) for source in sources]
    files = {
        kind: [file for _, found, where in places if found == kind for file in _texts_at(where, options)]
        for kind in _TEXT
    }
    frames = _read_texts({kind: group for kind, group in files.items() if group}, options, workspace)
    frames += [(source, _scan(where, kind, options)) for source, kind, where in places if kind not in _TEXT]
    first, names = frames[0][0], frames[0][1].collect_schema().names()
    _refuse_unknown(options, names)
    for source, frame in frames:
        refuse_others(source, frame.collect_schema().names(), first, names)
    return pl.concat([frame.select(names) for _, frame in frames], how="vertical_relaxed")


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


def _place(source: str, options: SourceOptions, workspace: Workspace) -> tuple[SourceFormat, Any]:
    """Return the format of a source, and its paths, address or bytes; of texts, paths with names for messages."""
    path, file_format = Path(source), options.file_format
    if source == "-":
        return _standard_input(file_format, workspace)
    if source.lower().startswith(GLUE):
        return file_format or "delta", source
    if "://" in source:
        file_format = file_format or _format_of([source], source)
        is_text = file_format in _TEXT
        return file_format, workspace.fetched(source, options.storage_options) if is_text else source
    is_table = file_format is None and (path / "_delta_log").is_dir()
    if is_folder(path) and (file_format == "delta" or is_table):
        return "delta", source
    files = _files_at(source, file_format)
    file_format = file_format or _format_of(map(str, files), source)
    return file_format, {file: str(file) for file in files} if file_format in _TEXT else files


def _standard_input(file_format: SourceFormat | None, workspace: Workspace) -> tuple[SourceFormat, Any]:
    if file_format is None or file_format == "delta":
        msg = "the standard input needs a format. Give --format csv, jsonl, parquet or arrow."
        raise InvalidInputError(msg, argument="format")
    if file_format in _TEXT:
        return file_format, {workspace.standard_input_file(): "-"}
    content = workspace.standard_input()
    return file_format, [content] if isinstance(content, Path) else content


def _files_at(source: str, file_format: SourceFormat | None) -> list[Path]:
    """Return the files of a folder, a path or a pattern."""
    path = Path(source)
    if is_folder(path):
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
    return files


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
    if options.types:
        msg = f"--type is for CSV and JSON lines; {file_format} has types of its own"
        raise InvalidInputError(msg, argument="types")
    match file_format:
        case "parquet":
            return pl.scan_parquet(where, glob=patterns, storage_options=store)
        case "arrow":
            return pl.scan_ipc(where, glob=patterns, storage_options=store)
        case _:
            # Our tables may hold copies of rows, which other readers return twice.
            return qbeast.open_table(where, storage_options=store).scan()


def _texts_at(names: Mapping[Path, str], options: SourceOptions) -> list[TextFile]:
    return [TextFile(path, name, _separator(name, options)) for path, name in names.items()]


def _separator(name: str, options: SourceOptions) -> str:
    separator = {None: "\t" if ".tsv" in Path(name).suffixes else ",", "\\t": "\t"}.get(
        options.separator, options.separator
    )
    if separator is None or len(separator) != 1:
        msg = f"--separator must be one character, not {separator!r}"
        raise InvalidInputError(msg, argument="separator")
    return separator


def _read_texts(
    files: Mapping[str, Sequence[TextFile]], options: SourceOptions, workspace: Workspace
) -> list[tuple[str, pl.LazyFrame]]:
    """Return the rows of text files, with types of all values or as requested."""
    if not files:
        return []
    report(options.progress, Progress("read"))
    wanted = _types(options)
    texts = workspace.read_texts(files, {name for name, dtype in wanted.items() if dtype == pl.String()})
    names = texts[0].rows.collect_schema().names()
    sources = [group[0].source for group in files.values()]
    for source, group in zip(sources, texts, strict=True):
        refuse_others(source, group.rows.collect_schema().names(), sources[0], names)
    _refuse_unknown(options, names)
    null = list(options.null_values)
    frames = [_without_nulls(group.rows.select(names), null) for group in texts]
    rows = pl.concat(frames, how="vertical_relaxed")
    schema = rows.collect_schema()
    wanted = {name: wanted[name] for name in names if name in wanted and schema[name] == pl.String()}
    fixed = wanted.keys() | {name for group in texts for name in group.fixed}
    with little_read_ahead():
        report(options.progress, Progress("read"))
        types = {**wanted, **inferred_types(rows, [name for name in names if name not in fixed])}
        unfit, formatted = misfits(rows, wanted, options.date_format)
    for name, value in unfit.items():
        raise _misfit(files, name, value, wanted[name], options)
    formats = dict.fromkeys(formatted, options.date_format)
    columns = [converted(name, dtype, formats.get(name)).alias(name) for name, dtype in types.items()]
    return [(source, frame.with_columns(columns)) for source, frame in zip(sources, frames, strict=True)]


def _without_nulls(rows: pl.LazyFrame, null_values: Sequence[str]) -> pl.LazyFrame:
    texts = pl.col(pl.String)
    return rows.with_columns(pl.when(~texts.is_in(null_values)).then(texts)) if null_values else rows


def _misfit(
    files: Mapping[str, Sequence[TextFile]], name: str, value: str, dtype: pl.DataType, options: SourceOptions
) -> InvalidInputError:
    """Return the error for a value that is not exactly a value of its type."""
    where = next(place for kind, group in files.items() if (place := place_of(group, kind, name, value)))
    delta_name = orjson.loads(schema_to_delta(pl.Schema({name: dtype})))["fields"][0]["type"]
    cure = "Correct the value, or give another type with --type."
    if dtype.is_temporal():
        cure = "Dates and times are in ISO 8601, or in the format of --date-format such as %d/%m/%Y."
    elif dtype.is_numeric():
        cure = f"Values are never rounded: correct the value, or give another type with --type, such as {name}=string."
    if name not in options.types:
        cure = f"The table has this type. {cure}"
    msg = f"{where}: {excerpt(value)!r} is not a value of type {delta_name}. {cure}"
    return InvalidInputError(msg, argument="types" if name in options.types else "sources")


def _refuse_unknown(options: SourceOptions, names: Sequence[str]) -> None:
    unknown = sorted(set(options.types) - set(names))
    if unknown:
        msg = f"--type names no such column(s): {unknown}; the source has {list(names)}"
        raise InvalidInputError(msg, argument="types")


def _types(options: SourceOptions) -> dict[str, pl.DataType]:
    """Return the types to read text with; the library rejects those that text cannot have."""
    flat = {name: dtype for name, dtype in options.expected.items() if not dtype.is_nested()}
    return {name: dtype for name, dtype in {**flat, **options.types}.items() if dtype != pl.Binary()}


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
