"""What does the index cost where it cannot help: a full scan, and the bytes on disk?

    python -m benchmarks.bench_scan

Our lineitem table (scale 1) compared with files of the same rows in the same order, with the same codec, dictionary
columns and encodings, but default pages and no hidden weight column. Also compared with the generator's order, written
in the same way into as many files, which compresses differently. Every reader materialises all 16 columns. Then the
bytes of each column of log rows, over those of `write_deltalake` with its defaults, and with the same codec.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import WriterProperties, write_deltalake

import qbeast
from benchmarks import data, measure, rivals, tables
from benchmarks.report import Figure, table

HIDDEN = "_qbeast_weight"
LOG_ROWS = 6_000_000
MOST = {"Polars": 1.12}


def run() -> list[Figure]:
    folder = tables.lineitem_table()
    files = rivals.data_files(folder)
    default = _rewritten(files, data.CACHE / "rivals" / "default-pages")
    original = _in_original_order(files, data.CACHE / "rivals" / "original-order")
    _check(folder, default)
    size = {
        n: measure.folder_bytes(f) for n, f in (("ours", files), ("default", default), ("original", original))
    }
    figures = [
        Figure("table size over default pages", size["ours"] / size["default"], "x", 1.07),
        Figure("table size over the original order", size["ours"] / size["original"]),
    ]
    for engine, scan in _ENGINES.items():
        seconds = measure.interleaved(
            {
                "ours": _scan_ours(engine, folder, files),
                "default": lambda scan=scan: scan(default),
                "original": lambda scan=scan: scan(original),
            }
        )
        note = "goal 1.05" if engine in MOST else ""
        figures += [
            Figure(
                f"full scan over default pages, {engine}",
                _over(seconds, "default"),
                "x",
                MOST.get(engine),
                note,
            ),
            Figure(f"full scan over the original order, {engine}", _over(seconds, "original")),
        ]
    return [*figures, *_log_columns()]


def _log_columns() -> list[Figure]:
    """Compare the bytes of columns that have a few thousand values."""
    rows, folder = data.log_rows(LOG_ROWS), data.CACHE / "scan-log"
    shutil.rmtree(folder, ignore_errors=True)
    qbeast.write_table(rows, folder / "ours", columns=["at", "user", "ms"])
    write_deltalake(folder / "default", rows)
    zstd = WriterProperties(compression="ZSTD", compression_level=rivals.ZSTD_LEVEL)
    write_deltalake(folder / "zstd", rows, writer_properties=zstd)
    size = {name: _column_bytes(folder / name) for name in ("ours", "default", "zstd")}
    return [
        Figure(
            f"log rows, bytes of {name}, over write_deltalake's",
            size["ours"][name] / size["default"][name],
            "x",
            1.15,
            f"{size['ours'][name] / LOG_ROWS:.2f} B a row; {size['ours'][name] / size['zstd'][name]:.2f} x with zstd",
        )
        for name in rows.columns
    ]


def _column_bytes(folder: Path) -> Counter[str]:
    """Return the stored bytes of each column of a table."""
    size = Counter[str]()
    for file in rivals.data_files(folder):
        footer = pq.read_metadata(file)
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                size[chunk.path_in_schema] += chunk.total_compressed_size
    return size


def _over(seconds: dict[str, float], rival: str) -> float:
    return seconds["ours"] / seconds[rival]


def _scan_ours(engine: str, folder: Path, files: Sequence[Path]) -> Callable[[], object]:
    if engine == "Polars":
        return lambda: qbeast.scan_table(str(folder)).collect()
    return lambda: _ENGINES[engine](files)


def _scan_polars(files: Sequence[Path]) -> object:
    return pl.scan_parquet(list(files)).collect()


def _scan_duckdb(files: Sequence[Path]) -> object:
    columns = ", ".join(f'"{name}"' for name in _visible(files))
    with duckdb.connect() as connection:
        rows = connection.read_parquet([str(file) for file in files])
        return rows.project(columns).to_arrow_table()


def _scan_pyarrow(files: Sequence[Path]) -> object:
    columns = _visible(files)
    return [pq.read_table(file, columns=columns) for file in files]


_ENGINES: dict[str, Callable[[Sequence[Path]], object]] = {
    "Polars": _scan_polars,
    "DuckDB": _scan_duckdb,
    "pyarrow": _scan_pyarrow,
}


def _visible(files: Sequence[Path]) -> list[str]:
    return [name for name in pq.read_schema(files[0]).names if name != HIDDEN]


def _rewritten(files: Sequence[Path], folder: Path) -> list[Path]:
    columns = _visible(files)
    return _write_default_pages(
        (pq.read_table(file, columns=columns) for file in files), folder, like=files[0]
    )


def _in_original_order(files: Sequence[Path], folder: Path) -> list[Path]:
    rows = data.lineitem().to_arrow(compat_level=pl.CompatLevel.oldest())
    length = -(-rows.num_rows // len(files))
    return _write_default_pages(
        (rows.slice(i * length, length) for i in range(len(files))), folder, like=files[0]
    )


def _write_default_pages(tables_of_files: Iterable[pa.Table], folder: Path, *, like: Path) -> list[Path]:
    group = pq.read_metadata(like).row_group(0)
    chunks = {chunk.path_in_schema: chunk for chunk in map(group.column, range(group.num_columns))}
    rivals.fresh(folder)
    for number, rows in enumerate(tables_of_files):
        pq.write_table(
            rows,
            folder / f"{number:05d}.parquet",
            row_group_size=1 << 30,
            compression="zstd",
            compression_level=rivals.ZSTD_LEVEL,
            use_dictionary=[name for name, chunk in chunks.items() if chunk.has_dictionary_page],
            column_encoding={
                n: _encoding(c) for n, c in chunks.items() if not c.has_dictionary_page and n != HIDDEN
            },
            write_statistics=list(data.W1_COLUMNS),
            store_decimal_as_integer=True,
            store_schema=False,
        )
    return rivals.data_files(folder)


def _encoding(chunk: pq.ColumnChunkMetaData) -> str:
    """Return the encoding of the values; RLE encodes the levels."""
    return next((name for name in chunk.encodings if name != "RLE"), "PLAIN")


def _check(folder: Path, default: Sequence[Path]) -> None:
    key = ["l_orderkey", "l_linenumber"]
    ours = qbeast.scan_table(str(folder)).select(key).sort(key).collect()
    assert ours.equals(pl.scan_parquet(list(default)).select(key).sort(key).collect())


if __name__ == "__main__":
    print(table(run()))
