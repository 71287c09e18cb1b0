from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from qbeast_core.plan.decode_tags import build_block_table
from qbeast_core.spec.revision import staging_revision
from tests.helpers.examples import examples
from tests.helpers.odd_log import ODD
from tests.helpers.small_files import resized
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


@st.composite
def tagged(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a file with some blocks; half of the files are as we write them."""
    cubes = st.sampled_from(["", "g", "w", "gw", "Q"])
    weights = st.tuples(st.integers(-9, 0), st.sampled_from([0, 5, LEAF]))
    blocks = [
        block(draw(cubes), draw(st.integers(0, 9)), draw(weights)) for _ in range(draw(st.integers(1, 4)))
    ]
    for each in blocks[1:]:
        each["replicated"] = draw(st.booleans())
    whole = file(*blocks)
    odd = draw(
        st.sampled_from(
            [
                None,
                None,
                None,
                "key",
                "more",
                "cubeId",
                "both",
                "twice",
                "rows",
                "rules",
                "revision",
                "miscounted",
            ]
        )
    )
    match odd:
        case "key":
            blocks[0][draw(st.sampled_from([*blocks[0]]))] = draw(st.sampled_from([*ODD, "!", "gg"]))
        case "more":
            blocks[0]["more"] = draw(st.sampled_from(ODD))
        case "cubeId" | "both":
            blocks[-1]["cubeId"] = blocks[-1]["cube"] if odd == "both" else blocks[-1].pop("cube")
        case "rows" | "rules" | "revision":
            key = {"rows": "num_records"}.get(odd, odd)
            whole[key] = draw(
                st.sampled_from([None, "1" if odd == "rules" else 1, "2" if odd == "rules" else 2])
            )
        case "miscounted":
            whole["miscounted"] = True
        case _:
            pass
    text = json.dumps(blocks, separators=(",", ":"))
    return whole | {"blocks": text.replace("}", ',"minWeight":0}', 1) if odd == "twice" else text}


@examples(12, sweep=2000)
@given(files=st.lists(tagged(), max_size=4))
def test_few_blocks_are_decoded_as_many_are(files: list[dict[str, Any]]) -> None:
    frame = files_frame(files)
    few = build_block_table(frame, {1: revision()}, SCHEMA)
    with resized(few_tag_bytes=0):
        many = build_block_table(frame, {1: revision()}, SCHEMA)
    assert_frame_equal(few.blocks, many.blocks)
    assert_frame_equal(few.unusable, many.unusable)
    for name in ("contradicted", "corrupt_files", "ours"):
        assert getattr(few, name).tolist() == getattr(many, name).tolist(), name
    assert len(few.spaces) == len(many.spaces)
    for mine, theirs in zip(few.spaces, many.spaces, strict=True):
        assert (mine.revision, mine.foreign) == (theirs.revision, theirs.foreign)
        sides = zip(
            (mine.blocks, *mine.lower, *mine.upper),
            (theirs.blocks, *theirs.lower, *theirs.upper),
            strict=True,
        )
        assert all(np.array_equal(one, other) for one, other in sides)
