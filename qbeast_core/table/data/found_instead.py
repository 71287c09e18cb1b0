"""What a place holds if it holds no table, and how it becomes one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from qbeast_core.io.store import entries_of
from qbeast_core.support.text import SCANS, convert_call, copy_call, write_call

# The folder that makes a table of the one that it is in.
LOG_DIRECTORY: Final = "_delta_log"

_MAX_ENTRIES: Final = 1000


def found_instead(uri: str, root: Path) -> str:
    """Return why a local place is not a table, and how to make a table of its data."""
    if root.is_file():
        what = f"{uri} is a file, not a table (give the directory of the table)"
        _, scan = SCANS.get(root.suffix.lower(), ("", None))
        copy = "" if scan is None else f": {copy_call(f'pl.{scan}({uri!r})')} makes a table of it elsewhere"
        return what + copy
    if not root.is_dir():
        return f"there is no table at {uri}: nothing is there. {write_call(uri)} would make one."
    no_table = f"but no Delta table (it holds no {LOG_DIRECTORY})"
    entries = islice(entries_of(root), _MAX_ENTRIES)
    visible = [entry for entry in entries if not entry.name.startswith(("_", "."))]
    kinds = Counter(Path(entry.name).suffix.lower() for entry in visible if entry.is_file())
    folders = [entry.name for entry in visible if "=" in entry.name and entry.is_dir()]
    hive = list(dict.fromkeys(name.partition("=")[0] for name in folders))
    if kinds[".parquet"]:
        what = f"{uri} is a directory of Parquet files, {no_table}"
        return f"{what}: {convert_call(uri)} makes it one and moves no data"
    if hive:
        what = f"{uri} is a directory of partitions ({', '.join(hive)}), {no_table}"
        return f"{what}: {convert_call(uri)} makes it one if the files are Parquet files, and moves no data"
    for suffix in (suffix for suffix, _ in kinds.most_common() if suffix in SCANS):
        what, scan = SCANS[suffix]
        files = f"{uri.rstrip('/')}/*{suffix}"
        copy = copy_call(f"pl.{scan}({files!r})")
        return f"{uri} is a directory of {what} files, {no_table}: {copy} makes one elsewhere"
    return f"{uri} is a directory, {no_table}; if it is empty, {write_call(uri)} makes one there"


def log_instead(uri: str) -> str | None:
    """Return a message if a place is the log of a table, or lies in one; else None.

    >>> log_instead("/sales/_delta_log")
    "/sales/_delta_log lies in the log of a table. Give the table's folder: '/sales'."
    """
    table, log, _ = f"{uri}/".partition(f"/{LOG_DIRECTORY}/")
    message = f"{uri} lies in the log of a table. Give the table's folder: {table!r}."
    return message if log else None


def hive_copy(uri: str, names: Sequence[str]) -> str:
    """Return the call that copies Parquet files in folders like ``day=2024-05-01`` into a table.

    >>> hive_copy("sales", ["day"])
    "qbeast.write_table(pl.scan_parquet('sales/', hive_partitioning=True), new, columns=['day', ...])"
    """
    listed = ", ".join(map(repr, names))
    folder = f"{uri.rstrip('/')}/"
    return f"qbeast.write_table(pl.scan_parquet({folder!r}, hive_partitioning=True), new, columns=[{listed}, ...])"
