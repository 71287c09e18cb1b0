"""Every way to spoil a table that a check finds, with the codes of the faults."""

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
    "no key": (d.blocks(lambda found: found[0].pop("elementCount")), {"tags-unreadable", "tags-spelling"}),
    "a key more": (d.block(extra=1), {"tags-spelling"}),
    "the other spelling": (
        d.blocks(lambda found: found[0].update(cubeId=found[0].pop("cube"))),
        {"tags-spelling"},
    ),
    "a row too many": (d.shift_block(elementCount=1), {"blocks-count"}),
    "a block too few": (d.blocks(lambda found: found.pop()), {"blocks-count"}),
    "an empty block": (
        d.blocks(lambda found: found.append(found[-1] | {"elementCount": 0})),
        {"blocks-count"},
    ),
    "a threshold below the weights": (d.block(maxWeight=-(2**31)), {"min-weight", "layout"}),
    "other statistics": (d.stats(lambda found: found.update(numRecords=1)), {"blocks-count"}),
    "no count of rows": (d.stats(lambda found: found.pop("numRecords")), {"stats-missing"}),
    "a longer file": (d.size(5), {"file-size"}),
    "no file": (d.deleted, {"file-missing"}),
    "half a file": (d.truncated, {"file-size"}),
    "a layout of no JSON": (d.tags(layout="{"), {"layout-unreadable"}),
    "a layout of a page more": (d.layout(lambda found: found.update(w="AAAA" * 4 + found["w"])), {"layout"}),
    "a layout of other pages": (d.layout(lambda found: found.update(rows=found["rows"] + 1)), {"layout"}),
    "a layout with a huge tail": (d.layout(lambda found: found.update(tail=10**9)), {"layout"}),
    "another first weight": (d.shift_page(0, 1), {"layout"}),
}
"""What the log alone tells, and the codes of which at least one must be among the faults."""
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
        d.stats(lambda found: found["minValues"].update(a=found["maxValues"]["a"])),
        {"stats-bounds"},
    ),
    "a largest value too small": (
        d.stats(lambda found: found["maxValues"].update(s=found["minValues"]["s"])),
        {"stats-bounds"},
    ),
    "another first weight of a later page": (d.shift_page(1, -1), {"layout"}),
    "other nulls": (d.stats(lambda found: found["nullCount"].update(b=7)), {"stats-nulls"}),
    "a tail of other length": (d.layout(lambda found: found.update(tail=found["tail"] - 1)), {"pages"}),
}
"""What the data tells."""
ORDER = {"weight-order", "threshold-order", "leaf-threshold"}
"""What holds between blocks of several files."""
