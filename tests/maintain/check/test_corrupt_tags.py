"""Index tags and statistics that cannot be read, or be true, cost pruning and no row; a repair mends them."""

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
from tests.helpers.damage import packed
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, sampled, small_files

ROWS = pl.DataFrame({ROW: range(200)}).with_columns(
    a=pl.col(ROW) * 37 % 101, s=(pl.col(ROW) % 13).cast(pl.String)
)
INDEXED = [ROW, "a"]
READS = [
    (pl.col("a") < 10, None),
    ((pl.col("a") == 50) | (pl.col(ROW) > 190), (0.1, 0.7)),
    (pl.lit(value=True), 0.05),
]

Tags = dict[str, Any]


def edit_blocks(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Tags], object]:
    def edit(tags: Tags) -> None:
        blocks = json.loads(tags["blocks"])
        change(blocks)
        tags["blocks"] = json.dumps(blocks)

    return edit


def in_first_block(**values: Any) -> Callable[[Tags], object]:
    return edit_blocks(lambda blocks: blocks[0].update(values))


def edit_layout(**values: Any) -> Callable[[Tags], object]:
    return lambda tags: tags.update({"qbeast.layout": json.dumps(json.loads(tags["qbeast.layout"]) | values)})


def edit_band(number: int, value: object) -> Callable[[Tags], object]:
    """Change a number of the first band: rows, rows per page or weight."""

    def edit(tags: Tags) -> None:
        layout = json.loads(tags["qbeast.layout"])
        layout["bands"][0][number] = value
        tags["qbeast.layout"] = json.dumps(layout)

    return edit


def edit_text(key: str, change: Callable[[str], str]) -> Callable[[Tags], object]:
    return lambda tags: tags.update({key: change(tags[key])})


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else []


def flat(**texts: str) -> Callable[[Tags], object]:
    """Put the tags of a file of before 0.6.0 in the place of ours."""

    def edit(tags: Tags) -> None:
        tags.clear()
        tags.update({"state": "FLOODED", "cube": "", "revision": "1", "minWeight": "0", "maxWeight": "5"})
        tags.update({"elementCount": "100"} | texts)

    return edit


def set_tag(key: str, text: object) -> Callable[[Tags], object]:
    return lambda tags: tags.update({key: text})


UNREADABLE = {
    "no text": set_tag("blocks", ""),
    "no JSON": set_tag("blocks", '[{"cube":'),
    "no blocks": set_tag("blocks", "[]"),
    "binary": set_tag("blocks", "\0\ufffd\0"),
    "no cube": edit_blocks(lambda blocks: blocks[0].pop("cube")),
    "no count": edit_blocks(lambda blocks: blocks[0].pop("elementCount")),
    "negative count": in_first_block(elementCount=-3),
    "count in text": in_first_block(elementCount="many"),
    "too few rows": in_first_block(elementCount=0),
    "a block is missing": edit_blocks(lambda blocks: blocks.pop()),
    "weight beyond 32 bits": in_first_block(maxWeight=2**31),
    "weight below 32 bits": in_first_block(minWeight=-(2**31) - 1),
    "no cube text": in_first_block(cube="!!"),
    "cube outside two dimensions": in_first_block(cube="/"),
    "cube of 33 levels": in_first_block(cube="A" * 33),
    "cube of 100,000 levels": in_first_block(cube="g" * 100_000),
    "two lists": edit_text("blocks", lambda text: text + text),
    "two lists and a comma": edit_text("blocks", lambda text: f"{text},{text}"),
    "more than a list": edit_text("blocks", lambda text: text + " x"),
    "a key twice": edit_text(
        "blocks", lambda text: text.replace('"minWeight"', '"minWeight":5,"minWeight"', 1)
    ),
    "a cube in both spellings": in_first_block(cubeId="A"),
    "weights in no order": in_first_block(minWeight=100, maxWeight=-100),
    "no number": edit_text("blocks", lambda text: text.replace('"minWeight":', '"minWeight":NaN,"was":', 1)),
    "a count beyond 64 bits": in_first_block(elementCount=2**70),
    "a count of 4,000 digits": in_first_block(elementCount=10**3999),
    "counts whose sum is beyond 64 bits": edit_blocks(
        lambda blocks: [block.update(elementCount=2**63 - 1) for block in blocks]
    ),
    "too deep": set_tag("blocks", "[" * 100_000),
    "deep in a key of others": in_first_block(other=nested(900)),
    "too many rows": in_first_block(elementCount=10**6),
    "a block too many": edit_blocks(lambda blocks: blocks.append(blocks[0])),
    "flat tags in words": flat(minWeight="low", maxWeight="high", elementCount="many"),
    "flat tags beyond 64 bits": flat(minWeight=str(2**70), maxWeight=str(2**70), elementCount=str(2**70)),
    "flat tags beyond any file": flat(minWeight=str(2**40), maxWeight=str(2**40), elementCount=str(2**62)),
    "flat tags below nothing": flat(elementCount="-5"),
}
"""What makes a tag unreadable, or no truth, and so a warning."""

