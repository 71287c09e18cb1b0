"""Ways to damage a table that a check finds, with the codes of the faults."""

from __future__ import annotations

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
    "a threshold below the weights": (d.block(maxWeight=-(2**31)), {"min-weight", "layout"}),
    "other statistics": (d.stats(lambda stats: stats.update(numRecords=1)), {"blocks-count"}),
    "no count of rows": (d.stats(lambda stats: stats.pop("numRecords")), {"stats-missing"}),
    "a longer file": (d.size(5), {"file-size"}),
    "no file": (d.deleted, {"file-missing"}),
    "half a file": (d.truncated, {"file-size"}),
    "a layout of no JSON": (d.tags(layout="{"), {"layout-unreadable"}),
    "a layout of a page more": (
        d.layout(lambda layout: layout.update(w="AAAA" * 4 + layout["w"])),
        {"layout"},
    ),
    "a layout of other pages": (d.other_page_rows, {"layout"}),
    "a layout with a huge tail": (d.layout(lambda layout: layout.update(tail=10**9)), {"layout"}),
    "another first weight": (d.shift_page(0, 1), {"layout"}),
}
"""Faults in the log; at least one of the codes must be reported."""
DATA_FAULTS: dict[str, tuple[d.Damage, set[str]]] = {
    "a row in another's place": (d.rewritten(d.swap_ends), {"row-weight", "row-order", "row-cube"}),
    "rows in no order": (d.rewritten(d.reverse), {"row-order", "row-weight", "row-cube"}),
    "another hidden weight": (d.rewritten(d.other_hidden_weight), {"hidden-weight"}),
    "a row lost": (d.rewritten(d.lose_a_row), {"rows-count"}),
    "a row doubled": (d.rewritten(d.double_a_row), {"rows-count"}),
    "no Parquet file": (d.no_parquet, {"file-unreadable"}),
    "a damaged page directory": (d.damaged_tail, {"pages"}),
    "a smaller least weight": (d.shift_block(minWeight=-1), {"min-weight", "layout", "weight-order"}),
    "a larger least weight": (d.shift_block(minWeight=1), {"row-weight", "layout"}),
    "a least value too large": (
        d.stats(lambda stats: stats["minValues"].update(a=stats["maxValues"]["a"])),
        {"stats-bounds"},
    ),
    "a largest value too small": (
        d.stats(lambda stats: stats["maxValues"].update(s=stats["minValues"]["s"])),
        {"stats-bounds"},
    ),
    "another first weight of a later page": (d.shift_page(1, -1), {"layout"}),
    "other nulls": (d.stats(lambda stats: stats["nullCount"].update(b=7)), {"stats-nulls"}),
    "a tail of other length": (d.layout(lambda layout: layout.update(tail=layout["tail"] - 1)), {"pages"}),
}
"""Faults in the data files."""
ORDER = {"weight-order", "threshold-order", "leaf-threshold"}
"""Faults between blocks of several files."""
