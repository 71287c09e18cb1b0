"""A log that names files outside of its table opens none of them, on whatever road it is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.cli.commands import FAULTS
from qbeast_core.io.location import open_store
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.cli.running import run
from tests.helpers.buckets import client, new_bucket
from tests.helpers.deletion_vectors import delete
from tests.helpers.handmade_log import PROTOCOL, add, metadata, write_log
from tests.helpers.plan_files import checkpoint, opened, planned
from tests.helpers.tables import small_files

ROWS = pl.DataFrame({"id": range(400), "x": [(i * 7919) % 401 for i in range(400)]})
SECRET = pl.DataFrame({"id": [-1], "x": [-1]})
LONGS = {
    "type": "struct",
    "fields": [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("id", "x")],
}
GOLDEN_VECTORS = (
    Path(__file__).parents[1] / "format" / "delta" / "deletion-vectors" / "basic-dv-no-checkpoint"
)
Add = dict[str, Any]


def respell(path: Path, edit: Callable[[Add], None]) -> None:
    """Change the newest commit's first add."""
    log = max((path / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    edit(next(action["add"] for action in actions if "add" in action))
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of two files, and a file beside it that is nobody's business; to be copied."""
    folder = tmp_path_factory.mktemp("outside")
    with small_files(file_rows=400, page_rows=16):
        qbeast.write_table(ROWS, folder / "t", columns=["id", "x"], cube_size=50)
        qbeast.write_table(ROWS.with_columns(pl.col("id") + 400), folder / "t", mode="append")
    SECRET.write_parquet(folder / "secret.parquet")
    return folder


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Path:
    """The table of a copy of that folder."""
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True) / "t"


WAYS = {
    "up": "../secret.parquet",
    "up, encoded": "%2e%2e/secret.parquet",
    "up, all of it encoded": "%2E%2E%2Fsecret.parquet",
    "up, from a folder": "k/../../secret.parquet",
    "absolute": "{place}",
    "absolute, encoded": "{encoded}",
    "a file address": "file://{place}",
    "a file address of a host": "file://localhost.example{place}",
    "up, behind an address": "file://{folder}/t/../secret.parquet",
    "http": "http://127.0.0.1:9/secret.parquet",
    "a bucket": "s3://bucket/secret.parquet",
}
ALLOWED = {"absolute", "absolute, encoded", "a file address"}


@pytest.mark.parametrize(
    ("way", "plain"),
    [
        *((way, True) for way in WAYS),
        *(pytest.param(way, False, marks=() if way == "up" else pytest.mark.sweep) for way in WAYS),
    ],
)
def test_outside_files_are_never_opened(table: Path, way: str, *, plain: bool) -> None:
    place = str(table.parent / "secret.parquet")
    encoded = place.replace("/", "%2F")
    spelled = WAYS[way].format(place=place, encoded=encoded, folder=table.parent)

    def lead_out(add: Add) -> None:
        add["path"] = spelled
        if plain:
            del add["tags"], add["stats"]
            add["size"] = Path(place).stat().st_size

    respell(table, lead_out)
    opened = qbeast.open_table(table)
    for read in (
        opened.read,
        lambda: opened.read(sample=0.5),
        lambda: opened.rows().lazy().filter(pl.col("id") > 500).collect(),
        lambda: opened.rows().lazy().select(pl.col("x").sum()).collect(),
        lambda: opened.rows().files(),
        lambda: opened.delete(pl.col("x") < 100),
        lambda: opened.update(pl.col("x") < 100, {"x": pl.lit(1)}),
        lambda: opened.optimize(full=True),
        lambda: qbeast.read_table(table),
    ):
        with pytest.raises(qbeast.UnsupportedTableError, match="It was not opened"):
            read()
    if not plain:  # the log counts its rows: nothing is opened
        assert opened.rows().lazy().select(pl.len()).collect().item() == len(opened)
    report = opened.check()
    assert "file-outside" in set(report.faults["code"])
    assert not report.ok
    assert len(opened.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False).files) == 1
    trusted = qbeast.open_table(table, allow_absolute_paths=True)
    if way not in ALLOWED:
        with pytest.raises(qbeast.UnsupportedTableError, match="never follows it"):
            trusted.read()
    elif plain:
        assert trusted.read().height == 401
        assert trusted.rows().lazy().filter(pl.col("id") < 0).collect().equals(SECRET)
        assert -1 in qbeast.read_table(table, allow_absolute_paths=True)["id"]
    qbeast.write_table(ROWS, table, mode="overwrite")
    assert qbeast.read_table(table).sort("id").equals(ROWS)
    assert (table.parent / "secret.parquet").exists()


