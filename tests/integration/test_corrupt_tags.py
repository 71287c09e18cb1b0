"""Index tags that cannot be read cost pruning, with a warning; never a row."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.integration.tables import assert_same_rows, sampled, small_files
from tests.strategies import ROW

ROWS = pl.DataFrame({ROW: range(400)}).with_columns(
    a=pl.col(ROW) * 37 % 101, s=(pl.col(ROW) % 13).cast(pl.String)
)
INDEXED = [ROW, "a"]
READS = [
    (pl.col("a") < 10, None),
    ((pl.col("a") == 50) | (pl.col(ROW) > 390), (0.1, 0.7)),
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


def set_tag(key: str, text: str) -> Callable[[Tags], object]:
    return lambda tags: tags.update({key: text})


UNREADABLE = {
    "no text": set_tag("blocks", ""),
    "no JSON": set_tag("blocks", '[{"cube":'),
    "null": set_tag("blocks", "null"),
    "no list": set_tag("blocks", "{}"),
    "no blocks": set_tag("blocks", "[]"),
    "list of numbers": set_tag("blocks", "[1, 2]"),
    "binary": set_tag("blocks", "\0\ufffd\0"),
    "no cube": edit_blocks(lambda blocks: blocks[0].pop("cube")),
    "no count": edit_blocks(lambda blocks: blocks[0].pop("elementCount")),
    "no weight": edit_blocks(lambda blocks: blocks[0].pop("minWeight")),
    "negative count": in_first_block(elementCount=-3),
    "count in text": in_first_block(elementCount="many"),
    "fractional count": in_first_block(elementCount=1.5),
    "too few rows": in_first_block(elementCount=0),
    "a block is missing": edit_blocks(lambda blocks: blocks.pop()),
    "weight beyond 32 bits": in_first_block(maxWeight=2**31),
    "weight below 32 bits": in_first_block(minWeight=-(2**31) - 1),
    "weight beyond 64 bits": in_first_block(maxWeight=2**70),
    "weight in text": in_first_block(minWeight="low"),
    "no cube text": in_first_block(cube="!!"),
    "cube in numbers": in_first_block(cube=7),
    "cube outside two dimensions": in_first_block(cube="/"),
}
"""What makes a tag unreadable, and so a warning."""

USELESS = {
    "too many rows": in_first_block(elementCount=10**6),
    "a block too many": edit_blocks(lambda blocks: blocks.append(blocks[0])),
    "no tags": lambda tags: tags.clear(),
    "no revision": lambda tags: tags.pop("revision"),
    "unknown revision": set_tag("revision", "99"),
    "revision in words": set_tag("revision", "first"),
    "negative revision": set_tag("revision", "-1"),
    "no blocks tag": lambda tags: tags.pop("blocks"),
    "other rules": set_tag("qbeast.rules", "2"),
    "no layout": lambda tags: tags.pop("qbeast.layout"),
    "layout without text": set_tag("qbeast.layout", ""),
    "layout without JSON": set_tag("qbeast.layout", "{"),
    "layout of null": set_tag("qbeast.layout", "null"),
    "layout of a list": set_tag("qbeast.layout", "[1]"),
    "layout of tomorrow": edit_layout(v=2),
    "layout of no version": edit_layout(v=None),
    "no page rows": edit_layout(rows=0),
    "negative page rows": edit_layout(rows=-4),
    "huge page rows": edit_layout(rows=2**70),
    "half the page rows": edit_layout(rows=4),
    "twice the page rows": edit_layout(rows=16),
    "page rows in text": edit_layout(rows="8"),
    "no tail": edit_layout(tail=0),
    "negative tail": edit_layout(tail=-100),
    "short tail": edit_layout(tail=40),
    "long tail": edit_layout(tail=10**12),
    "no weights": edit_layout(w=""),
    "weights in words": edit_layout(w="?? no base64 ??"),
    "one weight": edit_layout(w="AAA="),
    "weights in numbers": edit_layout(w=[1, 2]),
    "layout of another file": lambda tags: tags.update(
        {"qbeast.layout": '{"v":1,"rows":2,"tail":700,"w":"AAA="}'}
    ),
}
"""What is of no use but no fault that has to be told, or told by others."""


def damage(table: Path, change: Callable[[Tags], object]) -> None:
    """Change the tags of one file in the log, as a careless writer would have written them."""
    commit = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    change([action for action in actions if "add" in action][1]["add"]["tags"])
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    with small_files(file_rows=100, page_rows=8):
        qbeast.write_table(ROWS, tmp_path / "t", columns=[ROW, "a"], cube_size=20)
    return tmp_path / "t"


def check_reads(table: Path, rows: pl.DataFrame) -> None:
    opened = qbeast.open_table(table)
    assert_same_rows(opened.scan().collect(), rows)
    for expr, sample in READS:
        wanted = sampled(rows, INDEXED, sample).filter(expr)
        assert_same_rows(opened.scan(sample=sample).filter(expr).collect(), wanted)
        plan = opened.explain(expr, sample)
        assert wanted.height <= plan.rows_opened
        assert plan.bytes_opened <= plan.bytes_total
    assert opened.blocks().height > 0


@pytest.mark.parametrize("fault", UNREADABLE)
def test_a_file_with_unreadable_blocks_is_read_whole_with_a_warning(table: Path, fault: str) -> None:
    damage(table, UNREADABLE[fault])
    opened = qbeast.open_table(table)
    with pytest.warns(qbeast.CorruptTagWarning, match="read whole"):
        plan = opened.explain(sample=1e-9)
    assert plan.files["opened"].sum() == 1
    assert plan.files.filter("opened")["ranges"].null_count() == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.CorruptTagWarning)
        check_reads(table, ROWS)
        qbeast.write_table(ROWS.with_columns(pl.col(ROW) + 400), table, mode="append")
        check_reads(table, pl.concat([ROWS, ROWS.with_columns(pl.col(ROW) + 400)]))


@pytest.mark.parametrize("fault", USELESS)
@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_useless_tags_cost_no_row(table: Path, fault: str) -> None:
    damage(table, USELESS[fault])
    check_reads(table, ROWS)
    qbeast.write_table(ROWS.with_columns(pl.col(ROW) + 400), table, mode="append")
    check_reads(table, pl.concat([ROWS, ROWS.with_columns(pl.col(ROW) + 400)]))
