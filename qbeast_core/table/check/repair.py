"""Repair faults by new entries in the log alone: tags, sizes, statistics, settings; data files are not rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson
import polars as pl

from qbeast_core.io.footer import Unreadable, read_footer, stored_size
from qbeast_core.log.actions import AddFile, Metadata
from qbeast_core.log.deletion_vectors import FileKey, file_key, parse_vector
from qbeast_core.log.rebase import dialect_of
from qbeast_core.log.replay import FLAT_KEYS, TAG_KEYS
from qbeast_core.log.values import LastChange, retag
from qbeast_core.results import Result
from qbeast_core.spec.blocks import BlocksDialect, FilePath, respell_blocks
from qbeast_core.spec.revision import STAGING_REVISION_ID
from qbeast_core.spec.table_config import BLOCKS_DIALECT, REVISION_PREFIX, SAMPLE_BY
from qbeast_core.support.process import ProgressCallback
from qbeast_core.support.text import in_lines
from qbeast_core.table.check.check import check_table
from qbeast_core.table.check.faults import FAULT_SCHEMA, KINDS, OF_INDEX, OF_LAYOUT, OF_STATISTICS, Action
from qbeast_core.table.check.log import (
    LostTags,
    check_log,
    fitting_tags,
    readable_vectors,
    tag_texts,
    with_tags,
)
from qbeast_core.table.check.rows import FileTags
from qbeast_core.table.commit import CommitOutcome, commit_metadata, replace_checkpoints
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.snapshot.snapshot import Snapshot

_ORDER: Final = ("weight-order", "threshold-order", "leaf-threshold")
_SETTINGS: Final = "settings-unreadable"
_TEXTS: Final = pl.List(pl.String())
_CHECKPOINT: Final = "checkpoint"
_REPAIRED: Final = pl.Schema({"path": pl.String(), "actions": _TEXTS, "codes": _TEXTS})

# The faults that each action repairs.
_REPAIRS: Final[Mapping[Action, frozenset[str]]] = {
    "drop index": OF_INDEX | OF_LAYOUT | {"tags-spelling"},
    "drop layout": OF_LAYOUT,
    "restore tags": OF_INDEX | OF_LAYOUT | {"tags-lost", "tags-spelling"},
    "rewrite block tags": frozenset({"tags-spelling"}),
    "set path": frozenset({"path-encoding"}),
    "set size": frozenset({"file-size"}),
    "set statistics": OF_STATISTICS | {"blocks-count"},
    "set vector count": frozenset({"vector-count"}),
}

_LOST: Final = frozenset({"file-missing", "file-outside", "file-unreadable"})

_INDEX_KEYS: Final = frozenset({*TAG_KEYS.values(), *FLAT_KEYS.values()})
_COPIES: Final = "it holds copies of rows, which reads must skip: upgrade the table with replicated='drop'"

_UNREAD: Final = "the file cannot be read, so it is left as it is"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RepairResult(Result):
    """Outcome of `Table.repair`; prints well.

    Attributes
    ----------
    version, committed, dry_run
        See `Result`.
    repaired_files : polars.DataFrame
        One row a file: `path` (decoded; null: the table itself), `actions` (``"drop index"``, ``"drop layout"``,
        ``"replace checkpoint"``, ``"restore tags"``, ``"set settings"``, ``"rewrite block tags"``, ``"set path"``,
        ``"set size"``, ``"set statistics"``, ``"set vector count"``), `codes` of the faults that this repairs.
    remaining : polars.DataFrame
        Faults that remain, as in `CheckReport.faults`, with `advice`.
    """

    repaired_files: pl.DataFrame = field(repr=False)
    remaining: pl.DataFrame = field(repr=False)

    def __repr__(self) -> str:
        would = "would be " if self.dry_run else ""
        count = self.repaired_files["path"].count()
        lines = [f"Repair, version {self.version}: {count:,} file(s) {would}repaired"]
        for path, actions, codes in self.repaired_files.head(20).iter_rows():
            lines.append(f"  {path or 'the table'}: {', '.join(actions)} ({', '.join(codes)})")
        if self.remaining.height:
            lines.append(f"  {self.remaining.height:,} fault(s) remain")
        faults = self.remaining.select("code", "path", "message", "advice").head(20)
        for code, path, message, advice in faults.iter_rows():
            lines.append(f"  {code}: {path or 'the table'}: {message}; {advice}")
        return in_lines(lines)


def repair_table(
    snapshot: Snapshot, *, dry_run: bool, progress: ProgressCallback | None = None
) -> tuple[RepairResult, Snapshot | None]:
    """Check and repair a table; also return the new version if it could be loaded. See `Table.repair`."""
    if not dry_run:
        snapshot.check_writable("metadata", brings="files")
    report, tags = check_table(snapshot, progress=progress)
    repairs, remaining = _plan_repair(report.faults, snapshot.logged_files, tags)
    remaining = remaining.filter(~pl.col("code").is_in(_ORDER))
    remaining = pl.concat([remaining, _order_after(with_tags(snapshot.with_copies, tags), repairs)])
    settings = _repaired_settings(snapshot)
    rows: list[tuple[str | None, Sequence[str], Sequence[str]]] = []
    if settings is not None:
        rows.append((None, ["set settings"], [_SETTINGS]))
        remaining = remaining.filter(pl.col("code") != _SETTINGS)
    done, version, committed, newest = list(repairs), snapshot.version, False, None
    if not dry_run and (repairs or settings is not None):
        done, outcome = _commit_repairs(snapshot, settings or snapshot.metadata, repairs, tags)
        version, committed, newest = outcome.version, outcome.committed, outcome.snapshot
    broken = remaining.filter(pl.col("code") == _CHECKPOINT)["path"].to_list()
    rows += [(path, ["replace checkpoint"], [_CHECKPOINT]) for path in broken]
    if broken and not dry_run:
        replace_checkpoints(newest or snapshot)
    rows += [
        (FilePath.of_log(path).text, sorted(repairs[path].actions), repairs[path].codes) for path in done
    ]
    result = RepairResult(
        version=version,
        committed=committed,
        dry_run=dry_run,
        repaired_files=pl.DataFrame(rows, schema=_REPAIRED, orient="row"),
        remaining=remaining.filter(pl.col("code") != _CHECKPOINT),
    )
    return result, newest


def _commit_repairs(
    snapshot: Snapshot, metadata: Metadata, repairs: Mapping[str, FileRepair], tags: LostTags
) -> tuple[list[str], CommitOutcome]:
    """Commit the repairs, and return the repaired files that are still live."""
    measured, counts = _measured(snapshot, repairs), _vector_counts(snapshot, repairs)

    def edit(add: AddFile, dialect: BlocksDialect) -> AddFile:
        own = tags.get(add.path)
        repaired = _repaired(add, repairs.get(add.path), measured.get(add.path), own, dialect)
        return _with_vector_count(repaired, counts)

    plan = LastChange(
        lambda live, dialect: retag(live, lambda add, listed: edit(add, dialect) if listed else add)
    )
    changed = partial(_tree_changed, tags, repairs)
    outcome = commit_metadata(
        snapshot, metadata, "files", operation="REPAIR", files=plan, conflict_with=changed
    )
    texts = {FilePath.of_log(path): path for path in repairs}
    return [texts[FilePath.of_log(add.path)] for add in plan.change.adds], outcome


def _tree_changed(tags: LostTags, repairs: Mapping[str, FileRepair], newest: Snapshot) -> str | None:
    """Return why tags have no place any more in the version that won a race; None if they have."""
    files = newest.logged_files.select("path", "blocks", "layout", "size_bytes").iter_rows()
    logged = {path: tuple(texts) for path, *texts in files if path in tags}
    left = {path: tags[path] for path in logged if repairs[path].logged == logged[path]}
    return (
        None
        if fitting_tags(newest, left) == left
        else "another writer changed the tree of files with lost tags"
    )


def _order_after(snapshot: Snapshot, repairs: Mapping[str, FileRepair]) -> pl.DataFrame:
    """Return the faults in the order of weights that remain once the repaired files are staged."""
    staged = [path for path, repair in repairs.items() if "drop index" in repair.actions]
    gone = pl.col("path").is_in(staged)
    files = snapshot.files.with_columns(pl.when(~gone).then(pl.col(name)).alias(name) for name in TAG_KEYS)
    faults, _ = check_log(Index(snapshot.with_files(files)))
    return pl.concat(faults).filter(pl.col("code").is_in(_ORDER)).with_columns(_usual_advice())


def _usual_advice() -> pl.Expr:
    advice = {code: kind.advice for code, kind in KINDS.items()}
    return pl.col("code").replace_strict(advice, return_dtype=pl.String).alias("advice")


def _repaired_settings(snapshot: Snapshot) -> Metadata | None:
    """Return the metadata without the settings that cannot be read; None if there is nothing to repair.

    The table continues with the newest revision that can be read. If no revision gives the indexed columns,
    nothing can be repaired.
    """
    config = snapshot.config
    if not config.faults or (config.newest_fault is not None and config.last_revision_id is None):
        return None
    if SAMPLE_BY in config.faults:  # without it, the weights of all rows would change
        return None
    repaired = config.without_faults()
    if BLOCKS_DIALECT in config.faults:
        repaired = repaired.with_entries({BLOCKS_DIALECT: dialect_of(snapshot)})
    staging = f"{REVISION_PREFIX}{STAGING_REVISION_ID}"
    if staging in config.faults and repaired.latest is not None:
        repaired = repaired.with_entries({staging: repaired.latest.staging().to_json()})
    return snapshot.metadata.model_copy(update={"configuration": repaired.to_configuration()})


def _measured(snapshot: Snapshot, repairs: Mapping[str, FileRepair]) -> dict[str, tuple[int, int]]:
    """Return the real bytes and rows of the files whose size or statistics are set."""
    store, sizes = snapshot.source.store, dict[str, tuple[int, int]]()
    for path, repair in repairs.items():
        if repair.actions & {"set size", "set statistics"}:
            decoded = FilePath.of_log(path).text
            size = stored_size(store, decoded) or 0
            with suppress(Unreadable):  # the check just read it; now it is left alone
                sizes[path] = size, read_footer(store, decoded, size).num_rows
    return sizes


def _vector_counts(snapshot: Snapshot, repairs: Mapping[str, FileRepair]) -> dict[FileKey, int]:
    """Return how many rows the vectors list whose count in the log is wrong."""
    chosen = [
        number
        for number, path in enumerate(snapshot.files["path"])
        if path in repairs and "set vector count" in repairs[path].actions
    ]
    vectors = snapshot.files.select("path", "deletion_vector")
    counts = dict[FileKey, int]()
    for number, rows in readable_vectors(snapshot, chosen)[0].items():
        path, vector = vectors.row(number)
        counts[file_key(path, parse_vector(vector))] = len(rows)
    return counts


def _with_vector_count(add: AddFile, counts: Mapping[FileKey, int]) -> AddFile:
    count = counts.get(file_key(add.path, add.deletion_vector))
    if count is None or add.deletion_vector is None:
        return add
    return add.model_copy(update={"deletion_vector": {**add.deletion_vector, "cardinality": count}})


def _repaired(
    add: AddFile,
    repair: FileRepair | None,
    measured: tuple[int, int] | None,
    own: FileTags | None,
    dialect: BlocksDialect,
) -> AddFile:
    tags = dict(add.tags or {})
    blocks = tags.get("blocks")
    if repair is None or (blocks, tags.get("qbeast.layout"), add.size) != repair.logged:
        return add  # sound, or another writer changed it meanwhile
    if own is not None or "drop index" in repair.actions:
        tags = {key: text for key, text in tags.items() if key not in _INDEX_KEYS}
    if own is not None:
        tags |= tag_texts(own, dialect)
    if "drop layout" in repair.actions:
        tags.pop("qbeast.layout", None)
    if "rewrite block tags" in repair.actions and blocks is not None:
        tags["blocks"] = respell_blocks(blocks, dialect)
    update: dict[str, Any] = {"tags": tags or None}
    if "set path" in repair.actions:
        update["path"] = FilePath.of_log(add.path).encoded
    if measured is not None and "set size" in repair.actions:
        update["size"] = measured[0]
    if measured is not None and "set statistics" in repair.actions:
        loose = {"tightBounds": False} if add.deletion_vector else {}
        update["stats"] = orjson.dumps({"numRecords": measured[1]} | loose).decode()
    return add.model_copy(update=update)


@dataclass(frozen=True, slots=True)
class FileRepair:
    """The repair of one file."""

    actions: frozenset[Action]
    codes: list[str]
    # Blocks, layout and size in the log; a file that has others by now was changed and is left alone.
    logged: tuple[str | None, str | None, int]


def _plan_repair(
    faults: pl.DataFrame, files: pl.DataFrame, tags: LostTags
) -> tuple[dict[str, FileRepair], pl.DataFrame]:
    """Return the repair of each file, by its path in the log, and the faults that remain.

    `tags` are tags to restore.
    """
    by_path = faults.filter(pl.col("path").is_not_null()).group_by("path").agg(pl.col("code").unique().sort())
    codes = {path: frozenset(of_file) for path, of_file in by_path.iter_rows()}
    repairs: dict[str, FileRepair] = {}
    repaired: list[tuple[str, str]] = []
    advice: dict[str, str] = {}
    records = files.select("path", "blocks", "layout", "size_bytes", "state", "rules", "num_records")
    for record in records.iter_rows(named=True):
        path = FilePath.of_log(record["path"]).text
        of_file = codes.get(path, frozenset())
        if of_file & _LOST:
            advice[path] = _UNREAD
            continue
        actions = _actions(of_file, record, restores=record["path"] in tags)
        if "restore tags" not in actions and _spoils_index(of_file) and "drop index" not in actions:
            advice[path] = _COPIES
        if actions:
            done = sorted(of_file & frozenset().union(*(_REPAIRS[action] for action in actions)))
            blocks = record["blocks"] if record["state"] is None else None  # it is not in the log
            logged = (blocks, record["layout"], record["size_bytes"])
            repairs[record["path"]] = FileRepair(actions, done, logged)
            repaired += [(path, code) for code in done]
    done_there = pl.DataFrame(repaired, schema={"path": pl.String, "code": pl.String}, orient="row")
    rest = faults.join(done_there, on=["path", "code"], how="anti", maintain_order="left")
    of_path = pl.col("path").replace_strict(advice, default=None, return_dtype=pl.String)
    return repairs, rest.select(*FAULT_SCHEMA, pl.coalesce(_usual_advice(), of_path).alias("advice"))


def _spoils_index(codes: frozenset[str]) -> bool:
    """Return whether an index cannot be kept. If only statistics are wrong, blocks disagree with them too."""
    if "rows-count" in codes and "block-rows" not in codes:
        codes -= {"blocks-count"}
    return bool(codes & OF_INDEX)


def _actions(codes: frozenset[str], record: Mapping[str, Any], *, restores: bool) -> frozenset[Action]:
    kinds = [KINDS[code] for code in codes]
    actions: set[Action] = {kind.repair for kind in kinds if kind.repair is not None}
    actions.discard("drop index")
    if restores:
        actions -= {"drop layout", "rewrite block tags"}
        actions.add("restore tags")
        if record["num_records"] is None:
            actions.add("set statistics")
        return frozenset(actions)
    if _spoils_index(codes):
        actions.discard("rewrite block tags")
        if not _holds_copies(record):
            actions.discard("drop layout")
            actions.add("drop index")
    return frozenset(actions)


def _holds_copies(record: Mapping[str, str | None]) -> bool:
    """Return whether a file has copies of rows that no read returns; our own files have none."""
    text = (record["blocks"] or "").replace(" ", "")
    return record["rules"] != "1" and '"replicated":true' in text
