"""Tables, files and columns of any name go through every operation, also beside writers who spell names differently."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from qbeast_core.errors import CommitConflictError
from qbeast_core.spec.blocks import FilePath
from tests.helpers.deletion_vectors import bitmap, z85
from tests.helpers.examples import is_sweep
from tests.helpers.races import landing_first
from tests.helpers.tables import sampled, small_files

CHARACTERS = [chr(code) for code in range(32, 127) if chr(code) != "/"] + [*"é日😀\u00a0\u0301"]
# In a folder: deltalake takes a backslash for a slash; %41 would be an A.
NO_FOLDER = "\\"
ODD = [
    "export (1)",
    "run-2024-05-01T00:00:00",
    "a%20b",
    "100%",
    "a+b=c&d",
    "file:x",
    "~",
    " lead and trail ",
    "'\"`",
    "[a]{b}*?#",
    "x%2Fy",
    "e\u0301",
]
ROWS = pl.DataFrame({"id": range(60), "x": [(i * 37) % 61 for i in range(60)]})


def more(start: int) -> pl.DataFrame:
    return ROWS.with_columns(pl.col("id") + start)


def go_through(path: Path | str, rows: pl.DataFrame, columns: tuple[str, str] = ("id", "x")) -> None:
    """Append, delete, optimize, restore, vacuum, and read in all ways; in sweeps after each step."""
    key, other = columns

    def right(expected: pl.DataFrame, *, look: bool = is_sweep()) -> qbeast.Table:
        table = qbeast.open_table(path)
        if look:
            assert table.read().sort(key).equals(expected.sort(key))
            condition = pl.col(other) < 20
            actual = table.rows().lazy().filter(condition).collect()
            assert actual.sort(key).equals(expected.filter(condition).sort(key))
            some = sampled(expected, list(columns), 0.4)
            assert table.read(sample=0.4).sort(key).equals(some.sort(key))
            assert DeltaTable(path).count() == expected.height
            report = table.check()
            assert report.ok, report
        return table

    right(rows)
    added = rows.with_columns(pl.col(key) + 1000)
    qbeast.write_table(added, path, mode="append")
    rows = pl.concat([rows, added])
    table = right(rows)
    version = table.version
    kept = rows.filter(pl.col(other) >= 10)
    table.delete(pl.col(other) < 10)
    right(kept).optimize(full=True)
    table = right(kept)
    table.restore(version)
    table = right(rows)
    assert table.optimize(files=table.rows().files()["path"].to_list()).files_removed
    right(rows).vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    right(rows, look=True)


def plain_file(folder: Path, name: str, rows: pl.DataFrame = ROWS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(folder / f"{name}.parquet")


# --- files --------------------------------------------------------------------------------------------------------


def test_files_of_any_name_are_converted(tmp_path: Path) -> None:
    """All names in one table: one taken for another would show."""
    names = [*(f"a{character}b" for character in CHARACTERS), *(name for name in ODD if name[0] not in "._")]
    if not is_sweep():
        names = [name for name in names if not name.isalnum()]
    for number, name in enumerate(names):
        plain_file(tmp_path / "t", name, more(100 * number).head(7))
    rows = pl.concat([more(100 * number).head(7) for number in range(len(names))])
    qbeast.convert_table(tmp_path / "t", columns=["id", "x"])
    listed = qbeast.open_table(tmp_path / "t").rows().files()["path"].to_list()
    assert sorted(listed) == sorted(str(tmp_path / "t" / f"{name}.parquet") for name in names)
    assert qbeast.read_table(tmp_path / "t").sort("id").equals(rows)
    assert DeltaTable(tmp_path / "t").count() == rows.height


@pytest.mark.parametrize("name", ["a%20b", "x%2Fy", "100%", "a b", "a:b"])
def test_restored_files_keep_their_names(tmp_path: Path, name: str) -> None:
    plain_file(tmp_path, name)
    table = qbeast.convert_table(tmp_path, columns=["id"]) and qbeast.open_table(tmp_path)
    table.delete("id >= 0")
    assert not table.rows().files().height
    table.restore(0)
    assert table.read().equals(ROWS)
    assert DeltaTable(tmp_path).count() == ROWS.height


@pytest.mark.sweep
@pytest.mark.parametrize(
    "names",
    [[f"a{one}b" for one in CHARACTERS], [f"{one}x" for one in CHARACTERS], ODD],
    ids=["a.b", ".x", "odd"],
)
def test_files_of_any_name_pass_all_operations(tmp_path: Path, names: list[str]) -> None:
    names = [name for name in names if name[0] not in "._"]  # such files are hidden
    for number, name in enumerate(names):
        plain_file(tmp_path / "t", name, more(2000 * number).head(20))
    qbeast.convert_table(tmp_path / "t", columns=["id", "x"])
    go_through(tmp_path / "t", pl.concat([more(2000 * number).head(20) for number in range(len(names))]))


def test_similar_file_in_working_directory_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "events-2024-05-01T00:00:00"
    plain_file(tmp_path / "t", name)
    plain_file(tmp_path / "work", name, more(5000))
    qbeast.convert_table(tmp_path / "t", columns=["id", "x"])
    monkeypatch.chdir(tmp_path / "work")
    assert qbeast.read_table(tmp_path / "t").sort("id").equals(ROWS)
    assert qbeast.open_table(tmp_path / "t").check().ok


# --- folders and columns --------------------------------------------------------------------------------------------

FOLDERS = ["export (1)+é 10:30 #?", "~", "[a]{b}* 100%", "plain"]
COLUMNS = ["a%20b`.c", "${x}", "日 😀", "\\\\"]
EACH = [
    (
        f"a{one}b" if one in CHARACTERS and one not in NO_FOLDER else "plain",
        (f"a{one}b", f"{one}x", f"{one}{one}b")[number % 3],
    )
    for number, one in enumerate([*CHARACTERS, "\t", "\n"])
]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        pytest.param(*names, marks=pytest.mark.sweep if number else ())
        for number, names in enumerate([*zip(FOLDERS, COLUMNS, strict=True), *EACH, ("plain", "a/b")])
    ],
)
def test_any_folder_and_column_name_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str
) -> None:
    rows = ROWS.rename({"x": name})
    (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / folder)
    with small_files(file_rows=80, page_rows=16):
        qbeast.write_table(rows, "t", columns=["id", name], cube_size=40)
        go_through(tmp_path / folder / "t", rows, ("id", name))


@pytest.mark.parametrize(
    "folders",
    [FOLDERS, pytest.param([folder for folder, _ in EACH], marks=pytest.mark.sweep)],
    ids=["some", "each"],
)
def test_addresses_lead_to_folders_of_any_name(tmp_path: Path, folders: list[str]) -> None:
    for folder in folders:
        path = tmp_path / f"t {folder}"
        qbeast.write_table(ROWS, path.as_uri(), columns=["id"], mode="overwrite")
        assert qbeast.read_table(path).sort("id").equals(ROWS)


# --- deletion vectors ---------------------------------------------------------------------------------------------


def hide_row(path: Path, spelled: str, row: int, version: int) -> None:
    """Commit a deletion vector for a file of a converted table, as its writer would."""
    log = path / "_delta_log"
    actions = [
        json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()
    ]
    add = next(one["add"] for one in actions if "add" in one and one["add"]["path"] == spelled)
    vector = {
        "storageType": "i",
        "pathOrInlineDv": z85(bitmap([row])),
        "sizeInBytes": len(bitmap([row])),
        "cardinality": 1,
    }
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    stats = json.dumps({**json.loads(add["stats"]), "tightBounds": False})
    lines = [
        {"protocol": protocol},
        {"remove": {"path": spelled, "deletionTimestamp": 1, "dataChange": True, "size": add["size"]}},
        {"add": {**add, "stats": stats, "deletionVector": vector}},
    ]
    (log / f"{version:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_deletion_vector_works_for_any_file_name(tmp_path: Path) -> None:
    names = [*(f"a{one}b" for one in CHARACTERS if not one.isalnum()), *ODD][:: 1 if is_sweep() else 3]
    for number, name in enumerate(names):
        plain_file(tmp_path / "t", name, more(100 * number).head(9))
    qbeast.convert_table(tmp_path / "t", columns=["id", "x"])
    for number, name in enumerate(names):
        hide_row(tmp_path / "t", FilePath(f"{name}.parquet").encoded, 4, number + 1)
    expected = pl.concat([more(100 * number).head(9) for number in range(len(names))])
    expected = expected.filter(pl.col("id") % 100 != 4)
    table = qbeast.open_table(tmp_path / "t")
    assert table.read().sort("id").equals(expected)
    assert table.check().ok, table.check()
    table.optimize()
    assert qbeast.read_table(tmp_path / "t").sort("id").equals(expected)


def test_equal_names_in_two_folders_keep_their_vectors(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id", "x"])
    path = tmp_path / "t"
    actions = []
    for number, folder in enumerate(("one", "two")):
        plain_file(path / folder, "same", more(100 * number))
        actions.append(
            {
                "add": {
                    "path": f"{folder}/same.parquet",
                    "partitionValues": {},
                    "size": (path / folder / "same.parquet").stat().st_size,
                    "modificationTime": 1,
                    "dataChange": True,
                    "stats": json.dumps({"numRecords": 60}),
                }
            }
        )
    (name,) = (file.name for file in path.glob("*.parquet"))
    actions.append({"remove": {"path": name, "dataChange": True}})
    (path / "_delta_log" / f"{1:020}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))
    hide_row(path, "one/same.parquet", 3, 2)
    expected = pl.concat([ROWS.filter(pl.col("id") != 3), more(100)])
    assert qbeast.read_table(path).sort("id").equals(expected)
    hide_row(path, "two/same.parquet", 5, 3)
    expected = expected.filter(pl.col("id") != 105)
    qbeast.open_table(path).optimize()
    assert qbeast.read_table(path).sort("id").equals(expected)


def test_older_version_keeps_its_own_vectors(tmp_path: Path) -> None:
    plain_file(tmp_path / "t", "a b")
    qbeast.convert_table(tmp_path / "t", columns=["id", "x"])
    hide_row(tmp_path / "t", "a%20b.parquet", 4, 1)
    old = qbeast.open_table(tmp_path / "t")
    qbeast.write_table(more(100), tmp_path / "t", mode="overwrite")
    assert copy.copy(old).refresh().version == 2
    assert old.read().sort("id").equals(ROWS.filter(pl.col("id") != 4))


# --- other spellings ----------------------------------------------------------------------------------------------

# How a writer may spell `a{x}b` in a log; all of them mean the same file.
SPELLINGS = ["(", "+", "é", *(pytest.param(one, marks=pytest.mark.sweep) for one in " =@&,;'!$)[^*|")]


def spelled_otherwise(path: Path, character: str) -> Iterator[str]:
    """Give the ways to spell the one file's name that are not the one in the log."""
    name = f"a{character}b.parquet"
    (rows_held,) = DeltaTable(path).get_add_actions()["path"].to_pylist()
    assert FilePath.of_log(rows_held).text == name
    ways = {name, quote(name), quote(name, safe="/!$&'()+,-.:;=@_~"), quote(name).replace("%C3%A9", "%c3%a9")}
    yield from sorted(ways - {rows_held})


