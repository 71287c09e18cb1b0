"""What does a table cost whose rows do not fit in memory?

    python -m benchmarks.bench_memory [scale] [budget in MiB] [steps, as write,append]

TPC-H lineitem (scale 1: 6 million rows of 16 columns, about 1 GB in memory; 10: 60 million) within a budget: by default
512 MiB at scale 1, 700 MiB at 3, 2 GiB at 10. Each step runs in its own process, and its peak is measured without what
it held before the step (Python, the libraries). The system enforces the budget of our steps: with `RLIMIT_DATA` a
process gets no more private memory than it had before plus the budget. The limit counts addresses, so the allocators
are set to return unused memory, which takes time. Steps named "without limit" have the usual allocators and no limit.

Others write the same rows with only their own settings as limits: a stream into a Delta table without order
(`sink_delta`), DuckDB, which orders rows on disk by a Z-order key, and delta-rs `z_order` of the streamed table.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from deltalake import DeltaTable

import qbeast
from benchmarks import data, measure
from benchmarks.report import Figure, table

BUDGETS_MIB = {1: 512, 3: 700, 10: 2048}
KEYS = ["l_orderkey", "l_linenumber"]
BITS = 10
FREE = ("write without limit", "merge of 2.5 % without limit")
OTHERS = ("sink_delta", "DuckDB, ORDER BY a Z-order key", "delta-rs z_order")
TIGHT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "_RJEM_MALLOC_CONF": "retain:false,dirty_decay_ms:0,muzzy_decay_ms:0",
}
MIB = 1 << 20


def run(scale: int = 1, budget_mib: int | None = None, names: Sequence[str] = ()) -> list[Figure]:
    source, budget = data.lineitem_path(scale), (budget_mib or BUDGETS_MIB[scale]) * MIB
    with tempfile.TemporaryDirectory(dir=data.CACHE) as folder:
        scratch = Path(folder)
        table_path, streamed, spill = scratch / "t", scratch / "streamed", scratch / "spill"
        spill.mkdir()
        steps: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
            "write": (_write, (source, table_path, budget, spill)),
            "write without limit": (_write, (source, scratch / "free", budget, spill)),
            "merge of 2.5 % without limit": (_merge, (source, scratch / "free", budget, spill, 40)),
            "sink_delta": (_stream, (source, streamed)),
            "DuckDB, ORDER BY a Z-order key": (_duckdb, (source, scratch / "duckdb", budget, spill)),
            "delta-rs z_order": (_z_order, (streamed, budget)),
            "append of 1 %": (_append, (source, table_path, budget, spill)),
            "optimize of everything": (_optimize, (table_path, budget, spill)),
            "delete of a range": (_delete, (table_path, budget, spill)),
            "merge of 0.1 %": (_merge, (source, table_path, budget, spill, 1000)),
        }
        children = {}
        for name, (function, arguments) in steps.items():
            if names and not any(name.startswith(prefix) for prefix in names):
                continue
            limit = None if name in FREE + OTHERS else budget
            with _environment({} if limit is None else TIGHT):
                children[name] = measure.in_child(_measured, limit, function, *arguments)
            print(name, children[name], file=sys.stderr, flush=True)
        assert not list(spill.glob("qbeast*")), "temporary files are gone"
        if not names:
            _check(source, table_path)
    return _figures(children, scale, budget)


@contextmanager
def _environment(variables: dict[str, str]) -> Generator[None]:
    """Set environment variables of new processes."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def _figures(children: dict[str, measure.Child], scale: int, budget: int) -> list[Figure]:
    what = f"lineitem, scale {scale}, {budget // MIB:,} MiB"
    figures = []
    for name, child in children.items():
        before, cpu_seconds, spilled = child.result
        added = (child.peak_rss_bytes - before) / budget
        ours = name not in OTHERS
        note = f"{child.seconds:.1f} s, {cpu_seconds:.1f} CPU s, {spilled / MIB:,.0f} MiB spilled"
        figures.append(
            Figure(f"{what}: {name}, memory over the budget", added, "x", 1.0 if ours else None, note)
        )
    if {"write without limit", "sink_delta"} <= set(children):
        free, plain = children["write without limit"], children["sink_delta"]
        ratio, cpu = free.seconds / plain.seconds, free.result[1] / plain.result[1]
        note = f"CPU seconds {cpu:.2f}"
        figures.append(Figure(f"{what}: write over sink_delta, time", ratio, "x", 2.5, note))
    return figures


