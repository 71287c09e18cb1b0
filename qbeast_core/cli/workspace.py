"""The temporary files of a command that reads sources: the standard input, files of object stores, texts."""

from __future__ import annotations

import io
import re
import signal
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from functools import cached_property, partial
from http.client import HTTPException
from itertools import chain
from pathlib import Path
from typing import IO, Final
from urllib.error import HTTPError
from urllib.request import urlopen

from qbeast_core.cli.text_faults import TextFile
from qbeast_core.cli.text_files import TextReader, Texts
from qbeast_core.errors import InvalidInputError, QbeastError, StorageError
from qbeast_core.io.address import SCHEMES
from qbeast_core.io.location import open_store
from qbeast_core.support.process import Resources, spill_folder_of
from qbeast_core.support.sizing import sizing
from qbeast_core.table.engine.engine import Budget
from qbeast_core.table.engine.local import budget_of
from qbeast_core.table.engine.spill import SpillFolder

_SHARE: Final = 16  # of the budget: these bytes come on top of the rows that are read from them
_TIMEOUT_S: Final = 60.0
_PATTERN: Final = re.compile(r"[*?\[]")


class Workspace:
    """Temporary files within a budget; see `open_workspace`."""

    def __init__(self, resources: Resources, stack: ExitStack) -> None:
        self._resources, self._stack = resources, stack

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
        reader = TextReader([file for group in plain.values() for file in group], self._folder, self._budget)
        try:
            return [
                reader.csv(group) if kind == "csv" else reader.json(group, strings)
                for kind, group in plain.items()
            ]
        finally:
            reader.close()

    @cached_property
    def _budget(self) -> Budget:
        return budget_of(self._resources)

    @cached_property
    def _folder(self) -> SpillFolder:
        folder = SpillFolder(spill_folder_of(self._resources))
        self._stack.callback(folder.close)
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


@contextmanager
def open_workspace(resources: Resources) -> Generator[Workspace]:
    """Give the place for temporary files; they are gone afterwards."""
    with ExitStack() as stack:
        yield Workspace(resources, stack)


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
