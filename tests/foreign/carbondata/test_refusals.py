"""Tables that no collection has, made of those it has: versions of the status, partitions, indexes, encrypted files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal
from pyarrow import orc

import qbeast
from qbeast_carbondata.damage import looks_encrypted
from qbeast_core.io.thrift import ThriftStruct, read_struct
from tests.foreign.carbondata.collection import folder, table_path
from tests.foreign.carbondata.thrift_writer import written

ORDERS = "tx230_basic_3segments"
PARQUET = "tx230_added_parquet_segment"
OUTSIDE = "/tmp/carbon_out/ext_parquet"  # noqa: S108 -- as the table calls it


def copied(target: Path, name: str = ORDERS) -> Path:
    return Path(shutil.copytree(table_path(name), target))


def with_schema(path: Path, change: Callable[[dict[int, Any]], None]) -> Path:
    """Change the fields of the schema's fact table."""
    file = path / "Metadata/schema"
    info = read_struct(file.read_bytes())
    assert isinstance(info, ThriftStruct)
    change(info.fields[1].fields)
    file.write_bytes(written(info.fields))
    return path


def with_properties(path: Path, **more: str) -> Path:
    def change(table: dict[int, Any]) -> None:
        table[4] |= {key.encode(): value.encode() for key, value in more.items()}

    return with_schema(path, change)


def ciphertext(size: int, seed: int = 7) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def test_rewritten_schema_is_equal(tmp_path: Path) -> None:
    path = with_schema(copied(tmp_path / "t"), lambda _: None)
    before, after = qbeast.open_carbondata(table_path(ORDERS)), qbeast.open_carbondata(path)
    assert (after.schema, after.properties) == (before.schema, before.properties)
    assert_frame_equal(after.read().sort("id"), before.read().sort("id"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({1: 5, 8: -3, 9: 10}, "precision 10 and scale -3"),
        ({1: 5, 8: 11, 9: 10}, "precision 10 and scale 11"),
        ({1: 21, 10: 0}, "a struct without fields"),
        ({1: 20, 10: 2}, "an array or map of 2 children"),
        ({1: 23, 10: 9}, "ends before the last child"),
    ],
)
def test_invalid_columns_name_the_schema_file(tmp_path: Path, fields: dict[int, int], reason: str) -> None:
    def change(table: dict[int, Any]) -> None:
        table[2][0].fields.update(fields)

    path = with_schema(copied(tmp_path / "t"), change)
    with pytest.raises(qbeast.DamagedFileError, match=reason) as caught:
        qbeast.open_carbondata(path)
    assert caught.value.path == "Metadata/schema"


def test_schema_chooses_the_table_status_version(tmp_path: Path) -> None:
    path = with_properties(copied(tmp_path / "t"), latestversion="1700000000002")
    status = path / "Metadata/tablestatus"
    loads = orjson.loads(status.read_bytes())
    for version, kept in ((1, loads), (2, loads[:2])):
        (path / f"Metadata/tablestatus_170000000000{version}").write_bytes(orjson.dumps(kept))
    names = [load["loadName"] for load in loads[:2]]
    table = qbeast.open_carbondata(path)
    assert sorted(table.segments["segment"]) == sorted(names)
    expected = qbeast.read_carbondata(table_path(ORDERS), segments=names)
    assert_frame_equal(table.read().sort("id"), expected.sort("id"))
    (path / "Metadata/tablestatus_1700000000002").unlink()
    with pytest.raises(qbeast.StorageError, match=r"tablestatus_1700000000002.*come back") as caught:
        qbeast.open_carbondata(path)
    assert caught.value.path == "Metadata/tablestatus_1700000000002"


def test_unchosen_table_status_versions_raise(tmp_path: Path) -> None:
    path = copied(tmp_path / "t")
    (path / "Metadata/tablestatus").rename(path / "Metadata/tablestatus_1700000000001")
    with pytest.raises(qbeast.UnsupportedTableError, match="Copy the one") as caught:
        qbeast.open_carbondata(path)
    assert caught.value.feature == "versions of a table status"


