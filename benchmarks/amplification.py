"""How many bytes does a sample read, over its share of the table, at any fraction?

`amplification.json` keeps the curves; `benchmarks.bench_sample` measures those of the current library.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pyarrow.parquet as pq

import qbeast
from benchmarks import drawn, rivals
from qbeast_core.space.values import fraction_to_weight
from qbeast_core.spec.blocks import WEIGHT_COLUMN

mpl.use("Agg")

import matplotlib.pyplot as plt

CURVES = Path(__file__).parent / "amplification.json"
FRACTIONS = np.geomspace(0.005, 0.9, 60).tolist()
BEFORE, NOW = "pages of 2,048 rows", "bands"
COLOURS = {BEFORE: "#e07a3f", NOW: "#1f6f8b"}


def by_pages(folder: Path) -> list[float]:
    """Return the bytes that a sample of each fraction reads, over its share of the bytes of the table."""
    opened = qbeast.open_table(folder)
    plans = [(fraction, opened.rows(sample=fraction).explain()) for fraction in FRACTIONS]
    return [plan.bytes_opened / (fraction * plan.bytes_total) for fraction, plan in plans]


def share_by_row_groups(folder: Path, fraction: float) -> float:
    """Return the share of the bytes in the row groups with weights of the sample."""
    files = map(pq.read_metadata, rivals.data_files(folder))
    groups = [file.row_group(number) for file in files for number in range(file.num_row_groups)]
    chunks = [[group.column(number) for number in range(group.num_columns)] for group in groups]
    sizes = np.array([sum(chunk.total_compressed_size for chunk in group) for group in chunks])
    lowest = [
        chunk.statistics.min for group in chunks for chunk in group if chunk.path_in_schema == WEIGHT_COLUMN
    ]
    return float(sizes[np.array(lowest) <= (fraction_to_weight(fraction) - 1) >> 16].sum() / sizes.sum())


def main() -> None:
    """Draw the picture again, from the curves that `bench_sample` kept."""
    _draw(json.loads(CURVES.read_text()))


def record(columns: str, curve: list[float]) -> None:
    """Keep the curve of the current library for tables of some columns, and draw the picture."""
    curves = json.loads(CURVES.read_text())
    curves[NOW][columns] = [round(value, 4) for value in curve]
    CURVES.write_text(json.dumps(curves) + "\n")
    _draw(curves)


@mpl.rc_context({"font.size": 13})
def _draw(curves: dict[str, dict[str, list[float]]]) -> None:
    figure, axes = plt.subplots(figsize=(7.2, 5.0), layout="constrained")
    for layout, tables in curves.items():
        for columns, curve in tables.items():
            style = "-" if columns == "16 columns" else ":"
            label = f"{layout}, {columns}"
            axes.plot(100 * np.array(FRACTIONS), curve, style, color=COLOURS[layout], label=label)
    axes.axhline(1.25, color="#333333", lw=0.8, ls="--")
    axes.set(xscale="log", ylim=(1, 2), xlabel="sample, % of the rows", ylabel="bytes read over their share")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    drawn.save(figure, "amplification.png")
    plt.close(figure)


if __name__ == "__main__":
    main()
