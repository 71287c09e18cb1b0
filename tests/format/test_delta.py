"""Delta tables of Spark, Trino and delta-rs: they are converted and read, or refused with a copy that is right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.format.collection import swept
from tests.format.delta_tables import NAMES, SPARK_ALONE, TABLES, copied, expected
from tests.helpers.cures import run_cure

CONVERTED = {
    "catalog-managed/catalog-owned-preview",
    "change-data-feed/cdf-table-with-dv",
    "column-mapping-id/column-mapping-id",
    "column-mapping-name/columnMappingPartitions",
    "partitions/data-reader-escaped-chars",
    "type-widening/type-widening",
    "variant/spark-variant-checkpoint",
    "void/void-column",
}
MAPPED = ["column-mapping-id/column-mapping-id", "column-mapping-id/table-with-icebegCompatV2Enabled"]


def indexable(rows: pl.DataFrame) -> str:
    return next(
        name
        for name, dtype in rows.schema.items()
        if not dtype.is_nested() and dtype not in (pl.Boolean(), pl.Binary())
    )


def same(found: pl.DataFrame, wanted: pl.DataFrame) -> None:
    assert_frame_equal(found.select(wanted.columns), wanted, check_row_order=False)


def with_protocol(path: Path, *, reader: int, writer: int, **features: Sequence[str]) -> None:
    """Give a table's log another protocol."""
    protocol = {"minReaderVersion": reader, "minWriterVersion": writer, **features}
    for commit in (path / "_delta_log").glob("*.json"):
        actions: list[dict[str, Any]] = [json.loads(line) for line in commit.read_text().splitlines()]
        texts = [json.dumps({"protocol": protocol} if "protocol" in action else action) for action in actions]
        commit.write_text("\n".join(texts) + "\n")
    for check in (path / "_delta_log").glob("*.crc"):
        check.unlink()


@pytest.mark.parametrize("name", swept(NAMES, but=CONVERTED))
def test_delta_table_or_its_copy_is_converted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = copied(name, tmp_path)
    if name.startswith(SPARK_ALONE):
        with pytest.raises(qbeast.UnsupportedTableError, match="park") as caught:
            qbeast.convert_table(path, columns=["a"])
        assert not any(item in str(caught.value) for item in ("deltalake import", "scan_delta"))
        return
    target = expected(name)
    columns = [] if all(dtype.is_nested() for dtype in target.dtypes) else [indexable(target)]
    try:
        qbeast.convert_table(path, columns=columns)
    except qbeast.UnsupportedTableError as error:
        path = Path(run_cure(str(error), columns=repr(columns)))
        target = target.select(qbeast.open_table(path).columns)
    same(qbeast.read_table(path), target)


@pytest.mark.parametrize("name", NAMES)
def test_delta_table_is_read_without_an_index(name: str, tmp_path: Path) -> None:
    try:
        found = qbeast.read_table(TABLES / name)
    except qbeast.UnsupportedTableError:
        with pytest.raises(qbeast.UnsupportedTableError):
            qbeast.convert_table(copied(name, tmp_path), columns=[])
        return
    same(found, expected(name))


@pytest.mark.parametrize("name", swept(MAPPED, but=MAPPED[:1]))
@pytest.mark.parametrize(
    ("reader", "features"),
    [
        (2, {"writerFeatures": ["columnMapping"]}),
        (3, {"readerFeatures": [], "writerFeatures": ["columnMapping"]}),
    ],
)
def test_partly_declared_mapping_is_applied(
    name: str, reader: int, features: dict[str, list[str]], tmp_path: Path
) -> None:
    path = copied(name, tmp_path)
    with_protocol(path, reader=reader, writer=7, **features)
    target = expected(name)
    qbeast.convert_table(path, columns=[indexable(target)])
    same(qbeast.read_table(path), target)


@pytest.mark.parametrize("name", swept(MAPPED, but=MAPPED[:1]))
def test_undeclared_mapping_error_shows_the_cure(name: str, tmp_path: Path) -> None:
    path = copied(name, tmp_path)
    with_protocol(path, reader=1, writer=2)
    target = expected(name)
    with pytest.raises(qbeast.UnsupportedTableError, match="its protocol does not name") as caught:
        qbeast.convert_table(path, columns=[indexable(target)])
    assert "write_table" not in str(caught.value)
    run_cure(str(caught.value), call=r"deltalake\.DeltaTable\(.*?=True\)")
    qbeast.convert_table(path, columns=[indexable(target)])
    same(qbeast.read_table(path), target)


def test_old_calendar_dates_match_filters(tmp_path: Path) -> None:
    name = "dates-of-the-old-calendar/old_dates"
    path = copied(name, tmp_path)
    qbeast.convert_table(path, columns=["d"])
    for row in expected(name).iter_rows(named=True):
        assert qbeast.read_table(path, where=pl.col("d") == row["d"]).rows(named=True) == [row]
        assert qbeast.open_table(path).count(pl.col("d") <= row["d"]) == row["i"]
    assert qbeast.open_table(path).check().ok
