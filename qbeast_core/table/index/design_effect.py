"""Design effect of the rows of some files, from the key sketches in their tags."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Final

import polars as pl

from qbeast_core.errors import DesignEffectWarning, InvalidColumnsError
from qbeast_core.log.actions import AddFile
from qbeast_core.spec.revision import Revision
from qbeast_core.support.runtime import caller_stacklevel
from qbeast_core.table.index.key_counts import KeyCounts, count_keys
from qbeast_core.tree.keys.key_sketch import CLUSTERED, KeySketch, KeyTotal, design_effect
from qbeast_core.tree.keys.key_tag import KEYS_TAG, parse_keys
from qbeast_core.tree.space.index_values import data_type_of, frame_weights

_TRIED: Final = 3

# Fewer rows are examples, of which nobody takes a sample.
_MIN_ROWS: Final = 1_000


def keys_of_write(adds: Iterable[AddFile], design_effect: float | None = None) -> KeySketch:
    """Return how often index keys repeat in the files of one write."""
    total = KeyTotal()
    for add in adds:
        sketch = parse_keys((add.tags or {}).get(KEYS_TAG))
        if sketch is not None:
            total.add(sketch)
    return total.joined(None if design_effect is None else design_effect * total.rows)


def with_write(others: KeyCounts | None, keys: KeySketch) -> tuple[float, KeyCounts]:
    """Return the lower bound of the design effect before a write, and the counts of the table with the write."""
    counts = KeyCounts() if others is None else others.copy()
    before = counts.lower_bound
    counts.total.add(keys)
    return before, counts


def warn_if_clustered(
    effects: tuple[float, float],
    revision: Revision | None,
    frame: pl.DataFrame | None = None,
    *,
    own_effect: float = 1.0,
) -> None:
    """Warn if a write brings the design effect of its table above 2. Later writes do not warn again."""
    before, effect = effects
    if revision is None or before > CLUSTERED or effect <= CLUSTERED:
        return
    if revision.sample_by:  # whole keys are requested
        return
    indexed = revision.columns
    cure = _cure(frame, indexed) if frame is not None and own_effect > CLUSTERED else None
    warnings.warn(
        _clustered_message(effect, indexed, cure), DesignEffectWarning, stacklevel=caller_stacklevel()
    )


def warn_if_one_key(revision: Revision, rows: int, own_effect: float) -> None:
    """Warn if one value of the sampling key of a new table has most of the rows."""
    if not revision.sample_by or rows < _MIN_ROWS or 2 * own_effect < rows:
        return
    message = (
        f"one value of the sampling key {list(revision.sample_by)} has most of the rows: a sample holds either these "
        "rows or few others, and estimates read all rows. The rows are written and complete. To sample by columns of "
        'many values, write them again (mode="overwrite", sample_by=[...]); sample_by=[] removes the key.'
    )
    warnings.warn(message, DesignEffectWarning, stacklevel=caller_stacklevel())


def warn_if_growing(before: pl.DataFrame, after: pl.DataFrame, revision: Revision | None) -> None:
    """Warn if a change brings the lower bound of the design effect of its table above 2."""
    effect = count_keys(after).lower_bound
    if effect > CLUSTERED:  # count the files before the change only if needed: it takes time per file
        warn_if_clustered((count_keys(before).lower_bound, effect), revision)


def _clustered_message(effect: float, indexed: Sequence[str], cure: tuple[str, float] | None = None) -> str:
    """Return the text of the warning. `cure` is a column that helps, and the design effect with it."""
    column = f": with {cure[0]!r} the design effect of these rows would be {cure[1]:.2f}" if cure else ""
    return (
        f"rows with equal values of {list(indexed)} enter a sample together (cluster sampling); design effect "
        f"{effect:.2f}: a sampled count varies {effect**0.5:.1f} times as much as with independent rows. The rows are "
        f"written and complete. Index a column of many values as well, with Table.reindex(columns=[...]){column}."
    )


def _cure(frame: pl.DataFrame, indexed: Sequence[str]) -> tuple[str, float] | None:
    """Return the column that reduces the design effect most, in the syntax of ``columns=``, and the effect with it."""
    others = [name for name, dtype in frame.schema.items() if name not in indexed and _indexable(name, dtype)]
    if not others:
        return None
    counts = frame.select(pl.col(others).approx_n_unique()).row(0, named=True)
    likely = sorted(others, key=counts.__getitem__, reverse=True)[:_TRIED]
    effects = {name: design_effect(frame_weights(frame, [*indexed, name])) for name in likely}
    best = min(effects, key=effects.__getitem__)
    # Suggest a hash for texts: quantiles would put values, perhaps names of people, into the metadata.
    return f"{best}:hash" if frame.schema[best] == pl.String else best, effects[best]


def _indexable(name: str, dtype: pl.DataType) -> bool:
    try:
        data_type_of(name, dtype)
    except InvalidColumnsError:
        return False
    return True
