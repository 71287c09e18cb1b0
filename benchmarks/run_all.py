"""Do we keep our promises? Every benchmark, one after the other, in one table of targets beside
figures.

    make bench        or: python -m benchmarks.run_all [sample estimates write filters layouts ...]

Each benchmark runs in a process of its own. The table goes to the screen and, with plots, to
benchmarks/out/.
"""

from __future__ import annotations

import importlib
import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import measure, plots
from benchmarks.report import Figure, table

OUT = Path(__file__).parent / "out"
NAMES = (
    "sample",
    "filters",
    "suggest",
    "layouts",
    "scan",
    "write",
    "cores",
    "append",
    "plan",
    "ranges",
    "optimize",
    "dml",
    "stores",
    "log",
    "memory",
    "carbondata",
)


def main(names: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    figures: list[Figure] = []
    for name in names or NAMES:
        print(f"... {name}", file=sys.stderr, flush=True)
        child = measure.in_child(_run, name)
        print(f"    {child.seconds:.0f} s", file=sys.stderr, flush=True)
        figures += child.result
    text = f"{platform.platform()}, Python {platform.python_version()}\n\n{table(figures)}\n"
    print(text)
    (OUT / "figures.md").write_text(text)
    (OUT / "figures.json").write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    plots.save(figures, OUT)
    missed = [figure.what for figure in figures if figure.verdict == "MISSED"]
    print(
        f"{len(missed)} of {sum(figure.most is not None for figure in figures)} targets missed",
        *missed,
        sep="\n  ",
    )


def _run(name: str) -> list[Figure]:
    return importlib.import_module(f"benchmarks.bench_{name}").run()


if __name__ == "__main__":
    main(sys.argv[1:])
