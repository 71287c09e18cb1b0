"""The one warning of a write: equal index keys cluster the sample."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final

import polars as pl

from qbeast_core.errors import DesignEffectWarning, InvalidColumnsError
from qbeast_core.table.callers import caller_stacklevel
from qbeast_core.tree.columns import data_type_of, frame_weights
from qbeast_core.tree.design_effect import CLUSTERED, design_effect

__all__ = ["clustered_message", "warn_if_clustered"]

_TRIED: Final = 3


def clustered_message(effect: float, indexed: Sequence[str], cure: tuple[str, float] | None = None) -> str:
    """Return what a design effect means and what helps: a column, and the design effect with it."""
    column = f": with {cure[0]!r} the design effect of these rows would be {cure[1]:.2f}" if cure else ""
    return (
        f"rows with equal values of {list(indexed)} enter a sample together (cluster sampling); design effect "
        f"{effect:.2f}: a sampled count varies {effect**0.5:.1f} times as much as with independent rows. The rows are "
        f"written and complete. Add a column of many values to `columns` of a new table{column}."
    )


def warn_if_clustered(
    effects: tuple[float, float],
    indexed: Sequence[str],
    frame: pl.DataFrame | None = None,
    *,
    own_effect: float = 1.0,
) -> None:
    """Warn when a write brings the design effect of its table above 2; writes after it are silent.

    Parameters
    ----------
    effects : tuple of two floats
        The least that the design effect of the table can be, without the rows written and with them.
    indexed : sequence of str
        The indexed columns.
    frame : polars.DataFrame, optional
        The rows written; among its other columns the cure is looked for, if the rows alone are clustered.
    own_effect : float
        The design effect of these rows alone.
    """
    before, effect = effects
    if before > CLUSTERED or effect <= CLUSTERED:
        return
    cure = _cure(frame, indexed) if frame is not None and own_effect > CLUSTERED else None
    warnings.warn(
        clustered_message(effect, indexed, cure), DesignEffectWarning, stacklevel=caller_stacklevel()
    )


def _cure(frame: pl.DataFrame, indexed: Sequence[str]) -> tuple[str, float] | None:
    """Return the other column that helps most, and the design effect with it."""
    others = [name for name, dtype in frame.schema.items() if name not in indexed and _indexable(name, dtype)]
    if not others:
        return None
    counts = frame.select(pl.col(others).approx_n_unique()).row(0, named=True)
    likely = sorted(others, key=counts.__getitem__, reverse=True)[:_TRIED]
    effects = {name: design_effect(frame_weights(frame, [*indexed, name])) for name in likely}
    best = min(effects, key=effects.__getitem__)
    return best, effects[best]


def _indexable(name: str, dtype: pl.DataType) -> bool:
    try:
        data_type_of(name, dtype)
    except InvalidColumnsError:
        return False
    return True
