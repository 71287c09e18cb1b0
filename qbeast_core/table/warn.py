"""The one warning of a write: equal index keys cluster the sample."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import polars as pl

from qbeast_core.errors import DesignEffectWarning, InvalidColumnsError
from qbeast_core.tree.columns import data_type_of
from qbeast_core.tree.design_effect import CLUSTERED

__all__ = ["clustered_message", "warn_if_clustered"]

_SAMPLE_ROWS = 10_000


def clustered_message(effect: float, indexed: Sequence[str], cure: str | None) -> str:
    """Return what a design effect means and what helps."""
    column = f", for example {cure!r}," if cure else ""
    return (
        f"rows with equal values of {list(indexed)} live or die together in a sample, and here they are many: the "
        f"design effect is {effect:.1f}, so a sampled count varies {effect**0.5:.1f} times as much as it should. "
        f"The rows are written and complete. Add a column of many values{column} to `columns` of a new table."
    )


def warn_if_clustered(frame: pl.DataFrame, indexed: Sequence[str], effect: float) -> None:
    """Warn once when the design effect of a write exceeds 2.

    Parameters
    ----------
    frame : polars.DataFrame
        The rows written; among its other columns the cure is looked for.
    indexed : sequence of str
        The indexed columns.
    effect : float
        The design effect, at least 1.0.
    """
    if effect <= CLUSTERED:
        return
    message = clustered_message(effect, indexed, _cure(frame, indexed))
    warnings.warn(message, DesignEffectWarning, stacklevel=5)


def _cure(frame: pl.DataFrame, indexed: Sequence[str]) -> str | None:
    """Return the column with the most values in a few rows, if there is one to choose."""
    others = [name for name in frame.columns if name not in indexed and _indexable(name, frame.schema[name])]
    few = frame.head(_SAMPLE_ROWS)
    counts = {name: few[name].n_unique() for name in others}
    best = max(counts, key=counts.__getitem__, default=None)
    return best if best is not None and counts[best] * 2 > few.height else None


def _indexable(name: str, dtype: pl.DataType) -> bool:
    try:
        data_type_of(name, dtype)
    except InvalidColumnsError:
        return False
    return True