def removed_by_another(path: Path, spelled: str, rows: pl.DataFrame) -> Callable[[], None]:
    """Make what commits another writer's delete, which spells the file in its own way."""

    def commit() -> None:
        rows.write_parquet(path / "theirs.parquet")
        version = DeltaTable(path).version() + 1
        add = {
            "path": "theirs.parquet",
            "partitionValues": {},
            "size": (path / "theirs.parquet").stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows.height}),
        }
        remove = {"path": spelled, "deletionTimestamp": time.time_ns() // 1_000_000, "dataChange": True}
        lines = [{"remove": remove}, {"add": add}]
        log = path / "_delta_log" / f"{version:020}.json"
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return commit


@pytest.mark.parametrize("character", SPELLINGS)
def test_file_removed_under_other_encoding_is_gone(tmp_path: Path, character: str) -> None:
    plain_file(tmp_path / "t", f"a{character}b")
    qbeast.convert_table(tmp_path / "t", columns=["id", "x"])
    ways = list(spelled_otherwise(tmp_path / "t", character))
    assert ways
    before = qbeast.open_table(tmp_path / "t")
    left = ROWS.filter(pl.col("id") >= 10)
    removed_by_another(tmp_path / "t", ways[0], left)()
    for table in (before.refresh(), qbeast.open_table(tmp_path / "t", version=1)):
        assert table.read().sort("id").equals(left)
        assert table.check().ok, table.check()
    qbeast.open_table(tmp_path / "t").optimize()
    assert qbeast.read_table(tmp_path / "t").sort("id").equals(left)
    DeltaTable(tmp_path / "t").create_checkpoint()  # it holds the add and the remove
    qbeast.write_table(more(100), tmp_path / "t", mode="append")
    assert qbeast.read_table(tmp_path / "t").sort("id").equals(pl.concat([left, more(100)]))
    qbeast.open_table(tmp_path / "t").restore(0)
    assert qbeast.read_table(tmp_path / "t").sort("id").equals(ROWS)
    DeltaTable(tmp_path / "t").create_checkpoint()
    assert qbeast.read_table(tmp_path / "t").sort("id").equals(ROWS)


def test_checkpoint_does_not_restore_removed_files(tmp_path: Path) -> None:
    plain_file(tmp_path / "t", "a+b")
    qbeast.convert_table(tmp_path / "t", columns=["id", "x"])
    removed_by_another(tmp_path / "t", "a%2Bb.parquet", more(100))()
    qbeast.open_table(tmp_path / "t").set_properties({"delta.checkpointInterval": "1"})
    assert not list((tmp_path / "t" / "_delta_log").glob("*.checkpoint.*"))
    assert qbeast.read_table(tmp_path / "t").sort("id").equals(more(100))


def changed(table: qbeast.Table, change: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Change a table, and return what the change makes of rows."""
    if change == "delete":
        table.delete(pl.col("x") < 20)
        return rows.filter(pl.col("x") >= 20)
    if change == "update":
        table.update(pl.col("x") < 20, {"x": pl.lit(-1, pl.Int64)})
        return rows.with_columns(x=pl.when(pl.col("x") < 20).then(-1).otherwise("x"))
    table.optimize()
    return rows


@pytest.mark.parametrize("character", SPELLINGS[1:])
@pytest.mark.parametrize("change", ["delete", "update", "optimize"])
def test_race_under_other_encoding_is_detected(tmp_path: Path, character: str, change: str) -> None:
    plain_file(tmp_path / "t", f"a{character}b")
    qbeast.convert_table(tmp_path / "t", columns=["id", "x"])
    ways = list(spelled_otherwise(tmp_path / "t", character))
    assert ways
    left = ROWS.filter(pl.col("id") >= 10)
    other, landed = removed_by_another(tmp_path / "t", ways[0], left), list[None]()
    table = qbeast.open_table(tmp_path / "t")
    try:
        with landing_first(lambda: landed.append(other())):
            left = changed(table, change, left)
    except CommitConflictError:
        left = ROWS.filter(pl.col("id") >= 10)
    assert landed
    assert qbeast.read_table(tmp_path / "t").sort("id").equals(left)
