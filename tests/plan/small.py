"""Small tables written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from qbeast_core.log.replay import with_blocks
from qbeast_core.plan.blocks import BlockTable
from qbeast_core.plan.decode_tags import build_block_table
from qbeast_core.spec.revision import (
    HashTransformation,
    HashTransformer,
    LinearTransformation,
    LinearTransformer,
    Revision,
)
from tests.helpers.damage import packed

SCHEMA = pl.Schema({"x": pl.Int64, "s": pl.String})
LEAF = 2**31 - 1
_TEXTS = dict.fromkeys(("path", "blocks", "layout", "rules", "state", "cube"), pl.String)
_COLUMNS = ("num_records", "size_bytes", "revision", "min_weight", "max_weight", "element_count")
_NUMBERS = dict.fromkeys(_COLUMNS, pl.Int64)


def revision(*, revision_id: int = 1, x_type: str = "LongDataType") -> Revision:
    """x from 0 to 100, linear, and s by its hash."""
    return Revision(
        revision_id=revision_id,
        timestamp_ms=0,
        table_id="t",
        desired_cube_size=10,
        column_transformers=(
            LinearTransformer(column_name="x", data_type=x_type),
            HashTransformer(column_name="s", data_type="StringDataType"),
        ),
        transformations=(
            LinearTransformation(min_number=0, max_number=100, null_value=50, ordered_data_type=x_type),
            HashTransformation(null_value=1),
        ),
    )


def block(
    cube: str, rows: int = 10, weights: tuple[int, int] = (-(2**31), LEAF), **more: Any
) -> dict[str, Any]:
    return {"cube": cube, "minWeight": weights[0], "maxWeight": weights[1], "elementCount": rows, **more}


def file(*blocks: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A file of ours with these blocks; `more` replaces its tags."""
    rows = sum(item["elementCount"] for item in blocks)
    return {"num_records": rows, "revision": 1, "rules": "1", "blocks": json.dumps(blocks), **more}


def layout(
    bands: Sequence[tuple[int, int, int]], steps: Sequence[Sequence[tuple[int, int]]] = (), /, **more: Any
) -> str:
    """Layout of bands of rows, rows per page and first weight. `more` replaces its fields.

    `steps` has the first and the last step of each page along each dimension, in 1 / 256 of the space.
    """
    pages = sum(-(-rows // page_rows) for rows, page_rows, _ in bands)
    bounds = np.array(steps or [[(0, 255)] * pages] * 2, np.uint8).swapaxes(1, 2)
    fields = {"v": 3, "tail": 100, "directory": 50, "bands": bands, "box": [[0, 1 << 24]] * len(bounds)}
    return json.dumps({**fields, "p": packed(bounds.tobytes()), **more})


def files_frame(files: Sequence[Mapping[str, Any]], schema: pl.Schema = SCHEMA) -> pl.DataFrame:
    bounds = pl.Struct(dict(schema))
    structs = {"min": bounds, "max": bounds, "null_count": pl.Struct(dict.fromkeys(schema, pl.Int64))}
    rows = [{"path": f"f{number}", "size_bytes": 1 << 20, **item} for number, item in enumerate(files)]
    frame = pl.DataFrame(rows, schema={**_TEXTS, **_NUMBERS, **structs, "miscounted": pl.Boolean()})
    return with_blocks(frame.with_columns(pl.col("miscounted").fill_null(value=False)))


def table(*files: Mapping[str, Any], schema: pl.Schema = SCHEMA) -> BlockTable:
    return build_block_table(files_frame(files, schema), {1: revision()}, schema)
