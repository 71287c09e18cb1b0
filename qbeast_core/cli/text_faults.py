"""Files of texts as Python reads them: their start, and where one cannot be read or has a value that does not fit."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias, cast

import pyarrow as pa

from qbeast_core.errors import InvalidInputError

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
