"""Checks of the log alone: tags that can be read, counts that agree, blocks that keep the order of weights."""

from __future__ import annotations

from typing import Final

import polars as pl

from qbeast_core.query.live_blocks import LiveBlocks, live_blocks
from qbeast_core.spec.block import BlocksDialect, blocks_dialect
from qbeast_core.table.check_branches import branch_faults
from qbeast_core.table.check_faults import Code, Fault, fault_frame, faults_at
from qbeast_core.table.check_layouts import layout_faults
from qbeast_core.table.foreign_schema import lost_columns, taken_name
from qbeast_core.table.snapshot import Snapshot

__all__ = ["check_log"]

_UNUSABLE: Final[dict[str, tuple[Code, str]]] = {
    "unreadable": ("tags-unreadable", "its blocks tag is no list of blocks"),
    "incomplete": ("tags-incomplete", "it names an index, but not both a revision and blocks"),
    "unknown revision": ("revision-unknown", "the table has no such revision"),
    "other types": (
        "revision-types",
        "its revision has no space, or indexed columns of other types than the table has now",
    ),
    "no cube": ("cube-unreadable", "a block names a cube that is none"),
}
_NUMBER: Final = r"-?\d{1,10}"
_CUBE: Final = r'"[A-Za-z0-9+/]*"'
_OBJECTS: Final[dict[BlocksDialect, str]] = {
    "documented": (
        rf'\{{"cube":{_CUBE},"minWeight":{_NUMBER},"maxWeight":{_NUMBER},'
        r'"replicated":(?:true|false),"elementCount":\d+\}'
    ),
    "qbeast-spark": (
        rf'\{{"cubeId":{_CUBE},"minWeight":{_NUMBER},"maxWeight":{_NUMBER},'
        r'"elementCount":\d+,"replicated":(?:true|false)\}'
    ),
}


def check_log(snapshot: Snapshot) -> tuple[LiveBlocks, list[pl.DataFrame], list[str]]:
    """Check what the log says of a table.

    Parameters
    ----------
    snapshot : Snapshot
        The table.

    Returns
    -------
    blocks : LiveBlocks
        What the tags say.
    faults : list of polars.DataFrame
        Of `FAULT_SCHEMA`.
    notes : list of str
        What is no fault and worth knowing.
    """
    revisions = snapshot.config.revisions
    found = live_blocks(snapshot.files, revisions, snapshot.schema)
    files = snapshot.files.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("file"),
        pl.Series("path", snapshot.data_paths, dtype=pl.String),
        pl.col("revision", "num_records", "size_bytes", "layout", "blocks"),
        pl.col("rules").eq("1").fill_null(value=False).alias("ours"),
    )
    places = files.select("file", "path", "num_records")
    blocks = found.blocks.join(places, on="file", how="left", maintain_order="left")
    faults = [
        _revision_faults(snapshot),
        *_tag_faults(files, found),
        *_count_faults(files, blocks),
        _spelling_faults(snapshot, files),
        layout_faults(files, found.blocks),
    ]
    whole = blocks["file"].n_unique() == files.height
    branches, notes = branch_faults(blocks, revisions, whole=whole)
    return found, [*faults, branches], [*_staging_notes(files, found), *notes]


def _revision_faults(snapshot: Snapshot) -> pl.DataFrame:
    config = snapshot.config
    newest = max(config.revisions, default=None)
    faults: list[Fault] = []
    if newest is not None and config.last_revision_id != newest:
        message = f"qbeast.lastRevisionID is {config.last_revision_id}, and the newest revision is {newest}"
        faults.append(Fault(code="last-revision", message=message, revision=newest))
    indexed = () if config.latest is None else config.latest.columns
    for name, why in lost_columns(indexed, snapshot.schema).items():
        message = f"the table is indexed by {name!r}, which {why}: samples and appends are refused"
        faults.append(Fault(code="indexed-columns", message=message, revision=config.last_revision_id))
    taken = taken_name(snapshot.schema_json)
    if taken is not None:
        message = f"another writer added a column {taken!r}, the name of a column of ours: no read shows it"
        faults.append(Fault(code="reserved-column", message=message))
    return fault_frame(faults)


def _tag_faults(files: pl.DataFrame, found: LiveBlocks) -> list[pl.DataFrame]:
    named = found.unplaced.join(files, on="file", how="left")
    return [
        faults_at(code, named.filter(pl.col("reason") == reason), pl.lit(f"{text}: the file is read whole"))
        for reason, (code, text) in _UNUSABLE.items()
    ]


def _count_faults(files: pl.DataFrame, blocks: pl.DataFrame) -> list[pl.DataFrame]:
    """Compare blocks with the statistics of their files (format 8.5)."""
    sums = blocks.group_by("file").agg(
        pl.col("rows").sum(),
        pl.col("replicated").any().alias("some"),
        pl.col("replicated").all().alias("all"),
    )
    counted = files.join(sums, on="file", how="inner", maintain_order="left")
    wrong = counted.filter(pl.col("rows") != pl.col("num_records"))
    mixed = counted.filter(pl.col("some") & ~pl.col("all") & ~pl.col("ours"))
    marked = blocks.filter(pl.col("replicated") & pl.col("ours"))
    silent = counted.filter(pl.col("num_records").is_null() & pl.col("ours"))
    empty = blocks.filter((pl.col("rows") == 0) & pl.col("ours"))
    turned = blocks.filter((pl.col("min_weight") > pl.col("max_weight")) & ~pl.col("legacy"))
    return [
        faults_at(
            "blocks-count",
            wrong,
            pl.format("its blocks hold {} rows, its statistics tell of {}", "rows", "num_records"),
        ),
        faults_at("blocks-count", empty, pl.lit("a block of our file has no rows")),
        faults_at("min-weight", turned, pl.lit("the block's smallest weight is above its threshold")),
        faults_at(
            "copies-misplaced",
            mixed,
            pl.lit("copies lie beside other rows, and which rows they are is not told: it cannot be read"),
        ),
        faults_at(
            "copies-misplaced",
            marked,
            pl.lit("the block is marked as a copy, which our files never hold: no read returns its rows"),
        ),
        faults_at("stats-missing", silent, pl.lit("its statistics do not tell how many rows it has")),
    ]


def _spelling_faults(snapshot: Snapshot, files: pl.DataFrame) -> pl.DataFrame:
    """Find files of ours whose blocks are spelled unlike the table's; a JVM fails on other keys."""
    texts = files.filter(pl.col("ours") & pl.col("blocks").is_not_null())
    spelled: set[BlocksDialect] = {one for one in map(blocks_dialect, texts["blocks"]) if one is not None}
    dialect = snapshot.config.dialect
    if len(spelled) == 1:
        dialect = spelled.pop()
    elif dialect is None:
        dialect = "qbeast-spark"
    one = _OBJECTS[dialect]
    fits = pl.col("blocks").str.contains(rf"^\[(?:{one}(?:,{one})*)?\]$")
    wrong = texts.filter(~fits)
    return faults_at(
        "tags-spelling", wrong, pl.lit(f"its blocks are not spelled as dialect {dialect!r} has them")
    )


def _staging_notes(files: pl.DataFrame, found: LiveBlocks) -> list[str]:
    indexed = files["file"].is_in(found.blocks["file"].unique().implode())
    bare = files.filter(~indexed)
    if not bare.height:
        return []
    rows = int(bare["num_records"].fill_null(0).sum())
    return [f"{bare.height:,} file(s) with {rows:,} rows have no index that can be used: staging"]
