"""CSV and JSON lines, read by DuckDB as texts: types of their columns, and values that do not fit."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias, cast
from uuid import uuid4

import polars as pl
import pyarrow as pa

from qbeast_core.errors import InvalidInputError, StorageError
from qbeast_core.support.process import require
from qbeast_core.support.sizing import sizing
from qbeast_core.support.text import first_line
from qbeast_core.table.engine.engine import Budget
from qbeast_core.table.engine.spill import SpillFolder

Compression: TypeAlias = Literal["none", "gzip", "zstd"]

_HEAD_BYTES: Final = 1 << 20
_MAGIC: Final[dict[bytes, Compression]] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_OPEN: Final[dict[Compression, Callable[[Path], AbstractContextManager[Any]]]] = {
    "none": partial(open, mode="rb"),
    "gzip": gzip.open,
    "zstd": partial(pa.input_stream, compression="zstd"),
}
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
csv.field_size_limit((1 << 31) - 1)

# A line of a file, and its fields by the names of their columns.
_Record: TypeAlias = tuple[int, dict[str, str]]


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file of texts. `path` may be a copy of the `source` that the user named."""

    path: Path
    source: str
    separator: str = ","

    @property
    def compression(self) -> Compression:
        """The compression, by the first bytes."""
        with self.path.open("rb") as file:
            start = file.read(4)
        for magic, kind in _MAGIC.items():
            if start.startswith(magic):
                return kind
        return "none"

    @property
    def head(self) -> bytes:
        """The first bytes, decompressed."""
        with self.opened() as file:
            return file.read(_HEAD_BYTES)

    @property
    def encoding(self) -> str:
        """UTF-16 if the file has its mark, else UTF-8."""
        return "utf-16" if self.head.startswith(_UTF_16) else "utf-8-sig"

    @property
    def has_mark(self) -> bool:
        """Whether the file begins with the mark of its encoding."""
        return self.head.startswith((codecs.BOM_UTF8, *_UTF_16))

    @contextmanager
    def opened(self) -> Generator[IO[bytes]]:
        """Open the file to read its bytes, decompressed."""
        compression = self.compression
        try:
            with _OPEN[compression](self.path) as stream:
                yield cast("IO[bytes]", stream)
        except (EOFError, OSError) as error:
            if compression == "none":
                raise
            msg = f"{self.source!r} is damaged: it cannot be decompressed as {compression}"
            raise fault(msg) from error


def fault(
    problem: str, cure: str = "Check --format, --separator, --null-value and --type."
) -> InvalidInputError:
    """Return the error for files that cannot be read."""
    msg = f"the sources cannot be read as rows: {problem.rstrip('.')}. {cure}"
    return InvalidInputError(msg, argument="sources")


def refuse_others(source: str, own: Sequence[str], first: str, names: Sequence[str]) -> None:
    """Raise an error if a source does not have the columns of the first one."""
    if sorted(own) != sorted(names):
        msg = f"{source!r} has the columns {list(own)}, {first!r} has {list(names)}. Write them one by one."
        raise InvalidInputError(msg, argument="sources")


def csv_fault(files: Sequence[TextFile], width: int) -> InvalidInputError | None:
    """Return the error of the first line of CSV that cannot be read, if there is one."""
    for file in files:
        line = 1
        try:
            for line, fields in _fields(file):
                if fields and len(fields) != width:
                    more = "more" if len(fields) > width else "fewer"
                    problem = (
                        f"{file.source!r}, line {line}: {more} fields ({len(fields)}) than columns ({width})"
                    )
                    cure = "Fix the line, put fields with separators into double quotes, or give --separator."
                    return fault(problem, cure)
        except UnicodeError:
            return encoding_fault(file)
        except csv.Error as error:
            cure = 'Write " inside of a field in quotes twice, or give --format.'
            return fault(
                f"{file.source!r}, after line {line}: a field in quotes does not end ({error})", cure
            )
    return None


