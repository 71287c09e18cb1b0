"""The pictures of docs/sampling.md, made from a year of flights.

python -m benchmarks.pictures
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import polars as pl

import qbeast
from benchmarks import data
from qbeast_core.tree.key_sketch import design_effect
from qbeast_core.tree.space.index_values import frame_weights

mpl.use("Agg")

import matplotlib.pyplot as plt

IMAGES = Path(__file__).parent.parent / "docs" / "images"
INK, BLUE, ORANGE = "#333333", "#1f6f8b", "#e07a3f"
INDEXES = {
    "carrier": ["carrier"],
    "origin, dest": ["origin", "dest"],
    "dest, hour": ["dest", "hour"],
    "tailnum": ["tailnum"],
    "tailnum, month": ["tailnum", "month"],
    "tailnum, time_hour": ["tailnum", "time_hour"],
}
WINDOWS = 400
FRACTION = 0.05
DELAY = {"delay": pl.col("dep_delay").mean()}


def main() -> None:
    flights = data.flights().filter(pl.col("dep_delay").is_not_null())
    save_estimate(flights)
    save_coverage(flights)


def save_estimate(flights: pl.DataFrame) -> None:
    """Draw an estimate that improves with the sample, and estimates of months with error bars."""
    drawn, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
        table = table_of(flights, Path(folder))
        steps = [table.estimate(DELAY, sample=f) for f in np.geomspace(0.002, 0.5, 14)]
        by_month = months_of(table)
    read = [100 * step.fraction for step in steps]
    value, low, high = (
        np.array([step.frame[n].item() for step in steps]) for n in ("delay", "delay_low", "delay_high")
    )
    left.fill_between(read, low, high, color=BLUE, alpha=0.25, lw=0, label="95 % interval")
    left.plot(read, value, color=BLUE, marker="o", ms=4, label="estimate")
    left.axhline(flights["dep_delay"].mean(), color=ORANGE, lw=1.2, label="all rows")
    left.set(xscale="log", xlabel="sample, % of the flights", ylabel="mean departure delay, minutes")
    left.xaxis.set_major_formatter("{x:g}")
    left.set_title("delay of all flights", fontsize=10, color=INK)
    left.legend(frameon=False, fontsize=9)
    left.spines[["top", "right"]].set_visible(False)
    by_month.plot("delay", axes=right)
    right.set_ylabel("")  # the same as at the left
    drawn.savefig(IMAGES / "estimate.png", dpi=140)
    plt.close(drawn)


def table_of(flights: pl.DataFrame, folder: Path) -> qbeast.Table:
    flights = flights.with_columns(pl.col("time_hour").str.to_datetime(time_zone="UTC"))
    qbeast.write_table(flights, folder / "t", columns=["dep_time", "distance", "tailnum"])
    return qbeast.open_table(folder / "t")


def months_of(table: qbeast.Table) -> qbeast.Estimate:
    """Return the mean delay of six months; all six are reliable."""
    month = {"month": "date_trunc('month', time_hour)"}
    return table.estimate(DELAY, by=month, where="time_hour < '2013-07-01'", sample=0.08)


def save_coverage(flights: pl.DataFrame) -> None:
    """Draw how often 95 % intervals contain the truth: by a formula for independent rows, and by sums of keys."""
    results = {name: coverage(flights, columns) for name, columns in INDEXES.items()}
    drawn, axes = plt.subplots(figsize=(8.4, 4.2), layout="constrained")
    effects = [result[0] for result in results.values()]
    axes.axhline(95, color=INK, lw=0.8, ls="--")
    axes.plot(
        effects,
        [result[1] for result in results.values()],
        "o",
        color=ORANGE,
        label="formula for independent rows",
    )
    axes.plot(effects, [result[2] for result in results.values()], "o", color=BLUE, label="sums by key")
    few = [result for result in results.values() if result[3] < 100]
    axes.plot(
        [result[0] for result in few],
        [result[2] for result in few],
        *("o",),
        color="white",
        mec=BLUE,
        label="the same, of fewer than 100 keys: `estimate` calls it not reliable",
    )
    for name, (effect, _, ours, _) in results.items():
        axes.annotate(
            name,
            (effect, ours),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=INK,
        )
    axes.set(xscale="log", xlim=(0.4, 1e5), ylim=(0, 108), xlabel="design effect of the index columns")
    axes.set_ylabel("intervals that hold the truth, %\n(aggregates for: 95)")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, loc="lower left", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    drawn.savefig(IMAGES / "design-effect.png", dpi=110)
    plt.close(drawn)
    for name, (effect, of_rows, of_keys, keys) in results.items():
        print(
            f"{name}: design effect {effect:,.1f}, rows {of_rows:.1f} %, keys {of_keys:.1f} %, {keys:,.0f} keys sampled"
        )


def coverage(flights: pl.DataFrame, columns: list[str]) -> tuple[float, float, float, float]:
    """Return the design effect, the shares of intervals that contain the mean delay, and the number of sampled keys."""
    keys = flights.select(pl.col(columns), "dep_delay").with_columns(
        w=pl.Series(frame_weights(flights, columns))
    )
    truth = flights["dep_delay"].mean()
    per_key = keys.group_by("w").agg(
        n=pl.len(), y=pl.col("dep_delay").sum(), q=(pl.col("dep_delay").cast(pl.Float64) ** 2).sum()
    )
    per_key = per_key.sort("w")
    n, y, q = (per_key[name].to_numpy().astype(float) for name in ("n", "y", "q"))
    by_rows = by_keys = trials = 0
    for seed in range(WINDOWS):
        inside = np.random.default_rng(seed).random(len(n)) < FRACTION
        rows = n[inside].sum()
        if rows < 2:
            trials += 1
            continue
        mean = y[inside].sum() / rows
        row_error = ((q[inside].sum() / rows - mean**2) / rows * (1 - FRACTION)) ** 0.5
        key_error = ((1 - FRACTION) * ((y[inside] - mean * n[inside]) ** 2).sum()) ** 0.5 / rows
        by_rows += abs(mean - truth) <= 1.96 * row_error
        by_keys += abs(mean - truth) <= 1.96 * key_error
        trials += 1
    return (
        design_effect(keys["w"].to_numpy()),
        100 * by_rows / trials,
        100 * by_keys / trials,
        FRACTION * len(n),
    )


if __name__ == "__main__":
    main()