@pytest.mark.parametrize("name", [ORDERS, "tx230_partitioned", "tx230_flat_folder", "cd111_v2_types"])
def test_lost_table_status_raises(name: str, tmp_path: Path) -> None:
    path = copied(tmp_path / "t", name)
    (path / "Metadata/tablestatus").unlink()
    with pytest.raises(qbeast.StorageError, match="come back") as caught:
        qbeast.open_carbondata(path)
    assert caught.value.path == "Metadata/tablestatus"


def test_table_without_loads_has_no_rows(tmp_path: Path) -> None:
    path = copied(tmp_path / "t")
    for part in ("Fact", "Metadata/segments"):
        shutil.rmtree(path / part)
    (path / "Metadata/tablestatus").unlink()
    rows = qbeast.read_carbondata(path)
    assert (rows.height, rows.schema) == (0, qbeast.open_carbondata(table_path(ORDERS)).schema)


@pytest.mark.parametrize(
    ("name", "kind"),
    [(ORDERS, 0), ("cd111_v3_types", 1), ("cd111_v3_types", 2), (ORDERS, 3)],
    ids=["range", "range_interval", "list", "hash"],
)
def test_partitions_of_1_x_are_ordinary_columns(name: str, kind: int, tmp_path: Path) -> None:
    """Up to 1.6 the number of a partition stands in the place of the task in names of files; all else is the same."""

    def change(table: dict[int, Any]) -> None:
        column = next(item for item in table[2] if item.fields[2] == b"id")
        table[6] = ThriftStruct(
            {1: [column], 2: kind, 3: [[b"1"]], 4: [b"10", b"20"], 5: [0, 1, 2], 6: 3, 7: 2}, 0, 0
        )

    path = with_schema(copied(tmp_path / "t", name), change)
    before, after = qbeast.open_carbondata(table_path(name)), qbeast.open_carbondata(path)
    assert after.indexes["partition"] == ("id",)
    assert after.read().columns == [*(item for item in before.schema if item != "id"), "id"]
    assert_frame_equal(after.read(columns=list(before.schema)).sort("id"), before.read().sort("id"))
    assert_frame_equal(
        after.read(where="id < 5").sort("id"), after.read().filter(pl.col("id") < 5).sort("id")
    )


