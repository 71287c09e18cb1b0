"""All operations that change a table, each with its initial table, and the content of a table to compare."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.io.location import open_store
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_core.table.write.by_tasks import begin_append, publish_parts
from tests.format.appends import copy_of
from tests.format.collection import find
from tests.helpers.change_feed import enable_feed
from tests.helpers.damage import spoil, tags
from tests.helpers.handmade_log import replay, write_log
from tests.helpers.others import map_columns_and_feed, rows_of_others
from tests.helpers.tables import small_files
from tests.helpers.vectors import enable_vectors

Options = Mapping[str, str]
INDEXED = ["row", "a"]


def rows(first: int, count: int = 40) -> pl.DataFrame:
    return pl.DataFrame({"row": range(first, first + count)}).with_columns(a=pl.col("row") % 7)


def open_at(uri: str, options: Options) -> qbeast.Table:
    return qbeast.open_table(uri, storage_options=options or None)


def write(uri: str, options: Options, frame: pl.DataFrame, mode: Any) -> qbeast.WriteResult:
    return qbeast.write_table(
        frame, uri, columns=INDEXED, mode=mode, cube_size=10, storage_options=options or None
    )


def begin_with_nothing(path: Path) -> None:
    path.mkdir()


def begin_with_delta(path: Path) -> None:
    rows(0).write_delta(path)


def begin_with_parquet(path: Path) -> None:
    path.mkdir()
    rows(0).write_parquet(path / "a.parquet")
    rows(40).write_parquet(path / "b.parquet")


def begin_with_rows(path: Path) -> None:
    """Write in both layouts, and by another writer; a checkpoint follows every later commit."""
    with small_files(file_rows=20, bands=False):
        write(str(path), {}, rows(0), "error")
    with small_files(file_rows=20):
        write(str(path), {}, rows(40), "append")
    write_deltalake(path, rows(80), mode="append")
    qbeast.open_table(path).set_properties({"delta.checkpointInterval": "1"})


def begin_with_feed(path: Path) -> None:
    begin_with_rows(path)
    enable_feed(path)


def begin_with_vectors(path: Path) -> None:
    """Create a table with a feed, some of whose rows are hidden."""
    begin_with_feed(path)
    enable_vectors(path)
    with small_files(file_rows=20):
        qbeast.open_table(path).delete(pl.col("row") % 23 == 6)


def begin_with_partitions(path: Path) -> None:
    """Create a partitioned table with column mapping and a feed."""
    with small_files(file_rows=20):
        for first in (0, 40):
            qbeast.write_table(
                rows(first), path, columns=INDEXED, mode="append", cube_size=10, partition_by=["a"]
            )
    map_columns_and_feed(path, "a")
    write_deltalake(path, rows(80), mode="append")
    qbeast.open_table(path).set_properties({"delta.checkpointInterval": "1"})


def begin_without_tags(path: Path) -> None:
    begin_with_partitions(path)
    table = qbeast.open_table(path)
    lost = [{"add": {**add, "tags": None, "dataChange": False}} for add in replay(path).values()]
    write_log(path, lost, first=table.version + 1)


def begin_with_samples(path: Path) -> None:
    begin_with_rows(path)
    open_at(str(path), {}).add_sample_column()
    write_deltalake(path, rows(120).with_columns(sample=pl.lit(0.5, pl.Float32)), mode="append")


def begin_reindexed(path: Path) -> None:
    """Create a table whose files are indexed by two lists of columns."""
    begin_with_rows(path)
    open_at(str(path), {}).reindex(["a"])
    with small_files(file_rows=20):
        qbeast.write_table(rows(120), path, mode="append")


def begin_with_removed(path: Path) -> None:
    """Create a table with files that the newest version does not need."""
    begin_with_rows(path)
    with small_files(file_rows=20):
        write(str(path), {}, rows(200), "overwrite")


def begin_damaged(path: Path) -> None:
    """Create a table with unreadable tags of a file."""
    with small_files(file_rows=20):
        write(str(path), {}, rows(0), "error")
    spoil(path, tags(blocks="oops"), indexed=INDEXED)
    qbeast.open_table(path).set_properties({"delta.checkpointInterval": "1"})


def begin_with_legacy(path: Path) -> None:
    place = path.with_name(f"{path.name}-legacy")
    place.mkdir()
    shutil.move(copy_of(find("legacy/v050_mixed_states"), place), path)


@dataclass(frozen=True)
class Operation:
    """A change, and its initial table."""

    begin: Callable[[Path], None]
    change: Callable[[str, Options], object]


def _of_table(change: Callable[[qbeast.Table], object]) -> Operation:
    return Operation(begin_with_rows, lambda uri, options: change(open_at(uri, options)))


def _of_partitions(change: Callable[[qbeast.Table], object]) -> Operation:
    return Operation(begin_with_partitions, lambda uri, options: change(open_at(uri, options)))


def _append_by_tasks(uri: str, options: Options) -> None:
    context = begin_append(uri, rows(0, 0), options)
    publish_parts(context, [context.write(rows(first)) for first in (100, 140)])


def _of_vectors(change: Callable[[qbeast.Table], object]) -> Operation:
    return Operation(begin_with_vectors, lambda uri, options: change(open_at(uri, options)))


NEW = pl.DataFrame({"row": [3, 50, 500], "a": [70, 71, 72]})
FORCED: dict[str, Any] = {"retention_hours": 0, "allow_short_retention": True, "dry_run": False}
OPERATIONS: dict[str, Operation] = {
    "create": Operation(begin_with_nothing, lambda uri, options: write(uri, options, rows(100), "error")),
    "append": Operation(begin_with_rows, lambda uri, options: write(uri, options, rows(100), "append")),
    "append by tasks": Operation(begin_with_rows, _append_by_tasks),
    "overwrite": Operation(begin_with_rows, lambda uri, options: write(uri, options, rows(100), "overwrite")),
    "optimize": _of_table(lambda table: table.optimize()),
    "optimize all": _of_table(lambda table: table.optimize(full=True)),
    "delete": _of_table(lambda table: table.delete(pl.col("a") == 3)),
    "delete all": _of_table(lambda table: table.delete(where=True)),
    "update": _of_table(lambda table: table.update(pl.col("row") < 20, {"a": pl.col("a") + 100})),
    "merge": _of_table(lambda table: table.merge(NEW, "row")),
    "merge with a feed": Operation(
        begin_with_feed, lambda uri, options: open_at(uri, options).merge(NEW, "row")
    ),
    "hide by a delete": _of_vectors(lambda table: table.delete(pl.col("row") % 17 == 3)),
    "hide by an update": _of_vectors(lambda table: table.update(pl.col("row") % 17 == 3, {"a": 50})),
    "hide by a merge": _of_vectors(lambda table: table.merge(NEW, "row")),
    "append to partitions": Operation(
        begin_with_partitions, lambda uri, options: write(uri, options, rows(100), "append")
    ),
    "overwrite partitions": Operation(
        begin_with_partitions, lambda uri, options: write(uri, options, rows(100), "overwrite")
    ),
    "optimize partitions": _of_partitions(lambda table: table.optimize(full=True)),
    "delete from partitions": _of_partitions(lambda table: table.delete(pl.col("row") % 3 == 0)),
    "update partitions": _of_partitions(lambda table: table.update(pl.col("row") < 20, {"a": "a + 2"})),
    "merge into partitions": _of_partitions(lambda table: table.merge(NEW, "row")),
    "restore partitions": _of_partitions(lambda table: table.restore(0)),
    "rename a column": _of_partitions(lambda table: table.rename_column("a", "b")),
    "add a constraint": _of_partitions(lambda table: table.add_constraint("low", "a < 1000")),
    "restore tags": Operation(begin_without_tags, lambda uri, options: open_at(uri, options).repair()),
    "convert": Operation(
        begin_with_delta,
        lambda uri, options: qbeast.convert_table(uri, INDEXED, storage_options=options or None),
    ),
    "convert Parquet": Operation(
        begin_with_parquet,
        lambda uri, options: qbeast.convert_table(uri, INDEXED, storage_options=options or None),
    ),
    "upgrade": Operation(
        begin_with_legacy,
        lambda uri, options: qbeast.open_table(uri, storage_options=options or None).upgrade(
            replicated="drop"
        ),
    ),
    "vacuum": Operation(begin_with_removed, lambda uri, options: open_at(uri, options).vacuum(**FORCED)),
    "restore": _of_table(lambda table: table.restore(0)),
    "repair": Operation(begin_damaged, lambda uri, options: open_at(uri, options).repair()),
    "set properties": _of_table(lambda table: table.set_properties({"owner": "us"})),
    "add columns": _of_table(lambda table: table.add_columns({"n": pl.Int8})),
    "add sample column": _of_table(lambda table: table.add_sample_column()),
    "reindex": _of_table(lambda table: table.reindex(["a", "row:hash"], cube_size=15)),
    "reindex fully": _of_table(lambda table: table.reindex(["a"], full=True)),
    "optimize after reindex": Operation(
        begin_reindexed, lambda uri, options: open_at(uri, options).optimize()
    ),
    "optimize with samples": Operation(
        begin_with_samples, lambda uri, options: open_at(uri, options).optimize()
    ),
    "merge with samples": Operation(
        begin_with_samples, lambda uri, options: open_at(uri, options).merge(NEW, "row")
    ),
    "switch dialect": _of_table(lambda table: table.switch_dialect("qbeast-spark")),
}
"""All sweeps run each of these operations."""


@dataclass(frozen=True)
class Content:
    """The content of a table.

    Attributes
    ----------
    rows, others : list of tuple
        All rows for qbeast, and for a reader without the index.
    schema : polars.Schema
        The columns.
    properties : dict
        Table properties without revisions, which contain the time.
    faults : list of str
        Codes of the faults of the index in the log.
    """

    rows: list[tuple[Any, ...]]
    others: list[tuple[Any, ...]]
    schema: pl.Schema
    properties: dict[str, str]
    faults: list[str]


def content(uri: str, options: Options) -> Content | None:
    """Read the content; None if there is no table."""
    try:
        snapshot = load_snapshot(uri, storage_options=options or None)
    except qbeast.TableNotFoundError:
        return None
    plain = _plain_rows(uri, options)
    indexed = snapshot.config.last_revision_id is not None
    ours = qbeast.read_table(uri, storage_options=options or None) if indexed else plain
    configuration = snapshot.metadata.configuration.items()
    properties = {key: text for key, text in configuration if not key.startswith("qbeast.revision.")}
    faults = _faults(open_at(uri, options), data=False) if indexed and not _has_copies(properties) else []
    return Content(_sorted(ours), _sorted(plain), snapshot.schema, properties, faults)


def contents_between(table: Path, before: int) -> list[Content | None]:
    """Return the contents of a local table after each commit since a version, without the last one."""
    contents: list[Content | None] = []
    for version in range(before + 1, qbeast.open_table(table).version):
        with TemporaryDirectory() as folder:
            older = Path(folder, "t")
            shutil.copytree(table, older)
            for file in (older / "_delta_log").iterdir():
                if file.name == "_last_checkpoint" or int(file.name.partition(".")[0]) > version:
                    file.unlink()
            contents.append(content(str(older), {}))
    return contents


def version_of(table: Path) -> int:
    """Return the newest version of a local table, -1 without one."""
    return DeltaTable(table).version() if DeltaTable.is_deltatable(str(table)) else -1


def check_sound(uri: str, options: Options, before: Content) -> None:
    """Assert that the index is valid, and that an append works."""
    table = open_at(uri, options)
    if not _has_copies(before.properties):
        assert _faults(table, data=True) == []
    more = table.read().sort(pl.first()).head(1)  # not one whose sample another engine wrote, and we compute
    qbeast.write_table(more, uri, mode="append", storage_options=options or None)
    assert _sorted(qbeast.read_table(uri, storage_options=options or None)) == sorted(
        [*before.rows, *more.rows()], key=repr
    )


def _plain_rows(uri: str, options: Options) -> pl.DataFrame:
    """Read the rows without the index, from a local copy.

    Queries of deltalake hold the lock of the interpreter while they wait for a server, which runs in this process.
    """
    if not options:
        return rows_of_others(uri)
    store = open_store(uri, options)
    with TemporaryDirectory() as folder:
        for path in store.list(""):
            copy = Path(folder, path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(store.get(path))
        return rows_of_others(folder)


def _has_copies(properties: Mapping[str, str]) -> bool:
    return any(key.startswith("qbeast.replicatedSet") for key in properties)


def _faults(table: qbeast.Table, *, data: bool) -> list[str]:
    return table.check(data=data).faults.filter(pl.col("severity") == "error")["code"].sort().to_list()


def _sorted(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(frame.rows(), key=repr)
