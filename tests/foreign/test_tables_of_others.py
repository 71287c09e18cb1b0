"""Delta tables of other writers: what can be read is read, the rest is refused with a cure that works."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.cures import run_cure
from tests.helpers.handmade_log import add, features, metadata, write_log

ROWS = pl.DataFrame(
    {"id": range(200), "s": [f"k{i % 5}" for i in range(200)], "x": [i / 7 for i in range(200)]}
)
FIELDS = [{"name": n, "type": t} for n, t in (("id", "long"), ("s", "string"), ("x", "double"))]
RULES = ("checkConstraints", "invariants", "generatedColumns", "identityColumns", "allowColumnDefaults")
MARKS: dict[str, dict[str, Any]] = {
    "invariants": {"delta.invariants": '{"expression":{"expression":"id >= 0"}}'},
    "generatedColumns": {"delta.generationExpression": "CAST(x * 7 AS BIGINT)"},
    "identityColumns": {
        "delta.identity.start": 1,
        "delta.identity.step": 1,
        "delta.identity.highWaterMark": 199,
    },
    "allowColumnDefaults": {"CURRENT_DEFAULT": "7"},
}


def same(found: pl.DataFrame, wanted: pl.DataFrame) -> None:
    """Compare as multisets of rows, whatever the order of the columns."""
    keys = ["id", "x"]
    assert_frame_equal(found.select(wanted.columns).sort(keys), wanted.sort(keys), check_exact=True)


def handmade(
    path: Path,
    protocol: dict[str, Any],
    *,
    marks: dict[str, Any] | None = None,
    configuration: dict[str, str] | None = None,
    physical: dict[str, str] | None = None,
) -> Path:
    """Make a table of `ROWS` by hand: `marks` on its first column, columns under `physical` names in its file."""
    path.mkdir()
    names = physical or {name: name for name in ROWS.columns}
    schema = pa.schema(
        [
            pa.field(names[item.name], item.type, metadata={"PARQUET:field_id": str(number)})
            for number, item in enumerate(ROWS.to_arrow(compat_level=pl.CompatLevel.oldest()).schema, 1)
        ]
    )
    file = (
        ROWS.to_arrow(compat_level=pl.CompatLevel.oldest()).rename_columns(list(names.values())).cast(schema)
    )
    pq.write_table(file, path / "rows.parquet")
    fields = [{**item, "nullable": True, "metadata": {}} for item in FIELDS]
    if physical is not None:
        for number, field in enumerate(fields, 1):
            field["metadata"] = {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": physical[field["name"]],
            }
    fields[0]["metadata"] |= marks or {}
    size = (path / "rows.parquet").stat().st_size
    write_log(
        path,
        [
            protocol,
            metadata({"type": "struct", "fields": fields}, configuration),
            add("rows.parquet", size=size, stats=json.dumps({"numRecords": ROWS.height})),
        ],
    )
    return path


def partitioned(path: Path) -> Path:
    write_deltalake(path, ROWS, partition_by=["s"])
    return path


def ruled(feature: str) -> Callable[[Path], Path]:
    if feature == "checkConstraints":
        return lambda path: handmade(
            path, features(feature), configuration={"delta.constraints.c": "id >= 0"}
        )
    return lambda path: handmade(path, features(feature), marks=MARKS[feature])


def with_feature(*writer: str, reader: tuple[str, ...] = (), **options: Any) -> Callable[[Path], Path]:
    return lambda path: handmade(path, features(*writer, *reader, reader=reader), **options)


def mapped(mode: str, *, reader: int = 2) -> Callable[[Path], Path]:
    protocol = features("columnMapping", reader=["columnMapping"]) if reader == 3 else None
    legacy = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "3"}
    physical = {name: f"col-{name}" for name in ROWS.columns}
    return lambda path: handmade(path, protocol or legacy, configuration=configuration, physical=physical)


# What stands in the way of a conversion, with what the message names.
REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "checkpointProtection": (with_feature("checkpointProtection"), "checkpointProtection"),
    "coordinatedCommits": (with_feature("coordinatedCommits"), "coordinatedCommits"),
    "unheard of": (with_feature("never-heard-of"), "never-heard-of"),
    "with version 2 of checkpoints": (
        with_feature("never-heard-of", reader=("v2Checkpoint",)),
        "never-heard-of",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_unsupported_conversion_names_a_working_copy(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, report = REFUSED[kind]
    path = make(tmp_path / "old")
    with pytest.raises(qbeast.UnsupportedTableError, match=report) as caught:
        qbeast.convert_table(path, columns=["id"])
    message = str(caught.value)
    assert "Nothing was changed." in message
    new = run_cure(message, columns='["s", "id"]')
    same(qbeast.read_table(new), ROWS)
    assert qbeast.open_table(new).check().ok


HARMLESS: dict[str, Callable[[Path], Path]] = {
    **{feature: ruled(feature) for feature in RULES},
    "rowTracking": with_feature("rowTracking", "domainMetadata"),
    "clustering": with_feature("clustering", "domainMetadata"),
    "materializePartitionColumns": with_feature("materializePartitionColumns"),
    "idle iceberg": with_feature("icebergCompatV2"),
    "collations": with_feature("collations", "domainMetadata"),
    "idle variant": with_feature(reader=("variantType",)),
    "idle type widening": with_feature(reader=("typeWidening",)),
    "generated, and not heeded": with_feature("appendOnly", marks=MARKS["generatedColumns"]),
    "partitions": partitioned,
    "mapped by name": mapped("name"),
    "mapped by name, feature": mapped("name", reader=3),
    "mapped by id": mapped("id"),
    "iceberg": with_feature("icebergCompatV1", configuration={"delta.enableIcebergCompatV1": "true"}),
    "mapped to itself": with_feature(
        reader=("columnMapping",),
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"},
        physical={name: name for name in ROWS.columns},
    ),
}


def test_iceberg_tables_refuse_deletion_vectors(tmp_path: Path) -> None:
    table = qbeast.open_table(HARMLESS["iceberg"](tmp_path / "t"))
    with pytest.raises(qbeast.UnsupportedTableError, match="enableIcebergCompatV1 is true"):
        table.set_properties({"delta.enableDeletionVectors": "true"})
    assert table.set_properties({"delta.enableDeletionVectors": "false"}).committed


@pytest.mark.parametrize("kind", HARMLESS)
def test_writer_features_allow_conversion_and_reads(kind: str, tmp_path: Path) -> None:
    path = HARMLESS[kind](tmp_path / "t")
    qbeast.convert_table(path, columns=["id", "x:linear"])
    same(qbeast.read_table(path), ROWS)
    same(qbeast.read_table(path, where=pl.col("id") < 50), ROWS.head(50))
    sample = qbeast.read_table(path, sample=0.3)
    plain = tmp_path / "plain"
    qbeast.write_table(ROWS, plain, columns=["id", "x:linear"])
    same(sample, qbeast.read_table(plain, sample=0.3))
    assert 0 < sample.height < ROWS.height
    qbeast.open_table(path).set_properties({"owner": "us"})
    assert qbeast.open_table(path).check().ok


@pytest.mark.parametrize("feature", ["checkConstraints", "invariants", "generatedColumns"])
def test_rows_that_break_rules_are_refused_like_deltalake(feature: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    if feature == "checkConstraints":
        write_deltalake(path, ROWS)
        DeltaTable(path).alter.add_constraint({"c": "id >= 0"})
    else:
        protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
        handmade(path, protocol, marks=MARKS[feature])
    qbeast.convert_table(path, columns=["id"])
    rows = ROWS.with_columns(id=(pl.col("x") * 7 + 0.07).cast(pl.Int64), x=pl.col("x") + 0.01)
    for broken in (rows.with_columns(id=-pl.col("id") - 1), rows.with_columns(id=pl.lit(None, pl.Int64))):
        with pytest.raises(DeltaError):
            write_deltalake(path, broken, mode="append")
        with pytest.raises(qbeast.ConstraintViolationError, match="200 row"):
            qbeast.write_table(broken, path, mode="append")
    write_deltalake(path, rows, mode="append")
    qbeast.write_table(rows, path, mode="append")
    qbeast.open_table(path).optimize()
    same(qbeast.read_table(path), pl.concat([ROWS, rows, rows]))
    assert qbeast.open_table(path).rows().files()["revision_id"].null_count() == 0


def test_unsupported_rule_is_dropped_as_the_message_shows(tmp_path: Path) -> None:
    path = handmade(
        tmp_path / "t", features("checkConstraints"), configuration={"delta.constraints.c": "hash(id) <> 0"}
    )
    qbeast.convert_table(path, columns=["id"])
    table = qbeast.open_table(path)
    for change in (
        lambda: qbeast.write_table(ROWS, path, mode="append"),
        lambda: qbeast.write_table(ROWS, path, mode="overwrite"),
        lambda: table.update("id = 3", {"x": "-1.0"}),
        lambda: table.merge(ROWS.with_columns(x=pl.lit(0.0)), on="id"),
    ):
        with pytest.raises(
            qbeast.UnsupportedTableError, match=r"'hash\(id\) <> 0' of 'c' \(checkCons"
        ) as caught:
            change()
        assert caught.value.feature == "checkConstraints"
    assert "Table.set_properties({'delta.constraints.c': None})" in str(caught.value)
    same(qbeast.read_table(path), ROWS)
    table.set_properties({"delta.constraints.c": None})
    qbeast.write_table(ROWS, path, mode="append")
    assert qbeast.read_table(path).height == 2 * ROWS.height


def test_append_only_table_error_names_allowed_changes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, ROWS, configuration={"delta.appendOnly": "true"})
    qbeast.convert_table(path, columns=["id"])
    table = qbeast.open_table(path)
    with pytest.raises(qbeast.UnsupportedTableError, match="allows only appends") as caught:
        table.delete("id < 5")
    assert "Appends, optimize and reads work" in str(caught.value)
    qbeast.write_table(ROWS, path, mode="append")
    table.optimize()
    table.set_properties({"delta.appendOnly": None})
    table.delete("id < 5")
    assert qbeast.read_table(path).height == 2 * ROWS.height - 10


@pytest.mark.parametrize(
    ("protocol", "error", "report"),
    [
        (
            features("catalogManaged", reader=["catalogManaged"]),
            qbeast.UnsupportedTableError,
            "a catalog manages it",
        ),
        (
            features("brandNew", reader=["brandNew"]),
            qbeast.UnsupportedTableError,
            "it uses brandNew, .* Spark",
        ),
        (
            features(reader=["deletionVectors"]),
            qbeast.InvalidMetadataError,
            "protocol breaks the rules of Delta",
        ),
        (
            {
                "protocol": {
                    "minReaderVersion": 4,
                    "minWriterVersion": 7,
                    "readerFeatures": [],
                    "writerFeatures": [],
                }
            },
            qbeast.InvalidMetadataError,
            "protocol breaks the rules of Delta",
        ),
        ({"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}, qbeast.QbeastError, "9"),
    ],
    ids=["catalog", "reader feature", "half a feature", "version 4 with features", "the future"],
)
def test_future_and_broken_protocols_raise_differently(
    protocol: dict[str, Any], error: type[Exception], report: str, tmp_path: Path
) -> None:
    path = handmade(tmp_path / "t", protocol)
    with pytest.raises(error, match=report) as caught:
        qbeast.convert_table(path, columns=["id"])
    assert "another Delta engine can still use" not in str(caught.value)


@pytest.mark.parametrize(
    ("gone", "checkpoint", "report", "left"),
    [
        ([2], None, r"version 2 is missing: there is no _delta_log/0{19}2\.json", 1),
        ([2, 3], None, "versions 2 to 3 are missing", 1),
        ([1, 4], None, "version 1 is missing", 0),
        ([4], 3, "version 4 is missing", 3),
        ([0], None, r"beginning is missing: neither _delta_log/0+\.json", None),
    ],
)
def test_log_gap_names_older_readable_versions(
    gone: list[int], checkpoint: int | None, report: str, left: int | None, tmp_path: Path
) -> None:
    for number in range(6):
        qbeast.write_table(pl.DataFrame({"id": [number]}), tmp_path, columns=["id"], mode="append")
    if checkpoint is not None:
        DeltaTable(tmp_path, version=checkpoint).create_checkpoint()
    for version in gone:
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(qbeast.InvalidMetadataError, match=report) as caught:
        load_snapshot(tmp_path)
    assert "ParsedLogPath" not in str(caught.value)
    assert "another Delta engine" not in str(caught.value)
    if left is not None:
        assert f"version={left} can be opened" in str(caught.value)
        assert qbeast.open_table(tmp_path, version=left).read().height == left + 1


def csv(path: Path) -> None:
    ROWS.write_csv(path / "rows.csv")


def ndjson(path: Path) -> None:
    ROWS.write_ndjson(path / "rows.ndjson")


def arrow(path: Path) -> None:
    ROWS.write_ipc(path / "rows.arrow")


def hive(path: Path) -> None:
    for key, rows in ROWS.group_by("s"):
        folder = path / f"s={key[0]}"
        folder.mkdir()
        rows.drop("s").write_parquet(folder / "rows.parquet")


@pytest.mark.parametrize("files", [csv, ndjson, arrow])
def test_folder_of_other_files_names_their_reader(
    files: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old = tmp_path / "old"
    old.mkdir()
    files(old)
    with pytest.raises(qbeast.TableNotFoundError, match="is a directory of ") as caught:
        qbeast.open_table(old)
    new = run_cure(str(caught.value))
    same(qbeast.read_table(new), ROWS)
    with pytest.raises(qbeast.QbeastError, match=r"Nothing was changed|directory of") as caught:
        qbeast.convert_table(old, columns=["id"])
    assert "qbeast.write_table(pl.scan_" in str(caught.value)


def test_folder_of_partitions_names_the_conversion(tmp_path: Path) -> None:
    hive(tmp_path)
    with pytest.raises(qbeast.TableNotFoundError, match=r"qbeast\.convert_table\("):
        qbeast.open_table(tmp_path)
    qbeast.convert_table(tmp_path, columns=["id"])
    same(qbeast.read_table(tmp_path).select(ROWS.columns), ROWS)


@pytest.mark.parametrize("inside", ["", "/00000000000000000000.json", "/deeper"])
@pytest.mark.parametrize("indexed", [True, False], ids=["ours", "of others"])
def test_log_path_names_its_table(inside: str, tmp_path: Path, *, indexed: bool) -> None:
    path = tmp_path / "t"
    if indexed:
        qbeast.write_table(ROWS, path, columns=["id"])
    else:
        write_deltalake(path, ROWS)
    DeltaTable(path).create_checkpoint()
    options = f"{path}/_delta_log{inside}"
    before = sorted(path.rglob("*"))
    for tried in (
        lambda: qbeast.open_table(options),
        lambda: qbeast.scan_table(options),
        lambda: qbeast.convert_table(options, columns=["id"]),
        *(
            lambda mode=mode: qbeast.write_table(ROWS, options, columns=["id"], mode=mode)
            for mode in ("error", "append", "overwrite", "ignore")
        ),
    ):
        with pytest.raises(qbeast.TableNotFoundError, match=f"the table's folder: '{path}'") as caught:
            tried()
        assert "write_table" not in str(caught.value)
    assert sorted(path.rglob("*")) == before


def test_preview_in_commit_timestamps_are_kept(tmp_path: Path) -> None:
    path = handmade(
        tmp_path / "t",
        features("inCommitTimestamp-preview"),
        configuration={"delta.enableInCommitTimestamps-preview": "true"},
    )
    qbeast.convert_table(path, columns=["id"])
    qbeast.write_table(ROWS, path, mode="append")
    qbeast.open_table(path).optimize()
    qbeast.open_table(path).delete("id < 5")
    logs = sorted((path / "_delta_log").glob("*.json"))[1:]
    infos = [json.loads(log.read_text().splitlines()[0])["commitInfo"] for log in logs]
    times = [info["inCommitTimestamp"] for info in infos]
    assert times == sorted(set(times))
    same(qbeast.read_table(path), pl.concat([ROWS, ROWS]).filter(pl.col("id") >= 5))
    assert qbeast.open_table(path).check().ok