def json_fault(files: Sequence[TextFile]) -> InvalidInputError | None:
    """Return the error of the first line that is not a JSON object, if there is one."""
    cure = "Write one JSON object a line, or give --format."
    for file in files:
        try:
            for line, text in enumerate(json_lines(file), 1):
                problem = _json_problem(text)
                if problem:
                    return fault(f"{file.source!r}, line {line}: {problem}", cure)
        except UnicodeError:
            return encoding_fault(file)
    return None


def encoding_fault(file: TextFile) -> InvalidInputError:
    """Return the error of a file that is not in UTF-8."""
    with file.opened() as lines:
        line = next((number for number, text in enumerate(lines, 1) if not _is_utf_8(text)), 1)
    cure = "Convert it, such as by `iconv -f LATIN1 -t UTF-8 FILE`."
    return fault(f"{file.source!r}, line {line}: the text is not in UTF-8", cure)


def json_lines(file: TextFile) -> Iterator[str]:
    """Yield the lines of a file, which end with a line feed."""
    with file.opened() as stream, io.TextIOWrapper(stream, encoding=file.encoding) as text:
        yield from text


def csv_lines(file: TextFile) -> Iterator[str]:
    """Yield the records of a file, which end with a line feed; line ends between quotes do not change."""
    lines: list[str] = []

    def read(text: Iterable[str]) -> Iterator[str]:
        for line in text:
            lines.append(line)
            yield line

    with file.opened() as stream, io.TextIOWrapper(stream, encoding=file.encoding, newline="") as text:
        for _ in csv.reader(read(text), delimiter=file.separator):
            yield "".join(lines).rstrip("\r\n") + "\n"
            lines.clear()


def place_of(files: Sequence[TextFile], kind: str, column: str, value: str) -> str:
    """Return the file and the line of a value of a column, for messages."""
    read = _json_records if kind == "jsonl" else _csv_records
    for file in files:
        for line, fields in read(file):
            if fields.get(column, "").strip(" \t") == value:
                return f"{file.source!r}, line {line}, column {column!r}"
    return f"column {column!r}"


def _csv_records(file: TextFile) -> Iterator[_Record]:
    names: list[str] = []
    for line, fields in _fields(file):
        if fields and not names:
            names = fields
        elif fields:
            yield line, dict(zip(names, fields, strict=False))


def _json_records(file: TextFile) -> Iterator[_Record]:
    for line, text in enumerate(json_lines(file), 1):
        if text.strip():
            fields = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
            yield (
                line,
                {
                    name: value if isinstance(value, str) else json.dumps(value)
                    for name, value in fields.items()
                },
            )


