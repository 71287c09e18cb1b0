"""The values of a hashed column are looked for in every byte of the log, after every operation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast

MARK = "@example.org"


def people(first: int, count: int = 40) -> pl.DataFrame:
    return pl.DataFrame({"id": range(first, first + count)}).with_columns(
        email=pl.format("person{}@example.org", pl.col("id").cast(pl.String).str.zfill(4)),
        visits=(pl.col("id") * 7919 % 3001).cast(pl.Int32),
    )


def log_texts(table: Path, *, statistics: bool) -> Iterator[str]:
    """Give all that the files of a log hold; without statistics, an address that they hold is counted elsewhere."""
    for file in (table / "_delta_log").rglob("*"):
        if file.suffix in {".json", ".crc"} or file.name == "_last_checkpoint":
            actions = [json.loads(line) for line in file.read_text().splitlines()]
        elif file.suffix == ".parquet":
            yield str(pq.read_metadata(file).metadata)
            actions = pl.read_parquet(file, glob=False).to_dicts()
        else:
            assert file.is_dir(), file
            continue
        for action in actions:
            for body in (action.get(kind) or {} for kind in ("add", "remove")):
                for name in ("stats", "stats_parsed"):
                    report = body.pop(name, None) if not statistics else None
                    yield from _allowed(report)
            yield str(action)


def _allowed(told: Any) -> Iterator[str]:
    """Give what statistics hold besides the smallest and the largest address of a file."""
    parsed = json.loads(told) if isinstance(told, str) else dict(told or {})
    for side in ("minValues", "maxValues"):
        (parsed.get(side) or {}).pop("email", None)
    yield str(parsed)


def begin_empty(table: Path, *, statistics: bool) -> None:
    """A table of columns whose address is hashed, with a checkpoint after every commit."""
    qbeast.write_table(people(0).clear(), table, columns=["email:hash", "visits"])
    properties = {"delta.checkpointInterval": "1"}
    if not statistics:
        properties["delta.dataSkippingStatsColumns"] = "id,visits"
    qbeast.open_table(table).set_properties(properties)


def append(table: Path) -> None:
    qbeast.write_table(people(0), table, mode="append", schema_mode="merge")


def overwrite(table: Path) -> None:
    qbeast.write_table(people(100), table, mode="overwrite", cube_size=10)


def overwrite_by_other_columns(table: Path) -> None:
    qbeast.write_table(people(200), table, columns=["visits", "email"], mode="overwrite", cube_size=10)


def append_other_columns(table: Path) -> None:
    rows = people(300).with_columns(new=pl.lit(1, pl.Int32))
    qbeast.write_table(rows, table, mode="append", schema_mode="merge")


def optimize_rows_of_others(table: Path) -> None:
    write_deltalake(table, people(400), mode="append", schema_mode="merge")
    qbeast.open_table(table).optimize()


def merge(table: Path) -> None:
    qbeast.open_table(table).merge(people(430), "id", schema_mode="merge")


def redraw(table: Path) -> None:
    opened = qbeast.open_table(table)
    opened.optimize(full=True)
    opened.optimize(into="newest")
    opened.optimize(into="new")


def change_columns(table: Path) -> None:
    opened = qbeast.open_table(table)
    opened.add_columns({"more": pl.Int8})
    opened.widen_columns({"more": pl.Int64})


def switch_dialect(table: Path) -> None:
    qbeast.open_table(table).switch_dialect("qbeast-spark", jvm="0.8")


def vacuum(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    qbeast.open_table(table).vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)


# Everything that changes a table. With each change, a table goes through a part of it; in sweeps through all.
PARTS: list[list[Callable[[Path], object]]] = [
    [append, overwrite, overwrite_by_other_columns, append_other_columns],
    [
        append,
        lambda table: qbeast.open_table(table).update("id % 5 = 1", {"visits": "visits + 9000"}),
        lambda table: qbeast.open_table(table).delete("id % 5 = 2"),
    ],
    [append, merge, lambda table: qbeast.open_table(table).restore(2)],
    [optimize_rows_of_others, redraw],
    [
        append,
        change_columns,
        lambda table: qbeast.open_table(table).rows().estimate({"n": "count(*)"}, by=["email"], error=0.5),
        switch_dialect,
        vacuum,
    ],
]
ALL = [[step for part in PARTS for step in part]]


def begin_converted(table: Path, *, statistics: bool) -> None:
    """The same of a table that another writer made."""
    listed = {} if statistics else {"delta.dataSkippingStatsColumns": "id,visits"}
    write_deltalake(table, people(0), configuration={"delta.checkpointInterval": "1"} | listed)
    qbeast.convert_table(table, columns=["email:hash", "visits"])
    qbeast.open_table(table).optimize()


@pytest.mark.parametrize(
    ("begin", "statistics", "steps"),
    [
        *((begin_empty, number % 2 == 0, part) for number, part in enumerate(PARTS)),
        *(
            pytest.param(begin, statistics, steps, marks=pytest.mark.sweep)
            for begin in (begin_empty, begin_converted)
            for statistics in (True, False)
            for steps in ALL
        ),
    ],
)
def test_log_holds_no_values_of_hashed_columns(
    begin: Any, steps: list[Callable[[Path], object]], *, statistics: bool, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    begin(table, statistics=statistics)
    for number, step in enumerate(steps):
        step(table)
        actual = [text for text in log_texts(table, statistics=not statistics) if MARK in text]
        assert not actual, f"step {number}: {actual[0][:2000]}"
    assert MARK in str(qbeast.read_table(table)["email"].to_list())
