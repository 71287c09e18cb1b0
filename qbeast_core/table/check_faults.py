"""The faults that a check can find: their codes, how grave each is, and the frame they are listed in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import polars as pl

__all__ = ["FAULT_SCHEMA", "SEVERITIES", "Code", "Fault", "Severity", "fault_frame", "faults_at"]

Severity: TypeAlias = Literal["error", "warning"]
"""``error``: some reader may return wrong rows, or fail. ``warning``: reads are right, but dearer, or it is unclear."""

Code: TypeAlias = Literal[
    "block-rows",
    "blocks-count",
    "copies-misplaced",
    "copy-alone",
    "cube-unreadable",
    "deletion-vector",
    "file-missing",
    "file-outside",
    "file-size",
    "file-unreadable",
    "hidden-weight",
    "indexed-columns",
    "last-revision",
    "layout",
    "layout-unreadable",
    "leaf-threshold",
    "min-weight",
    "pages",
    "reserved-column",
    "revision-types",
    "revision-unknown",
    "row-cube",
    "row-order",
    "row-weight",
    "rows-count",
    "rows-doubled",
    "stats-bounds",
    "stats-missing",
    "stats-nulls",
    "tags-incomplete",
    "tags-spelling",
    "tags-unreadable",
    "threshold-order",
    "weight-order",
]
"""What is wrong; stable: codes may be added, never renamed."""

_WARNINGS: Final[frozenset[Code]] = frozenset(
    {
        "layout-unreadable",
        "leaf-threshold",
        "revision-types",
        "rows-doubled",
        "stats-missing",
        "tags-incomplete",
    }
)
SEVERITIES: Final[Mapping[Code, Severity]] = {
    code: "warning" if code in _WARNINGS else "error" for code in get_args(Code)
}
"""How grave each fault is."""

FAULT_SCHEMA: Final = pl.Schema(
    {
        "code": pl.String,
        "severity": pl.String,
        "path": pl.String,
        "revision": pl.Int64,
        "cube": pl.String,
        "row_group": pl.Int64,
        "row": pl.Int64,
        "message": pl.String,
    }
)
"""One row a fault; null where it is about no file, block or row. `row` counts from 0 in its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that breaks the format.

    Attributes
    ----------
    code : Code
        What is wrong.
    message : str
        The same in words, with the facts.
    path : str or None
        The file, decoded; None: it is about the table.
    revision : int or None
        The file's.
    cube : str or None
        The block, by the text form of its cube.
    row_group, row : int or None
        The first row concerned, counted from 0 in the file, and the row group it is in.
    """

    code: Code
    message: str
    path: str | None = None
    revision: int | None = None
    cube: str | None = None
    row_group: int | None = None
    row: int | None = None


def fault_frame(faults: Iterable[Fault]) -> pl.DataFrame:
    """List faults in a frame of `FAULT_SCHEMA`.

    Examples
    --------
    >>> fault_frame([Fault(code="file-missing", message="gone", path="a.parquet")]).row(0)[:3]
    ('file-missing', 'error', 'a.parquet')
    """
    found = list(faults)
    columns = {
        name: [SEVERITIES[fault.code] if name == "severity" else getattr(fault, name) for fault in found]
        for name in FAULT_SCHEMA
    }
    return pl.DataFrame(columns, schema=FAULT_SCHEMA)


def faults_at(code: Code, places: pl.DataFrame, message: pl.Expr) -> pl.DataFrame:
    """Give a fault for every row of a frame.

    Parameters
    ----------
    code : Code
        What is wrong at all of them.
    places : polars.DataFrame
        Any of `path`, `revision`, `cube`, `row_group` and `row`, and what the message is made of.
    message : polars.Expr
        Text from these columns.
    """
    given = [name for name in ("path", "revision", "cube", "row_group", "row") if name in places.columns]
    found = places.select(
        pl.lit(code).alias("code"),
        pl.lit(SEVERITIES[code]).alias("severity"),
        *given,
        message.alias("message"),
    )
    missing = [pl.lit(None, FAULT_SCHEMA[name]).alias(name) for name in FAULT_SCHEMA if name not in found]
    return found.with_columns(missing).select(list(FAULT_SCHEMA)).cast(FAULT_SCHEMA)
