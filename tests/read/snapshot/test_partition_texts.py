"""Texts of partition values that Spark reads and deltalake refuses: after a wider type, and of far years."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import qbeast
from tests.helpers.handmade_log import PROTOCOL, add, metadata, write_log

TIME = pl.Datetime("us", "UTC")


def table(path: Path, kind: str, texts: Sequence[str | None]) -> str:
    """Write a table of a file per partition value, with ids from 0 on."""
    fields = [
        {"name": name, "type": of, "nullable": True, "metadata": {}}
        for name, of in (("id", "long"), ("p", kind))
    ]
    path.mkdir()
    adds: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        pl.DataFrame({"id": [number]}).write_parquet(path / f"{number}.parquet")
        size = (path / f"{number}.parquet").stat().st_size
        adds.append(
            add(f"{number}.parquet", size=size, partitionValues={"p": text}, stats='{"numRecords":1}')
        )
    return write_log(
        path, [PROTOCOL, metadata({"type": "struct", "fields": fields}, partitions=["p"]), *adds]
    )


def values(path: str) -> list[Any]:
    return qbeast.read_table(path).sort("id")["p"].to_physical().to_list()


@pytest.mark.parametrize(
    ("kind", "texts", "wanted"),
    [
        (
            "decimal(12,2)",
            ["1", "1.50", None, "-3", "2.5"],
            [Decimal("1.00"), Decimal("1.50"), None, -3, Decimal("2.50")],
        ),
        (
            "timestamp",
            ["10000-01-01 00:00:00", "2024-01-01"],
            [253_402_300_800_000_000, 1_704_067_200_000_000],
        ),
        ("date", ["10000-01-01", "2024-05-01 00:00:00"], [2_932_897, 19_844]),
    ],
)
def test_texts_are_read_as_spark_reads_them(
    tmp_path: Path, kind: str, texts: list[str | None], wanted: list[Any]
) -> None:
    path = table(tmp_path / "t", kind, texts)
    with pytest.raises(DeltaError, match="Failed to parse value"):
        DeltaTable(path)
    found = qbeast.read_table(path).sort("id")["p"]
    assert (found if isinstance(found.dtype, pl.Decimal) else found.to_physical()).to_list() == wanted


def test_inexact_texts_are_refused(tmp_path: Path) -> None:
    for number, text in enumerate(["1.234", "one"]):
        with pytest.raises(qbeast.InvalidMetadataError, match=text):
            qbeast.open_table(table(tmp_path / str(number), "decimal(12,2)", [text]))


@pytest.mark.sweep
def test_changes_and_old_versions_of_such_a_table(tmp_path: Path) -> None:
    path = table(tmp_path / "t", "decimal(12,2)", ["1", "2", "3"])
    qbeast.convert_table(path, columns=["id"])
    qbeast.open_table(path).delete("p = 2")
    rows = pl.DataFrame({"id": [9], "p": ["1"]}).cast({"p": pl.Decimal(12, 2)})
    qbeast.write_table(rows, path, mode="append")
    assert qbeast.read_table(path, where="p = 1")["id"].sort().to_list() == [0, 9]
    assert qbeast.open_table(path, version=1).count() == 3
    assert qbeast.open_table(path).restore(1).committed
    assert qbeast.read_table(path)["id"].sort().to_list() == [0, 1, 2]
    texts = [
        json.loads(line)
        for line in Path(path).joinpath("_delta_log", f"{4:020d}.json").read_text().splitlines()
    ]
    assert {line["add"]["partitionValues"]["p"] for line in texts if "add" in line} <= {
        "1.00",
        "2.00",
        "3.00",
    }


def test_texts_in_a_checkpoint_are_read(tmp_path: Path) -> None:
    path = table(tmp_path / "t", "long", ["1", "2", None])
    DeltaTable(path).create_checkpoint()
    log = Path(path) / "_delta_log"
    first = json.loads((log / f"{0:020d}.json").read_text().splitlines()[1])
    first["metaData"]["schemaString"] = first["metaData"]["schemaString"].replace(
        '"p", "type": "long"', '"p", "type": "decimal(22,2)"'
    )
    write_log(Path(path), [first], first=1)  # the type of the column became wider
    (log / f"{0:020d}.json").unlink()
    other = shutil.copytree(path, tmp_path / "again")
    with pytest.raises(DeltaError, match="Failed to parse value"):
        DeltaTable(other)
    assert qbeast.read_table(other).sort("id")["p"].to_list() == [Decimal("1.00"), Decimal("2.00"), None]
