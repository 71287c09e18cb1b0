"""Tables shared by the benchmarks, rewritten only if the library changes."""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import polars as pl

import qbeast
from benchmarks import data, rivals

TABLES = data.CACHE / "tables"
RIVALS = data.CACHE / "rivals"


def lineitem_table() -> Path:
    """Return the table of lineitem, scale 1, indexed by the three W1 columns, with default options."""
    return indexed("lineitem", data.lineitem, data.W1_COLUMNS)


def indexed(
    name: str,
    make: Callable[[], pl.DataFrame],
    columns: Sequence[str],
    *,
    appends: int = 1,
    sample_column: str | None = None,
    sample_by: Sequence[str] | None = None,
) -> Path:
    """Return the table `name`; write it in a number of commits if the library's source changed since the last write."""
    folder = TABLES / _source_digest() / name
    if not folder.exists():
        for old in TABLES.glob("*") if TABLES.exists() else ():
            if old.name != _source_digest():
                shutil.rmtree(old)
        unfinished = folder.with_name(f"{name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        with warnings.catch_warnings():
            # Some workloads repeat keys intentionally.
            warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
            rows = make()
            for part in rows.iter_slices(-(-rows.height // appends)):
                qbeast.write_table(
                    part,
                    str(unfinished),
                    columns=list(columns),
                    mode="append",
                    sample_column=sample_column,
                    sample_by=sample_by,
                )
        unfinished.rename(folder)
    return folder


def hilbert(name: str, make: Callable[[], pl.DataFrame], columns: Sequence[str], *, files: int = 15) -> Path:
    """Return the same rows in rank-Hilbert order, written once."""
    return once(RIVALS / f"hilbert-{name}", lambda to: rivals.write_hilbert(make(), to, columns, files=files))


def z_order(name: str, make: Callable[[], pl.DataFrame], columns: Sequence[str], *, files: int = 15) -> Path:
    """Return the same rows z-ordered by delta-rs, written once."""
    return once(RIVALS / f"z-order-{name}", lambda to: rivals.write_z_order(make(), to, columns, files=files))


def once(folder: Path, write: Callable[[Path], object]) -> Path:
    """Write files that do not depend on the library, at the first request."""
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        write(unfinished)
        unfinished.rename(folder)
    return folder


@cache
def _source_digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(qbeast.__file__).parent.parent.glob("qbeast*/**/*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
