"""Settings that cannot be read cost pruning, or a write with the cure named, and no row; a repair mends them."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from qbeast_core.spec.revision import Revision
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, sampled, small_files

INDEXED = [ROW, "a"]
OLD = pl.DataFrame({ROW: range(100)}).with_columns(a=pl.col(ROW) * 37 % 101, s=pl.col(ROW).cast(pl.String))
NEW = OLD.with_columns(pl.col(ROW) + 5_000)  # beyond the first revision's range
ROWS = pl.concat([OLD, NEW])
MORE = OLD.with_columns(pl.col(ROW) + 50_000)

Settings = dict[str, str]
Edit = Callable[[Settings], object]


def put(**texts: str) -> Edit:
    return lambda settings: settings.update({f"qbeast.{key}": text for key, text in texts.items()})


def revision(number: int, text: str | None = None, **values: Any) -> Edit:
    key = f"qbeast.revision.{number}"
    if text is not None:
        return lambda settings: settings.update({key: text})
    return lambda settings: settings.update({key: json.dumps(json.loads(settings[key]) | values)})


def each(*edits: Edit) -> Edit:
    def every(settings: Settings) -> None:
        for edit in edits:
            edit(settings)

    return every


OLDER: dict[str, Edit] = {
    "an older revision is no JSON": revision(1, '{"revisionID":'),
    "an older revision lacks its space": revision(1, transformations=[{"className": "nope"}] * 2),
    "an older revision names itself wrong": revision(1, revisionID=2),
    "the staging revision is no JSON": revision(0, "oops"),
    "no dialect": put(blocksDialect="klingon"),
    "column specs are no list": put(columnSpecs="x,y"),
    "copies are no list": lambda settings: settings.update({"qbeast.replicatedSet.1": "[1]"}),
    "the highest id is no number": put(highestRevisionID="many"),
    "the highest id is of 18 nines": put(highestRevisionID="9" * 18),
}
"""What the newest revision does not need."""

NEWEST: dict[str, Edit] = {
    "the newest revision is no JSON": revision(2, "oops"),
    "the newest revision is of no kind": revision(2, columnTransformers=[{"className": "nope"}]),
    "the last id is no number": put(lastRevisionID="two"),
    "the last id names no revision": put(lastRevisionID="7"),
    "the last id is missing": lambda settings: settings.pop("qbeast.lastRevisionID"),
    "the last id is of 18 nines": put(lastRevisionID="9" * 18),
    "two revisions are no JSON": each(revision(2, "oops"), revision(1, "oops")),
}
"""Without it nothing can be indexed; others tell the columns."""

NOTHING = each(*(revision(number, "oops") for number in range(3)))
"""No revision tells the columns."""


QUICK = {
    *("an older revision is no JSON", "no dialect", "copies are no list", "the highest id is of 18 nines"),
    *("the newest revision is no JSON", "the last id is missing", "two revisions are no JSON"),
}
"""Those that take a way of their own through the code; the others are changed and repaired slowly."""


def quick_or_sweep(faults: Iterable[str]) -> list[Any]:
    return [fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.sweep) for fault in faults]


def damage(table: Path, edit: Edit) -> Settings:
    """Change the settings in the log's newest metadata; give what they are then."""
    for commit in sorted((table / "_delta_log").glob("*.json"), reverse=True):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "metaData" in action:
                settings: Settings = action["metaData"]["configuration"]
                edit(settings)
                commit.write_text("".join(json.dumps(item) + "\n" for item in actions))
                return settings
    raise AssertionError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two revisions, to be copied."""
    path = tmp_path_factory.mktemp("made") / "t"
    with small_files(file_rows=100, page_rows=8):
        qbeast.write_table(OLD, path, columns=INDEXED, cube_size=20)
        qbeast.write_table(NEW, path, mode="append")
    assert len(qbeast.open_table(path).revisions) == 3
    return path


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Path:
    """A copy of that table, to be damaged."""
    return shutil.copytree(made, tmp_path / "t")


def check_reads(table: Path, rows: pl.DataFrame, *, samples: bool = True) -> None:
    opened = qbeast.open_table(table)
    assert_same_rows(opened.read(), rows)
    narrow = pl.col("a") < 10
    assert_same_rows(opened.rows().lazy().filter(narrow).collect(), rows.filter(narrow))
    opened.rows(narrow).explain()
    assert str(table) in repr(opened)
    opened.metrics()
    if samples:
        expected = sampled(rows, INDEXED, 0.3)
        assert_same_rows(opened.read(sample=0.3), expected)
        assert opened.rows(sample=0.3).explain().rows_opened >= expected.height


@pytest.mark.parametrize("fault", OLDER | NEWEST)
def test_unreadable_settings_warn_once_and_lose_nothing(table: Path, fault: str) -> None:
    kept = damage(table, (OLDER | NEWEST)[fault])
    opened = qbeast.open_table(table)
    with pytest.warns(qbeast.CorruptTagWarning, match="settings") as caught:
        actual = [opened.rows().lazy().filter(pl.col("a") < 10).collect() for _ in range(3)]
    assert len(caught) == 1
    assert all(item.height == ROWS.filter(pl.col("a") < 10).height for item in actual)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.CorruptTagWarning)
        check_reads(table, ROWS)
        opened.set_properties({"owner": "me"})
    version = table / "_delta_log" / f"{opened.version:020}.json"
    (about,) = [json.loads(line) for line in version.read_text().splitlines() if "metaData" in line]
    assert about["metaData"]["configuration"] == kept | {"owner": "me"}


@pytest.mark.parametrize("fault", quick_or_sweep(OLDER))
@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_unneeded_damaged_settings_allow_writes(table: Path, fault: str) -> None:
    damage(table, OLDER[fault])
    qbeast.write_table(MORE, table, mode="append")  # beyond the range: a new revision
    check_reads(table, pl.concat([ROWS, MORE]))
    opened = qbeast.open_table(table)
    assert opened.revisions[-1].revision_id == 3
    opened.optimize()
    opened.delete("a < 10")
    check_reads(table, pl.concat([ROWS, MORE]).filter(pl.col("a") >= 10))


@pytest.mark.parametrize("fault", quick_or_sweep(NEWEST))
@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_missing_newest_revision_error_names_the_repair(table: Path, fault: str) -> None:
    damage(table, NEWEST[fault])
    opened = qbeast.open_table(table)
    writes: list[Callable[[], object]] = [
        lambda: qbeast.write_table(MORE, table, mode="append"),
        lambda: opened.optimize(full=True),
        lambda: opened.delete("a < 10"),
        lambda: opened.update("a < 10", {"a": "a + 1"}),
    ]
    for write in writes:
        with pytest.raises(qbeast.InvalidMetadataError, match=r"Table\.repair\(\)"):
            write()
    check_reads(table, ROWS)
    qbeast.write_table(OLD, table, mode="overwrite", columns=INDEXED)
    check_reads(table, OLD)
    assert qbeast.open_table(table).check().faults.is_empty()


@pytest.mark.parametrize("fault", quick_or_sweep(OLDER | NEWEST))
@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_check_names_settings_and_repair_fixes_them(table: Path, fault: str) -> None:
    damage(table, (OLDER | NEWEST)[fault])
    opened = qbeast.open_table(table)
    assert "settings-unreadable" in opened.check().faults["code"]
    planned = opened.repair(dry_run=True)
    result = opened.repair()
    assert planned.repaired_files.equals(result.repaired_files)
    assert result.repaired_files.row(0) == (None, ["set settings"], ["settings-unreadable"])
    assert "the table: set settings" in repr(result)
    with warnings.catch_warnings():
        warnings.simplefilter("error", qbeast.CorruptTagWarning)
        qbeast.write_table(MORE, table, mode="append")
        assert qbeast.open_table(table).revisions[-1].revision_id == 3
        check_reads(table, pl.concat([ROWS, MORE]))
    assert qbeast.open_table(table).check().faults.is_empty()


@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_convert_restarts_table_without_revisions(table: Path) -> None:
    damage(table, NOTHING)
    check_reads(table, ROWS, samples=False)
    opened = qbeast.open_table(table)
    assert opened.indexed_columns == ()
    cured: list[Callable[[], object]] = [
        lambda: opened.read(sample=0.1),
        lambda: opened.rows(sample=0.1).explain(),
        lambda: qbeast.write_table(MORE, table, mode="append"),
        opened.optimize,
        lambda: opened.delete("a < 10"),
        lambda: opened.update("a < 10", {"a": "a + 1"}),
        lambda: opened.cube_size,
    ]
    for operation in cured:
        with pytest.raises(qbeast.InvalidMetadataError, match="convert_table"):
            operation()
    assert "convert_table" in opened.repair().remaining.filter(code="settings-unreadable")["advice"][0]
    qbeast.convert_table(table, columns=INDEXED)
    with warnings.catch_warnings():
        warnings.simplefilter("error", qbeast.CorruptTagWarning)
        check_reads(table, ROWS)
        opened = qbeast.open_table(table)
        opened.optimize()
        assert opened.revisions[-1].revision_id == 3
        check_reads(table, ROWS)


@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_older_readable_version_is_restored(table: Path) -> None:
    damage(table, NOTHING)
    opened = qbeast.open_table(table)
    opened.restore(0)
    check_reads(table, OLD)
    assert opened.check().faults.is_empty()


SPACES = {
    "texts": {
        "className": "io.qbeast.core.transform.CDFStringQuantilesTransformation",
        "quantiles": ["a", "b"],
    },
    "one text": {"className": "io.qbeast.core.transform.IdentityToZeroTransformation", "identityValue": "a"},
    "ranks": {"className": "io.qbeast.core.transform.StringHistogramTransformation", "histogram": ["a", "b"]},
    "numbers": {
        "className": "io.qbeast.core.transform.CDFNumericQuantilesTransformation",
        "quantiles": [0.0, 1.0],
        "dataType": "LongDataType",
    },
}


@pytest.mark.parametrize("space", SPACES)
def test_mismatched_space_is_replaced_by_new_revision(tmp_path: Path, space: str) -> None:
    table, indexed = tmp_path / "t", [ROW, "s" if space == "numbers" else "a"]
    qbeast.write_table(OLD, table, columns=indexed, cube_size=20)

    def edit(settings: Settings) -> None:
        existing = Revision.from_json(settings["qbeast.revision.1"])
        raw = json.loads(existing.to_json())
        raw["transformations"][1] = SPACES[space]
        settings["qbeast.revision.1"] = json.dumps(raw)

    damage(table, edit)
    opened = qbeast.open_table(table)
    assert_same_rows(opened.rows().lazy().filter(pl.col("a") < 10).collect(), OLD.filter(pl.col("a") < 10))
    assert set(opened.check().faults["code"]) == {"revision-types"}
    qbeast.write_table(NEW, table, mode="append")
    opened = qbeast.open_table(table)
    assert opened.revisions[-1].revision_id == 2
    assert_same_rows(opened.read(), ROWS)
    assert_same_rows(opened.read(sample=0.3), sampled(ROWS, indexed, 0.3))
    opened.optimize()
    assert opened.check().faults.is_empty()
