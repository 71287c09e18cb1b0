from __future__ import annotations

import json

import polars as pl
import pytest

from qbeast_core.plan.decode_tags import build_block_table
from qbeast_core.spec.revision import staging_revision
from tests.plan.small import LEAF, SCHEMA, block, file, files_frame, revision, table

ALL = (-(2**31), LEAF)


def test_both_dialects_and_layouts_mix() -> None:
    jvm = json.dumps([{"cubeId": "g", "minWeight": 1, "maxWeight": 2, "elementCount": 3}])
    actual = table(
        file(block("w", 4, (-5, 7))),
        file(num_records=3, blocks=jvm),
        {
            "num_records": 9,
            "revision": 1,
            "state": "FLOODED",
            "cube": "Q",
            "min_weight": -3,
            "max_weight": 0,
            "element_count": 9,
        },
        {"num_records": 6},
    )
    assert actual.corrupt == ()
    assert actual.file.tolist() == [0, 1, 2, 3]
    assert actual.min_weight.tolist() == [-5, 1, -3, -(2**31)]
    assert actual.max_weight.tolist() == [7, 2, LEAF, LEAF]  # the old layout's is no upper bound
    assert [space.blocks.tolist() for space in actual.spaces] == [[0, 1], [2]]
    assert [space.foreign for space in actual.spaces] == [False, True]


def test_last_cube_includes_end_of_space() -> None:
    (space,) = table(file(block("w"), block("g"))).spaces
    assert space.lower[1].tolist() == [0.5, 0.0]
    assert space.upper[1].tolist() == [float("inf"), 0.5]


@pytest.mark.parametrize(
    "text",
    [
        "oops",
        "{}",
        "[1]",
        '[{"cube":"w"}]',
        '[{"cube":"w","minWeight":1,"maxWeight":4294967296,"elementCount":10}]',
        '[{"cube":"w","minWeight":1,"maxWeight":2,"elementCount":-1}]',
        '[{"cube":"!","minWeight":1,"maxWeight":2,"elementCount":10}]',
        '[{"cube":"w","minWeight":1,"maxWeight":2,"elementCount":9}]',
        "[]",
    ],
)
def test_corrupt_tag_disables_pruning_of_one_file(text: str) -> None:
    actual = table(
        file(block("w", 10, (1, 2))), file(num_records=10, blocks=text), file(block("g", 10, (3, 4)))
    )
    assert actual.corrupt == ("f1",)
    middle = actual.file == 1
    assert (actual.min_weight[middle] == ALL[0]).all()
    assert (actual.max_weight[middle] == ALL[1]).all()
    assert actual.min_weight[~middle].tolist() == [1, 3]
    assert not any((actual.file[space.blocks] == 1).any() for space in actual.spaces)


def test_trailing_comma_is_accepted() -> None:
    text = '[{"cube":"w","minWeight":1,"maxWeight":2,"elementCount":10},]'
    actual = table(file(num_records=10, blocks=text), file(block("g", 10, (3, 4)), block("", 1, (0, 0))))
    assert actual.corrupt == ()
    assert actual.min_weight.tolist() == [1, 3, 0]


def test_files_of_unknown_revision_are_staging() -> None:
    files = files_frame([file(block("w", 10, (1, 2)), revision=number) for number in (1, 2, 3, 4)])
    staging = staging_revision(["x", "s"], timestamp_ms=0, table_id="t", cube_size=10).with_id(4)
    revisions = {1: revision(), 2: revision(revision_id=2, x_type="IntegerDataType"), 4: staging}
    actual = build_block_table(files, revisions, SCHEMA)
    assert actual.corrupt == ()
    assert actual.min_weight.tolist() == [1, ALL[0], ALL[0], ALL[0]]
    assert [space.blocks.tolist() for space in actual.spaces] == [[0]]


def test_corrupt_file_does_not_affect_others() -> None:
    files = [file(block("w", 10, (number, LEAF))) for number in range(6_000)]
    files[4_000]["blocks"] = "oops"
    actual = table(*files)
    assert actual.corrupt == ("f4000",)
    assert len(actual) == 6_000
    assert (actual.min_weight == [number if number != 4_000 else ALL[0] for number in range(6_000)]).all()


def test_no_files_make_an_empty_table() -> None:
    actual = build_block_table(files_frame([]), {1: revision()}, SCHEMA)
    assert len(actual) == 0
    assert isinstance(actual.files, pl.DataFrame)
