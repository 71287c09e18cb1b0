"""Is a table as good after many appends as written at once?

    python -m benchmarks.bench_growth ["deletes" ...]

lineitem at scale 1, eight or nine columns, indexed by the three W1 columns, with an optimize after every ten appends:

- growth from 1.0 to 2.7 million rows by appends of 1 %, and from 0.1 to 6 million by 2 %, in random order and in order
  of the ship dates;
- late data: by 1 % in order of the dates, but 5 % of each append are older, by up to a million rows;
- upserts: 60 nights in order of the dates, each merges the newest 1 % by key and appends 1 %;
- deletes: 60 nights, each deletes the oldest of 300 days and appends a new day.

After every second optimize the table is compared with one of the same rows written at once: bytes that filters open
(mean of the classes of W1, 21 boxes in each), A(f) at the worst of 20 fractions, and files. The figures are of the
worst comparison. Write amplification is of the whole life: bytes that appends and optimizes wrote over those of
the appends, without the first write; with upserts or deletes, bytes that all operations and optimizes wrote over those
that the same operations write in a copy without optimizes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from statistics import mean

import matplotlib as mpl
import numpy as np
import polars as pl

import qbeast
from benchmarks import data, measure
from benchmarks.boxes import Box, draw_boxes
from benchmarks.report import Figure, table

mpl.use("Agg")

import matplotlib.pyplot as plt

PICTURE = Path(__file__).parent / "out" / "growth.png"
FRACTIONS = np.geomspace(0.005, 0.9, 20).tolist()
OPTIMIZE_EVERY, COMPARE_EVERY = 10, 20
MOST_OPTIMIZES = 20
BOXES = 21
NIGHTS, FIRST_DAY, DAYS = 60, 400, 300
LATE_SHARE, LATE_ROWS = 0.05, 1_000_000
COLUMNS = list(data.W1_COLUMNS)
DATE = pl.col("l_shipdate")
KEYS = ("l_orderkey", "l_linenumber")


@dataclass(frozen=True, slots=True)
class Step:
    """An append, with the changes of the night."""

    after: pl.DataFrame
    """All rows of the table afterwards."""
    added: pl.DataFrame
    merged: pl.DataFrame | None = None
    deleted: pl.Expr | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A grown table, over one written at once."""

    appends: int
    filters: float
    sample: float
    """The worst A(f)."""
    sample_at_once: float
    files: float
    written: float
    """Write amplification until then."""
    note: str


@dataclass(frozen=True, slots=True)
class Life:
    """The curves of a table, and figures of its end."""

    points: list[Point]
    range_share: float
    """Share of the bytes that a twelfth of the dates opens, in the mean of the twelve."""
    range_at_once: float
    more: list[int]
    """Rows that further optimizes in a row rewrote, until one rewrote none."""


@dataclass(frozen=True, slots=True)
class Case:
    steps: Callable[[], Iterator[Step]]
    changes: bool = False
    range_before: float | None = None
    """The share of a twelfth of the dates before optimize built parts of the tree again, in %."""


def run() -> list[Figure]:
    lives = {name: measure.in_child(live, name).result for name in CASES}
    draw(lives, PICTURE)
    return figures(lives)


def figures(lives: dict[str, Life]) -> list[Figure]:
    return [figure for name, life in lives.items() for figure in _figures(name, life)]


def _figures(name: str, life: Life) -> list[Figure]:
    last = life.points[-1]
    filters, sample, files, written = (
        max(life.points, key=attrgetter(what)) for what in ("filters", "sample", "files", "written")
    )
    rewritten = ", ".join(f"{rows:,} rows" for rows in life.more)
    before = CASES[name].range_before
    of_range = Figure(
        f"{name}: a twelfth of the dates",
        100 * life.range_share,
        "%",
        before,
        f"at once {100 * life.range_at_once:.1f} %",
    )
    return [
        Figure(
            f"{name}: filters",
            filters.filters,
            "x",
            1.2,
            f"after {filters.appends}; {last.filters:.2f} at the end",
        ),
        Figure(
            f"{name}: A(f)",
            sample.sample,
            "x",
            1.5,
            f"after {sample.appends}, at once {sample.sample_at_once:.2f}; {last.sample:.2f} at the end",
        ),
        Figure(
            f"{name}: files",
            files.files,
            "x",
            1.5,
            f"after {files.appends}: {files.note}; at the end {last.note}",
        ),
        Figure(
            f"{name}: write amplification",
            last.written,
            "x",
            3.5,
            f"at most {written.written:.2f}, after {written.appends}",
        ),
        *([] if before is None else [of_range]),
        Figure(f"{name}: further optimizes with something to do", len(life.more), "", None, rewritten),
    ]