USELESS = {
    "no tags": lambda tags: tags.clear(),
    "no revision": lambda tags: tags.pop("revision"),
    "unknown revision": set_tag("revision", "99"),
    "negative revision": set_tag("revision", "-1"),
    "no blocks tag": lambda tags: tags.pop("blocks"),
    "other rules": set_tag("qbeast.rules", "2"),
    "no layout": lambda tags: tags.pop("qbeast.layout"),
    "layout without JSON": set_tag("qbeast.layout", "{"),
    "layout of tomorrow": edit_layout(v=4),
    "layout of yesterday": set_tag("qbeast.layout", '{"v":1,"rows":8,"tail":700,"w":"AAAAAAAA"}'),
    "no bands": edit_layout(bands=[]),
    "bands in words": edit_layout(bands="x"),
    "bands of two numbers": edit_layout(bands=[[100, 8]]),
    "no page rows": edit_band(1, 0),
    "huge page rows": edit_band(1, 2**70),
    "a row per page": edit_band(1, 1),
    "ten times the page rows": edit_band(1, 80),
    "a row more than the file": edit_band(0, 10**6),
    "a first weight beyond 32 bits": edit_band(2, 2**40),
    "bands that do not rise": edit_band(2, 2**31 - 1),
    "short tail": edit_layout(tail=40),
    "long tail": edit_layout(tail=10**12),
    "no directory": edit_layout(directory=0),
    "layout before directories": edit_text(
        "qbeast.layout", lambda text: text.replace('"directory"', '"older"')
    ),
    "short directory": edit_layout(directory=40),
    "long directory": edit_layout(directory=10**12),
    "a directory longer than its tail": edit_layout(tail=400, directory=401),
    "no bounds": edit_layout(p=""),
    "bounds in words": edit_layout(p="?? no base64 ??"),
    "bounds that are not packed": edit_layout(p="AAAA"),
    "one bound": edit_layout(p=packed(bytes(1))),
    "too many bounds": edit_layout(p=packed(bytes(200_000))),
    "boxes of one dimension": edit_layout(box=[[0, 1]]),
    "boxes in no space": edit_layout(box=[[0, 1], [2**62, 2**62]]),
    "boxes of no cells": edit_layout(box=[[0, 0], [0, 1]]),
    "boxes of two widths of steps": edit_layout(box=[[0, 1, 1], [0, 1]]),
    "boxes in words": edit_layout(box={"first": 0}),
    "layout of a key twice": edit_text("qbeast.layout", lambda text: text.replace('"p"', '"p":"","p"')),
    "layout too deep": set_tag("qbeast.layout", "[" * 100_000),
    "layout of page rows beyond 32 bits": edit_band(1, 2**62),
    "layout of a tail beyond the file": edit_layout(tail=2**62),
    "layout in a number": set_tag("qbeast.layout", 7),
    "revision beyond 64 bits": set_tag("revision", str(2**70)),
    "layout of another file": edit_layout(bands=[[2, 2, -5]], p=packed(bytes(4))),
}
"""What is of no use but no fault that has to be told, or told by others."""