def linked(path: Path) -> None:
    """Move a file or folder out of its table, and leave a symbolic link in its place."""
    moved = next(item for item in path.parents if item.name == "t").parent / f"moved-{path.name}"
    shutil.move(path, moved)
    path.symlink_to(moved)


def roads(path: Path) -> list[Callable[[], object]]:
    """Everything that opens data files."""
    opened = qbeast.open_table(path)
    return [
        opened.read,
        lambda: opened.read(sample=0.5),
        lambda: opened.rows().lazy().filter(pl.col("id") > 500).collect(),
        lambda: opened.rows().files(),
        lambda: opened.delete(pl.col("x") < 100),
        lambda: opened.optimize(full=True),
        lambda: [list(task.read()) for task in opened.rows().tasks()],
        lambda: qbeast.read_table(path),
    ]


def test_linked_data_file_is_not_opened(table: Path) -> None:
    for name in qbeast.open_table(table).rows().files()["path"]:  # a filter may skip any one of them
        linked(table / Path(name).name)
    before = {item: item.stat().st_mtime_ns for item in table.parent.glob("moved-*")}
    for read in roads(table):
        with pytest.raises(qbeast.UnsupportedTableError, match=r"symbolic link .* It was not opened"):
            read()
    report = qbeast.open_table(table).check()
    assert "file-outside" in set(report.faults["code"])
    trusted = qbeast.open_table(table, allow_absolute_paths=True)
    assert trusted.read().height == 800
    assert trusted.check().ok
    qbeast.write_table(ROWS, table, mode="overwrite")
    qbeast.open_table(table).vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert {item: item.stat().st_mtime_ns for item in table.parent.glob("moved-*")} == before
    assert qbeast.read_table(table).sort("id").equals(ROWS)


def test_linked_folder_is_not_entered(tmp_path: Path) -> None:
    path = tmp_path / "t"
    (path / "part").mkdir(parents=True)
    ROWS.write_parquet(path / "part" / "1.parquet")
    size = (path / "part" / "1.parquet").stat().st_size
    write_log(path, [PROTOCOL, metadata(LONGS), add("part/1.parquet", size=size, stats='{"numRecords":400}')])
    qbeast.convert_table(path, columns=["id"])
    assert qbeast.open_table(path).check().ok
    linked(path / "part")
    for read in roads(path):
        with pytest.raises(qbeast.UnsupportedTableError, match=r"symbolic link .* It was not opened"):
            read()
    assert "file-outside" in set(qbeast.open_table(path).check().faults["code"])
    outside = tmp_path / "moved-part" / "orphan.parquet"
    outside.write_bytes(b"somebody's")
    trusted = qbeast.open_table(path, allow_absolute_paths=True)
    assert trusted.read().height == 400
    qbeast.open_table(path).vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert outside.exists()


