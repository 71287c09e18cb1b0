"""Which faults can be mended by the log alone, without a row being lost or returned twice, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import polars as pl

from qbeast_core.spec.file_path import FilePath
from qbeast_core.table.check_faults import FAULT_SCHEMA, Code

__all__ = ["ADVICE", "Action", "Mend", "RepairPlan", "plan_repair"]

Action: TypeAlias = Literal["drop index", "drop layout", "spell blocks", "set size", "set statistics"]
"""``drop index``: the file becomes staging, and optimize indexes it again. ``drop layout``: it is read by row
groups. ``spell blocks``: as the table's dialect has them. ``set size``: to what it is. ``set statistics``: to its
number of rows alone."""

_INDEX: Final[frozenset[Code]] = frozenset(
    {
        "block-rows",
        "blocks-count",
        "copies-misplaced",
        "cube-unreadable",
        "min-weight",
        "revision-types",
        "revision-unknown",
        "row-cube",
        "row-weight",
        "tags-incomplete",
        "tags-unreadable",
    }
)
_LAYOUT: Final[frozenset[Code]] = frozenset({"layout", "layout-unreadable", "pages", "row-order"})
_STATISTICS: Final[frozenset[Code]] = frozenset(
    {"rows-count", "stats-bounds", "stats-missing", "stats-nulls"}
)
_LOST: Final[frozenset[Code]] = frozenset({"file-missing", "file-outside", "file-unreadable"})

ADVICE: Final[Mapping[Code, str]] = {
    "copies-misplaced": "no reader can tell its rows apart: restore the table, or the file from where it came",
    "copy-alone": "restore an older version: the originals of these rows were lost",
    "deletion-vector": "restore the deletion vector's file, or an older version",
    "file-missing": "put the file back, restore an older version, or delete its rows from the log",
    "file-outside": "if you trust it, open the table with allow_absolute_paths=True; else copy the file into the table",
    "file-unreadable": "put the file back, or restore an older version",
    "hidden-weight": "optimize(files=[...]) writes it anew; until then samples of other engines may lack rows",
    "indexed-columns": (
        "write the table anew: write_table(read_table(path), path, columns=[...], mode='overwrite', "
        "schema_mode='overwrite')"
    ),
    "last-revision": "append rows: a newer revision is made where they need one",
    "leaf-threshold": "optimize(full=True) draws the tree anew",
    "reserved-column": "rename it, or drop it, with the program that added it",
    "rows-doubled": "the tags cannot tell which: compare the rows by a key of your own",
    "threshold-order": "optimize(full=True) draws the tree anew",
    "weight-order": "optimize(full=True) draws the tree anew; our reads are right meanwhile",
}
"""What to do about faults that the log alone cannot mend."""
_COPIES: Final = (
    "it holds copies of rows, which must not come to light: upgrade the table with replicated='drop'"
)
_UNREAD: Final = "the file cannot be read, so nothing of it is changed"


@dataclass(frozen=True, slots=True)
class Mend:
    """What is done about one file.

    Attributes
    ----------
    path : str
        As the log spells it.
    actions : tuple of Action
        In order of their names.
    codes : tuple of Code
        The faults that they mend.
    blocks, layout, size_bytes : str or None, str or None, int
        What the log said when the file was checked; a file that changed since is left alone.
    """

    path: str
    actions: tuple[Action, ...]
    codes: tuple[str, ...]
    blocks: str | None
    layout: str | None
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class RepairPlan:
    """What is mended, and what is not.

    Attributes
    ----------
    mends : dict of str to Mend
        By path as the log spells it.
    left : polars.DataFrame
        Faults that stay, columns of `FAULT_SCHEMA` and `advice`.
    """

    mends: dict[str, Mend]
    left: pl.DataFrame


def plan_repair(faults: pl.DataFrame, files: pl.DataFrame) -> RepairPlan:
    """Decide what to do about the faults of a table.

    Parameters
    ----------
    faults : polars.DataFrame
        Of `FAULT_SCHEMA`, from a check of log and data.
    files : polars.DataFrame
        The snapshot's files.
    """
    by_path = faults.filter(pl.col("path").is_not_null()).group_by("path").agg(pl.col("code").unique().sort())
    codes = {path: frozenset(found) for path, found in by_path.iter_rows()}
    mends: dict[str, Mend] = {}
    mended: list[tuple[str, str]] = []
    advice: dict[str, str] = {}
    records = files.select("path", "blocks", "layout", "size_bytes", "state", "rules")
    for record in records.iter_rows(named=True):
        path = FilePath.of_log(record["path"]).text
        found = codes.get(path, frozenset())
        if found & _LOST:
            advice[path] = _UNREAD
            continue
        actions = _actions(found, holds_copies=_holds_copies(record))
        if _spoils_index(found) and "drop index" not in actions:
            advice[path] = _COPIES
        done = sorted(code for code in found if actions & _ways(code))
        if actions:
            mends[record["path"]] = Mend(
                record["path"],
                tuple(sorted(actions)),
                tuple(done),
                record["blocks"],
                record["layout"],
                record["size_bytes"],
            )
            mended += [(path, code) for code in done]
    return RepairPlan(mends, _left(faults, mended, advice))


def _spoils_index(found: frozenset[str]) -> bool:
    """Tell whether an index cannot be kept; where statistics alone are wrong, blocks disagree with them too."""
    if "rows-count" in found and "block-rows" not in found:
        found -= {"blocks-count"}
    return bool(found & _INDEX)


def _actions(found: frozenset[str], *, holds_copies: bool) -> set[Action]:
    actions: set[Action] = set()
    spoiled = _spoils_index(found)
    if spoiled and not holds_copies:
        actions.add("drop index")
    elif found & _LAYOUT:
        actions.add("drop layout")
    if "tags-spelling" in found and not spoiled:
        actions.add("spell blocks")
    if found & _STATISTICS:
        actions.add("set statistics")
    if "file-size" in found:
        actions.add("set size")
    return actions


def _ways(code: str) -> set[Action]:
    """Give the actions of which each mends a fault."""
    ways: set[Action] = set()
    if code in _INDEX:
        ways.add("drop index")
    if code == "blocks-count":
        ways.add("set statistics")
    if code in _LAYOUT:
        ways |= {"drop index", "drop layout"}
    if code in _STATISTICS:
        ways.add("set statistics")
    if code == "tags-spelling":
        ways |= {"drop index", "spell blocks"}
    if code == "file-size":
        ways.add("set size")
    return ways


def _holds_copies(record: Mapping[str, str | None]) -> bool:
    """Tell whether rows of a file are copies that no read returns; our own files hold none."""
    marked = record["state"] in {"REPLICATED", "ANNOUNCED"}
    text = (record["blocks"] or "").replace(" ", "")
    return record["rules"] != "1" and (marked or '"replicated":true' in text)


def _left(faults: pl.DataFrame, mended: list[tuple[str, str]], advice: Mapping[str, str]) -> pl.DataFrame:
    done = pl.DataFrame(mended, schema={"path": pl.String, "code": pl.String}, orient="row")
    rest = faults.join(done, on=["path", "code"], how="anti", maintain_order="left")
    given = pl.col("path").replace_strict(advice, default=None, return_dtype=pl.String)
    usual = pl.col("code").replace_strict(dict(ADVICE), default=None, return_dtype=pl.String)
    return rest.select(*FAULT_SCHEMA, pl.coalesce(usual, given).alias("advice"))