def _measured(limit: int | None, function: Callable[..., int], *arguments: Any) -> tuple[int, float, int]:
    """Return bytes of memory before, CPU seconds, and bytes spilled; the limit applies to additional memory."""
    pl.LazyFrame({"a": range(1000)}).select(pl.col("a").sum()).collect(engine="streaming")  # starts threads
    if limit is not None:
        max_bytes = measure.private_bytes() + limit
        resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, max_bytes))
    before, start = measure.peak_rss_bytes(), time.process_time()
    spilled = function(*arguments)
    return before, time.process_time() - start, spilled or 0


def _write(source: Path, folder: Path, budget: int, spill: Path) -> int:
    rows = pl.scan_parquet(source)
    columns = list(data.W1_COLUMNS)
    return qbeast.write_table(
        rows, folder, columns=columns, resources=qbeast.Resources(memory_bytes=budget, spill_dir=spill)
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
        ends = ", ".join(f"min({number}), max({number})" for number in numbers.values())
        bounds = session.execute(f"SELECT {ends} FROM read_parquet('{source}')").fetchone()  # noqa: S608
        assert bounds is not None
        bits = []
        for at, number in enumerate(numbers.values()):
            low, high = bounds[2 * at], bounds[2 * at + 1]
            cell = f"least(floor(({number} - {low}) / ({high} - {low}) * {1 << BITS}), {(1 << BITS) - 1})::BIGINT"
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
    return qbeast.write_table(
        rows, folder, mode="append", resources=qbeast.Resources(memory_bytes=budget, spill_dir=spill)
    ).spilled_bytes


def _optimize(folder: Path, budget: int, spill: Path) -> int:
    return (
        qbeast.open_table(folder, resources=qbeast.Resources(memory_bytes=budget, spill_dir=spill))
        .optimize(full=True)
        .spilled_bytes
    )


def _delete(folder: Path, budget: int, spill: Path) -> int:
    gone = pl.col("l_shipdate").is_between(date(1995, 1, 1), date(1995, 3, 31))
    return (
        qbeast.open_table(folder, resources=qbeast.Resources(memory_bytes=budget, spill_dir=spill))
        .delete(gone)
        .spilled_bytes
    )


def _merge(source: Path, folder: Path, budget: int, spill: Path, nth: int) -> int:
    source_rows = _every(source, nth).with_columns(l_comment=pl.lit("merged"))
    opened = qbeast.open_table(folder, resources=qbeast.Resources(memory_bytes=budget, spill_dir=spill))
    return opened.merge(source_rows, on=KEYS).spilled_bytes


def _check(source: Path, folder: Path) -> None:
    """Assert the number of rows of the table."""
    gone = pl.col("l_shipdate").is_between(date(1995, 1, 1), date(1995, 3, 31))
    first = pl.scan_parquet(source)
    more = first.head(_rows(source) // 100)
    again = _every(source, 1000).filter(gone)  # deleted, then inserted by the merge
    expected = sum(
        int(rows.select(pl.len()).collect().item())
        for rows in (first.filter(~gone), more.filter(~gone), again)
    )
    rows = int(qbeast.open_table(folder).rows().lazy().select(pl.len()).collect().item())
    assert rows == expected, f"{rows:,} rows instead of {expected:,}"


def _every(source: Path, nth: int) -> pl.LazyFrame:
    rows = pl.scan_parquet(source).with_row_index("number")
    return rows.filter(pl.col("number") % nth == 0).drop("number")


def _rows(source: Path) -> int:
    return int(pl.scan_parquet(source).select(pl.len()).collect().item())


if __name__ == "__main__":
    numbers, names = [int(argument) for argument in sys.argv[1:3]], ",".join(sys.argv[3:])
    print(table(run(*numbers, names=names.split(",") if names else ())))
