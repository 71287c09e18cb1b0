"""Ways to damage a table that a check finds, with the codes of the faults."""

from __future__ import annotations

from dataclasses import replace

from tests.helpers import damage as d

INDEXED = ["a", "b", "s"]
LOG_FAULTS: dict[str, tuple[d.Damage, set[str]]] = {
    "no JSON": (d.tags(blocks='[{"cube":'), {"tags-unreadable"}),
    "no blocks": (d.tags(blocks="[]"), {"tags-incomplete"}),
    "no blocks tag": (d.tags(blocks=None), {"tags-incomplete"}),
    "no revision": (d.tags(revision=None), {"tags-incomplete"}),
    "a revision in words": (d.tags(revision="first"), {"tags-incomplete"}),
    "a revision of nobody": (d.tags(revision="99"), {"revision-unknown"}),
    "the staging revision": (d.tags(revision="0"), {"revision-types"}),
    "a cube that is none": (d.block(cube="!!"), {"cube-unreadable", "tags-spelling"}),
    "a cube beyond three dimensions": (d.block(cube="B"), {"cube-unreadable"}),
    "no key": (d.blocks(lambda blocks: blocks[0].pop("elementCount")), {"tags-unreadable", "tags-spelling"}),
    "a key more": (d.block(extra=1), {"tags-spelling"}),
    "the other spelling": (
        d.blocks(lambda blocks: blocks[0].update(cubeId=blocks[0].pop("cube"))),
        {"tags-spelling"},
    ),
    "a row too many": (d.shift_block(elementCount=1), {"blocks-count"}),
    "a block too few": (d.blocks(lambda blocks: blocks.pop()), {"blocks-count"}),
    "an empty block": (
        d.blocks(lambda blocks: blocks.append(blocks[-1] | {"elementCount": 0})),
        {"blocks-count"},
    ),
    "a threshold below the weights": (d.block(maxWeight=-(2**31)), {"min-weight"}),
    "other statistics": (d.stats(lambda stats: stats.update(numRecords=1)), {"blocks-count"}),
    "no count of rows": (d.stats(lambda stats: stats.pop("numRecords")), {"stats-missing"}),
    "a longer file": (d.size(5), {"file-size"}),
    "no file": (d.deleted, {"file-missing"}),
    "half a file": (d.truncated, {"file-size"}),
    "a layout of no JSON": (d.tags(layout="{"), {"layout-unreadable"}),
    "a layout of a box less": (d.layout(lambda layout: layout["box"].pop()), {"layout"}),
    "a layout of other bounds": (
        d.layout(lambda layout: layout.update(p=d.packed(bytes(7)))),
        {"layout"},
    ),
    "a layout of other pages": (d.shift_band(-1, page_rows=10**6), {"layout"}),
    "a layout of more rows": (d.shift_band(0, rows=1), {"layout"}),
    "a layout with a directory behind the end": (
        d.layout(lambda layout: layout.update(directory=layout["tail"] + 1)),
        {"layout"},
    ),
    "a layout with a huge tail": (d.layout(lambda layout: layout.update(tail=10**9)), {"layout"}),
    "another first weight": (d.shift_band(0, weight=1), {"layout"}),
    "bands that do not rise": (
        d.layout(lambda layout: layout["bands"].append([*layout["bands"].pop()[:2], layout["bands"][0][2]])),
        {"layout"},
    ),
}
"""Faults in the log; at least one of the codes must be reported."""
DATA_FAULTS: dict[str, tuple[d.Damage, set[str]]] = {
    "a row in another's place": (d.rewritten(d.swap_ends), {"layout"}),
    "rows in no order": (d.rewritten(d.reverse), {"layout"}),
    "another hidden weight": (d.rewritten(d.other_hidden_weight), {"hidden-weight"}),
    "a row lost": (d.rewritten(d.lose_a_row), {"rows-count"}),
    "a row doubled": (d.rewritten(d.double_a_row), {"rows-count"}),
    "no Parquet file": (d.no_parquet, {"file-unreadable"}),
    "a damaged page directory": (d.damaged_tail, {"pages"}),
    "a smaller least weight": (d.shift_block(1, minWeight=-1), {"min-weight", "weight-order"}),
    "a larger least weight": (d.shift_block(1, minWeight=1), {"row-weight"}),
    "a row counted in another block": (d.move_rows(0, 1), {"block-rows"}),
    "a block of another's cube": (
        d.blocks(lambda blocks: blocks[-1].update(cube=blocks[-2]["cube"])),
        {"row-cube", "row-weight"},
    ),
    "a least value too large": (
        d.stats(lambda stats: stats["minValues"].update(a=stats["maxValues"]["a"])),
        {"stats-bounds"},
    ),
    "a largest value too small": (
        d.stats(lambda stats: stats["maxValues"].update(s=stats["minValues"]["s"])),
        {"stats-bounds"},
    ),
    "a later band from another weight on": (d.shift_band(-1, weight=1), {"layout"}),
    "a later band from a lower weight on": (d.shift_band(-1, weight=-1), {"layout"}),
    "boxes of other places": (d.shift_boxes(1), {"layout"}),
    "other nulls": (d.stats(lambda stats: stats["nullCount"].update(b=7)), {"stats-nulls"}),
    "a directory of other length": (
        d.layout(lambda layout: layout.update(directory=layout["directory"] - 1)),
        {"pages"},
    ),
    "a directory of other bytes": (d.changed(uncompressed_bytes=1), {"pages"}),
    "a directory of other places": (d.changed(dictionary_bytes=1), {"pages"}),
    "a directory of other pages": (d.other_directory(d.shifted_page), {"pages"}),
    "a directory of another version": (
        d.other_directory(lambda found: replace(found, version=found.version + 1)),
        {"pages"},
    ),
    "a directory of another codec": (
        d.other_directory(lambda found: replace(found, constants=(b"\x15\x02", *found.constants[1:]))),
        {"pages"},
    ),
    "a directory of other columns": (
        d.other_directory(
            lambda found: replace(
                found, schema=dict(zip(found.schema, reversed(found.schema.values()), strict=True))
            )
        ),
        {"pages"},
    ),
    "a tail of other length": (d.layout(lambda layout: layout.update(tail=layout["tail"] - 1)), {"pages"}),
}
"""Faults in the data files."""
ORDER = {"weight-order", "threshold-order", "leaf-threshold"}
"""Faults between blocks of several files."""
