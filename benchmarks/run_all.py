"""Run benchmarks, each in its own process, and write their figures to benchmarks/RESULTS.md.

    make bench        or: python -m benchmarks.run_all [sample estimates write filters layouts ...]

`benchmarks/results.json` keeps the last figures of each benchmark with their date and machine. RESULTS.md is made from
it, so a run of one benchmark replaces one table. Plots go to benchmarks/out/.
"""

from __future__ import annotations

import compileall
import datetime as dt
import importlib
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import measure, plots
from benchmarks.report import Figure, results_page, table

HERE = Path(__file__).parent
OUT = HERE / "out"
RECORDS = HERE / "results.json"
PAGE = HERE / "RESULTS.md"
NAMES = (
    "sample",
    "sample_column",
    "filters",
    "layouts",
    "partitions",
    "sampling_key",
    "estimates",
    "heavy_keys",
    "distinct",
    "suggest",
    "scan",
    "write",
    "cores",
    "append",
    "optimize",
    "growth",
    "dml",
    "plan",
    "ranges",
    "log",
    "stores",
    "memory",
    "large",
    "training",
    "carbondata",
    "day",
    "users",
    "spark_write",
    "spark_read",
    "spark_change",
    "compare",
)
BY_HAND = {
    "compare",
    "spark_write",
    "spark_read",
    "spark_change",
    "heavy_keys",
    "users",
    "large",
}  # hours, another PySpark or engine, or an older commit


def main(names: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    compileall.compile_dir(
        HERE.parent / "qbeast_core", quiet=1
    )  # as pip does: new processes are measured too
    figures: list[Figure] = []
    for name in names or [name for name in NAMES if name not in BY_HAND]:
        print(f"... {name}", file=sys.stderr, flush=True)
        child = measure.in_child(_run, name)
        print(f"    {child.seconds:.0f} s", file=sys.stderr, flush=True)
        record(name, child.result)
        figures += child.result
    print(table(figures))
    plots.save(figures, OUT)
    missed = [figure.what for figure in figures if figure.verdict == "missed"]
    targets = sum(figure.most is not None for figure in figures)
    print(f"{len(missed)} of {targets} targets missed", *missed, sep="\n  ")


def record(name: str, figures: list[Figure]) -> None:
    """Replace the figures of a benchmark, and rewrite the page."""
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    records[name] = {
        "question": _question(name),
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "load": round(os.getloadavg()[2], 1),
        "figures": [asdict(figure) for figure in figures],
    }
    RECORDS.write_text(json.dumps({key: records[key] for key in NAMES if key in records}, indent=1) + "\n")
    PAGE.write_text(results_page(records, NAMES))


def _question(name: str) -> str:
    """Return the first line of the benchmark's docstring, without importing it."""
    return (HERE / f"bench_{name}.py").read_text().splitlines()[0].strip('"')


def _run(name: str) -> list[Figure]:
    return importlib.import_module(f"benchmarks.bench_{name}").run()


if __name__ == "__main__":
    main(sys.argv[1:])