def _fields(file: TextFile) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a file with their first lines; a blank line has no field."""
    with file.opened() as stream, io.TextIOWrapper(stream, encoding=file.encoding, newline="") as text:
        reader, line = csv.reader(text, delimiter=file.separator, strict=True), 1
        for fields in reader:
            yield line, fields
            line = reader.line_num + 1


def _is_utf_8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _json_problem(text: str) -> str:
    if not text.strip():
        return ""
    try:
        value = json.loads(text)
    except (RecursionError, ValueError) as error:
        return f"it is not JSON ({error})"
    return "" if isinstance(value, dict) else "it is not a JSON object"


_MIN_MEMORY_BYTES: Final = 256 << 20  # of DuckDB: its buffers of files and of row groups
_MAX_LINE_BYTES: Final = 16 << 20
_MIN_GROUP_ROWS: Final = 2_048

# A number, true or false outside of strings, with all that is before it. Matches follow one another without a gap: so
# none begins inside of a string.
_VALUE: Final = r'((?:[^"0-9NItf-]|"(?:[^"\\]|\\.)*")*)(-?(?:[0-9][0-9.eE+-]*|NaN|Infinity)|true|false)'

_SCALARS: Final = ("BIGINT", "BOOLEAN", "DOUBLE", "UBIGINT")


# Rows of text files, whose columns are texts except those of objects and lists of JSON; and the columns whose types
# are known: strings, objects and lists of JSON.
Texts: TypeAlias = tuple[pl.LazyFrame, frozenset[str]]


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
        return _named(parts, names), frozenset()

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
        return rows.with_columns(unmarked), frozenset(strings | kinds.keys())

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


_INTEGER: Final = "^-?[0-9]+$"
# Leading zeros and a plus are part of a code, such as a postcode or a telephone number: these stay text.
_MANTISSA: Final = r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)"
_PLAIN: Final = f"^{_MANTISSA}$"
_NUMBER: Final = f"^(?:{_MANTISSA}(?:[eE][+-]?[0-9]+)?|(?i:-?(?:nan|inf|infinity)))$"
_NOT_FINITE: Final = "^(?i:[+-]?(?:nan|inf|infinity))$"
_FLAG: Final = "^(?i:true|false)$"
_DAY: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_OFFSET: Final = r":[0-9.]+\s?([+-])([01][0-9]):?([0-5][0-9])?$"
_ZONED: Final = r":[0-9.]+\s?(?:Z|[+-][01][0-9](?::?[0-5][0-9])?)$"
_TIME: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-5][0-9](?:\.[0-9]{1,6}0*)?)?"
    r"\s?(?:Z|[+-][01][0-9](?::?[0-5][0-9])?)?$"
)

_DIGITS: Final = 38  # of a decimal
_SHORT: Final = 15  # a double holds any number of so many digits

# Kinds of values by the more general kind.
_GENERAL: Final = {
    "longs": "numbers",
    "infinite": "numbers",
    "inexact": "numbers",
    "days": "walls",
    "zoned": "walls",
}


def inferred_types(texts: pl.LazyFrame, names: Iterable[str]) -> dict[str, pl.DataType]:
    """Return the types that all values of columns of texts have; a column without values is text.

    Numbers that neither 64 bits nor a double hold exactly become decimals, other mixtures stay text.
    """
    kinds = {name: _kinds(pl.col(name)) for name in names}
    values = texts.select(_value(name) for name in kinds)
    general = {
        name: {kind: expr for kind, expr in exprs.items() if kind not in _GENERAL}
        for name, exprs in kinds.items()
    }
    sampled = _counted(values.head(sizing().inferred_rows), general)
    # A kind that some value is not cannot be that of all.
    possible = {
        name: {
            kind: expr
            for kind, expr in kinds[name].items()
            if counts[_GENERAL.get(kind, kind)] == counts["values"]
        }
        for name, counts in sampled.items()
    }
    counts = _counted(values, {name: exprs for name, exprs in possible.items() if len(exprs) > 1})
    inexact = [name for name, kinds in counts.items() if kinds.get("inexact")]
    digits = _counted(values, {name: _digits(pl.col(name)) for name in inexact})
    return {name: _type_of({**counts.get(name, {}), **digits.get(name, {})}) for name in kinds}


def misfits(
    texts: pl.LazyFrame, types: Mapping[str, pl.DataType], date_format: str | None = None
) -> tuple[dict[str, str], set[str]]:
    """Return a value of each column that does not fit its type, and the columns that are in the date format.

    A column of dates or times is in the format if all its values are, else in ISO form.
    """
    dated = {
        name for name, dtype in types.items() if date_format and isinstance(dtype, (pl.Date, pl.Datetime))
    }
    first = _first_misfits(texts, {name: types[name] for name in dated}, date_format)
    formatted = dated - first.keys()
    unformatted = {name: dtype for name, dtype in types.items() if name not in formatted}
    unfit = _first_misfits(texts, unformatted, None)
    return {name: first.get(name, value) for name, value in unfit.items()}, formatted


def converted(name: str, dtype: pl.DataType, date_format: str | None = None) -> pl.Expr:
    """Return a column of texts as a type: null where a text is empty, or is not exactly a value of the type.

    >>> texts = pl.DataFrame({"a": ["2.50", "2.505", " 7", "", "1e2"]})
    >>> texts.select(converted("a", pl.Decimal(9, 2)))["a"].to_list()
    [Decimal('2.50'), None, Decimal('7.00'), None, Decimal('100.00')]
    """
    text = _value(name)
    if isinstance(dtype, pl.Boolean):
        return pl.when(text.str.contains(_FLAG)).then(text.str.to_lowercase() == "true")
    if isinstance(dtype, pl.Date):
        return _day(text) if date_format is None else text.str.to_date(date_format, strict=False)
    if isinstance(dtype, pl.Datetime):
        return _time(text, dtype, date_format)
    return _number(text, dtype) if dtype.is_numeric() else pl.col(name)


def _number(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Decimal):
        return pl.when(_is_exact(text, dtype.scale)).then(text).cast(dtype, strict=False)
    if dtype.is_float():
        number = text.cast(dtype, strict=False)
        return pl.when(number.is_infinite().not_() | text.str.contains(_NOT_FINITE)).then(number)
    whole = text.str.replace(r"\.0*$", "").cast(dtype, strict=False)
    exact = pl.when(_is_exact(text, 0)).then(text).cast(pl.Decimal(_DIGITS, 0), strict=False)
    return whole.fill_null(exact.cast(dtype, strict=False))


def _value(name: str) -> pl.Expr:
    """Return the texts of a column without blanks around them, and without empty texts."""
    text = pl.col(name).str.strip_chars(" \t")
    return pl.when(text != "").then(text)


def _counted(texts: pl.LazyFrame, columns: Mapping[str, Mapping[str, pl.Expr]]) -> dict[str, dict[str, int]]:
    if not columns:
        return {}
    counts = [
        pl.struct(expr.alias(kind) for kind, expr in kinds.items()).alias(name)
        for name, kinds in columns.items()
    ]
    row: dict[str, dict[str, int | None]] = (
        texts.select(counts).collect(engine="streaming").row(0, named=True)
    )
    return {name: {kind: count or 0 for kind, count in kinds.items()} for name, kinds in row.items()}


def _kinds(text: pl.Expr) -> dict[str, pl.Expr]:
    """Return counts that the type of a column depends on; those in `_GENERAL` count among values of another kind."""
    return {
        "values": text.count(),
        "numbers": text.str.contains(_NUMBER).sum(),
        "longs": text.cast(pl.Int64, strict=False).count(),
        "infinite": text.filter(_double(text).is_infinite()).str.contains(_NOT_FINITE).not_().sum(),
        "inexact": _inexact(text).count(),
        "flags": text.str.contains(_FLAG).sum(),
        "walls": _wall(text).count(),
        "days": _day(text).count(),
        "zoned": text.str.contains(_ZONED).sum(),
    }


def _double(text: pl.Expr) -> pl.Expr:
    return text.cast(pl.Float64, strict=False)


def _inexact(text: pl.Expr) -> pl.Expr:
    """Return the numbers without exponent that lose digits as doubles."""
    long = text.filter(text.str.len_bytes() > _SHORT)
    changed = long.filter(_double(long).cast(pl.String) != long)
    lost = _significant(_double(changed).cast(pl.String)) != _significant(changed)
    return changed.filter(lost & changed.str.contains(_PLAIN))


def _digits(text: pl.Expr) -> dict[str, pl.Expr]:
    """Return what decides between doubles, decimals and text, for a column of numbers of which doubles lose digits."""
    return {
        "plain": text.str.contains(_PLAIN).sum(),
        "inexact_whole": _inexact(text).str.contains(_INTEGER).sum(),
        "before": text.str.extract("^-?([0-9]*)").str.len_bytes().max(),
        "after": text.str.extract(r"\.([0-9]*)$").str.len_bytes().max(),
    }


def _significant(text: pl.Expr) -> pl.Expr:
    """Return the digits of numbers as text, without exponents and without zeros at both ends."""
    digits = text.str.replace("[eE].*$", "").str.replace_all(r"[-.]", "")
    return digits.str.strip_chars_start("0").str.strip_chars_end("0")


def _type_of(kinds: Mapping[str, int]) -> pl.DataType:
    values = kinds.get("values", 0)
    if not values:
        return pl.String()
    if kinds.get("numbers") == values:
        return _number_type(kinds)
    if kinds.get("flags") == values:
        return pl.Boolean()
    zoned = kinds.get("zoned", 0)
    if kinds.get("walls") != values or zoned not in (0, values):
        return pl.String()
    return pl.Date() if kinds["days"] == values else pl.Datetime("us", "UTC" if zoned else None)


def _number_type(kinds: Mapping[str, int]) -> pl.DataType:
    if kinds["longs"] == kinds["values"]:
        return pl.Int64()
    if kinds["infinite"]:  # beyond a double
        return pl.String()
    if not kinds["inexact"]:
        return pl.Float64()
    if kinds["plain"] == kinds["values"]:
        fits = kinds["before"] + kinds["after"] <= _DIGITS
        return pl.Decimal(_DIGITS, kinds["after"]) if fits else pl.String()
    # Numbers with exponents are approximate; whole numbers are not.
    return pl.String() if kinds["inexact_whole"] else pl.Float64()


def _day(text: pl.Expr) -> pl.Expr:
    return pl.when(text.str.contains(_DAY)).then(text).str.to_date("%Y-%m-%d", strict=False)


def _wall(text: pl.Expr) -> pl.Expr:
    """Return the times that clocks show, of texts in ISO form; a date is its midnight."""
    day = text.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False)
    hours, minutes = (text.str.slice(start, 2).cast(pl.Int64, strict=False) for start in (11, 14))
    # `_TIME` allows six digits that count: a double holds them.
    seconds = text.str.slice(17).str.replace(r"\s?[Z+-].*$", "").cast(pl.Float64, strict=False)
    exact = text.str.slice(16, 1) == ":"
    us = (seconds * 1_000_000).round().cast(pl.Int64, strict=False)
    time = pl.duration(minutes=hours * 60 + minutes, microseconds=pl.when(exact).then(us).otherwise(0))
    exists = text.str.contains(_TIME) & (hours < 24) & (minutes < 60)
    return (
        pl.when(exists).then(day.cast(pl.Datetime("us")) + time).otherwise(_day(text).cast(pl.Datetime("us")))
    )


def _time(text: pl.Expr, dtype: pl.Datetime, date_format: str | None) -> pl.Expr:
    """Return texts in ISO form or in a format as times; one without zone is in UTC, if the type is."""
    if date_format is not None:
        zone = dtype.time_zone
        return text.str.to_datetime(date_format, time_unit="us", strict=False, time_zone=zone).cast(dtype)
    zoned = text.str.contains(_ZONED)
    wall = _wall(text)
    if dtype.time_zone is None:
        return pl.when(~zoned).then(wall).cast(dtype)
    offset = text.str.extract_groups(_OFFSET).struct.field
    minutes = offset("2").cast(pl.Int64) * 60 + offset("3").cast(pl.Int64).fill_null(0)
    east = pl.when(offset("1") == "-").then(-minutes).otherwise(minutes).fill_null(0)
    return (wall - pl.duration(minutes=east)).dt.replace_time_zone("UTC").cast(dtype)


def _is_exact(text: pl.Expr, scale: int) -> pl.Expr:
    """Return whether numbers need no more digits after the point."""
    fraction = text.str.extract(r"\.([0-9]*?)0*(?:[eE].*)?$").str.len_bytes().fill_null(0).cast(pl.Int64)
    exponent = text.str.extract("[eE]([+-]?[0-9]+)$").cast(pl.Int64, strict=False).fill_null(0)
    return fraction - exponent <= scale


def _first_misfits(
    texts: pl.LazyFrame, types: Mapping[str, pl.DataType], date_format: str | None
) -> dict[str, str]:
    typed = {name: dtype for name, dtype in types.items() if not isinstance(dtype, pl.String)}
    if not typed:
        return {}
    first = [
        pl.col(name)
        .filter(pl.col(name).is_not_null() & converted(name, dtype, date_format).is_null())
        .first()
        for name, dtype in typed.items()
    ]
    values = texts.select(_value(name) for name in typed)
    row: dict[str, str | None] = values.select(first).collect(engine="streaming").row(0, named=True)
    return {name: value for name, value in row.items() if value is not None}