@pytest.mark.parametrize("of", ["folder", "commit", "checkpoint", "hint"])
def test_linked_log_is_not_read(of: str, table: Path) -> None:
    if of in ("checkpoint", "hint"):
        DeltaTable(table).create_checkpoint()
    log = table / "_delta_log"
    actual = {"folder": log, "commit": min(log.glob("*.json")), "hint": log / "_last_checkpoint"}
    linked(actual.get(of) or next(log.glob("*.checkpoint.parquet")))
    for read in (
        lambda: qbeast.open_table(table),
        lambda: qbeast.open_table(table, version=0),
        lambda: qbeast.read_table(table),
        lambda: qbeast.write_table(ROWS, table, mode="append"),
    ):
        with pytest.raises(qbeast.UnsupportedTableError, match=r"symbolic link .* It was not opened"):
            read()
    assert qbeast.open_table(table, allow_absolute_paths=True).read().height == 800


@pytest.mark.parametrize("of", ["commit", "checkpoint"])
def test_linked_log_is_not_read_by_a_plan_file(of: str, table: Path, tmp_path: Path) -> None:
    with planned(tmp_path / "temporary"):
        checkpoint(table)
        opened(table)
        log = table / "_delta_log"
        linked({"commit": min(log.glob("*.json")), "checkpoint": next(log.glob("*.checkpoint.parquet"))}[of])
        with pytest.raises(qbeast.UnsupportedTableError, match=r"symbolic link .* It was not opened"):
            load_snapshot(table)


def test_commit_that_becomes_a_link_is_ignored(table: Path) -> None:
    opened = qbeast.open_table(table)
    write_deltalake(table, ROWS, mode="append")
    linked(max((table / "_delta_log").glob("*.json")))
    with pytest.raises(qbeast.UnsupportedTableError, match="symbolic link"):
        opened.refresh()


def test_linked_deletion_vector_is_not_opened(tmp_path: Path) -> None:
    path = Path(shutil.copytree(GOLDEN_VECTORS, tmp_path / "t"))
    linked(next(path.rglob("deletion_vector*.bin")))
    qbeast.convert_table(path, columns=["id"])
    with pytest.raises(qbeast.UnsupportedTableError, match=r"symbolic link .* It was not opened"):
        qbeast.read_table(path)


def test_links_within_and_to_the_table_work(table: Path) -> None:
    name = Path(qbeast.open_table(table).rows().files()["path"][0]).name
    (table / "kept").mkdir()
    shutil.move(table / name, table / "kept" / name)
    (table / name).symlink_to(table / "kept" / name)
    (table.parent / "link").symlink_to(table)
    for path in (table, table.parent / "link"):
        assert qbeast.read_table(path).height == 800
        assert qbeast.open_table(path).check().ok


