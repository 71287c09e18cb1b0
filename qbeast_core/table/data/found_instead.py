"""What lies where somebody looked for a table, and how it becomes one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from qbeast_core.support.suggestions import SCANS, convert_call, copy_call, write_call

# The folder that makes a table of the one that it is in.
LOG_DIRECTORY: Final = "_delta_log"

_LOOKED_AT: Final = 1000


def found_instead(uri: str, root: Path) -> str:
    """Return why a place of this machine is no table, and what makes its data one."""
    if root.is_file():
        what = f"{uri} is a file, not a table (give the directory of the table)"
        _, scan = SCANS.get(root.suffix.lower(), ("", None))
        return (
            what
            if scan is None
            else f"{what}: {copy_call(f'pl.{scan}({uri!r})')} makes a table of it elsewhere"
        )
    if not root.is_dir():
        return f"there is no table at {uri}: nothing is there. {write_call(uri)} would make one."
    no_table = f"but no Delta table (it holds no {LOG_DIRECTORY})"
    with os.scandir(root) as entries:
        seen = [one for one in islice(entries, _LOOKED_AT) if not one.name.startswith(("_", "."))]
    kinds = Counter(Path(one.name).suffix.lower() for one in seen if one.is_file())
    hive = list(dict.fromkeys(one.name.partition("=")[0] for one in seen if "=" in one.name and one.is_dir()))
    if kinds[".parquet"]:
        what = f"{uri} is a directory of Parquet files, {no_table}"
        return f"{what}: {convert_call(uri)} makes it one and moves no data"
    if hive:
        return f"{uri} is a directory of partitions, {no_table}: {hive_copy(uri, hive)} makes one of Parquet files"
    suffix = next((suffix for suffix, _ in kinds.most_common() if suffix in SCANS), None)
    if suffix is not None:
        what, scan = SCANS[suffix]
        files = f"{uri.rstrip('/')}/*{suffix}"
        copy = copy_call(f"pl.{scan}({files!r})")
        return f"{uri} is a directory of {what} files, {no_table}: {copy} makes one elsewhere"
    return f"{uri} is a directory, {no_table}; if it is empty, {write_call(uri)} makes one there"


def log_instead(uri: str) -> str | None:
    """Return that a place is the log of a table, or lies in one, and not a table; None: it is none.

    >>> log_instead("/sales/_delta_log")
    "/sales/_delta_log lies in the log of a table. Give the table's folder: '/sales'. Nothing was changed."
    """
    table, found, _ = f"{uri}/".partition(f"/{LOG_DIRECTORY}/")
    message = f"{uri} lies in the log of a table. Give the table's folder: {table!r}. Nothing was changed."
    return message if found else None


def hive_copy(uri: str, names: Sequence[str]) -> str:
    """Return the call that copies Parquet files in folders like ``day=2024-05-01`` into a table.

    >>> hive_copy("sales", ["day"])
    "qbeast.write_table(pl.scan_parquet('sales/', hive_partitioning=True), new, columns=['day', ...])"
    """
    listed = ", ".join(map(repr, names))
    folder = f"{uri.rstrip('/')}/"
    return f"qbeast.write_table(pl.scan_parquet({folder!r}, hive_partitioning=True), new, columns=[{listed}, ...])"
