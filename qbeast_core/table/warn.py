"""The one warning of a write: equal index keys cluster the sample."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final

import polars as pl

from qbeast_core.errors import DesignEffectWarning, InvalidColumnsError
from qbeast_core.tree.columns import data_type_of, frame_weights
from qbeast_core.tree.design_effect import CLUSTERED, design_effect

__all__ = ["clustered_message", "warn_if_clustered"]

_TRIED: Final = 3
_CALLER: Final = 4  # of write_table: past this module, write.py and api.py


def clustered_message(effect: float, indexed: Sequence[str], cure: tuple[str, float] | None) -> str:
    """Return what a design effect means and what helps: a column, and the design effect with it."""
    column = f": with {cure[0]!r} the design effect would be {cure[1]:.2f}" if cure else ""
    return (
        f"rows with equal values of {list(indexed)} live or die together in a sample, and here they are many: the "
        f"design effect is {effect:.2f}, a sampled count varies {effect**0.5:.1f} times as much as it could. The "
        f"rows are written and complete. Add a column of many values to `columns` of a new table{column}."
    )


def warn_if_clustered(
    frame: pl.DataFrame, indexed: Sequence[str], effect: float, *, known: float | None
) -> None:
    """Warn when the design effect of a write exceeds 2, once in the life of a table.

    Parameters
    ----------
    frame : polars.DataFrame
        The rows written; among its other columns the cure is looked for.
    indexed : sequence of str
        The indexed columns.
    effect : float
        The design effect, at least 1.0.
    known : float or None
        That of the table before; above 2 it has been said already.
    """
    if effect > CLUSTERED and (known is None or known <= CLUSTERED):
        message = clustered_message(effect, indexed, _cure(frame, indexed))
        warnings.warn(message, DesignEffectWarning, stacklevel=_CALLER)


def _cure(frame: pl.DataFrame, indexed: Sequence[str]) -> tuple[str, float] | None:
    """Return the other column that helps most, and the design effect with it."""
    others = [name for name in frame.columns if name not in indexed and _indexable(name, frame.schema[name])]
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
