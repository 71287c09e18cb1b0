from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from qbeast_core.query.newer_tags import DecodedTags, decode_newer
from qbeast_core.query.tags import decode_tags
from tests.helpers.examples import examples
from tests.query.small import block, file, files_frame

TAGS = st.sampled_from(
    [
        file(block("w", 4, (-5, 7))),
        file(block("w", 2, (1, 7)), block("g", 3, (8, 9))),
        file(num_records=1, blocks="oops"),
        file(num_records=1, blocks="[]"),
        {
            "num_records": 9,
            "state": "FLOODED",
            "cube": "Q",
            "min_weight": -3,
            "max_weight": 0,
            "element_count": 9,
        },
        {"num_records": 6},
    ]
)
VERSIONS = st.dictionaries(st.sampled_from("abcdef"), TAGS)


@examples(60, slow=1000)
@given(before=VERSIONS, after=VERSIONS)
def test_what_is_known_of_another_version_changes_nothing(
    before: dict[str, dict[str, object]], after: dict[str, dict[str, object]]
) -> None:
    first, second = files_of(before), files_of(after)
    known = DecodedTags(first.select("path", "blocks"), *decode_tags(first))
    found = decode_newer(second, known)
    blocks, corrupt = decode_tags(second)
    assert_frame_equal(found.blocks, blocks)
    assert found.corrupt == corrupt
    assert_frame_equal(found.files, second.select("path", "blocks"))


def files_of(version: dict[str, dict[str, object]]) -> pl.DataFrame:
    frame = files_frame(list(version.values()))
    return frame.with_columns(path=pl.Series(list(version), dtype=pl.String))
