"""What did the last changes cost or gain, in turns with an older commit?

    python -m benchmarks.bench_compare [COMMIT] [rounds]

Each round starts new processes for each checkout, which import `qbeast` from there. One runs the whole life of a table:
lineitem (scale 1, 16 columns, three of them indexed) is written, planned, sampled, filtered and scanned, grown by small
appends, optimized, changed. One does the work of a day on the first 1.5 million rows with an `id`, with deletion
vectors: the first and the second read of each kind, changes, and the changes of each version. The same was done on a
small table before, so that imports are not counted. Figures are ratios, after over before: the median of the rounds'
ratios, because a machine that is slow for a minute is slow for both. CPU is of all threads.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve()
BEFORE = "6e56a95b"
ROUNDS = 6
INDEXED = ["l_shipdate", "l_partkey", "l_extendedprice"]
NARROW = [*INDEXED, "l_orderkey", "l_suppkey", "l_quantity", "l_shipmode"]
KEYS = ["l_orderkey", "l_linenumber"]
FRACTIONS = (0.01, 0.1, 0.3)
BOX = (
    "l_shipdate >= DATE '1995-03-01' AND l_shipdate < DATE '1995-09-01' AND l_partkey BETWEEN 50000 AND 70000"
)
APPENDS, APPENDED_ROWS = 10, 5_000
DAY_ROWS = 1_500_000
MONTH = "l_shipdate >= DATE '1995-03-01' AND l_shipdate < DATE '1995-04-01'"
DAY = "l_shipdate = DATE '1995-03-15'"
LIVES = ("start", "life", "day")

Results = dict[str, float]


def run(commit: str = BEFORE, rounds: int = ROUNDS) -> list[Any]:
    """Return the ratio of each figure, after over before."""
    from benchmarks import data  # noqa: PLC0415 - a round's process must not import this checkout's data

    results: dict[str, list[Results]] = {"before": [], "after": []}
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        checkouts = {"before": _checkout(commit, Path(scratch)), "after": HERE.parent.parent}
        for turn in range(rounds):
            for name in sorted(checkouts, reverse=turn % 2 == 0):
                results[name].append(_round(checkouts[name], data.lineitem_path()))
            print(f"round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
    return _figures(**results)


def _checkout(commit: str, folder: Path) -> Path:
    """Return a folder with the files of a commit."""
    command = ["git", "archive", commit, "qbeast", "qbeast_core", "qbeast_carbondata"]
    archive = subprocess.run(command, cwd=HERE.parent.parent, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder / "before", filter="data")
    return folder / "before"


def _figures(before: list[Results], after: list[Results]) -> list[Any]:
    from benchmarks.report import Figure  # noqa: PLC0415 - as above

    figures = []
    for what in before[0]:
        pairs = [(old[what], new[what]) for old, new in zip(before, after, strict=True)]
        old, new = (median(values) for values in zip(*pairs, strict=True))
        ratio = median(b / a if a else 1.0 for a, b in pairs)
        figures.append(Figure(what, ratio, "x", None, f"{old:.4g} before, {new:.4g} after"))
    return figures


def _round(checkout: Path, lineitem: Path) -> Results:
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    # The second import counts: the first one compiles all modules.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-c", "import qbeast"], env=environment, check=True)
    results: Results = {}
    with tempfile.TemporaryDirectory(dir=lineitem.parent) as scratch:
        for life in LIVES:
            command = [sys.executable, str(HERE), "--life", life, str(lineitem), scratch]
            process = subprocess.run(
                command, env=environment, cwd=scratch, check=True, stdout=subprocess.PIPE
            )
            results |= json.loads(process.stdout)
    return results


# --- In the process of a round, which uses only old public names -----------------------------------------------------


class Timer:
    """Measures calls: CPU seconds, seconds, and the bytes that are read."""

    def __init__(self) -> None:
        self.results: Results = {}

    def __call__(self, what: str, act: Callable[[], object], times: int = 1, *, reads: bool = False) -> None:
        """Keep the least of some calls."""
        for _ in range(times):
            before = _used()
            act()
            cpu, seconds, read = (end - start for start, end in zip(before, _used(), strict=True))
            self._least(f"{what}, CPU s", cpu)
            self._least(f"{what}, s", seconds)
            if reads:
                self._least(f"{what}, MB read", read / 1e6)

    def _least(self, what: str, value: float) -> None:
        self.results[what] = min(value, self.results.get(what, value))


def _used() -> tuple[float, float, int]:
    """Return CPU seconds, seconds, and bytes read by this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    lines = Path("/proc/self/io").read_text().splitlines()
    return used.ru_utime + used.ru_stime, time.perf_counter(), int(lines[0].split(": ")[1])


