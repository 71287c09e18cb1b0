"""What does it cost to delete, update, merge and replace rows, compared with delta-rs on the same rows?

    python -m benchmarks.bench_dml

- lineitem (scale 1, 16 columns) on three indexed columns: delete a box on two of them, and update the rows of 1 % of
  the parts. delta-rs uses a z-ordered copy of about as many files.
- lineitem on order key and ship date: merge the newest 1 % of the orders, a tenth of them new; merge 0.1 % of all
  orders, wherever they are; and replace the rows of a day. delta-rs uses a copy z-ordered by the same columns.

Our tables change with deletion vectors, and without. DuckDB and Lance change the same rows in their own formats: marks,
not rivals, because Delta readers cannot read these. Every run is a separate process on a fresh copy of the table, in
turns. Measured are CPU seconds, peak memory, the bytes of the files that a change writes over those of the table, and
the bytes of the log per touched file.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import lance
import polars as pl
from deltalake import DeltaTable, WriterProperties, write_deltalake

import qbeast
from benchmarks import data, measure, rivals, tables
from benchmarks.report import Figure, table

ROUNDS = 3
KEYS = ("l_orderkey", "l_linenumber")
BY_ORDER = ("l_orderkey", "l_shipdate")
BOX = (
    "l_shipdate >= DATE '1995-03-01' AND l_shipdate < DATE '1995-09-01' "
    "AND l_partkey > 50000 AND l_partkey <= 70000"
)
PARTS = "l_partkey > 50000 AND l_partkey <= 52000"
DAY = "l_shipdate = DATE '1995-03-01'"
LAST_ORDER = 6_000_000
ZSTD = WriterProperties(compression="ZSTD", compression_level=rivals.ZSTD_LEVEL)
VECTORS = "delta.enableDeletionVectors"

Inputs = tuple[Path, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One change of a table."""

    cpu_seconds: float
    peak_bytes: int
    # Bytes of new files without the log, and bytes of the table before.
    written_bytes: int
    table_bytes: int
    # Bytes of the commit, and the files that it touches.
    log_bytes: int
    touched: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Targets of our changes by deletion vectors."""

    cpu_over_delta: float | None = 0.25
    cpu_seconds: float | None = None
    written_percent: float = 3.0
    peak_gigabytes: float = 0.5
    log_kilobytes: float = 10.0


def run() -> list[Figure]:
    boxes = _folders("lineitem", data.W1_COLUMNS)
    orders = _folders("lineitem-by-order", BY_ORDER)
    few = Limits(cpu_over_delta=0.15)
    return [
        *compare("delete of a box on 2 columns", boxes, DELETES, as_path, Limits()),
        *compare("update of 1 % of the parts", boxes, UPDATES, as_path, Limits()),
        *compare("merge of the newest 1 % of orders", orders, MERGES, newest_orders, few),
        *compare("merge of 0.1 % of orders from everywhere", orders, MERGES, scattered_orders, few),
        *compare(
            "replace of a day", orders, REPLACES, rows_of_day, Limits(cpu_over_delta=None, cpu_seconds=1.0)
        ),
    ]


def _folders(name: str, columns: tuple[str, ...]) -> dict[str, Path]:
    ours = tables.indexed(name, data.lineitem, columns)
    return {
        "vectors": ours,
        "qbeast": ours,
        "delta-rs": tables.z_order(name, data.lineitem, columns),
        "DuckDB": tables.once(tables.RIVALS / "lineitem-duckdb", _write_duckdb),
        "Lance": tables.once(tables.RIVALS / "lineitem-lance", _write_lance),
    }


def compare(
    what: str,
    folders: dict[str, Path],
    changes: Mapping[str, Callable[[Inputs], None]],
    prepare: Callable[[Path], Inputs],
    limits: Limits,
) -> list[Figure]:
    runs: dict[str, list[Run]] = {name: [] for name in folders}
    counts: set[int] = set()
    for turn in range(ROUNDS):
        names = list(folders)
        for name in names[turn:] + names[:turn]:
            result, rows = once(name, folders[name], changes[name], prepare)
            runs[name].append(result)
            counts.add(rows)
    assert len(counts) == 1, "all change the same rows"
    return _figures(what, runs, limits)


def _figures(what: str, runs: dict[str, list[Run]], limits: Limits) -> list[Figure]:
    cpu = {name: median(each.cpu_seconds for each in of_name) for name, of_name in runs.items()}
    peaks = {name: median(each.peak_bytes for each in of_name) / 1e9 for name, of_name in runs.items()}
    shares = {name: 100 * each[0].written_bytes / each[0].table_bytes for name, each in runs.items()}
    first, theirs = runs["vectors"][0], "delta-rs"
    marks = ", ".join(f"{name} {cpu[name]:.2f}" for name in ("DuckDB", "Lance"))
    return [
        Figure(
            f"{what}: CPU with vectors, over delta-rs",
            cpu["vectors"] / cpu[theirs],
            most=limits.cpu_over_delta,
            note=f"{cpu['vectors']:.2f} s over {cpu[theirs]:.2f} s; {marks}",
        ),
        Figure(f"{what}: CPU with vectors", cpu["vectors"], "s", most=limits.cpu_seconds),
        Figure(
            f"{what}: CPU without vectors, over delta-rs",
            cpu["qbeast"] / cpu[theirs],
            most=1.5 if what.startswith("delete") else None,
            note=f"{cpu['qbeast']:.2f} s; writes {shares['qbeast']:.3g} % of the table",
        ),
        Figure(
            f"{what}: bytes written with vectors",
            shares["vectors"],
            "%",
            most=limits.written_percent,
            note=", ".join(f"{name} {shares[name]:.3g} %" for name in (theirs, "DuckDB", "Lance")),
        ),
        Figure(
            f"{what}: peak memory with vectors",
            peaks["vectors"],
            "GB",
            most=limits.peak_gigabytes,
            note=f"without {peaks['qbeast']:.2f}, delta-rs {peaks[theirs]:.2f}",
        ),
        Figure(
            f"{what}: peak memory without vectors",
            peaks["qbeast"],
            "GB",
            most=0.8 if what.startswith("delete") else None,
        ),
        Figure(
            f"{what}: log per touched file",
            first.log_bytes / max(first.touched, 1) / 1e3,
            "kB",
            most=limits.log_kilobytes,
            note=f"{first.touched} files",
        ),
    ]


def once(
    name: str, table_folder: Path, change: Callable[[Inputs], None], prepare: Callable[[Path], Inputs]
) -> tuple[Run, int]:
    """Change a copy of a table. Return what it cost, and the number of rows afterwards."""
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        folder = Path(scratch) / "t"
        shutil.copytree(table_folder, folder)
        if name == "vectors":
            qbeast.open_table(str(folder)).set_properties({VECTORS: "true"})
        before = _sizes(folder)
        child = measure.in_child(change, folder, prepare=prepare)
        after = _sizes(folder)
        # A database of DuckDB is one file, which grows.
        written = sum(max(size - before.get(path, 0), 0) for path, size in after.items())
        log = [
            path for path in after.keys() - before.keys() if "_delta_log" in path and path.endswith(".json")
        ]
        actions = [json.loads(line) for path in log for line in (folder / path).read_text().splitlines()]
        touched = {action[kind]["path"] for action in actions for kind in ("add", "remove") if kind in action}
        log_bytes = sum(after[path] for path in log)
        result = Run(
            child.cpu_seconds,
            child.peak_rss_bytes,
            written - log_bytes,
            sum(before.values()),
            log_bytes,
            len(touched),
        )
        return result, COUNTS.get(name, _delta_rows)(folder)


def _sizes(folder: Path) -> dict[str, int]:
    return {
        str(file.relative_to(folder)): file.stat().st_size for file in folder.rglob("*") if file.is_file()
    }


def as_path(folder: Path) -> Inputs:
    return folder, None


def newest_orders(folder: Path) -> Inputs:
    """Return the last orders with other quantities, and a tenth as many new orders."""
    last = pl.scan_parquet(data.lineitem_path()).filter(pl.col("l_orderkey") > LAST_ORDER * 0.99).collect()
    new = last.filter(pl.col("l_orderkey") % 10 == 0).with_columns(pl.col("l_orderkey") + LAST_ORDER)
    return folder, changed(pl.concat([last, new]))


def scattered_orders(folder: Path) -> Inputs:
    """Return one of a thousand orders, with other quantities."""
    chosen = pl.col("l_orderkey").hash(7) % 1000 == 0
    return folder, changed(pl.scan_parquet(data.lineitem_path()).filter(chosen).collect(engine="streaming"))


def rows_of_day(folder: Path) -> Inputs:
    """Return the rows of a day, with other quantities."""
    of_day = pl.scan_parquet(data.lineitem_path()).filter(pl.col("l_shipdate") == date(1995, 3, 1)).collect()
    return folder, of_day.with_columns(l_comment=pl.lit("changed"))


def changed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(
        (pl.col("l_quantity") + 1).cast(rows.schema["l_quantity"]),
        l_comment=pl.lit("changed"),
        l_receiptdate=pl.lit(date(1998, 12, 31)),
    )


# --- qbeast ---------------------------------------------------------------------------------------------------------


def _delete(inputs: Inputs) -> None:
    qbeast.open_table(str(inputs[0])).delete(BOX)


def _update(inputs: Inputs) -> None:
    qbeast.open_table(str(inputs[0])).update(PARTS, {"l_comment": "'changed'"})


def _merge(inputs: Inputs) -> None:
    qbeast.open_table(str(inputs[0])).merge(inputs[1], KEYS)


def _replace(inputs: Inputs) -> None:
    qbeast.write_table(inputs[1], str(inputs[0]), mode="overwrite", where=DAY)


# --- delta-rs -------------------------------------------------------------------------------------------------------


def _delta_delete(inputs: Inputs) -> None:
    DeltaTable(inputs[0]).delete(BOX, writer_properties=ZSTD)


def _delta_update(inputs: Inputs) -> None:
    updates = {"l_comment": "'changed'"}
    DeltaTable(inputs[0]).update(updates=updates, predicate=PARTS, writer_properties=ZSTD)


def _delta_merge(inputs: Inputs) -> None:
    folder, source = inputs
    predicate = " AND ".join(f"target.{key} = source.{key}" for key in KEYS)
    merger = DeltaTable(folder).merge(
        source, predicate, source_alias="source", target_alias="target", writer_properties=ZSTD
    )
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def _delta_replace(inputs: Inputs) -> None:
    write_deltalake(inputs[0], inputs[1], mode="overwrite", predicate=DAY, writer_properties=ZSTD)


def _delta_rows(folder: Path) -> int:
    return int(pl.scan_delta(str(folder)).select(pl.len()).collect().item())


# --- DuckDB ---------------------------------------------------------------------------------------------------------


def _write_duckdb(folder: Path) -> None:
    folder.mkdir(parents=True)
    rows = data.lineitem().sort("l_orderkey")  # noqa: F841 -- DuckDB finds it by its name
    with duckdb.connect(str(folder / "lineitem.duckdb")) as connection:
        connection.execute("CREATE TABLE lineitem AS SELECT * FROM rows")


def _in_duckdb(folder: Path, *statements: str, rows: pl.DataFrame | None = None) -> None:
    with duckdb.connect(str(folder / "lineitem.duckdb")) as connection:
        if rows is not None:
            connection.register("source", rows.to_arrow())
        connection.execute("BEGIN")
        for statement in statements:
            connection.execute(statement)
        connection.execute("COMMIT")


def _duckdb_delete(inputs: Inputs) -> None:
    _in_duckdb(inputs[0], f"DELETE FROM lineitem WHERE {BOX}")  # noqa: S608 -- our own texts


def _duckdb_update(inputs: Inputs) -> None:
    _in_duckdb(inputs[0], f"UPDATE lineitem SET l_comment = 'changed' WHERE {PARTS}")  # noqa: S608


def _duckdb_merge(inputs: Inputs) -> None:
    statement = f"MERGE INTO lineitem USING source USING ({', '.join(KEYS)}) WHEN MATCHED THEN UPDATE "
    _in_duckdb(inputs[0], f"{statement} WHEN NOT MATCHED THEN INSERT", rows=inputs[1])


def _duckdb_replace(inputs: Inputs) -> None:
    statements = f"DELETE FROM lineitem WHERE {DAY}", "INSERT INTO lineitem SELECT * FROM source"  # noqa: S608
    _in_duckdb(inputs[0], *statements, rows=inputs[1])


def _duckdb_rows(folder: Path) -> int:
    with duckdb.connect(str(folder / "lineitem.duckdb")) as connection:
        found = connection.execute("SELECT count(*) FROM lineitem").fetchone()
        return int(found[0]) if found else 0


# --- Lance ----------------------------------------------------------------------------------------------------------


def _plain(rows: pl.DataFrame) -> Any:
    return rows.to_arrow(compat_level=pl.CompatLevel.oldest())


def _write_lance(folder: Path) -> None:
    lance.write_dataset(_plain(data.lineitem().sort("l_orderkey")), str(folder))


def _lance_delete(inputs: Inputs) -> None:
    lance.dataset(str(inputs[0])).delete(BOX.replace("DATE", "date"))


def _lance_update(inputs: Inputs) -> None:
    lance.dataset(str(inputs[0])).update({"l_comment": "'changed'"}, where=PARTS)


def _lance_merge(inputs: Inputs) -> None:
    merger = lance.dataset(str(inputs[0])).merge_insert(list(KEYS))
    merger.when_matched_update_all().when_not_matched_insert_all().execute(_plain(inputs[1]))


def _lance_replace(inputs: Inputs) -> None:
    lance.dataset(str(inputs[0])).delete(DAY.replace("DATE", "date"))
    lance.write_dataset(_plain(inputs[1]), str(inputs[0]), mode="append")


def _lance_rows(folder: Path) -> int:
    return int(lance.dataset(str(folder)).count_rows())


Changes = Mapping[str, Callable[[Inputs], None]]
DELETES: Changes = {
    "vectors": _delete,
    "qbeast": _delete,
    "delta-rs": _delta_delete,
    "DuckDB": _duckdb_delete,
    "Lance": _lance_delete,
}
UPDATES: Changes = {
    "vectors": _update,
    "qbeast": _update,
    "delta-rs": _delta_update,
    "DuckDB": _duckdb_update,
    "Lance": _lance_update,
}
MERGES: Changes = {
    "vectors": _merge,
    "qbeast": _merge,
    "delta-rs": _delta_merge,
    "DuckDB": _duckdb_merge,
    "Lance": _lance_merge,
}
REPLACES: Changes = {
    "vectors": _replace,
    "qbeast": _replace,
    "delta-rs": _delta_replace,
    "DuckDB": _duckdb_replace,
    "Lance": _lance_replace,
}
COUNTS: Mapping[str, Callable[[Path], int]] = {"DuckDB": _duckdb_rows, "Lance": _lance_rows}


if __name__ == "__main__":
    print(table(run()))