def test_folder_of_linked_parquet_files_raises(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    ROWS.write_parquet(tmp_path / "t" / "1.parquet")
    linked(tmp_path / "t" / "1.parquet")
    with pytest.raises(qbeast.UnsupportedTableError, match="It was not opened"):
        qbeast.convert_table(tmp_path / "t", columns=["id"])


def test_unopened_outside_files_do_not_fail_reads(table: Path) -> None:
    respell(table, lambda add: add.update(path="../secret.parquet"))
    opened = qbeast.open_table(table)
    assert opened.rows().lazy().filter(pl.col("id") < 300).collect().height == 300


def test_shallow_clone_works_with_the_option(table: Path) -> None:
    clone = table.parent / "clone"
    (clone / "_delta_log").mkdir(parents=True)
    for log in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["path"] = f"{table}/{action['add']['path']}"
        text = "".join(json.dumps(action) + "\n" for action in actions)
        (clone / "_delta_log" / log.name).write_text(text)
    opened = qbeast.open_table(clone, allow_absolute_paths=True)
    rows = pl.concat([ROWS, ROWS.with_columns(pl.col("id") + 400)])
    assert opened.read().sort("id").equals(rows)
    assert opened.check().ok, opened.check()
    files = opened.rows().files()["path"].to_list()
    assert all(Path(path).parent == table for path in files)
    opened.optimize(files=files[:1])
    opened.delete(pl.col("id") < 10)
    assert opened.read().sort("id").equals(rows.filter(pl.col("id") >= 10))
    opened.optimize(full=True)
    assert qbeast.read_table(clone).height == 790, "its files are its own now"
    opened.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert qbeast.read_table(table).sort("id").equals(rows)
    run("show", clone, "--count")


def test_program_allows_absolute_paths(table: Path) -> None:
    respell(table, lambda add: add.update(path=f"{table}/{add['path']}"))
    for name, *rest in (("show", "--count"), ("sample", "0.5"), ("check",), ("explain",)):
        if name not in ("show", "explain"):  # they open no file
            run(name, table, *rest, code=FAULTS if name == "check" else 7)
        run(name, table, *rest, "--allow-absolute-paths")


@pytest.mark.parametrize("kind", ["p", "u"])
def test_deletion_vector_outside_is_not_opened(table: Path, kind: str) -> None:
    qbeast.write_table(ROWS, table.parent / "v", columns=["id", "x"])
    delete(table.parent / "v", [1, 2])
    out = {"p": f"file://{table.parent}/vector.bin", "u": "../ab^-aqEH.-t@S}K{vb[*k^"}[kind]
    respell(
        table.parent / "v",
        lambda add: add["deletionVector"].update(storageType=kind, pathOrInlineDv=out, offset=1),
    )
    opened = qbeast.open_table(table.parent / "v")
    with pytest.raises(qbeast.UnsupportedTableError, match="It was not opened"):
        opened.read()
    (fault,) = opened.check().faults.iter_rows(named=True)
    assert fault["code"] == "deletion-vector"
    assert "It was not opened" in fault["message"]


@pytest.mark.sweep
def test_credentials_go_only_to_own_bucket(s3_options: dict[str, str], tmp_path: Path) -> None:
    options, server = s3_options, client(s3_options)
    own_bucket, other_bucket = new_bucket(options), new_bucket(options)
    root = f"s3://{own_bucket}/some/t"
    qbeast.write_table(ROWS, root, columns=["id", "x"], storage_options=options)
    (name,) = DeltaTable(root, storage_options=options).get_add_actions()["path"].to_pylist()
    body = server.get_object(Bucket=own_bucket, Key=f"some/t/{name}")["Body"].read()
    server.put_object(Bucket=own_bucket, Key="else where/x.parquet", Body=body)
    server.put_object(Bucket=other_bucket, Key="x.parquet", Body=body)
    (tmp_path / "x.parquet").write_bytes(body)
    log = open_store(root, options)
    text = log.get("_delta_log/00000000000000000000.json").decode()
    for spelled, own in (
        (f"s3://{own_bucket}/else%20where/x.parquet", True),
        (f"s3://{other_bucket}/x.parquet", False),
        (f"{tmp_path}/x.parquet", False),
        (f"file://{tmp_path}/x.parquet", False),
        ("../../else%20where/x.parquet", False),
        (f"{options['AWS_ENDPOINT_URL']}/{other_bucket}/x.parquet", False),
    ):
        respelled = text.replace(f'"{name}"', f'"{spelled}"').encode()
        server.put_object(
            Bucket=own_bucket, Key="some/t/_delta_log/00000000000000000000.json", Body=respelled
        )
        for filtered in (pl.lit(value=True), pl.col("id") < 100):
            with pytest.raises(qbeast.UnsupportedTableError, match="It was not opened"):
                qbeast.read_table(root, storage_options=options, where=filtered)
            trusted = {"storage_options": options, "allow_absolute_paths": True}
            if own:
                actual = qbeast.read_table(root, where=filtered, **trusted).sort("id")
                assert actual.equals(ROWS.filter(filtered))
                assert qbeast.open_table(root, **trusted).check().ok
            else:
                with pytest.raises(qbeast.UnsupportedTableError, match="It was not opened"):
                    qbeast.read_table(root, where=filtered, **trusted)
