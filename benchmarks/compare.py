"""Did a change of the library cost anything? Compares this checkout with another one, in turns.

    python -m benchmarks.compare OTHER_CHECKOUT [rounds]

Each round starts a new process for each checkout. It imports `qbeast` from there and runs the whole life of one table:
lineitem (scale 1, 16 columns, three of them indexed) is written, planned, sampled, filtered and scanned, grown by small
appends, optimized, changed. The results are medians of all rounds, and the median of the rounds' ratios, because a
machine that is slow for a minute is slow for both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve()
ROUNDS = 6
INDEXED = ["l_shipdate", "l_partkey", "l_extendedprice"]
KEYS = ["l_orderkey", "l_linenumber"]
FRACTIONS = (0.01, 0.1, 0.3)
BOX = (
    "l_shipdate >= DATE '1995-03-01' AND l_shipdate < DATE '1995-09-01' AND l_partkey BETWEEN 50000 AND 70000"
)
APPENDS, APPENDED_ROWS = 10, 5_000
SECONDS = " [s]"


def main(other: Path, rounds: int) -> None:
    from benchmarks import data  # noqa: PLC0415 -- a round's process must not import this checkout's data

    checkouts = {"before": other.resolve(), "after": HERE.parent.parent}
    results: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for turn in range(rounds):
        for name in sorted(checkouts, reverse=turn % 2 == 0):
            results[name].append(_round(checkouts[name], data.lineitem_path()))
        print(f"round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
    print(f"| what | before | after | ratio |\n|---|---:|---:|---:|\n{_rows(**results)}")


def _rows(before: list[dict[str, float]], after: list[dict[str, float]]) -> str:
    lines = []
    for what in before[0]:
        pairs = [(old[what], new[what]) for old, new in zip(before, after, strict=True)]
        old, new = (median(values) for values in zip(*pairs, strict=True))
        lines.append(f"| {what} | {old:.4g} | {new:.4g} | {median(b / a for a, b in pairs):.2f} |")
    return "\n".join(lines)


def _round(checkout: Path, lineitem: Path) -> dict[str, float]:
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    # The second import counts: the first one compiles all modules.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-c", "import qbeast"], env=environment, check=True)
    with tempfile.TemporaryDirectory(dir=lineitem.parent) as scratch:
        command = [sys.executable, str(HERE), "--life", str(lineitem), scratch]
        process = subprocess.run(command, env=environment, cwd=scratch, check=True, stdout=subprocess.PIPE)
    return json.loads(process.stdout)


def _life(lineitem: Path, folder: Path) -> dict[str, float]:
    """Return the seconds of each step in the life of a table; uses only old public names."""
    import polars as pl  # noqa: PLC0415 -- its import is timed too

    results: dict[str, float] = {}

    def timed(what: str, act: Callable[[], object], times: int = 1) -> None:
        for _ in range(times):
            start = time.perf_counter()
            act()
            seconds = time.perf_counter() - start
            results[what + SECONDS] = min(seconds, results.get(what + SECONDS, seconds))

    timed("import qbeast", lambda: __import__("qbeast"))
    import qbeast  # noqa: PLC0415 -- just timed

    path = str(folder / "t")
    frame = pl.read_parquet(lineitem)
    kept, grown = frame.head(-APPENDS * APPENDED_ROWS), frame.tail(APPENDS * APPENDED_ROWS)
    timed("write", lambda: qbeast.write_table(kept, path, columns=INDEXED))
    timed("open, first 1 % sample", lambda: qbeast.open_table(path).read(sample=0.01))
    opened = qbeast.open_table(path)
    results["table [MB]"] = opened.rows().explain().bytes_total / 1e6
    box = pl.sql_expr(BOX)
    for fraction in FRACTIONS:
        plan = opened.rows(sample=fraction).explain()
        results[f"bytes of a sample of {fraction:.0%} over its share"] = (
            plan.bytes_opened / fraction / plan.bytes_total
        )
    results["share of bytes of a filter on 2 columns"] = opened.rows(box).explain().share
    timed("1 % sample", lambda: opened.read(sample=0.01), 9)
    timed("filter on 2 columns", lambda: opened.rows().lazy().filter(box).collect(), 9)
    timed("full scan", opened.read, 3)
    timed("explain of a filter", lambda: opened.rows(box).explain(), 20)

    def append() -> None:
        for start in range(0, grown.height, APPENDED_ROWS):
            qbeast.write_table(grown.slice(start, APPENDED_ROWS), path, mode="append")

    timed(f"{APPENDS} appends of {APPENDED_ROWS:,} rows", append)
    timed("optimize after them", lambda: qbeast.open_table(path).optimize())
    timed("delete of a box", lambda: qbeast.open_table(path).delete(box))
    late = pl.col("l_shipdate") >= date(1998, 11, 1)
    timed("update", lambda: qbeast.open_table(path).update(late, {"l_tax": pl.col("l_tax") + 0.01}))
    orders = kept.filter(pl.col("l_orderkey") > 5_940_000).with_columns(l_linestatus=pl.lit("N"))
    timed("merge of the newest 1 % of orders", lambda: qbeast.open_table(path).merge(orders, on=KEYS))
    results["rows at the end"] = qbeast.open_table(path).rows().lazy().select(pl.len()).collect().item()
    many = folder / "many"
    day = date(2020, 1, 1)
    small = pl.DataFrame({"day": [day + timedelta(days=i % 999) for i in range(2_000)], "x": range(2_000)})

    def small_writes() -> None:
        for start in range(0, 2_000, 50):
            qbeast.write_table(small.slice(start, 50), many, columns=["day", "x"], mode="append")

    timed("40 first and small appends", small_writes)
    return results


if __name__ == "__main__":
    if sys.argv[1] == "--life":
        warnings.simplefilter("ignore")
        print(json.dumps(_life(Path(sys.argv[2]), Path(sys.argv[3]))))
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS)
