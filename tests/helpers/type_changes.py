"""Changes of types that Delta allows, with rows of both types, and how Spark commits one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

ROWS = 160


@dataclass(frozen=True, eq=False)
class Change:
    """A change of a type, with the names that Delta has for both."""

    old: str
    new: str
    narrow: pl.DataType
    wide: pl.DataType
    values: list[Any]

    def __str__(self) -> str:
        return f"{self.old}-{self.new}"

    @property
    def rows(self) -> pl.DataFrame:
        column = pl.Series("v", [self.values[i % len(self.values)] for i in range(ROWS)], dtype=self.narrow)
        return pl.DataFrame([pl.Series("id", range(ROWS)), column])

    @property
    def cast(self) -> pl.DataFrame:
        return self.rows.cast({"v": self.wide})

    @property
    def more(self) -> pl.DataFrame:
        return self.cast.with_columns(pl.col("id") + ROWS)


_SMALL = [None, *range(-60, 60, 7)]
_FLOATS = [None, *(float(np.float32(x / 10)) for x in range(-60, 60, 7))]
_TENTHS = [None, *(Decimal(x) / 100 for x in range(-700, 700, 31))]
CHANGES = [
    Change("byte", "long", pl.Int8(), pl.Int64(), _SMALL),
    Change("integer", "long", pl.Int32(), pl.Int64(), _SMALL),
    Change("short", "double", pl.Int16(), pl.Float64(), _SMALL),
    Change("float", "double", pl.Float32(), pl.Float64(), _FLOATS),
    Change("byte", "decimal(10,0)", pl.Int8(), pl.Decimal(10, 0), _SMALL),
    Change("integer", "decimal(12,2)", pl.Int32(), pl.Decimal(12, 2), _SMALL),
    Change("long", "decimal(20,0)", pl.Int64(), pl.Decimal(20, 0), [*_SMALL, 2**62]),
    Change("decimal(9,2)", "decimal(12,2)", pl.Decimal(9, 2), pl.Decimal(12, 2), _TENTHS),
    Change("decimal(9,2)", "decimal(20,5)", pl.Decimal(9, 2), pl.Decimal(20, 5), _TENTHS),
    Change(
        "date",
        "timestamp_ntz",
        pl.Date(),
        pl.Datetime("us"),
        [None, *(date(2020, 1, d) for d in range(1, 29))],
    ),
]


def widen_by_others(path: Path, dtype: Any, changes: list[dict[str, str]], *, preview: str = "") -> None:
    """Commit what ALTER TABLE of Spark commits: the metadata, and the protocol with the feature."""
    log = path / "_delta_log"
    commits = sorted(log.glob("*.json"))
    metadata = [
        action["metaData"]
        for c in commits
        for action in map(json.loads, c.read_text().splitlines())
        if "metaData" in action
    ][-1]
    schema = json.loads(metadata["schemaString"])
    field = next(item for item in schema["fields"] if item["name"] == "v")
    field |= {"type": dtype, "metadata": {"delta.typeChanges": changes}}
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"]["delta.enableTypeWidening"] = "true"
    features = [f"typeWidening{preview}", "timestampNtz"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "appendOnly", "invariants"],
    }
    lines = [{"commitInfo": {"operation": "CHANGE COLUMN"}}, {"protocol": protocol}, {"metaData": metadata}]
    (log / f"{len(commits):020d}.json").write_text("\n".join(map(json.dumps, lines)))
