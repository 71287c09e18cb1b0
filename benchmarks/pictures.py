"""The pictures of estimates, made from a year of flights, and of a table that grows.

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
from benchmarks import data, drawn
from qbeast_core.tree.grid import frame_weights
from qbeast_core.tree.keys import design_effect

mpl.use("Agg")

import matplotlib.pyplot as plt

INK, BLUE, ORANGE = "#333333", "#1f6f8b", "#e07a3f"
INDEXES = {
    "carrier": ["carrier"],
    "origin, dest": ["origin", "dest"],
    "dest, hour": ["dest", "hour"],
    "tailnum": ["tailnum"],
    "tailnum, month": ["tailnum", "month"],
    "tailnum, time_hour": ["tailnum", "time_hour"],
}
QUESTIONS = {"day": "One day", "users": "One user in a hundred", "sample": "A sample of 1 %"}
NIGHTS, NIGHT_ROWS = 60, 20_000
WINDOWS = 400
FRACTION = 0.05
DELAY = {"delay": pl.col("dep_delay").mean()}


def main() -> None:
    flights = data.flights().filter(pl.col("dep_delay").is_not_null())
    with mpl.rc_context({"font.size": 13}):
        save_estimate(flights)
        save_coverage(flights)
    save_growth()


def save_estimate(flights: pl.DataFrame) -> None:
    """Draw an estimate that improves with the sample, and estimates of months with error bars."""
    figure, (left, right) = plt.subplots(2, 1, figsize=(7.2, 7.2), layout="constrained")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
        table = table_of(flights, Path(folder))
        steps = [table.rows(sample=f).estimate(DELAY) for f in np.geomspace(0.002, 0.5, 14)]
        by_month = months_of(table)
    read = [100 * step.fraction for step in steps]
    value, low, high = (
        np.array([step.frame[n].item() for step in steps]) for n in ("delay", "delay_low", "delay_high")
    )
    left.fill_between(read, low, high, color=BLUE, alpha=0.25, lw=0, label="95 % interval")
    left.plot(read, value, color=BLUE, marker="o", ms=4, label="estimate")
    left.axhline(flights["dep_delay"].mean(), color=ORANGE, lw=1.2, label="all rows")
    left.set(xscale="log", xlabel="sample, % of the flights", ylabel="minutes")
    left.xaxis.set_major_formatter("{x:g}")
    left.set_title("mean departure delay of all flights", color=INK)
    left.legend(frameon=False)
    left.spines[["top", "right"]].set_visible(False)
    by_month.plot("delay", axes=right)
    right.set_title("delay by month, 95 % intervals of an 8 % sample", color=INK)
    right.set_ylabel("minutes")
    right.tick_params(labelsize=12)
    drawn.save(figure, "estimate.png")
    plt.close(figure)


def save_growth() -> None:
    """Draw what a day and a sample open of a table that gets a day of rows each night."""
    kinds = {"append and optimize": True, "append only": False}
    lives = {name: nightly(optimizes=optimizes) for name, optimizes in kinds.items()}
    figure, panels = plt.subplots(3, 1, figsize=(7.2, 8.4), sharex=True, layout="constrained")
    for panel, (what, title) in zip(panels, QUESTIONS.items(), strict=True):
        for (name, life), colour in zip(lives.items(), (BLUE, ORANGE), strict=True):
            panel.plot(range(1, NIGHTS + 1), life[what], color=colour, lw=2, label=name)
        panel.set_title(title, fontsize=14)
        panel.set_ylabel("MB opened", fontsize=13)
        panel.set_ylim(0, None)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, fontsize=13)
    panels[-1].set_xlabel("nights", fontsize=13)
    drawn.save(figure, "growth.png")
    plt.close(figure)


def nightly(*, optimizes: bool) -> dict[str, list[float]]:
    """Return the MB that each question opens after each night."""
    random, life = np.random.default_rng(4), {what: list[float]() for what in QUESTIONS}
    with tempfile.TemporaryDirectory() as folder:
        for night in range(NIGHTS):
            seconds = np.sort(random.uniform(0, 86_400, NIGHT_ROWS)) + night * 86_400
            values = {
                "at": seconds,
                "user": random.integers(0, 5_000, NIGHT_ROWS),
                "x": random.random(NIGHT_ROWS),
            }
            qbeast.write_table(pl.DataFrame(values), folder, columns=["at", "user"], mode="append")
            table = qbeast.open_table(folder)
            if optimizes:
                table.optimize()
            day = pl.col("at").is_between((night // 2) * 86_400, (night // 2 + 1) * 86_400)
            users = pl.col("user").is_between(2_000, 2_049)
            plans = {
                "day": table.rows(day).explain(),
                "users": table.rows(users).explain(),
                "sample": table.rows(sample=0.01).explain(),
            }
            for what, plan in plans.items():
                life[what].append(plan.bytes_opened / 1e6)
    return life


def table_of(flights: pl.DataFrame, folder: Path) -> qbeast.Table:
    flights = flights.with_columns(pl.col("time_hour").str.to_datetime(time_zone="UTC"))
    qbeast.write_table(flights, folder / "t", columns=["dep_time", "distance", "tailnum"])
    return qbeast.open_table(folder / "t")


def months_of(table: qbeast.Table) -> qbeast.Estimate:
    """Return the mean delay of six months; all six are reliable."""
    month = {"month": "date_trunc('month', time_hour)"}
    return table.rows("time_hour < '2013-07-01'", sample=0.08).estimate(DELAY, by=month)


def save_coverage(flights: pl.DataFrame) -> None:
    """Draw how often 95 % intervals contain the truth: by a formula for independent rows, and by sums of keys."""
    results = {name: coverage(flights, columns) for name, columns in INDEXES.items()}
    figure, axes = plt.subplots(figsize=(7.2, 5.4), layout="constrained")
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
        label="sums by key, fewer than 100 keys: not reliable",
    )
    for place, (name, (effect, _, ours, _)) in enumerate(sorted(results.items(), key=lambda item: item[1])):
        offset = (0, 14) if place % 2 else (0, -22)  # neighbours would overlap
        axes.annotate(
            name,
            (effect, ours),
            xytext=offset,
            textcoords="offset points",
            ha="center",
            fontsize=11,
            color=INK,
        )
    axes.set(xscale="log", xlim=(0.1, 4e5), ylim=(0, 112), xlabel="design effect of the index columns")
    axes.set_ylabel("intervals that hold the truth, %")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.legend(frameon=False, loc="lower left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    drawn.save(figure, "design-effect.png")
    plt.close(figure)
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