def stats(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda add: add.update(stats=json.dumps(json.loads(add["stats"]) | values))


def stats_text(change: Callable[[str], object]) -> Callable[[dict[str, Any]], object]:
    return lambda add: add.update(stats=change(add["stats"]))


UNTRUE = {
    "no rows": stats(numRecords=0),
    "one row too few": stats(numRecords=1),
    "less than no rows": stats(numRecords=-1),
    "far less than no rows": stats(numRecords=-(2**63)),
    "more rows than a file holds": stats(numRecords=2**62),
    "rows to the end of 64 bits": stats(numRecords=2**63 - 1),
    "no rows, told second": stats_text(lambda text: text[:-1] + ',"numRecords":0}'),
    "less than no nulls": stats(nullCount={ROW: -1, "a": -1, "s": -1}),
    "more nulls than rows": stats(nullCount={ROW: 1000, "a": 1000, "s": 1000}),
    "bounds the wrong way round": stats(minValues={ROW: 10**6, "a": 10**6}, maxValues={ROW: -5, "a": -5}),
}
"""Statistics that no file can have."""

UNREAD = {
    "rows beyond 64 bits": stats(numRecords=2**70),
    "rows in words": stats(numRecords="many"),
    "bounds of other types": stats(minValues={"a": "x"}, maxValues={"a": "y"}),
    "too deep": stats_text(lambda _: "[" * 100_000),
    "a byte too many": lambda add: add.update(size=add["size"] + 1),
    "more bytes than a disk holds": lambda add: add.update(size=2**62),
    "half a byte": lambda add: add.update(size=add["size"] + 0.5),
}
"""What `deltalake` takes for no statistics, and numbers beside them."""


def damage(table: Path, change: Callable[[Tags], object], at: int = 1) -> str:
    """Change the tags of one file in the log, as a careless writer would have written them; give its path."""
    return spoil(table, lambda add: change(add["tags"]), at)


def damage_each(table: Path, faults: Iterable[Callable[[Tags], object]]) -> pl.DataFrame:
    """Make a table of many files, and damage one by each fault; give its rows."""
    changes = list(faults)
    rows = pl.DataFrame({ROW: range(40 * len(changes))}).with_columns(
        a=pl.col(ROW) * 37 % 101, s=(pl.col(ROW) % 13).cast(pl.String)
    )
    with small_files(file_rows=20, page_rows=8):
        qbeast.write_table(rows, table, columns=INDEXED, cube_size=20)
    for at, change in enumerate(changes):
        damage(table, change, at)
    return rows


def spoil(table: Path, change: Callable[[dict[str, Any]], object], at: int = 1) -> str:
    commit = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    add: dict[str, Any] = [action for action in actions if "add" in action][at]["add"]
    change(add)
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return str(add["path"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound table, to be copied."""
    path = tmp_path_factory.mktemp("made") / "t"
    with small_files(file_rows=100, page_rows=8):
        qbeast.write_table(ROWS, path, columns=[ROW, "a"], cube_size=20)
    return path


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Path:
    """A copy of that table, to be damaged."""
    return shutil.copytree(made, tmp_path / "t")


def check_reads(table: Path, rows: pl.DataFrame) -> None:
    opened = qbeast.open_table(table)
    assert_same_rows(opened.read(), rows)
    for expr, sample in READS:
        expected = sampled(rows, INDEXED, sample).filter(expr)
        assert_same_rows(opened.rows(sample=sample).lazy().filter(expr).collect(), expected)
        plan = opened.rows(expr, sample=sample).explain()
        assert expected.height <= plan.rows_opened
        assert plan.bytes_opened <= plan.bytes_total
    assert opened.blocks().height > 0


def check_reads_and_appends(table: Path, rows: pl.DataFrame) -> None:
    check_reads(table, rows)
    more = rows.with_columns(pl.col(ROW) + rows.height)
    qbeast.write_table(more, table, mode="append")
    check_reads(table, pl.concat([rows, more]))


@pytest.mark.parametrize("fault", UNREADABLE)
def test_unreadable_blocks_read_file_with_warning(table: Path, fault: str) -> None:
    damage(table, UNREADABLE[fault])
    opened = qbeast.open_table(table)
    with pytest.warns(qbeast.CorruptTagWarning, match="read whole"):
        plan = opened.rows(sample=1e-9).explain()
    assert plan.files["opened"].sum() == 1
    assert plan.files.filter("opened")["ranges"].null_count() == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.CorruptTagWarning)
        assert_same_rows(opened.read(), ROWS)


FAULTS = list(UNREADABLE | USELESS)


@pytest.mark.parametrize("first", range(0, len(FAULTS), 9))
@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_useless_tags_of_many_files_lose_no_row(tmp_path: Path, first: int) -> None:
    faults, table = FAULTS[first : first + 9], tmp_path / "t"
    rows = damage_each(table, [(UNREADABLE | USELESS)[fault] for fault in faults])
    plan = qbeast.open_table(table).rows(sample=1e-9).explain()
    assert plan.files["opened"].sum() >= len(UNREADABLE.keys() & faults)
    (check_reads if first else check_reads_and_appends)(table, rows)


QUICK = {
    *("no text", "too many rows", "flat tags beyond any file", "no rows", "bounds the wrong way round"),
    *("rows in words", "half a byte", "more bytes than a disk holds"),
}
"""Those that take a way of their own through the code; where one is damaged at a time, the others do so slowly."""


def quick_or_sweep(faults: Iterable[str]) -> list[Any]:
    return [fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.sweep) for fault in faults]


@pytest.mark.parametrize("fault", quick_or_sweep([*UNTRUE, *UNREAD]))
@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_false_statistics_lose_no_row(table: Path, fault: str) -> None:
    spoil(table, (UNTRUE | UNREAD)[fault])
    check_reads_and_appends(table, ROWS)


def test_wrong_row_counts_warn_once_and_lose_nothing(table: Path) -> None:
    for rows in (0, -1):
        spoil(table, stats(numRecords=rows))
        opened = qbeast.open_table(table)
        with pytest.warns(qbeast.CorruptTagWarning, match="read whole") as caught:
            actual = [opened.rows().lazy().filter(pl.col("a") < 10).collect() for _ in range(3)]
        assert len(caught) == 1
        assert all(item.height == ROWS.filter(pl.col("a") < 10).height for item in actual)


@pytest.mark.parametrize("fault", quick_or_sweep([*UNREADABLE, *UNTRUE]))
@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_check_names_the_file_and_repair_fixes_it(table: Path, fault: str) -> None:
    path = spoil(table, UNTRUE[fault]) if fault in UNTRUE else damage(table, UNREADABLE[fault])
    opened = qbeast.open_table(table)
    assert set(opened.check().faults["path"]) == {path}
    assert opened.repair().committed
    repaired = qbeast.open_table(table)
    assert repaired.check().faults.is_empty()
    with warnings.catch_warnings():
        warnings.simplefilter("error", qbeast.CorruptTagWarning)
        check_reads(table, ROWS)


@pytest.mark.parametrize("rows", [0, 7])
@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_delete_ignores_counts_that_blocks_contradict(table: Path, rows: int) -> None:
    spoil(table, stats(numRecords=rows))
    qbeast.open_table(table).delete("a < 10")
    check_reads(table, ROWS.filter(pl.col("a") >= 10))
    spoil(table, stats(numRecords=rows))
    qbeast.open_table(table).delete("true")
    assert qbeast.open_table(table).read().is_empty()


@pytest.mark.parametrize(
    "info", [5, [1], {"timestamp": "yesterday", "operation": 7, "operationParameters": [1]}]
)
def test_tables_with_any_provenance_are_read(table: Path, info: object) -> None:
    commit = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    actions = [{"commitInfo": info} if "commitInfo" in action else action for action in actions]
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    opened = qbeast.open_table(table)
    assert_same_rows(opened.read(), ROWS)
    assert opened.history().select("version", "operation").rows() in ([(0, None)], [(0, "7")])
    qbeast.write_table(ROWS.with_columns(pl.col(ROW) + 200), table, mode="append")
    assert qbeast.open_table(table).check().faults.is_empty()
