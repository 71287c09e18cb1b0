"""A store in memory, whose files tests damage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from qbeast_core.errors import StorageError
from qbeast_core.io.store import Entry, Range


class MemoryStore:
    """What reads of a `qbeast_core.io.store.Store` need."""

    uri = "/memory"
    local_root = Path("/memory")
    allow_absolute_paths = False

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)

    @classmethod
    def of(cls, folder: Path) -> MemoryStore:
        files = (path for path in folder.rglob("*") if path.is_file())
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in files})

    def locate(self, path: str) -> str:
        return path

    def get(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return bytes(self.get_ranges(path, [(start, length)])[0])

    def get_ranges(self, path: str, ranges: Sequence[Range]) -> list[memoryview]:
        data = memoryview(self.get(path))
        if any(start + length > len(data) for start, length in ranges):
            message = f"{path!r} ends before that"
            raise StorageError(message, path=path)
        return [data[start : start + length] for start, length in ranges]

    def put(self, path: str, data: bytes | memoryview) -> None:
        self.files[path] = bytes(data)

    def put_if_absent(self, path: str, data: bytes | memoryview) -> None:
        self.files.setdefault(path, bytes(data))

    def list(self, prefix: str) -> list[str]:
        return sorted(path for path in self.files if not prefix or path.startswith(f"{prefix.rstrip('/')}/"))

    def entries(self, prefix: str, *, after: str = "") -> Sequence[Entry]:
        return [Entry(path, len(self.files[path]), 0) for path in self.list(prefix) if path > after]

    def size(self, path: str) -> int:
        return len(self.get(path))

    def delete(self, path: str) -> None:
        self.files.pop(path, None)