def live(name: str) -> Life:
    case, points = CASES[name], list[Point]()
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        folder, copy, at_once = (Path(scratch) / part for part in ("grown", "copy", "at-once"))
        steps = list(case.steps())
        qbeast.write_table(steps[0].added, folder, columns=COLUMNS)
        if case.changes:
            shutil.copytree(folder, copy)
        written = alone = 0
        for number, step in enumerate(steps[1:], 1):
            of_step = apply(step, folder)
            written += of_step
            alone += apply(step, copy) if case.changes else of_step
            last = number == len(steps) - 1
            if number % OPTIMIZE_EVERY == 0 or last:
                result = qbeast.open_table(folder).optimize()
                written += result.bytes
                _report(name, number, result, written / alone)
            if number % COMPARE_EVERY == 0 or last:
                points.append(compare(step.after, folder, at_once, number, written / alone))
                print(points[-1], file=sys.stderr, flush=True)
        rows, grown, fresh = steps[-1].after, qbeast.open_table(folder), qbeast.open_table(at_once)
        _check(grown, rows)
        return Life(points, range_share(grown, rows), range_share(fresh, rows), list(optimize_again(grown)))


def apply(step: Step, folder: Path) -> int:
    """Change the table, and return the bytes of the new files."""
    written = 0
    if step.merged is not None:
        written += qbeast.open_table(folder).merge(step.merged, KEYS).bytes
    if step.deleted is not None:
        written += qbeast.open_table(folder).delete(step.deleted).bytes
    return written + qbeast.write_table(step.added, folder, mode="append").bytes


def compare(rows: pl.DataFrame, folder: Path, at_once: Path, number: int, written: float) -> Point:
    shutil.rmtree(at_once, ignore_errors=True)
    qbeast.write_table(rows, at_once, columns=COLUMNS)
    grown, fresh = qbeast.open_table(folder), qbeast.open_table(at_once)
    boxes = draw_boxes(rows, COLUMNS, number=BOXES)
    filters = mean(opened(grown, members) / opened(fresh, members) for members in boxes.values())
    files = grown.rows().files().height, fresh.rows().files().height
    note = f"{files[0]} files, {files[1]} at once"
    return Point(
        number, filters, worst_sample(grown), worst_sample(fresh), files[0] / files[1], written, note
    )


def opened(of: qbeast.Table, boxes: Sequence[Box]) -> int:
    return sum(of.rows(box.predicate()).explain().bytes_opened for box in boxes)


def worst_sample(of: qbeast.Table) -> float:
    plans = [(fraction, of.rows(sample=fraction).explain()) for fraction in FRACTIONS]
    return max(plan.bytes_opened / (fraction * plan.bytes_total) for fraction, plan in plans)


def range_share(of: qbeast.Table, rows: pl.DataFrame) -> float:
    first, last = rows.select(first=DATE.min(), last=DATE.max()).row(0)
    span = (last - first) / 12
    starts = [first + span * part for part in range(12)]
    return mean(of.rows((start <= DATE) & (start + span > DATE)).explain().share for start in starts)


def optimize_again(of: qbeast.Table) -> Iterator[int]:
    for _ in range(MOST_OPTIMIZES):
        result = of.optimize()
        if not result.committed:
            return
        yield result.rows
    message = f"{MOST_OPTIMIZES} optimizes in a row rewrote files"
    raise AssertionError(message)


def growth(order: Callable[[], pl.DataFrame], start: int, rate: float, end: int) -> Iterator[Step]:
    rows = order()
    stops = [start]
    while stops[-1] < end:
        stops.append(min(stops[-1] + int(stops[-1] * rate), end))
    yield Step(rows[:start], rows[:start])
    yield from (Step(rows[:stop], rows[low:stop]) for low, stop in pairwise(stops))


