"""Index tags of data files, as columns: from the lines of commits and from the frames of checkpoints.

Which files are live is not decided here. A path's newest add gives its tags; joined to the live files by
another reader, a fault here can cost pruning but no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
import polars as pl

from qbeast_core.spec.block import MOST_ROWS

__all__ = ["TAG_COLUMNS", "join_tags", "newest_tags", "sidecar_names", "tags_of_checkpoint", "tags_of_lines"]

# Column -> tag key (format 7 and, from `state` on, 11).
_TAGS: Final[Mapping[str, str]] = {
    "revision": "revision",
    "blocks": "blocks",
    "layout": "qbeast.layout",
    "rules": "qbeast.rules",
    "keys": "qbeast.keys",
    "state": "state",
    "cube": "cube",
    "min_weight": "minWeight",
    "max_weight": "maxWeight",
    "element_count": "elementCount",
}
TAG_COLUMNS: Final = ("path", *_TAGS, "deletion_vector")
"""Columns of a frame of tags; `deletion_vector` is the descriptor as JSON text, null where there is none."""

_WEIGHT: Final = (-(2**31), 2**31 - 1)
_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "revision": (0, 2**62),
    "min_weight": _WEIGHT,
    "max_weight": _WEIGHT,
    "element_count": (0, MOST_ROWS),
}
_TEXTS: Final = pl.Schema(dict.fromkeys(TAG_COLUMNS, pl.String()))


def tags_of_lines(bodies: Iterable[bytes]) -> pl.DataFrame:
    r"""Return the tags of all adds in these commits, in order; one row per add.

    Parameters
    ----------
    bodies : iterable of bytes
        Commits, oldest first, or checkpoints of JSON lines.

    Examples
    --------
    >>> body = b'{"add":{"path":"a.parquet","tags":{"revision":"1","cube":"w"}}}\n'
    >>> tags_of_lines([body]).select("path", "revision", "cube").rows()
    [('a.parquet', 1, 'w')]
    """
    columns: dict[str, list[str | None]] = {name: [] for name in TAG_COLUMNS}
    keys = [(columns[name], key) for name, key in _TAGS.items()]
    for body in bodies:
        for line in body.splitlines():
            # Most of the time goes into JSON: a line that cannot be an add is not parsed.
            add = orjson.loads(line).get("add") if b'"add"' in line else None
            if add is None:
                continue
            columns["path"].append(add["path"])
            tags: Mapping[str, Any] = add.get("tags") or {}
            for column, key in keys:
                column.append(tags.get(key))
            vector = add.get("deletionVector")
            columns["deletion_vector"].append(orjson.dumps(vector).decode() if vector else None)
    return _typed(pl.DataFrame(columns, schema=_TEXTS, strict=False))


def tags_of_checkpoint(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the tags of all adds in a checkpoint, part or sidecar.

    Parameters
    ----------
    frame : pl.DataFrame
        Its rows, with the column ``add`` (a struct, null where the row is another action); without that
        column the checkpoint holds no file.
    """
    if "add" not in frame.columns:
        return _typed(pl.DataFrame(schema=_TEXTS))
    adds = frame.select(pl.col("add").struct.unnest()).filter(pl.col("path").is_not_null())
    no_text = pl.lit(None, pl.String)
    tagged = isinstance(adds.schema.get("tags"), pl.Map)
    texts = [(pl.col("tags").map.get(key) if tagged else no_text).alias(name) for name, key in _TAGS.items()]
    vector = no_text
    if "deletionVector" in adds.columns:
        held = pl.col("deletionVector")
        vector = pl.when(held.struct.field("storageType").is_not_null()).then(held.struct.json_encode())
    return _typed(adds.select("path", *texts, vector.alias("deletion_vector")))


def sidecar_names(frame: pl.DataFrame) -> list[str]:
    """Return the paths of a checkpoint's sidecars as its ``sidecar`` column holds them; none without it."""
    if "sidecar" not in frame.columns:
        return []
    return frame["sidecar"].struct.field("path").drop_nulls().to_list()


def newest_tags(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return one row per path out of frames of tags, oldest first: the last add of a path wins."""
    return pl.concat(frames).unique("path", keep="last")


def join_tags(live: pl.DataFrame, tags: pl.DataFrame) -> pl.DataFrame:
    """Return the live files with their tags; nulls where a file has none, or none that can be used.

    Parameters
    ----------
    live : pl.DataFrame
        One row per live file, with the columns `path` as the log spells it and `num_records`.
    tags : pl.DataFrame
        `TAG_COLUMNS`, one row per path.

    Returns
    -------
    pl.DataFrame
        With `has_deletion_vector` and `miscounted`: whether the statistics tell of a number of rows that no file
        has; `num_records` is null there.
    """
    joined = live.join(tags, on="path", how="left", maintain_order="left")
    possible = pl.col("num_records").is_between(0, MOST_ROWS)
    return joined.with_columns(
        pl.when(possible).then("num_records"),
        has_deletion_vector=pl.col("deletion_vector").is_not_null(),
        miscounted=(~possible).fill_null(value=False),
    )


def _typed(texts: pl.DataFrame) -> pl.DataFrame:
    numbers = {name: pl.col(name).cast(pl.Int64, strict=False) for name in _BOUNDS}
    return texts.with_columns(
        pl.when(number.is_between(*_BOUNDS[name])).then(number) for name, number in numbers.items()
    )
