"""Block tags of a version of a table, decoded on top of those of another one: files do not change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from qbeast_core.query.tags import decode_tags


@dataclass(frozen=True, slots=True, eq=False)
class DecodedTags:
    """What the tags of some files say."""

    files: pl.DataFrame
    blocks: pl.DataFrame
    # Files whose tag cannot be read.
    corrupt: list[int]

    @property
    def size_bytes(self) -> int:
        """What they take in memory."""
        return int(self.files.estimated_size() + self.blocks.estimated_size())


def decode_newer(files: pl.DataFrame, known: DecodedTags) -> DecodedTags:
    """Decode the index tags of a snapshot's files; of those that are known already nothing is decoded again.

    >>> text = '[{"cube":"","minWeight":-9,"maxWeight":9,"elementCount":3}]'
    >>> none = dict.fromkeys(["cube", "state", "min_weight", "max_weight", "element_count"])
    >>> files = pl.DataFrame([{"path": path, "blocks": text, **none} for path in "ab"])
    >>> first = DecodedTags(files[1:].select("path", "blocks"), *decode_tags(files[1:]))
    >>> decode_newer(files, first).blocks["file"].to_list()
    [0, 1]
    """
    said = files.select("path", "blocks")
    numbered = known.files.with_row_index("known").with_columns(pl.col("known").cast(pl.Int64))
    # A tag may be written anew; a file without, perhaps of the layout before 0.6.0, is looked at again.
    found = said.join(numbered, on=["path", "blocks"], how="left", maintain_order="left")["known"]
    before = found.fill_null(-1).to_numpy()
    fresh = np.flatnonzero(before < 0)
    now = np.full(known.files.height + 1, -1, np.int64)  # the last one is nobody's
    now[before] = np.arange(files.height)
    now[-1] = -1
    blocks, corrupt = decode_tags(files[fresh])
    parts = [_renumbered(known.blocks, now), _renumbered(blocks, fresh)]
    numbers = [*now[known.corrupt].tolist(), *fresh[corrupt].tolist()]
    return DecodedTags(
        said,
        pl.concat(parts).sort("file", maintain_order=True),
        sorted(number for number in numbers if number >= 0),
    )


def _renumbered(blocks: pl.DataFrame, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pl.DataFrame:
    """Return blocks under other numbers of their files, without those of files that have none."""
    file = numbers[blocks["file"].to_numpy()]
    return blocks.with_columns(pl.Series("file", file, dtype=pl.Int64)).filter(pl.Series(file >= 0))