def upserts() -> Iterator[Step]:
    rows = by_date("l_linenumber")
    after = rows[:1_500_000]
    yield Step(after, after)
    for _ in range(NIGHTS):
        size = after.height // 100
        newest = after.tail(size).with_columns((pl.col("l_quantity") + 1).cast(after.schema["l_quantity"]))
        added = rows[after.height : after.height + size]
        after = pl.concat([after.head(-size), newest, added])
        yield Step(after, added, merged=newest)


def deletes() -> Iterator[Step]:
    rows = by_date()
    days = rows["l_shipdate"].unique().sort()[FIRST_DAY : FIRST_DAY + DAYS + NIGHTS + 1]
    starts = rows["l_shipdate"].search_sorted(days)
    yield Step(rows[starts[0] : starts[DAYS]], rows[starts[0] : starts[DAYS]])
    for night in range(NIGHTS):
        newest, end = starts[DAYS + night], starts[DAYS + night + 1]
        yield Step(rows[starts[night + 1] : end], rows[newest:end], deleted=days[night] == DATE)


def shuffled() -> pl.DataFrame:
    return _lineitem().sample(fraction=1.0, shuffle=True, seed=3)


def by_date(*more: str) -> pl.DataFrame:
    return _lineitem(*more).sort("l_shipdate", maintain_order=True)


def late() -> pl.DataFrame:
    """Return rows by date, but some arrive up to a million rows later."""
    rows, random = by_date(), np.random.default_rng(5)
    delays = random.uniform(0, LATE_ROWS, rows.height) * (random.random(rows.height) < LATE_SHARE)
    return rows[np.argsort(np.arange(rows.height) + delays)]


def _lineitem(*more: str) -> pl.DataFrame:
    return pl.read_parquet(data.lineitem_path(), columns=[*data.WRITE_COLUMNS, *more])


CASES = {
    "1 % appends in random order": Case(partial(growth, shuffled, 1_000_000, 0.01, 2_704_734)),
    "1 % appends by date": Case(partial(growth, by_date, 1_000_000, 0.01, 2_704_734), range_before=18.9),
    "2 % appends in random order": Case(partial(growth, shuffled, 100_000, 0.02, 6_001_215)),
    "2 % appends by date": Case(partial(growth, by_date, 100_000, 0.02, 6_001_215), range_before=21.7),
    "late data": Case(partial(growth, late, 1_000_000, 0.01, 2_704_734)),
    "upserts": Case(upserts, changes=True),
    "deletes": Case(deletes, changes=True),
}


def draw(lives: dict[str, Life], picture: Path) -> None:
    """Draw four curves of each table over the number of appends."""
    targets = {"filters": 1.2, "sample": 1.5, "written": 3.5, "files": 1.5}
    titles = (
        "bytes of filters, over written at once",
        "worst A(f)",
        "write amplification",
        "files, over at once",
    )
    drawn, axes = plt.subplots(2, 2, figsize=(11, 7.4), layout="constrained")
    for panel, title, (what, most) in zip(axes.flat, titles, targets.items(), strict=True):
        for name, life in lives.items():
            appends = [point.appends for point in life.points]
            panel.plot(appends, [getattr(point, what) for point in life.points], "o-", ms=3, label=name)
        panel.axhline(most, color="#333333", lw=0.8, ls="--")
        panel.set(title=title, xlabel="appends", ylim=(0, None))
        panel.spines[["top", "right"]].set_visible(False)
    drawn.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    picture.parent.mkdir(exist_ok=True)
    drawn.savefig(picture, dpi=110)
    plt.close(drawn)


def _report(name: str, number: int, result: qbeast.OptimizeResult, written: float) -> None:
    reasons = result.plan.group_by("reason").agg(pl.len(), pl.col("rows").sum()).sort("reason").rows()
    print(f"{name} {number}: {result.rows:,} rows, {written:.2f}, {reasons}", file=sys.stderr, flush=True)


def _check(grown: qbeast.Table, rows: pl.DataFrame) -> None:
    columns = ["l_orderkey", "l_partkey", "l_extendedprice", "l_quantity"]
    actual = grown.rows().lazy().select(columns).collect().sort(columns)
    assert actual.equals(rows.select(columns).sort(columns)), "the table holds the same rows"


if __name__ == "__main__":
    chosen = {name: live(name) for name in sys.argv[1:] or CASES}
    print(table(figures(chosen)))
