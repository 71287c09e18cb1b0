"""The compression of data files: chosen for a new table, kept by all writes, and known to other writers."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import qbeast
from tests.helpers.tables import assert_same_rows

PROPERTY = "delta.parquet.compression.codec"
ROWS = pl.DataFrame({"id": range(2000), "text": [f"value {n // 100}" * 3 for n in range(2000)]})


def codecs(folder: Path) -> set[str]:
    """Return the compression of the column of texts in all files of a folder."""
    footers = [pq.read_metadata(path) for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]
    found = set[str]()
    for footer in footers:
        chunks = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
        found |= {chunk.compression for chunk in chunks if chunk.path_in_schema == "text"}
    return found


@pytest.mark.parametrize(
    ("compression", "value", "codec"),
    [("zstd", "zstd", "ZSTD"), ("snappy", "snappy", "SNAPPY"), ("none", "uncompressed", "UNCOMPRESSED")],
)
def test_every_write_keeps_compression(tmp_path: Path, compression: str, value: str, codec: str) -> None:
    options = {"compression": compression, "change_feed": True}
    qbeast.write_table(ROWS, tmp_path, columns=["id"], **options)
    assert DeltaTable(tmp_path).metadata().configuration[PROPERTY] == value
    qbeast.write_table(ROWS, tmp_path, mode="append", compression=compression)
    table = qbeast.open_table(tmp_path)
    table.update("id < 9", {"text": pl.col("text") + "!"})
    table.optimize(full=True)
    assert codecs(tmp_path) == {codec}
    assert_same_rows(pl.scan_delta(tmp_path).collect(), table.read(), "id")


def test_other_compression_of_existing_table_is_refused(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id"])
    for mode in ("append", "overwrite"):
        with pytest.raises(qbeast.InvalidInputError, match="set_properties") as caught:
            qbeast.write_table(ROWS, tmp_path, mode=mode, compression="snappy")
        assert caught.value.argument == "compression"
    with pytest.raises(qbeast.InvalidInputError, match="compression"):
        qbeast.write_table(ROWS, tmp_path / "u", columns=["id"], compression="lz4")
    qbeast.write_table(ROWS, tmp_path, mode="append", compression="zstd")


@pytest.mark.parametrize(
    ("value", "codec"), [("SNAPPY", "SNAPPY"), ("gzip", "GZIP"), ("None", "UNCOMPRESSED")]
)
def test_property_changes_new_files(tmp_path: Path, value: str, codec: str) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id"])
    table = qbeast.open_table(tmp_path)
    table.set_properties({PROPERTY: value})
    qbeast.write_table(ROWS, tmp_path, mode="append")
    assert codecs(tmp_path) == {"ZSTD", codec}
    assert_same_rows(table.refresh().read(), pl.concat([ROWS, ROWS]), "id")


def test_codec_that_readers_lack_is_not_used(tmp_path: Path) -> None:
    DeltaTable.create(
        tmp_path, ROWS.to_arrow().schema, configuration={PROPERTY: "lzo"}, raise_if_key_not_exists=False
    )
    qbeast.convert_table(tmp_path, ["id"])
    qbeast.write_table(ROWS, tmp_path, mode="append")
    assert codecs(tmp_path) == {"ZSTD"}
    with pytest.raises(qbeast.InvalidInputError, match="zstd, snappy"):
        qbeast.open_table(tmp_path).set_properties({PROPERTY: "lzo"})


def test_uncompressed_columns_stay_so_with_snappy(tmp_path: Path) -> None:
    rows = pl.select(id=pl.int_range(200_000), noise=pl.int_range(200_000).hash(1) // 2)
    qbeast.write_table(rows, tmp_path, columns=["id"], compression="snappy")
    footer = pq.read_metadata(next(path for path in tmp_path.glob("*.parquet")))
    columns = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
    assert {c.path_in_schema: c.compression for c in columns}["noise"] == "UNCOMPRESSED"
    assert qbeast.read_table(tmp_path, sample=0.1).height == pytest.approx(20_000, rel=0.05)