def test_secondary_index_names_the_table_to_open(tmp_path: Path) -> None:
    def change(table: dict[int, Any]) -> None:
        report = next(item for item in table[2] if item.fields[2] == b"name")
        report.fields[2] = b"positionReference"

    path = with_schema(copied(tmp_path / "t"), change)
    with pytest.raises(qbeast.UnsupportedTableError, match=r"secondary index.*Open the table") as caught:
        qbeast.open_carbondata(path)
    assert caught.value.feature == "secondary index table"
    with pytest.raises(qbeast.UnsupportedTableError, match="secondary index"):
        qbeast.import_carbondata(path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_table_with_secondary_index_is_read(tmp_path: Path) -> None:
    path = with_properties(copied(tmp_path / "t"), indexTableExists="true")
    assert_frame_equal(
        qbeast.read_carbondata(path).sort("id"), qbeast.read_carbondata(table_path(ORDERS)).sort("id")
    )


@pytest.mark.parametrize(
    ("name", "victim"),
    [
        *(
            (ORDERS, item)
            for item in ("*.carbondata", "*.carbonindexmerge", "schema", "tablestatus", "*.segment")
        ),
        *(("tx230_delete_only", item) for item in ("tableupdatestatus-*", "*.deletedelta")),
        *(("cd111_v2_types", item) for item in ("*.dict", "*.dictmeta", "*.carbondata")),
    ],
)
def test_encrypted_files_raise(name: str, victim: str, tmp_path: Path) -> None:
    path = copied(tmp_path / "t", name)
    victims = list(path.rglob(victim))
    for file in victims:
        file.write_bytes(ciphertext(max(file.stat().st_size, 300)))
    with pytest.raises(qbeast.UnsupportedTableError, match=r"looks encrypted.*holds the key") as caught:
        qbeast.read_carbondata(path)
    assert path / caught.value.path in victims


def test_encrypted_segments_can_be_left_out(tmp_path: Path) -> None:
    path = copied(tmp_path / "t")
    file = next((path / "Fact/Part0/Segment_1").rglob("*.carbondata"))
    file.write_bytes(ciphertext(file.stat().st_size))
    assert "encrypted" in qbeast.open_carbondata(path).unreadable["reason"].item()
    left = qbeast.open_carbondata(path, on_unreadable="skip-segment")
    assert left.left_out["segment"].to_list() == ["1"]


def test_carbondata_files_never_look_encrypted() -> None:
    for file in sorted(table_path(ORDERS).parent.parent.rglob("*")):
        if file.is_file() and file.suffix in (".carbondata", ".carbonindex", ".carbonindexmerge", ".segment"):
            data = file.read_bytes()
            assert not (looks_encrypted(data[:2048]) and looks_encrypted(data[-2048:])), file


def test_overwritten_bytes_are_still_damage(tmp_path: Path) -> None:
    path = copied(tmp_path / "t")
    file = next(path.rglob("*.carbondata"))
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2] + ciphertext(len(data) // 2))
    with pytest.raises(qbeast.DamagedFileError):
        qbeast.read_carbondata(path)


def added(path: Path, kind: str, files: dict[str, bytes]) -> Path:
    """Return a copy of the table with an added segment whose files are others."""
    own = copied(path / "t", PARQUET)
    outside = path / "outside"
    outside.mkdir()
    for name, data in files.items():
        (outside / name).write_bytes(data)
    status = own / "Metadata/tablestatus"
    loads = orjson.loads(status.read_bytes())
    load = next(item for item in loads if item.get("fileFormat") == "parquet")
    load["fileFormat"] = kind
    status.write_bytes(orjson.dumps(loads))
    segment = own / "Metadata/segments" / load["segmentFile"]
    report = orjson.loads(segment.read_bytes())
    report["locationMap"][OUTSIDE]["files"] = list(files)
    segment.write_bytes(orjson.dumps(report))
    return own


def outside_rows() -> pa.Table:
    return pl.read_parquet(folder(PARQUET) / "ext_parquet").to_arrow()


def test_added_segments_of_orc_are_read(tmp_path: Path) -> None:
    data = BytesIO()
    rows = outside_rows()
    orc.write_table(rows.cast(pa.schema([_plain(field) for field in rows.schema])), data)
    path = added(tmp_path, "orc", {"a.orc": data.getvalue()})
    actual = qbeast.read_carbondata(path, external_paths={OUTSIDE: tmp_path / "outside"})
    expected = qbeast.read_carbondata(
        table_path(PARQUET), external_paths={OUTSIDE: folder(PARQUET) / "ext_parquet"}
    )
    assert_frame_equal(actual.sort("id"), expected.sort("id"))


def _plain(field: pa.Field) -> pa.Field:
    kind = pa.string() if pa.types.is_large_string(field.type) else field.type
    return pa.field(field.name, kind)


@pytest.mark.parametrize("kind", ["csv", "json", "avro"])
def test_added_segments_of_other_formats_raise(kind: str, tmp_path: Path) -> None:
    path = added(tmp_path, kind, {f"a.{kind}": b"1,2\n"})
    outside = {OUTSIDE: tmp_path / "outside"}
    table = qbeast.open_carbondata(path, external_paths=outside)
    assert f"'{kind}'" in table.unreadable["reason"].item()
    with pytest.raises(qbeast.UnsupportedTableError, match=f"added in the format '{kind}'"):
        table.read()