def _start(lineitem: Path, folder: Path) -> Results:
    """Measure an import and the first read of a small table, beyond those of Polars."""
    import polars as pl  # noqa: PLC0415 - counted for neither

    path, file, timed = str(folder / "start"), folder / "start.parquet", Timer()
    pl.read_parquet(lineitem, n_rows=2_000).write_parquet(file)
    write = f"import polars, qbeast; rows = polars.read_parquet({str(file)!r}); "
    write += f"qbeast.write_table(rows, {path!r}, columns={INDEXED})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", write], check=True)
    code = {
        "qbeast": f"import polars, qbeast; qbeast.read_table({path!r}, where='l_partkey = 777')",
        "Polars": f"import polars as pl; pl.scan_parquet({str(file)!r}).filter(pl.col('l_partkey') == 777).collect()",
    }
    cpu = {name: min(_cpu_of(text) for _ in range(5)) for name, text in code.items()}
    return timed.results | {
        "import and first read of 2,000 rows, beyond Polars, CPU s": cpu["qbeast"] - cpu["Polars"]
    }


def _cpu_of(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _life(lineitem: Path, folder: Path) -> Results:
    """Measure each step in the life of a table."""
    import polars as pl  # noqa: PLC0415 - the first import is not ours

    import qbeast  # noqa: PLC0415 - of the checkout

    timed = Timer()
    path = str(folder / "t")
    frame = pl.read_parquet(lineitem)
    narrow, wide = frame.select(NARROW), frame.select(*NARROW, "l_comment")
    qbeast.write_table(narrow.head(300_000), folder / "warm", columns=INDEXED)
    for name, rows in {"7 columns": narrow, "7 columns and comments": wide}.items():

        def write(rows: pl.DataFrame = rows) -> None:
            shutil.rmtree(folder / "w", ignore_errors=True)
            qbeast.write_table(rows.head(5_000_000), folder / "w", columns=INDEXED)

        timed(f"write of 5 M rows, {name}", write, 3)
    del narrow, wide
    kept, grown = frame.head(-APPENDS * APPENDED_ROWS), frame.tail(APPENDS * APPENDED_ROWS)
    timed("write of 6 M rows, 16 columns", lambda: qbeast.write_table(kept, path, columns=INDEXED))
    timed("open, first 1 % sample", lambda: qbeast.open_table(path).read(sample=0.01))
    opened = qbeast.open_table(path)
    timed.results["table, MB"] = opened.rows().explain().bytes_total / 1e6
    box = pl.sql_expr(BOX)
    for fraction in FRACTIONS:
        plan = opened.rows(sample=fraction).explain()
        timed.results[f"bytes of a sample of {fraction:.0%} over its share"] = (
            plan.bytes_opened / fraction / plan.bytes_total
        )
    timed.results["share of bytes of a filter on 2 columns"] = opened.rows(box).explain().share
    timed("1 % sample", lambda: opened.read(sample=0.01), 9)
    timed("filter on 2 columns", lambda: opened.rows().lazy().filter(box).collect(), 9)
    timed("full scan", opened.read, 3)
    timed("explain of a filter", lambda: opened.rows(box).explain(), 20)
    timed("shuffled epoch", lambda: [*opened.rows(columns=NARROW[:6]).shuffled(1, batch_rows=1024)], 2)

    def append() -> None:
        for start in range(0, grown.height, APPENDED_ROWS):
            qbeast.write_table(grown.slice(start, APPENDED_ROWS), path, mode="append")

    timed(f"{APPENDS} appends of {APPENDED_ROWS:,} rows", append)
    timed("append of 1,000 rows", lambda: qbeast.write_table(grown[:1000], path, mode="append"), 12)
    timed("optimize after them", lambda: qbeast.open_table(path).optimize())
    timed("delete of a box", lambda: qbeast.open_table(path).delete(box))
    late = pl.col("l_shipdate") >= date(1998, 11, 1)
    timed("update", lambda: qbeast.open_table(path).update(late, {"l_tax": pl.col("l_tax") + 0.01}))
    orders = kept.filter(pl.col("l_orderkey") > 5_940_000).with_columns(l_linestatus=pl.lit("N"))
    timed("merge of the newest 1 % of orders", lambda: qbeast.open_table(path).merge(orders, on=KEYS))
    rows = qbeast.open_table(path).rows().lazy().select(pl.len()).collect().item()
    many, day = folder / "many", date(2020, 1, 1)
    small = pl.DataFrame({"day": [day + timedelta(days=i % 999) for i in range(2_000)], "x": range(2_000)})

    def small_writes() -> None:
        for start in range(0, 2_000, 50):
            qbeast.write_table(small.slice(start, 50), many, columns=["day", "x"], mode="append")

    timed("40 first and small appends", small_writes)
    return timed.results | {"rows at the end": rows}


def _day(lineitem: Path, folder: Path) -> Results:
    """Measure first and second reads, changes, and the changes of versions, each on its own copy of the table."""
    import polars as pl  # noqa: PLC0415 - the first import is not ours

    import qbeast  # noqa: PLC0415 - of the checkout

    timed, columns = Timer(), ["l_shipdate", "l_partkey", "id"]
    rows = pl.scan_parquet(lineitem).head(DAY_ROWS).with_row_index("id").collect().cast({"id": pl.Int64})
    changed = rows.sample(3_000, seed=7).with_columns(l_comment=pl.lit("changed"))
    upserted = pl.concat([changed, changed.with_columns(pl.col("id") + DAY_ROWS)])
    day = rows.filter(pl.col("l_shipdate") == date(1995, 3, 15)).with_columns(l_comment=pl.lit("changed"))
    places = {"small": folder / "small", "large": folder / "large"}
    few = pl.concat([rows.slice(777_000, 2_000), day]).unique("id", maintain_order=True)
    for place, frame in zip(places.values(), (few, rows), strict=True):
        qbeast.write_table(frame, place, columns=columns, deletion_vectors=True)
    answers = {"mean": pl.col("l_extendedprice").mean(), "rows": pl.len()}
    reads: dict[str, Callable[[Path], object]] = {
        "month": lambda p: qbeast.read_table(p, where=MONTH, columns=["l_extendedprice", "l_discount"]),
        "one id": lambda p: qbeast.read_table(p, where="id = 777777"),
        "sample of 1 %": lambda p: qbeast.read_table(p, sample=0.01),
        "groups": lambda p: qbeast.open_table(p).rows().estimate(answers, by="l_shipmode", error=0.02),
    }
    changes: dict[str, Callable[[Path], object]] = {
        "upsert of 6,000 rows": lambda p: qbeast.open_table(p).merge(upserted, on="id"),
        "replace a day": lambda p: qbeast.write_table(day, p, mode="overwrite", where=DAY),
        "delete": lambda p: qbeast.open_table(p).delete("l_suppkey = 4242"),
    }
    for name, act in (reads | changes).items():
        copies = {kind: folder / f"{kind} {name}" for kind in places}
        for kind, place in copies.items():
            shutil.copytree(places[kind], place, copy_function=os.link)
        act(copies["small"])
        timed(
            f"first {name}" if name in reads else name, lambda act=act, p=copies["large"]: act(p), reads=True
        )
        if name in reads:
            timed(f"second {name}", lambda act=act, p=copies["large"]: act(p), 5)
        else:
            for kind, place in copies.items():
                opened = qbeast.open_table(place)
                read = opened.changes(since=opened.version - 1).collect
                _ = read() if kind == "small" else timed(f"changes of {name}", read, reads=True)
    return timed.results


def main(arguments: list[str]) -> None:
    from benchmarks.report import table  # noqa: PLC0415 - as above
    from benchmarks.run_all import record  # noqa: PLC0415 - as above

    figures = run(*arguments[:1], *map(int, arguments[1:2]))
    record("compare", figures)
    print(table(figures))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--life"]:
        warnings.simplefilter("ignore")
        life = {"start": _start, "life": _life, "day": _day}[sys.argv[2]]
        print(json.dumps(life(Path(sys.argv[3]), Path(sys.argv[4]))))
    else:
        main(sys.argv[1:])
