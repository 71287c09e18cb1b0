"""Mend what the log alone can mend: bad tags go, wrong sizes and statistics are set right; no row is touched."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.log.actions import AddFile
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.live_files import FileChange, LiveFiles, retag
from qbeast_core.log.protocol import check_writable
from qbeast_core.log.rebase import dialect_of
from qbeast_core.log.repaired_settings import repaired_settings
from qbeast_core.plain_text import in_lines
from qbeast_core.results import Result
from qbeast_core.runtime import ProgressCallback
from qbeast_core.spec.block import BlocksDialect, dump_blocks, parse_blocks
from qbeast_core.spec.file_path import FilePath
from qbeast_core.table.check.check import check_table
from qbeast_core.table.check.faults import FAULT_SCHEMA, Code
from qbeast_core.table.check.log import check_log
from qbeast_core.table.check.rows import stored_size
from qbeast_core.table.commit.commit import commit
from qbeast_core.table.data.footers import Unreadable, read_footer
from qbeast_core.table.index.state import IndexState
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.snapshot.snapshot import Snapshot

_INDEX_TAGS: Final = frozenset(
    {
        "revision",
        "blocks",
        "state",
        "cube",
        "minWeight",
        "maxWeight",
        "elementCount",
        "qbeast.keys",
        "qbeast.layout",
        "qbeast.rules",
    }
)

_INDEX_COLUMNS: Final = (
    *("revision", "blocks", "layout", "rules", "state", "cube"),
    *("min_weight", "max_weight", "element_count"),
)

_ORDER: Final = ("weight-order", "threshold-order", "leaf-threshold")

_SETTINGS: Final[Code] = "settings-unreadable"

_SETTINGS_ROW: Final = (None, ["set settings"], [_SETTINGS])

_TEXTS: Final = pl.List(pl.String())

_REPAIRED: Final = pl.Schema({"path": pl.String(), "actions": _TEXTS, "codes": _TEXTS})

# `drop index`: the file becomes staging, and optimize indexes it again. `drop layout`: it is read by row
# groups. `set settings`: keys of the table that cannot be read go, and it goes on with the newest revision
# that can. `spell blocks`: as the table's dialect has them. `set size`: to what it is. `set statistics`: to
# its number of rows alone.
_Action: TypeAlias = Literal[
    "drop index", "drop layout", "set settings", "spell blocks", "set size", "set statistics"
]

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
        "row-range",
        "row-weight",
        "tags-incomplete",
        "tags-unreadable",
    }
)

_LAYOUT: Final[frozenset[Code]] = frozenset({"layout", "layout-unreadable", "pages", "row-order"})

_STATISTICS: Final[frozenset[Code]] = frozenset(
    {"rows-count", "stats-bounds", "stats-missing", "stats-nulls"}
)

_SPELLING: Final[frozenset[Code]] = frozenset({"tags-spelling"})

# The faults that each action mends.
_CURED: Final[Mapping[_Action, frozenset[Code]]] = {
    "drop index": _INDEX | _LAYOUT | _SPELLING,
    "drop layout": _LAYOUT,
    "spell blocks": _SPELLING,
    "set size": frozenset({"file-size"}),
    "set statistics": _STATISTICS | frozenset[Code]({"blocks-count"}),
}

_LOST: Final[frozenset[Code]] = frozenset({"file-missing", "file-outside", "file-unreadable"})

# What to do about faults that the log alone cannot mend.
_ADVICE: Final[Mapping[Code, str]] = {
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
    "settings-unreadable": (
        "no revision tells the indexed columns: convert_table(path, columns=[...]) begins a new index and moves no "
        "data; or restore an older version"
    ),
    "reserved-column": "rename it, or drop it, with the program that added it",
    "rows-doubled": "the tags cannot tell which: compare the rows by a key of your own",
    "threshold-order": "optimize(full=True) draws the tree anew",
    "weight-order": "optimize(full=True) draws the tree anew; our reads are right meanwhile",
}

_COPIES: Final = (
    "it holds copies of rows, which must not come to light: upgrade the table with replicated='drop'"
)

_UNREAD: Final = "the file cannot be read, so nothing of it is changed"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RepairResult(Result):
    """Outcome of `Table.repair`; prints well.

    Attributes
    ----------
    version, committed, dry_run
        See `Result`.
    repaired_files : polars.DataFrame
        One row a file: `path` (decoded; null: the table itself), `actions` (``"drop index"``, ``"drop layout"``,
        ``"set settings"``, ``"spell blocks"``, ``"set size"``, ``"set statistics"``), `codes` of the faults that
        this mends.
    remaining : polars.DataFrame
        Faults that stay, as in `CheckReport.faults`, with `advice`.
    """

    repaired_files: pl.DataFrame = field(repr=False)
    remaining: pl.DataFrame = field(repr=False)

    def __repr__(self) -> str:
        would = "would be " if self.dry_run else ""
        lines = [
            f"Repair, version {self.version}: {self.repaired_files['path'].count():,} file(s) {would}mended"
        ]
        for path, actions, codes in self.repaired_files.head(20).iter_rows():
            lines.append(f"  {path or 'the table'}: {', '.join(actions)} ({', '.join(codes)})")
        if self.remaining.height:
            lines.append(f"  {self.remaining.height:,} fault(s) stay")
        for code, path, message, advice in (
            self.remaining.select("code", "path", "message", "advice").head(20).iter_rows()
        ):
            lines.append(f"  {code}: {path or 'the table'}: {message}; {advice}")
        return in_lines(lines)


def repair_table(
    reader: Reader, *, dry_run: bool, progress: ProgressCallback | None = None
) -> tuple[RepairResult, Snapshot | None]:
    """Check a table and mend it; give also the version made, if it could be loaded. See `Table.repair`."""
    snapshot = reader.snapshot
    if not dry_run:
        check_writable(
            snapshot.protocol, snapshot.metadata, mode="metadata", path=snapshot.uri, brings="files"
        )
    mends, remaining = plan_repair(check_table(reader, progress=progress).faults, snapshot.files)
    settings = repaired_settings(snapshot.metadata, dialect_of(snapshot))
    remaining = pl.concat([remaining.filter(~pl.col("code").is_in(_ORDER)), _order_after(snapshot, mends)])
    head = [] if settings is None else [_SETTINGS_ROW]
    if settings is not None:
        remaining = remaining.filter(pl.col("code") != _SETTINGS)
    done, version, committed, newest = list(mends.values()), snapshot.version, False, None
    if not dry_run and (mends or head):
        repair = _Repair(mends, _truth(snapshot, mends))
        intent = WriteIntent(
            mode="metadata", brings="files", metadata=settings, files=repair, operation="REPAIR"
        )
        outcome = commit(snapshot.source.store, snapshot, intent)
        done = [mends[add.path] for add in repair.change.adds]
        version, committed, newest = outcome.version, not outcome.already_applied, outcome.snapshot
    rows = [(FilePath.of_log(one.path).text, sorted(one.actions), list(one.codes)) for one in done]
    result = RepairResult(
        version=version,
        committed=committed,
        dry_run=dry_run,
        repaired_files=pl.DataFrame([*head, *rows], schema=_REPAIRED, orient="row"),
        remaining=remaining,
    )
    return result, newest


def _order_after(snapshot: Snapshot, mends: Mapping[str, _Mend]) -> pl.DataFrame:
    """Give the faults in the order of weights that are there once some files are staged."""
    staged = [path for path, mend in mends.items() if "drop index" in mend.actions]
    gone = pl.col("path").is_in(staged)
    files = snapshot.files.with_columns(
        pl.when(~gone).then(pl.col(name)).alias(name) for name in _INDEX_COLUMNS
    )
    _, faults, _ = check_log(IndexState(replace(snapshot, files=files)))
    return pl.concat(faults).filter(pl.col("code").is_in(_ORDER)).with_columns(_usual_advice())


def _usual_advice() -> pl.Expr:
    advised = pl.col("code").replace_strict(dict(_ADVICE), default=None, return_dtype=pl.String)
    return advised.alias("advice")


def _truth(snapshot: Snapshot, mends: Mapping[str, _Mend]) -> dict[str, tuple[int, int]]:
    """Give bytes and rows, as they really are, of the files whose size or statistics are set."""
    store, found = snapshot.source.store, dict[str, tuple[int, int]]()
    decoded = dict(zip(snapshot.files["path"], snapshot.data_paths, strict=True))
    for path, mend in mends.items():
        if mend.actions & {"set size", "set statistics"}:
            size = stored_size(store, decoded[path]) or 0
            with suppress(Unreadable):  # it was read a moment ago; now it is left alone
                found[path] = size, read_footer(store, decoded[path], size).num_rows
    return found


class _Repair:
    """What becomes of the files, and how it went the last time it was asked."""

    def __init__(self, mends: Mapping[str, _Mend], truth: Mapping[str, tuple[int, int]]) -> None:
        self._mends, self._truth = mends, truth
        self.change = FileChange()

    def __call__(self, live: LiveFiles, dialect: BlocksDialect) -> FileChange:
        self.change = retag(live, lambda add, listed: self._edit(add, dialect) if listed else add)
        return self.change

    def _edit(self, add: AddFile, dialect: BlocksDialect) -> AddFile:
        mend, tags = self._mends.get(add.path), dict(add.tags or {})
        if mend is None or (tags.get("blocks"), tags.get("qbeast.layout"), add.size) != mend.told:
            return add  # sound, or another writer changed it meanwhile
        update: dict[str, Any] = {}
        if "drop index" in mend.actions:
            update["tags"] = {key: text for key, text in tags.items() if key not in _INDEX_TAGS} or None
        else:
            update["tags"] = _mended_tags(tags, mend, dialect)
        size, rows = self._truth.get(add.path, (None, None))
        if size is not None and "set size" in mend.actions:
            update["size"] = size
        if rows is not None and "set statistics" in mend.actions:
            loose = {"tightBounds": False} if add.deletion_vector else {}
            update["stats"] = orjson.dumps({"numRecords": rows} | loose).decode()
        return add.model_copy(update=update)


def _mended_tags(tags: dict[str, str | None], mend: _Mend, dialect: BlocksDialect) -> dict[str, str | None]:
    if "drop layout" in mend.actions:
        tags.pop("qbeast.layout", None)
    text = tags.get("blocks")
    if "spell blocks" in mend.actions and text is not None:
        try:
            tags["blocks"] = dump_blocks(parse_blocks(text), dialect=dialect)
        except InvalidMetadataError:
            return tags  # it was read when it was checked
    return tags


@dataclass(frozen=True, slots=True)
class _Mend:
    """What is done about one file; `told` are blocks, layout and size in the log: a file that changed is left alone."""

    path: str
    actions: frozenset[_Action]
    codes: tuple[str, ...]
    told: tuple[str | None, str | None, int]


def plan_repair(faults: pl.DataFrame, files: pl.DataFrame) -> tuple[dict[str, _Mend], pl.DataFrame]:
    """Decide what to do about the faults of a table."""
    by_path = faults.filter(pl.col("path").is_not_null()).group_by("path").agg(pl.col("code").unique().sort())
    codes = {path: frozenset(found) for path, found in by_path.iter_rows()}
    mends: dict[str, _Mend] = {}
    cured: list[tuple[str, str]] = []
    advice: dict[str, str] = {}
    for record in files.select("path", "blocks", "layout", "size_bytes", "state", "rules").iter_rows(
        named=True
    ):
        path = FilePath.of_log(record["path"]).text
        found = codes.get(path, frozenset())
        if found & _LOST:
            advice[path] = _UNREAD
            continue
        actions = _actions(found, holds_copies=_holds_copies(record))
        if _spoils_index(found) and "drop index" not in actions:
            advice[path] = _COPIES
        if actions:
            done = sorted(found & frozenset().union(*(_CURED[action] for action in actions)))
            told = (record["blocks"], record["layout"], record["size_bytes"])
            mends[record["path"]] = _Mend(record["path"], actions, tuple(done), told)
            cured += [(path, code) for code in done]
    done_there = pl.DataFrame(cured, schema={"path": pl.String, "code": pl.String}, orient="row")
    rest = faults.join(done_there, on=["path", "code"], how="anti", maintain_order="left")
    given = pl.col("path").replace_strict(advice, default=None, return_dtype=pl.String)
    return mends, rest.select(*FAULT_SCHEMA, pl.coalesce(_usual_advice(), given).alias("advice"))


def _spoils_index(found: frozenset[str]) -> bool:
    """Tell whether an index cannot be kept; where statistics alone are wrong, blocks disagree with them too."""
    if "rows-count" in found and "block-rows" not in found:
        found -= {"blocks-count"}
    return bool(found & _INDEX)


def _actions(found: frozenset[str], *, holds_copies: bool) -> frozenset[_Action]:
    actions: set[_Action] = set()
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
    return frozenset(actions)


def _holds_copies(record: Mapping[str, str | None]) -> bool:
    """Tell whether rows of a file are copies that no read returns; our own files hold none."""
    marked = record["state"] in {"REPLICATED", "ANNOUNCED"}
    text = (record["blocks"] or "").replace(" ", "")
    return record["rules"] != "1" and (marked or '"replicated":true' in text)
