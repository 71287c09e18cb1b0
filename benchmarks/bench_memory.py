"""What does a table cost whose rows do not fit in memory?

    python -m benchmarks.bench_memory [scale] [budget in MiB]

TPC-H lineitem (scale 1: 6 million rows of 16 columns, about 1 GB in memory; 10: 60 million) within a budget: by
default 512 MiB at scale 1, 1 GiB at 3, 2 GiB at 10. Each step runs in a process of its own, of which the peak is
measured; what it held before the step (Python, the libraries) is not counted. Others that write the same rows: a
stream into a Delta table without order (`sink_delta`), and those that order rows on disk: DuckDB by a Z-order key,
delta-rs `z_order` of the streamed table. Nothing limits the processes but their own settings.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from deltalake import DeltaTable

import qbeast
from benchmarks import data, measure
from benchmarks.report import Figure, table

BUDGETS_MIB = {1: 512, 3: 1024, 10: 2048}
KEYS = ["l_orderkey", "l_linenumber"]
BITS = 10
MIB = 1 << 20


def run(scale: int = 1, budget_mib: int | None = None) -> list[Figure]:
    source, budget = data.lineitem_path(scale), (budget_mib or BUDGETS_MIB[scale]) * MIB
    with tempfile.TemporaryDirectory(dir=data.CACHE) as folder:
        scratch = Path(folder)
        table_path, streamed, spill = scratch / "t", scratch / "streamed", scratch / "spill"
        spill.mkdir()
        steps: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
            "sink_delta": (_stream, (source, streamed)),
            "write": (_write, (source, table_path, budget, spill)),
            "DuckDB, ORDER BY a Z-order key": (_duckdb, (source, scratch / "duckdb", budget, spill)),
            "delta-rs z_order": (_z_order, (streamed, budget)),
            "append of 1 %": (_append, (source, table_path, budget, spill)),
            "optimize of everything": (_optimize, (table_path, budget, spill)),
            "delete of a range": (_delete, (table_path, budget, spill)),
            "merge of 0.1 %": (_merge, (source, table_path, budget, spill)),
        }
        children = {}
        for name, (function, arguments) in steps.items():
            children[name] = measure.in_child(_measured, function, *arguments)
            print(name, children[name], file=sys.stderr, flush=True)
        assert not list(spill.glob("qbeast*")), "temporary files are gone"
        _check(source, table_path)
    return _figures(children, scale, budget)


def _figures(children: dict[str, measure.Child], scale: int, budget: int) -> list[Figure]:
    plain = children["sink_delta"]
    what = f"lineitem, scale {scale}, {budget // MIB:,} MiB"
    figures = []
    for name, child in children.items():
        before, cpu_seconds, spilled = child.result
        added = (child.peak_rss_bytes - before) / budget
        ours = not name.startswith(("sink", "DuckDB", "delta-rs"))
        note = f"{child.seconds:.1f} s, {cpu_seconds:.1f} CPU s, {spilled / MIB:,.0f} MiB spilled"
        figures.append(
            Figure(f"{what}: {name}, memory over the budget", added, "x", 1.0 if ours else None, note)
        )
    ratio = children["write"].seconds / plain.seconds
    cpu = children["write"].result[1] / plain.result[1]
    figures.append(Figure(f"{what}: write over sink_delta, time", ratio, "x", 2.5, f"CPU seconds {cpu:.2f}"))
    return figures


def _measured(function: Callable[..., int], *arguments: Any) -> tuple[int, float, int]:
    """Return bytes held before, CPU seconds, and bytes spilled."""
    before, start = measure.peak_rss_bytes(), time.process_time()
    spilled = function(*arguments)
    return before, time.process_time() - start, spilled or 0


def _write(source: Path, folder: Path, budget: int, spill: Path) -> int:
    rows = pl.scan_parquet(source)
    columns = list(data.W1_COLUMNS)
    return qbeast.write_table(
        rows, folder, columns=columns, memory_bytes=budget, spill_dir=spill
    ).spilled_bytes


def _stream(source: Path, folder: Path) -> int:
    pl.scan_parquet(source).sink_delta(folder)
    return 0


def _duckdb(source: Path, folder: Path, budget: int, spill: Path) -> int:
    folder.mkdir()
    names = list(data.W1_COLUMNS)
    numbers = {name: f"epoch({name})" if name == "l_shipdate" else f"{name}::DOUBLE" for name in names}
    with duckdb.connect(
        config={"memory_limit": f"{budget // MIB}MiB", "temp_directory": str(spill)}
    ) as session:
        ends = ", ".join(f"min({one}), max({one})" for one in numbers.values())
        found = session.execute(f"SELECT {ends} FROM read_parquet('{source}')").fetchone()  # noqa: S608
        bits = []
        for at, one in enumerate(numbers.values()):
            low, high = found[2 * at], found[2 * at + 1]
            cell = (
                f"least(floor(({one} - {low}) / ({high} - {low}) * {1 << BITS}), {(1 << BITS) - 1})::BIGINT"
            )
            bits += [f"(((({cell}) >> {bit}) & 1) << {bit * len(names) + at})" for bit in range(BITS)]
        session.execute(
            f"COPY (SELECT * FROM read_parquet('{source}') ORDER BY {' + '.join(bits)}) "  # noqa: S608
            f"TO '{folder / 'rows.parquet'}' (FORMAT parquet, COMPRESSION zstd)"
        )
    return 0


def _z_order(folder: Path, budget: int) -> int:
    DeltaTable(folder).optimize.z_order(list(data.W1_COLUMNS), max_spill_size=budget)
    return 0


def _append(source: Path, folder: Path, budget: int, spill: Path) -> int:
    rows = pl.scan_parquet(source).head(_rows(source) // 100).with_columns(pl.col("l_linenumber") + 10)
    return qbeast.write_table(rows, folder, mode="append", memory_bytes=budget, spill_dir=spill).spilled_bytes


def _optimize(folder: Path, budget: int, spill: Path) -> int:
    return qbeast.open_table(folder).optimize(full=True, memory_bytes=budget, spill_dir=spill).spilled_bytes


def _delete(folder: Path, budget: int, spill: Path) -> int:
    gone = pl.col("l_shipdate").is_between(date(1995, 1, 1), date(1995, 3, 31))
    return qbeast.open_table(folder).delete(gone, memory_bytes=budget, spill_dir=spill).spilled_bytes


def _merge(source: Path, folder: Path, budget: int, spill: Path) -> int:
    some = pl.scan_parquet(source).gather_every(1000).collect().with_columns(l_comment=pl.lit("merged"))
    opened = qbeast.open_table(folder)
    return opened.merge(some, on=KEYS, memory_bytes=budget, spill_dir=spill).spilled_bytes


def _check(source: Path, folder: Path) -> None:
    """All rows that should be there are."""
    gone = pl.col("l_shipdate").is_between(date(1995, 1, 1), date(1995, 3, 31))
    first = pl.scan_parquet(source)
    more = first.head(_rows(source) // 100)
    again = first.gather_every(1000).filter(gone)  # deleted, then inserted by the merge
    wanted = sum(
        int(rows.select(pl.len()).collect().item())
        for rows in (first.filter(~gone), more.filter(~gone), again)
    )
    found = int(qbeast.open_table(folder).scan().select(pl.len()).collect().item())
    assert found == wanted, f"{found:,} rows instead of {wanted:,}"


def _rows(source: Path) -> int:
    return int(pl.scan_parquet(source).select(pl.len()).collect().item())


if __name__ == "__main__":
    print(table(run(*map(int, sys.argv[1:]))))
