"""The values of a hashed column are looked for in every byte of the log, after every operation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast

MARK = "@example.org"


def people(first: int, count: int = 60) -> pl.DataFrame:
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


def steps(table: Path) -> Iterator[str]:
    """Do everything that changes a table, one thing at a time."""
    qbeast.write_table(people(0), table, mode="append")
    yield "append"
    qbeast.write_table(people(100), table, mode="overwrite", cube_size=10)
    yield "overwrite"
    qbeast.write_table(people(200), table, columns=["visits", "email"], mode="overwrite", cube_size=10)
    yield "overwrite by other columns"
    qbeast.write_table(
        people(300).with_columns(new=pl.lit(1, pl.Int32)), table, mode="append", schema_mode="merge"
    )
    yield "append with other columns"
    write_deltalake(
        table, people(400).with_columns(new=pl.lit(1, pl.Int32)), mode="append", schema_mode="merge"
    )
    opened = qbeast.open_table(table)
    opened.optimize()
    yield "optimize of rows of another writer"
    opened.update("id % 5 = 1", {"visits": "visits + 9000"})
    yield "update"
    opened.delete("id % 5 = 2")
    yield "delete"
    opened.merge(people(430), "id", schema_mode="merge")
    yield "merge"
    opened.optimize(full=True)
    opened.optimize(into="newest")
    yield "optimize"
    opened.optimize(into="new")
    yield "redraw"
    opened.add_columns({"more": pl.String})
    opened.widen_columns({"new": pl.Int64})
    yield "other columns"
    opened.estimate({"n": "count(*)"}, by=["email"], error=0.5)
    yield "estimate"
    opened.restore(opened.version - 4)
    yield "restore"
    opened.refresh().switch_dialect("qbeast-spark", jvm="0.8")
    yield "dialect"
    DeltaTable(table).create_checkpoint()
    opened.refresh().vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    yield "vacuum"


def begin_converted(table: Path, *, statistics: bool) -> None:
    """The same of a table that another writer made."""
    listed = {} if statistics else {"delta.dataSkippingStatsColumns": "id,visits"}
    write_deltalake(table, people(0), configuration={"delta.checkpointInterval": "1"} | listed)
    qbeast.convert_table(table, columns=["email:hash", "visits"])
    qbeast.open_table(table).optimize()


@pytest.mark.parametrize("begin", [begin_empty, begin_converted])
@pytest.mark.parametrize("statistics", [True, False])
def test_log_holds_no_values_of_hashed_columns(begin: Any, *, statistics: bool, tmp_path: Path) -> None:
    table = tmp_path / "t"
    begin(table, statistics=statistics)
    for step in chain(["begin"], steps(table)):
        actual = [text for text in log_texts(table, statistics=not statistics) if MARK in text]
        assert not actual, f"{step}: {actual[0][:2000]}"
    assert MARK in str(qbeast.read_table(table)["email"].to_list())
