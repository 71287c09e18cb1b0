"""CSV and JSON lines, read by DuckDB as texts into temporary Parquet files."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import polars as pl

from qbeast_core.cli.text_faults import (
    TextFile,
    csv_fault,
    csv_lines,
    encoding_fault,
    fault,
    json_fault,
    json_lines,
    refuse_others,
)
from qbeast_core.errors import StorageError
from qbeast_core.support.process import require
from qbeast_core.support.sizing import sizing
from qbeast_core.support.text import first_line
from qbeast_core.table.engine.engine import Budget
from qbeast_core.table.engine.spill import SpillFolder

_MIN_MEMORY_BYTES: Final = 256 << 20  # of DuckDB: its buffers of files and of row groups
_MAX_LINE_BYTES: Final = 16 << 20
_MIN_GROUP_ROWS: Final = 2_048

# A number, true or false outside of strings, with all that is before it. Matches follow one another without a gap: so
# none begins inside of a string.
_VALUE: Final = r'((?:[^"0-9NItf-]|"(?:[^"\\]|\\.)*")*)(-?(?:[0-9][0-9.eE+-]*|NaN|Infinity)|true|false)'

_SCALARS: Final = ("BIGINT", "BOOLEAN", "DOUBLE", "UBIGINT")


@dataclass(frozen=True, slots=True)
class Texts:
    """Rows of text files: all columns are texts, except those of objects and lists of JSON."""

    rows: pl.LazyFrame
    # Columns whose types are known: strings, objects and lists of JSON.
    fixed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Header:
    """How to read a CSV file."""

    names: tuple[str, ...]
    separator: str
    compression: str
    blank_lines: int  # before the names
    row_bytes: int = field(compare=False)


class TextReader:
    """Reads text files with DuckDB: within a budget, and without access to anything else."""

    def __init__(self, files: Sequence[TextFile], folder: SpillFolder, budget: Budget) -> None:
        require("duckdb", "reading CSV and JSON lines")
        import duckdb  # noqa: PLC0415 - an extra, for text alone

        self._folder, self._budget = folder, budget
        self._connection = duckdb.connect(":memory:")
        self._failures, self._no_room = duckdb.Error, (duckdb.IOException, duckdb.OutOfMemoryException)
        paths = ", ".join(_quoted(str(file.path.absolute())) for file in files)
        for setting in (
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            f"memory_limit = '{max(budget.memory_bytes // 2, _MIN_MEMORY_BYTES)}B'",
            f"temp_directory = {_quoted(str(folder.path))}",
            f"threads = {budget.writers}",
            f"allowed_directories = [{_quoted(f'{folder.path}/')}]",
            f"allowed_paths = [{paths}]",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._connection.execute(f"SET {setting}")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def csv(self, files: Sequence[TextFile]) -> Texts:
        """Read CSV files with the same columns."""
        files = [self._copy(file, csv_lines) if file.encoding == "utf-16" else file for file in files]
        headed = [(file, _header_of(file)) for file in files]
        names = headed[0][1].names
        for file, header in headed:
            refuse_others(file.source, header.names, files[0].source, names)
        parts = [
            self._csv_part([file for file, _ in group], header, names)
            for header, group in groupby(headed, key=lambda item: item[1])
        ]
        return Texts(_named(parts, names))

    def json(
        self, files: Sequence[TextFile], strings: Collection[str] = (), *, copied: bool = False
    ) -> Texts:
        """Read JSON lines. Fields of any line are columns; objects and lists have the types of their values.

        Columns of `strings` are texts, whatever they hold.
        """
        if not copied:
            files = [self._copy(file, json_lines) if file.has_mark else file for file in files]
        lines = " UNION ALL ".join(
            f"SELECT json FROM read_json_objects({_list(group)}, format = 'newline_delimited', "
            f"compression = '{compression}')"
            for compression, group in groupby(files, key=lambda file: file.compression)
        )
        try:
            row = self._connection.execute(f"SELECT json_group_structure(json) FROM ({lines})").fetchone()
            structure = json.loads(row[0]) if row and row[0] else None
            if structure is None:
                msg = f"there is no line in {files[0].source!r}"
                raise fault(msg)
            if not isinstance(structure, dict):
                msg = "a line is not a JSON object with fields"
                raise json_fault(files) or fault(msg)
            structure |= {
                name: "JSON" for name in structure if name in strings and structure[name] != "VARCHAR"
            }
            return self._json_part(lines, structure, max(_row_bytes(file.head) for file in files))
        except self._failures as error:
            self._refuse_no_room(error)
            found = json_fault(files)
            if found is None and not copied:  # Python reads them: lines end with CR
                return self.json([self._copy(file, json_lines) for file in files], strings, copied=True)
            raise found or fault(first_line(str(error))) from error

    def _csv_part(
        self, files: Sequence[TextFile], header: _Header, names: Sequence[str], *, copied: bool = False
    ) -> Path:
        types = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(len(names)))
        columns = ", ".join(f"c{header.names.index(name)} AS c{index}" for index, name in enumerate(names))
        query = (
            f"SELECT {columns} FROM read_csv({_list(files)}, columns = {{{types}}}, auto_detect = false, "
            f"header = true, skip = {header.blank_lines}, delim = {_quoted(header.separator)}, quote = '\"', "
            f"escape = '\"', allow_quoted_nulls = false, "
            f"compression = '{header.compression}', max_line_size = {_MAX_LINE_BYTES}, "
            f"buffer_size = {2 * _MAX_LINE_BYTES})"
        )
        if len(names) == 1:
            query += " WHERE c0 IS NOT NULL"  # a blank line
        try:
            return self._copied(query, header.row_bytes)
        except self._failures as error:
            self._refuse_no_room(error)
            found = csv_fault(files, len(names))
            if found is None and not copied:
                # Python reads them: the lines end in different ways, which DuckDB does not read.
                copies = [self._copy(file, csv_lines) for file in files]
                return self._csv_part(copies, replace(header, compression="none"), names, copied=True)
            raise (found or fault(first_line(str(error)))) from error

    def _json_part(self, lines: str, structure: Mapping[str, Any], row_bytes: int) -> Texts:
        mark = uuid4().hex[:8]  # begins each text that is not a string in the file
        kinds = {
            name: json.dumps(_nested_type(kind))
            for name, kind in structure.items()
            if isinstance(kind, dict | list)
        }
        paths = {name: "/" + name.replace("~", "~0").replace("/", "~1") for name in structure}
        columns = ", ".join(
            f"json_transform(json_extract(json, {_quoted(paths[name])}), {_quoted(kinds[name])}) AS c{index}"
            if name in kinds
            else f"texts[{index + 1}] AS c{index}"
            for index, name in enumerate(structure)
        )
        # The number at the end makes every line end with a match.
        marked = f"regexp_replace('[' || json || ',0]', {_quoted(_VALUE)}, '\\1\"{mark}\\2\"', 'g')"
        pointers = ", ".join(_quoted(f"/0{path}") for path in paths.values())
        texts = f"SELECT json, json_extract_string({marked}, [{pointers}]) AS texts FROM ({lines})"
        rows = _named([self._copied(f"SELECT {columns} FROM ({texts})", row_bytes)], list(structure))
        unmarked = [
            pl.col(name).str.replace_all(f'^{mark}|"{mark}([^"]*)"', "${1}")
            if kind == "JSON"
            else pl.col(name).str.strip_prefix(mark)
            for name, kind in structure.items()
            if name not in kinds and kind != "VARCHAR"
        ]
        strings = {name for name, kind in structure.items() if kind in ("VARCHAR", "JSON")}
        return Texts(rows.with_columns(unmarked), frozenset(strings | kinds.keys()))

    def _copied(self, query: str, row_bytes: int) -> Path:
        """Return a Parquet file with the rows of a query."""
        path = Path(f"{self._folder.new_path()}.parquet")
        rows = min(max(self._budget.batch_bytes // row_bytes, _MIN_GROUP_ROWS), sizing().text_group_rows)
        options = f"FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE {rows}"
        self._connection.execute(f"COPY ({query}) TO {_quoted(str(path))} ({options})")
        return path

    def _copy(self, file: TextFile, lines: Callable[[TextFile], Iterator[str]]) -> TextFile:
        """Return a copy in UTF-8."""
        path = Path(self._folder.new_path())
        try:
            with self._folder.writing(), path.open("w", encoding="utf-8", newline="") as target:
                target.writelines(lines(file))
        except UnicodeError as error:
            raise encoding_fault(file) from error
        return replace(file, path=path)

    def _refuse_no_room(self, error: Exception) -> None:
        if isinstance(error, self._no_room):
            msg = (
                f"the texts do not fit: {first_line(str(error))}. Pass another folder with `spill_dir`, or more memory "
                "with `memory_bytes`."
            )
            raise StorageError(msg, path=str(self._folder.parent), argument="spill_dir") from error


def _header_of(file: TextFile) -> _Header:
    head = file.head
    try:
        text = codecs.getincrementaldecoder(file.encoding)().decode(head)
    except UnicodeDecodeError as error:
        raise encoding_fault(file) from error
    if "\0" in text:
        msg = f"{file.source!r} holds zero bytes: it is not text in UTF-8"
        raise fault(msg, "Convert it.")
    start = text.lstrip("\r\n")
    if not start:
        msg = f"{file.source!r} is an empty CSV file; the first line has to name the columns"
        raise fault(msg)
    try:
        names = next(csv.reader(io.StringIO(start, newline=""), delimiter=file.separator))
    except csv.Error as error:
        msg = f"the first line of {file.source!r} does not name columns ({error})"
        raise fault(msg) from error
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        msg = f"{file.source!r} has several columns of the same name: {doubled}"
        raise fault(msg, "Rename them.")
    blank = text[: len(text) - len(start)]
    return _Header(tuple(names), file.separator, file.compression, len(blank.splitlines()), _row_bytes(head))


def _row_bytes(head: bytes) -> int:
    return max(len(head) // max(head.count(b"\n"), head.count(b"\r"), 1), 1)


def _named(parts: Sequence[Path], names: Sequence[str]) -> pl.LazyFrame:
    columns = [pl.col(f"c{index}").alias(name) for index, name in enumerate(names)]
    return pl.scan_parquet(list(parts), glob=False).select(columns)


def _nested_type(kind: Any) -> Any:
    """Return the type of nested values. Of numbers beyond 64 bits, and of values of several kinds, it is text.

    >>> _nested_type({"a": ["UBIGINT"], "b": "JSON"})
    {'a': ['UBIGINT'], 'b': 'VARCHAR'}
    """
    if isinstance(kind, list):
        return [_nested_type(inner) for inner in kind]
    if isinstance(kind, dict):
        return {name: _nested_type(inner) for name, inner in kind.items()}
    return kind if kind in _SCALARS else "VARCHAR"


def _list(files: Iterable[TextFile]) -> str:
    return f"[{', '.join(_quoted(str(file.path.absolute())) for file in files)}]"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
