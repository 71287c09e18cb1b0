"""The rows of a write: files, folders, patterns, Delta tables, the standard input, and temporary copies."""

from __future__ import annotations

import glob
import io
import re
import signal
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, partial
from http.client import HTTPException
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias
from urllib.error import HTTPError
from urllib.request import urlopen

import orjson
import polars as pl

import qbeast
from qbeast_core.cli.output import ENDINGS
from qbeast_core.cli.text_files import (
    TextFile,
    TextReader,
    Texts,
    converted,
    inferred_types,
    misfits,
    place_of,
    refuse_others,
)
from qbeast_core.errors import InvalidInputError, QbeastError, StorageError
from qbeast_core.io.address import GLUE, SCHEMES, UNITY
from qbeast_core.io.location import open_store
from qbeast_core.io.store import is_folder, status_of
from qbeast_core.log.schema import NAMES, schema_to_delta, type_of
from qbeast_core.support.process import Progress, ProgressCallback, Resources, report, spill_folder_of
from qbeast_core.support.sizing import sizing
from qbeast_core.support.text import excerpt
from qbeast_core.table.data.frames import little_read_ahead
from qbeast_core.table.engine.engine import Budget
from qbeast_core.table.engine.local import budget_of
from qbeast_core.table.engine.spill import SpillFolder

_SHARE: Final = 16  # of the budget: these bytes come on top of the rows that are read from them
_TIMEOUT_S: Final = 60.0
_PATTERN: Final = re.compile(r"[*?\[]")


class Workspace(ExitStack):
    """A context with temporary files within a budget."""

    def __init__(self, resources: Resources) -> None:
        super().__init__()
        self._resources = resources

    def standard_input(self) -> io.BytesIO | Path:
        """Read the standard input to its end; return its bytes, or a file of them."""
        _let_interrupts_stop_reads()
        max_bytes = self._budget.memory_bytes // _SHARE
        first = sys.stdin.buffer.read(max_bytes + 1)
        return (
            io.BytesIO(first)
            if len(first) <= max_bytes
            else self._saved(chain([first], _parts(sys.stdin.buffer)))
        )

    def standard_input_file(self) -> Path:
        """Read the standard input to its end; return a file of it."""
        _let_interrupts_stop_reads()
        return self._saved(_parts(sys.stdin.buffer))

    def fetched(self, address: str, storage_options: Mapping[str, str] | None) -> dict[Path, str]:
        """Return copies of the files at an address, which may be a pattern: DuckDB reads only local files."""
        scheme, _, rest = address.partition("://")
        if scheme.lower() in ("http", "https"):
            return {self._downloaded(address): address}
        if scheme.lower() not in SCHEMES:
            msg = f"text files are in folders, object stores or at http addresses, not at {address!r}. Download it."
            raise InvalidInputError(msg, argument="sources")
        folder, _, name = rest.rpartition("/")
        pattern = _PATTERN.search(rest)
        if pattern is not None:
            folder = rest[: pattern.start()].rpartition("/")[0]
            name = rest[len(folder) + 1 :]
        store = open_store(f"{scheme}://{folder}", storage_options)
        names = [name] if pattern is None else sorted(path for path in store.list("") if _matches(path, name))
        if not names:
            msg = f"there is no {address!r}"
            raise InvalidInputError(msg, argument="sources")
        copies: dict[Path, str] = {}
        for name in names:
            size, step = store.size(name), sizing().copied_bytes
            parts = (store.get_range(name, start, min(step, size - start)) for start in range(0, size, step))
            copies[self._saved(parts)] = f"{scheme}://{folder}/{name}"
        return copies

    def read_texts(self, files: Mapping[str, Sequence[TextFile]], strings: Collection[str]) -> list[Texts]:
        """Read text files by their formats; `strings` are columns whose objects and lists stay texts."""
        plain = {kind: [self._plain(file) for file in group] for kind, group in files.items()}
        every = [file for group in plain.values() for file in group]
        with closing(TextReader(every, self._folder, self._budget)) as reader:
            return [
                reader.csv(group) if kind == "csv" else reader.json(group, strings)
                for kind, group in plain.items()
            ]

    @cached_property
    def _budget(self) -> Budget:
        return budget_of(self._resources)

    @cached_property
    def _folder(self) -> SpillFolder:
        folder = SpillFolder(spill_folder_of(self._resources))
        self.callback(folder.close)
        return folder

    def _downloaded(self, address: str) -> Path:
        try:
            with urlopen(address, timeout=_TIMEOUT_S) as response:  # noqa: S310 - the scheme is http or https
                return self._saved(_parts(response))
        except (HTTPException, OSError, ValueError) as error:
            if isinstance(error, QbeastError):
                raise
            if isinstance(error, HTTPError):
                error.close()  # it holds the answer of the server
            reason = getattr(error, "reason", error)
            msg = f"{address!r} cannot be read: {reason}. Check the address and the network."
            raise StorageError(msg, path=address) from error

    def _saved(self, parts: Iterable[bytes]) -> Path:
        """Return a file of bytes."""
        path = Path(self._folder.new_path())
        with self._folder.writing():
            file = path.open("wb")
        with file:
            for part in parts:
                with self._folder.writing():
                    file.write(part)
                    file.flush()
        return path

    def _plain(self, file: TextFile) -> TextFile:
        """Return a file whose path is not a pattern for DuckDB."""
        if not _PATTERN.search(str(file.path)):
            return file
        path = Path(self._folder.new_path())
        path.symlink_to(file.path.absolute())
        return TextFile(path, file.source, file.separator)


def _matches(path: str, pattern: str) -> bool:
    """Return whether a path matches; only ** matches a / too, or nothing."""
    if "**" in pattern:
        return fnmatchcase(path, pattern) or fnmatchcase(path, pattern.replace("**/", ""))
    return path.count("/") == pattern.count("/") and fnmatchcase(path, pattern)


def _parts(stream: IO[bytes]) -> Iterator[bytes]:
    return iter(partial(stream.read, sizing().copied_bytes), b"")


def _let_interrupts_stop_reads() -> None:
    """Undo what Polars installs: with its handler, a read goes on after Ctrl-C, and one that waits never ends."""
    if sys.platform != "win32":
        signal.siginterrupt(signal.SIGINT, True)  # noqa: FBT003 - a function of C, without keywords


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
        kind: [
            TextFile(path, name, _separator(name, options))
            for _, found, where in places
            if found == kind
            for path, name in where.items()
        ]
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
    if source.lower().startswith((GLUE, UNITY)):
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
            return qbeast.scan_table(where, storage_options=store)


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
    names = texts[0][0].collect_schema().names()
    sources = [group[0].source for group in files.values()]
    for source, (group, _) in zip(sources, texts, strict=True):
        refuse_others(source, group.collect_schema().names(), sources[0], names)
    _refuse_unknown(options, names)
    null = list(options.null_values)
    frames = [_without_nulls(group.select(names), null) for group, _ in texts]
    rows = pl.concat(frames, how="vertical_relaxed")
    schema = rows.collect_schema()
    wanted = {name: wanted[name] for name in names if name in wanted and schema[name] == pl.String()}
    fixed = wanted.keys() | {name for _, known in texts for name in known}
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
